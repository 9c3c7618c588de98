"""BeginQuorumEpoch: v0-1. A new leader of the quorum makes itself known. (KIP-595, KIP-853)

Behaviour:
    * The receiver follows a leader of its epoch or a later one, durably.
    * An older epoch: FENCED_LEADER_EPOCH; another cluster: INCONSISTENT_CLUSTER_ID; another
      replica is meant: INVALID_VOTER_KEY; a second leader of one epoch: INVALID_REQUEST.
Versions: v1 flexible, directory ids, endpoints.    Not done: -
"""

from typing import Any

from sparkraft.base.errors import ErrorCode
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages import k53_begin_quorum_epoch as messages
from sparkraft.raft import events
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_cluster
from sparkraft.server.api.registry import Api, RequestContext
from sparkraft.server.raft import wire


async def handle(
    node: Any, context: RequestContext, request: messages.BeginQuorumEpochRequest
) -> messages.BeginQuorumEpochResponse:
    """Follow."""
    asked = wire.read_begin(request)
    if asked is None:
        return messages.BeginQuorumEpochResponse(error_code=ErrorCode.INVALID_REQUEST)
    response = await node.raft.handle_request(asked)
    assert isinstance(response, events.QuorumEpochResponse)
    return wire.write_begin_response(response, context.listener_name, context.api_version)


API = Api(
    key=ApiKey.BEGIN_QUORUM_EPOCH,
    handle=handle,
    authorize=(on_cluster(AclOperation.CLUSTER_ACTION),),
    broker=False,
    controller=True,
)
