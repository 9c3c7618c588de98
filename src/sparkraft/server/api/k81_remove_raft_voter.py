"""RemoveRaftVoter: v0. A controller leaves the voters of the quorum. (KIP-853)

Behaviour:
    * Answered when the new voter set is committed; a leader that removes itself resigns then.
    * One change at a time: REQUEST_TIMED_OUT; no such voter, or the last one: VOTER_NOT_FOUND;
      kraft.version 0: UNSUPPORTED_VERSION; no directory id: INVALID_REQUEST.
Versions: v0 only.    Not done: -
"""

from typing import Any

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k81_remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from sparkraft.raft import events
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_cluster
from sparkraft.server.api.registry import Api, RequestContext
from sparkraft.server.controller.audit import log_change
from sparkraft.server.raft import wire


async def handle(
    node: Any, context: RequestContext, request: RemoveRaftVoterRequest
) -> RemoveRaftVoterResponse:
    """Ask the core to remove it."""
    answer = await node.raft.handle_request(wire.read_remove_voter(request))
    assert isinstance(answer, events.Refusal)
    response = RemoveRaftVoterResponse(error_code=answer.error, error_message=answer.detail or None)
    log_change(context, request, response)
    return response


API = Api(
    key=ApiKey.REMOVE_RAFT_VOTER,
    handle=handle,
    zookeeper=False,
    authorize=(on_cluster(AclOperation.ALTER),),
    controller=True,
    forward=True,
)
