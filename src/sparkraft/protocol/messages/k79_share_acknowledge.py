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
    """Consecutive offsets and how they were dealt with."""

    first_offset: int = int64()
    last_offset: int = int64()
    acknowledge_types: list[int] = int8s()


class AcknowledgePartition(Message):
    """Acknowledgements for a partition: `ShareAcknowledgeRequest.topics.partitions`."""

    partition_index: int = int32()
    acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch)


class AcknowledgeTopic(Message):
    """Partitions: `ShareAcknowledgeRequest.topics`."""

    topic_id: Uuid = uuid()
    partitions: list[AcknowledgePartition] = array(AcknowledgePartition)


class ShareAcknowledgeRequest(Message, key=79, versions="1-2", flexible="0+"):
    """Acknowledges records of a share session without fetching (KIP-932).

    v2 renews locks (KIP-1222).
    """

    group_id: str | None = string(nullable=True, default=None)
    member_id: str | None = string(nullable=True)
    share_session_epoch: int = int32()
    is_renew_ack: bool = boolean("2+")
    topics: list[AcknowledgeTopic] = array(AcknowledgeTopic)


class LeaderIdAndEpoch(Message):
    """The leader of a partition: `ShareAcknowledgeResponse.responses.partitions.current_leader`."""

    leader_id: int = int32()
    leader_epoch: int = int32()


class PartitionData(Message):
    """One partition: `ShareAcknowledgeResponse.responses.partitions`."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch)


class ShareAcknowledgeTopicResponse(Message):
    """Partitions: `ShareAcknowledgeResponse.responses`."""

    topic_id: Uuid = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class NodeEndpoint(Message):
    """How to reach a leader: `ShareAcknowledgeResponse.node_endpoints`."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable=True, default=None)


class ShareAcknowledgeResponse(Message, key=79, versions="1-2", flexible="0+"):
    """An error code for each partition."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    acquisition_lock_timeout_ms: int = int32("2+", ignorable=True)
    responses: list[ShareAcknowledgeTopicResponse] = array(ShareAcknowledgeTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint)
