"""FetchSnapshot (key 59): v0-1, flexible from v0.

Structs that Kafka names alike in request and response bear the name of their message in front.
"""

from sparkraft.base.ids import Uuid
from sparkraft.protocol.declare import (
    Message,
    Records,
    array,
    int16,
    int32,
    int64,
    records,
    string,
    struct,
    uint16,
    uuid,
)


class SnapshotId(Message):
    """End offset and epoch that name a snapshot."""

    end_offset: int = int64()
    epoch: int = int32()


class FetchSnapshotRequestPartitionSnapshot(Message):
    """A snapshot of a partition: `FetchSnapshotRequest.topics.partitions`."""

    partition: int = int32()
    current_leader_epoch: int = int32()
    snapshot_id: SnapshotId = struct(SnapshotId)
    position: int = int64()
    replica_directory_id: Uuid = uuid("1+", tag=0, ignorable=True)


class FetchSnapshotRequestTopicSnapshot(Message):
    """Partitions of a topic: `FetchSnapshotRequest.topics`."""

    name: str = string()
    partitions: list[FetchSnapshotRequestPartitionSnapshot] = array(
        FetchSnapshotRequestPartitionSnapshot
    )


class FetchSnapshotRequest(Message, key=59, versions="0-1", flexible="0+"):
    """Asks for a part of a metadata snapshot (KIP-630). v1 directory ids (KIP-853)."""

    cluster_id: str | None = string(nullable=True, default=None, tag=0)
    replica_id: int = int32(default=-1)
    max_bytes: int = int32(default=0x7FFFFFFF)
    topics: list[FetchSnapshotRequestTopicSnapshot] = array(FetchSnapshotRequestTopicSnapshot)


class LeaderIdAndEpoch(Message):
    """The leader of a partition: `FetchSnapshotResponse.topics.partitions.current_leader`."""

    leader_id: int = int32()
    leader_epoch: int = int32()


class FetchSnapshotResponsePartitionSnapshot(Message):
    """A snapshot of a partition: `FetchSnapshotResponse.topics.partitions`."""

    index: int = int32()
    error_code: int = int16()
    snapshot_id: SnapshotId = struct(SnapshotId)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, tag=0)
    size: int = int64()
    position: int = int64()
    unaligned_records: Records | None = records()


class FetchSnapshotResponseTopicSnapshot(Message):
    """Partitions of a topic: `FetchSnapshotResponse.topics`."""

    name: str = string()
    partitions: list[FetchSnapshotResponsePartitionSnapshot] = array(
        FetchSnapshotResponsePartitionSnapshot
    )


class NodeEndpoint(Message):
    """How to reach a leader: `FetchSnapshotResponse.node_endpoints`."""

    node_id: int = int32("1+")
    host: str = string("1+")
    port: int = uint16("1+")


class FetchSnapshotResponse(Message, key=59, versions="0-1", flexible="0+"):
    """Bytes of the snapshot from a position, not aligned to batches."""

    throttle_time_ms: int = int32(ignorable=True)
    error_code: int = int16()
    topics: list[FetchSnapshotResponseTopicSnapshot] = array(FetchSnapshotResponseTopicSnapshot)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", tag=0)
