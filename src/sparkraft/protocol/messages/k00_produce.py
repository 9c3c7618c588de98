"""Produce (key 0): v3-13, flexible from v9.

Batches of magic 2 only since v3. `acks` 0 has no answer.
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
    uuid,
)


class PartitionProduceData(Message):
    """Batches for one partition: `ProduceRequest.topic_data.partition_data`."""

    index: int = int32()
    records: Records | None = records(nullable=True)


class TopicProduceData(Message):
    """Batches for a topic: `ProduceRequest.topic_data`."""

    name: str = string("0-12", ignorable=True)
    topic_id: Uuid = uuid("13+", ignorable=True)
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


class ProduceRequest(Message, key=0, versions="3-13", flexible="9+"):
    """Asks the partitions' leader to append record batches.

    v9 flexible; v12 lets the leader add the partition to its transaction (KIP-890); v13 names
    topics by id (KIP-516).
    """

    transactional_id: str | None = string(nullable=True, default=None)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


class BatchIndexAndErrorMessage(Message):
    """A record that was refused, by its place in the batch."""

    batch_index: int = int32("8+")
    batch_index_error_message: str | None = string("8+", nullable=True, default=None)


class LeaderIdAndEpoch(Message):
    """The leader of a partition: `ProduceResponse.responses.partition_responses.current_leader`."""

    leader_id: int = int32("10+", default=-1)
    leader_epoch: int = int32("10+", default=-1)


class PartitionProduceResponse(Message):
    """Result for the batches of one partition: `ProduceResponse.responses.partition_responses`."""

    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64(default=-1, ignorable=True)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = array(
        BatchIndexAndErrorMessage, "8+", ignorable=True
    )
    error_message: str | None = string("8+", nullable=True, default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "10+", tag=0)


class TopicProduceResponse(Message):
    """Partitions of a topic: `ProduceResponse.responses`."""

    name: str = string("0-12", ignorable=True)
    topic_id: Uuid = uuid("13+", ignorable=True)
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


class NodeEndpoint(Message):
    """How to reach a leader: `ProduceResponse.node_endpoints`."""

    node_id: int = int32("10+")
    host: str = string("10+")
    port: int = int32("10+")
    rack: str | None = string("10+", nullable=True, default=None)


class ProduceResponse(Message, key=0, versions="3-13", flexible="9+"):
    """Returns the offset of each batch, or its error.

    v8 names the bad records (KIP-467); v10 the current leader (KIP-951).
    """

    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32(ignorable=True)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", tag=0)
