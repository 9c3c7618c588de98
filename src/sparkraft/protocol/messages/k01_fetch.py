"""Fetch (key 1): v4-18, flexible from v12."""

from sparkraft.base.ids import Uuid
from sparkraft.protocol.declare import (
    Message,
    Records,
    array,
    int8,
    int16,
    int32,
    int32s,
    int64,
    records,
    string,
    struct,
    uuid,
)


class ReplicaState(Message):
    """A replica: the follower that fetches, or in DescribeQuorum a replica with its progress."""

    replica_id: int = int32("15+", default=-1)
    replica_epoch: int = int64("15+", default=-1)


class FetchPartition(Message):
    """From where to read a partition, and how much: `FetchRequest.topics.partitions`."""

    partition: int = int32()
    current_leader_epoch: int = int32("9+", default=-1, ignorable=True)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32("12+", default=-1)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    partition_max_bytes: int = int32()
    replica_directory_id: Uuid = uuid("17+", tag=0, ignorable=True)
    high_watermark: int = int64("18+", default=0x7FFFFFFFFFFFFFFF, tag=1, ignorable=True)


class FetchTopic(Message):
    """Partitions to read: `FetchRequest.topics`."""

    topic: str = string("0-12", ignorable=True)
    topic_id: Uuid = uuid("13+", ignorable=True)
    partitions: list[FetchPartition] = array(FetchPartition)


class ForgottenTopic(Message):
    """Partitions to drop from the session: `FetchRequest.forgotten_topics_data`."""

    topic: str = string("7-12", ignorable=True)
    topic_id: Uuid = uuid("13+", ignorable=True)
    partitions: list[int] = int32s("7+")


class FetchRequest(Message, key=1, versions="4-18", flexible="12+"):
    """Asks for record batches from offsets on; also how followers and KRaft voters replicate.

    v7 sessions (KIP-227), v12 epochs for truncation (KIP-595), v13 topic ids (KIP-516), v15 replica
    epoch (KIP-903), v17 directory ids (KIP-853), v18 the follower's high watermark (KIP-1166).
    """

    cluster_id: str | None = string("12+", nullable=True, default=None, tag=0, ignorable=True)
    replica_id: int = int32("0-14", default=-1)
    replica_state: ReplicaState = struct(ReplicaState, "15+", tag=1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=0x7FFFFFFF, ignorable=True)
    isolation_level: int = int8(ignorable=True)
    session_id: int = int32("7+", ignorable=True)
    session_epoch: int = int32("7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, "7+")
    rack_id: str = string("11+", ignorable=True)


class EpochEndOffset(Message):
    """An epoch and where it ends: `FetchResponse.responses.partitions.diverging_epoch`."""

    epoch: int = int32("12+", default=-1)
    end_offset: int = int64("12+", default=-1)


class LeaderIdAndEpoch(Message):
    """The leader of a partition: `FetchResponse.responses.partitions.current_leader`."""

    leader_id: int = int32("12+", default=-1)
    leader_epoch: int = int32("12+", default=-1)


class SnapshotId(Message):
    """End offset and epoch that name a snapshot."""

    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


class AbortedTransaction(Message):
    """A producer whose records from an offset on were aborted."""

    producer_id: int = int64()
    first_offset: int = int64()


class PartitionData(Message):
    """One partition: `FetchResponse.responses.partitions`."""

    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64(default=-1, ignorable=True)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = struct(EpochEndOffset, "12+", tag=0)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "12+", tag=1)
    snapshot_id: SnapshotId = struct(SnapshotId, "12+", tag=2)
    aborted_transactions: list[AbortedTransaction] | None = array(
        AbortedTransaction, nullable=True, ignorable=True
    )
    preferred_read_replica: int = int32("11+", default=-1)
    records: Records | None = records(nullable=True)


class FetchableTopicResponse(Message):
    """Partitions read: `FetchResponse.responses`."""

    topic: str = string("0-12", ignorable=True)
    topic_id: Uuid = uuid("13+", ignorable=True)
    partitions: list[PartitionData] = array(PartitionData)


class NodeEndpoint(Message):
    """How to reach a leader: `FetchResponse.node_endpoints`."""

    node_id: int = int32("16+")
    host: str = string("16+")
    port: int = int32("16+")
    rack: str | None = string("16+", nullable=True, default=None)


class FetchResponse(Message, key=1, versions="4-18", flexible="12+"):
    """Batches as they lie in the log, with the offsets that bound what may be read.

    v12 returns the offset at which a replica's log diverges, or the snapshot to fetch (KIP-595,
    KIP-630); v16 the leaders' endpoints (KIP-951).
    """

    throttle_time_ms: int = int32(ignorable=True)
    error_code: int = int16("7+", ignorable=True)
    session_id: int = int32("7+")
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "16+", tag=0)
