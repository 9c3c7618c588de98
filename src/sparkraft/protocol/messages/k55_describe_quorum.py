"""DescribeQuorum (key 55): v0-2, flexible from v0.

Structs that Kafka names alike in request and response bear the name of their message in front.
"""

from sparkraft.base.ids import Uuid
from sparkraft.protocol.declare import Message, array, int16, int32, int64, string, uint16, uuid


class DescribeQuorumRequestPartitionData(Message):
    """One partition: `DescribeQuorumRequest.topics.partitions`."""

    partition_index: int = int32()


class DescribeQuorumRequestTopicData(Message):
    """Partitions of a topic: `DescribeQuorumRequest.topics`."""

    topic_name: str = string()
    partitions: list[DescribeQuorumRequestPartitionData] = array(DescribeQuorumRequestPartitionData)


class DescribeQuorumRequest(Message, key=55, versions="0-2", flexible="0+"):
    """Asks the KRaft leader how the quorum stands (KIP-595)."""

    topics: list[DescribeQuorumRequestTopicData] = array(DescribeQuorumRequestTopicData)


class ReplicaState(Message):
    """A replica: the follower that fetches, or in DescribeQuorum a replica with its progress."""

    replica_id: int = int32()
    replica_directory_id: Uuid = uuid("2+")
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64("1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int = int64("1+", default=-1, ignorable=True)


class DescribeQuorumResponsePartitionData(Message):
    """One partition: `DescribeQuorumResponse.topics.partitions`."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string("2+", nullable=True, ignorable=True)
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: list[ReplicaState] = array(ReplicaState)
    observers: list[ReplicaState] = array(ReplicaState)


class DescribeQuorumResponseTopicData(Message):
    """Partitions of a topic: `DescribeQuorumResponse.topics`."""

    topic_name: str = string()
    partitions: list[DescribeQuorumResponsePartitionData] = array(
        DescribeQuorumResponsePartitionData
    )


class Listener(Message):
    """How to reach the node: `DescribeQuorumResponse.nodes.listeners`."""

    name: str = string("2+")
    host: str = string("2+")
    port: int = uint16("2+")


class Node(Message):
    """How to reach a voter: `DescribeQuorumResponse.nodes`."""

    node_id: int = int32("2+")
    listeners: list[Listener] = array(Listener, "2+")


class DescribeQuorumResponse(Message, key=55, versions="0-2", flexible="0+"):
    """Leader, epoch, high watermark, and how far each voter and observer is.

    v1 times (KIP-836), v2 directory ids and addresses (KIP-853).
    """

    error_code: int = int16()
    error_message: str | None = string("2+", nullable=True, ignorable=True)
    topics: list[DescribeQuorumResponseTopicData] = array(DescribeQuorumResponseTopicData)
    nodes: list[Node] = array(Node, "2+")
