"""ResignController: v0, ours. The active controller hands its leadership over.

Behaviour:
    * Asked of the node that leads; elsewhere NOT_LEADER_OR_FOLLOWER.
    * An epoch that is not the one it leads: FENCED_LEADER_EPOCH; -1: whichever it is.
    * Answered at once; the voters with the longest logs are asked to stand for election.
    * A quorum of one voter has no successor: INVALID_REQUEST.
    * Served on controller listeners only: clients of a broker must not be able to use up epochs.
Versions: v0 only; not advertised.    Not done: -
"""

from typing import Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k10001_resign_controller import (
    ResignControllerRequest,
    ResignControllerResponse,
)
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_cluster
from sparkraft.server.api.registry import Api, RequestContext
from sparkraft.server.controller.audit import log_change


def handle(
    node: Any, context: RequestContext, request: ResignControllerRequest
) -> ResignControllerResponse:
    """Resign."""
    raft = node.raft
    if not raft.is_leader:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node does not lead the quorum")
    epoch = raft.leader_and_epoch.epoch
    if request.epoch not in {-1, epoch}:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"this node leads epoch {epoch}")
    if len(raft.voters.ids) == 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "there is no other voter to take over")
    raft.resign(epoch)
    response = ResignControllerResponse(error_message=None, epoch=epoch)
    log_change(context, request, response)
    return response


API = Api(
    key=ApiKey.RESIGN_CONTROLLER,
    handle=handle,
    authorize=(on_cluster(AclOperation.ALTER),),
    broker=False,
    controller=True,
)
