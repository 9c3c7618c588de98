"""UpdateRaftVoter: v0. A voter sends the leader its endpoints and features. (KIP-853)

Behaviour:
    * Under kraft.version 1 a new voter set is written; under 0 the leader only remembers it, which
      is how directory ids become known before an upgrade.
    * Another cluster: INCONSISTENT_CLUSTER_ID; a wrong epoch: FENCED_LEADER_EPOCH or
      UNKNOWN_LEADER_EPOCH; no such voter: VOTER_NOT_FOUND; a change under way: REQUEST_TIMED_OUT.
Versions: v0 only.    Not done: -
"""

from typing import Any

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k82_update_raft_voter import (
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)
from sparkraft.raft import events
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_cluster
from sparkraft.server.api.registry import Api, RequestContext
from sparkraft.server.raft import wire


async def handle(
    node: Any, context: RequestContext, request: UpdateRaftVoterRequest
) -> UpdateRaftVoterResponse:
    """Take it in."""
    answer = await node.raft.handle_request(wire.read_update_voter(request))
    assert isinstance(answer, events.QuorumEpochResponse)
    return wire.write_update_voter_response(answer, context.listener_name)


API = Api(
    key=ApiKey.UPDATE_RAFT_VOTER,
    handle=handle,
    authorize=(on_cluster(AclOperation.CLUSTER_ACTION),),
    broker=False,
    controller=True,
)
