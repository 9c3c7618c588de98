"""AddRaftVoter: v0-1. A controller joins the voters of the quorum. (KIP-853, KIP-1186)

Behaviour:
    * The new voter must have caught up and support the finalized kraft.version.
    * Answered when the new voter set is committed, or appended (v1, `ack_when_committed` false).
    * One change at a time: REQUEST_TIMED_OUT; known id: DUPLICATE_VOTER; kraft.version 0:
      UNSUPPORTED_VERSION; no directory id or endpoint: INVALID_REQUEST.
    * `timeout_ms` is not looked at: the quorum's request timeout holds, as in Kafka's leader.
Versions: v1 ack_when_committed.    Not done: -
"""

from typing import Any

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k80_add_raft_voter import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
)
from sparkraft.raft import events
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_cluster
from sparkraft.server.api.registry import Api, RequestContext
from sparkraft.server.controller.audit import log_change
from sparkraft.server.raft import wire


async def handle(
    node: Any, context: RequestContext, request: AddRaftVoterRequest
) -> AddRaftVoterResponse:
    """Ask the core to add it."""
    answer = await node.raft.handle_request(wire.read_add_voter(request))
    assert isinstance(answer, events.Refusal)
    response = AddRaftVoterResponse(error_code=answer.error, error_message=answer.detail or None)
    log_change(context, request, response)
    return response


API = Api(
    key=ApiKey.ADD_RAFT_VOTER,
    handle=handle,
    zookeeper=False,
    authorize=(on_cluster(AclOperation.ALTER),),
    controller=True,
    forward=True,
)
