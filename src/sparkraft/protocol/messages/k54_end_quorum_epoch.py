"""EndQuorumEpoch (key 54): v0-1, flexible from v1.

KIP-595.

Structs that Kafka names alike in request and response bear the name of their message in front.
"""

from sparkraft.base.ids import Uuid
from sparkraft.protocol.declare import Message, array, int16, int32, int32s, string, uint16, uuid


class ReplicaInfo(Message):
    """A replica and how far it is."""

    candidate_id: int = int32("1+")
    candidate_directory_id: Uuid = uuid("1+")


class EndQuorumEpochRequestPartitionData(Message):
    """One partition: `EndQuorumEpochRequest.topics.partitions`."""

    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32()
    preferred_successors: list[int] = int32s("0", ignorable=True)
    preferred_candidates: list[ReplicaInfo] = array(ReplicaInfo, "1+", ignorable=True)


class EndQuorumEpochRequestTopicData(Message):
    """Partitions of a topic: `EndQuorumEpochRequest.topics`."""

    topic_name: str = string()
    partitions: list[EndQuorumEpochRequestPartitionData] = array(EndQuorumEpochRequestPartitionData)


class LeaderEndpoint(Message):
    """How to reach the leader: `EndQuorumEpochRequest.leader_endpoints`."""

    name: str = string("1+")
    host: str = string("1+")
    port: int = uint16("1+")


class EndQuorumEpochRequest(Message, key=54, versions="0-1", flexible="1+"):
    """A KRaft leader resigns and names its successors in order. v1 directory ids (KIP-853)."""

    cluster_id: str | None = string(nullable=True, default=None)
    topics: list[EndQuorumEpochRequestTopicData] = array(EndQuorumEpochRequestTopicData)
    leader_endpoints: list[LeaderEndpoint] = array(LeaderEndpoint, "1+", ignorable=True)


class EndQuorumEpochResponsePartitionData(Message):
    """One partition: `EndQuorumEpochResponse.topics.partitions`."""

    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()


class EndQuorumEpochResponseTopicData(Message):
    """Partitions of a topic: `EndQuorumEpochResponse.topics`."""

    topic_name: str = string()
    partitions: list[EndQuorumEpochResponsePartitionData] = array(
        EndQuorumEpochResponsePartitionData
    )


class NodeEndpoint(Message):
    """How to reach a leader: `EndQuorumEpochResponse.node_endpoints`."""

    node_id: int = int32("1+")
    host: str = string("1+")
    port: int = uint16("1+")


class EndQuorumEpochResponse(Message, key=54, versions="0-1", flexible="1+"):
    """The epoch the voter has, or why it disagrees."""

    error_code: int = int16()
    topics: list[EndQuorumEpochResponseTopicData] = array(EndQuorumEpochResponseTopicData)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", tag=0)
