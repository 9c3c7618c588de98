"""Vote: v0-2. A replica that would lead asks a voter for its vote. (KIP-595, KIP-853, KIP-996)

Behaviour:
    * Granted by epoch and log alone, whoever asks; at most one candidate an epoch, on disk first.
    * Another cluster: INCONSISTENT_CLUSTER_ID; another replica is meant: INVALID_VOTER_KEY.
    * An older epoch: FENCED_LEADER_EPOCH; an impossible one, or another topic: INVALID_REQUEST.
    * A pre-vote binds nobody; refused while a leader is heard of.
Versions: v1 directory ids, endpoints; v2 pre-vote.    Not done: -
"""

from typing import Any

from sparkraft.base.errors import ErrorCode
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k52_vote import VoteRequest, VoteResponse
from sparkraft.raft import events
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_cluster
from sparkraft.server.api.registry import Api, RequestContext
from sparkraft.server.raft import wire


async def handle(node: Any, context: RequestContext, request: VoteRequest) -> VoteResponse:
    """Grant or refuse."""
    asked = wire.read_vote(request)
    if asked is None:
        return VoteResponse(error_code=ErrorCode.INVALID_REQUEST)
    answer = await node.raft.handle_request(asked)
    assert isinstance(answer, events.VoteResponse)
    return wire.write_vote_response(answer, context.listener_name, context.api_version)


API = Api(
    key=ApiKey.VOTE,
    handle=handle,
    authorize=(on_cluster(AclOperation.CLUSTER_ACTION),),
    broker=False,
    controller=True,
)
