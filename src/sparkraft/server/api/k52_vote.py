"""Vote: v0-2. A candidate requests a voter's vote. (KIP-595, KIP-853, KIP-996)

Behaviour:
    * Granted by epoch and log alone; at most one candidate per epoch, and written to disk first.
    * Another cluster: INCONSISTENT_CLUSTER_ID; addressed to another replica: INVALID_VOTER_KEY.
    * An older epoch: FENCED_LEADER_EPOCH; an impossible one, or another topic: INVALID_REQUEST.
    * A pre-vote is not binding; it is refused while fetches from a leader succeed.
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
