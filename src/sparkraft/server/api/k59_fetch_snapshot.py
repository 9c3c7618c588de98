"""FetchSnapshot: v0-1. A piece of a snapshot of the metadata log. (KIP-630, KIP-853)

Behaviour:
    * At most `max_bytes` from `position`, and never more than a Fetch gives (8 MiB).
    * Deleted or unknown: SNAPSHOT_NOT_FOUND; beyond its size: POSITION_OUT_OF_RANGE.
    * Not the leader: NOT_LEADER_OR_FOLLOWER; an older or newer epoch: FENCED_LEADER_EPOCH or
      UNKNOWN_LEADER_EPOCH; another topic: UNKNOWN_TOPIC_OR_PARTITION.
    * No topic, no partition or several: INVALID_REQUEST.
Versions: v1 directory ids, endpoints.    Not done: -
"""

from typing import Any

from sparkraft.base.errors import ErrorCode
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k59_fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    FetchSnapshotResponsePartitionSnapshot,
    FetchSnapshotResponseTopicSnapshot,
)
from sparkraft.raft import events
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_cluster
from sparkraft.server.api.registry import Api, RequestContext
from sparkraft.server.raft import wire


async def handle(
    node: Any, context: RequestContext, request: FetchSnapshotRequest
) -> FetchSnapshotResponse:
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return FetchSnapshotResponse(error_code=ErrorCode.INVALID_REQUEST)
    asked = wire.read_fetch_snapshot(request)
    if asked is None:
        return _unknown(request)
    answer = await node.raft.handle_request(asked)
    assert isinstance(answer, events.FetchSnapshotResponse)
    return wire.write_fetch_snapshot_response(
        node.raft.read_snapshot(answer), context.listener_name, context.api_version
    )


def _unknown(request: FetchSnapshotRequest) -> FetchSnapshotResponse:
    topic = request.topics[0]
    partition = FetchSnapshotResponsePartitionSnapshot(
        index=topic.partitions[0].partition,
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        unaligned_records=b"",
    )
    named = FetchSnapshotResponseTopicSnapshot(name=topic.name, partitions=[partition])
    return FetchSnapshotResponse(topics=[named])


API = Api(
    key=ApiKey.FETCH_SNAPSHOT,
    handle=handle,
    authorize=(on_cluster(AclOperation.CLUSTER_ACTION),),
    broker=False,
    controller=True,
)
