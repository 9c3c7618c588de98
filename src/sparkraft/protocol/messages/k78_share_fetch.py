"""ShareFetch (key 78): v1-2, flexible from v0."""

from sparkraft.base.ids import Uuid
from sparkraft.protocol.declare import (
    Message,
    Records,
    array,
    boolean,
    int8,
    int8s,
    int16,
    int32,
    int32s,
    int64,
    records,
    string,
    struct,
    uuid,
)


class AcknowledgementBatch(Message):
    """Consecutive offsets and how they were dealt with."""

    first_offset: int = int64()
    last_offset: int = int64()
    acknowledge_types: list[int] = int8s()


class FetchPartition(Message):
    """From where to read a partition, and how much: `ShareFetchRequest.topics.partitions`."""

    partition_index: int = int32()
    partition_max_bytes: int = int32("0")
    acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch)


class FetchTopic(Message):
    """Partitions to read: `ShareFetchRequest.topics`."""

    topic_id: Uuid = uuid()
    partitions: list[FetchPartition] = array(FetchPartition)


class ForgottenTopic(Message):
    """Partitions to drop from the session: `ShareFetchRequest.forgotten_topics_data`."""

    topic_id: Uuid = uuid()
    partitions: list[int] = int32s()


class ShareFetchRequest(Message, key=78, versions="1-2", flexible="0+"):
    """Asks for records of share partitions and acknowledges earlier ones (KIP-932).

    v2 renews acknowledgement locks (KIP-1222).
    """

    group_id: str | None = string(nullable=True, default=None)
    member_id: str | None = string(nullable=True)
    share_session_epoch: int = int32()
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=0x7FFFFFFF)
    max_records: int = int32()
    batch_size: int = int32()
    share_acquire_mode: int = int8("2+", ignorable=True)
    is_renew_ack: bool = boolean("2+")
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic)


class LeaderIdAndEpoch(Message):
    """The leader of a partition: `ShareFetchResponse.responses.partitions.current_leader`."""

    leader_id: int = int32()
    leader_epoch: int = int32()


class AcquiredRecords(Message):
    """Consecutive offsets now locked for the member."""

    first_offset: int = int64()
    last_offset: int = int64()
    delivery_count: int = int16()


class PartitionData(Message):
    """One partition: `ShareFetchResponse.responses.partitions`."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    acknowledge_error_code: int = int16()
    acknowledge_error_message: str | None = string(nullable=True, default=None)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch)
    records: Records | None = records(nullable="0")
    acquired_records: list[AcquiredRecords] = array(AcquiredRecords)


class ShareFetchableTopicResponse(Message):
    """Partitions read: `ShareFetchResponse.responses`."""

    topic_id: Uuid = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class NodeEndpoint(Message):
    """How to reach a leader: `ShareFetchResponse.node_endpoints`."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable=True, default=None)


class ShareFetchResponse(Message, key=78, versions="1-2", flexible="0+"):
    """Records with the offsets acquired for this member."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    acquisition_lock_timeout_ms: int = int32()
    responses: list[ShareFetchableTopicResponse] = array(ShareFetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint)
