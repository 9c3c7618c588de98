"""ShareAcknowledge (key 79): v1-2, flexible from v0."""

from sparkraft.base.ids import Uuid
from sparkraft.protocol.declare import (
    Message,
    array,
    boolean,
    int8s,
    int16,
    int32,
    int64,
    string,
    struct,
    uuid,
)


class AcknowledgementBatch(Message):
    """In `ShareAcknowledgeRequest.topics.partitions.acknowledgement_batches`."""

    first_offset: int = int64()
    last_offset: int = int64()
    acknowledge_types: list[int] = int8s()


class AcknowledgePartition(Message):
    """In `ShareAcknowledgeRequest.topics.partitions`."""

    partition_index: int = int32()
    acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch)


class AcknowledgeTopic(Message):
    """In `ShareAcknowledgeRequest.topics`."""

    topic_id: Uuid = uuid()
    partitions: list[AcknowledgePartition] = array(AcknowledgePartition)


class ShareAcknowledgeRequest(Message, key=79, versions="1-2", flexible="0+"):
    """Asks for ShareAcknowledge."""

    group_id: str | None = string(nullable=True, default=None)
    member_id: str | None = string(nullable=True)
    share_session_epoch: int = int32()
    is_renew_ack: bool = boolean("2+")
    topics: list[AcknowledgeTopic] = array(AcknowledgeTopic)


class LeaderIdAndEpoch(Message):
    """In `ShareAcknowledgeResponse.responses.partitions.current_leader`."""

    leader_id: int = int32()
    leader_epoch: int = int32()


class PartitionData(Message):
    """In `ShareAcknowledgeResponse.responses.partitions`."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch)


class ShareAcknowledgeTopicResponse(Message):
    """In `ShareAcknowledgeResponse.responses`."""

    topic_id: Uuid = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class NodeEndpoint(Message):
    """In `ShareAcknowledgeResponse.node_endpoints`."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable=True, default=None)


class ShareAcknowledgeResponse(Message, key=79, versions="1-2", flexible="0+"):
    """Answers ShareAcknowledgeRequest."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    acquisition_lock_timeout_ms: int = int32("2+", ignorable=True)
    responses: list[ShareAcknowledgeTopicResponse] = array(ShareAcknowledgeTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint)
