"""Fetch on a controller listener: v4-18. The metadata log. (KIP-595, KIP-853, KIP-1166)

Behaviour:
    * Only `__cluster_metadata-0`; anything else is INVALID_REQUEST. Another cluster:
      INCONSISTENT_CLUSTER_ID, whatever is fetched.
    * A Fetch acknowledges all records below its offset; it waits up to `max_wait_ms` for records, a
      higher high watermark (v18), a diverging epoch or a snapshot.
    * Not the leader: NOT_LEADER_OR_FOLLOWER, with the leader if it is known.
Versions: v12 last fetched epoch, diverging epoch, snapshot id; v13 topic id; v15 replica state;
    v16 endpoints; v17 directory id; v18 the follower's high watermark.    Not done: -
"""

from typing import Any

from sparkraft.base.errors import ErrorCode
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k01_fetch import FetchRequest, FetchResponse
from sparkraft.raft import events
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_cluster
from sparkraft.server.api.registry import Api, RequestContext
from sparkraft.server.raft import wire


async def handle(node: Any, context: RequestContext, request: FetchRequest) -> FetchResponse:
    """Read, or wait for a change."""
    version = context.api_version
    asked = wire.read_fetch(request, version)
    if asked is None:
        is_ours = request.cluster_id in {None, node.cluster_id}
        return FetchResponse(
            error_code=ErrorCode.INVALID_REQUEST if is_ours else ErrorCode.INCONSISTENT_CLUSTER_ID
        )
    if node.processes is not None and asked.replica.id >= 0:
        node.processes.on_fetch(asked.replica.id, context.connection)
    answer = await node.raft.handle_request(asked)
    if isinstance(answer, events.Refusal):
        leader = node.raft.leader_and_epoch
        answer = events.FetchResponse(
            error=answer.error, epoch=leader.epoch, leader_id=leader.leader_id
        )
    assert isinstance(answer, events.FetchResponse)
    pieces = [] if answer.read is None else node.raft.read_log(answer.read)
    return wire.write_fetch_response(answer, context.listener_name, version, pieces)


API = Api(
    key=ApiKey.FETCH,
    handle=handle,
    authorize=(on_cluster(AclOperation.CLUSTER_ACTION),),
    broker=False,
    controller=True,
)
