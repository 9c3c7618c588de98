"""BeginQuorumEpoch (key 53): v0-1, flexible from v1.

KIP-595.

Structs that Kafka names alike in request and response bear the name of their message in front.
"""

from sparkraft.base.ids import Uuid
from sparkraft.protocol.declare import Message, array, int16, int32, string, uint16, uuid


class BeginQuorumEpochRequestPartitionData(Message):
    """One partition: `BeginQuorumEpochRequest.topics.partitions`."""

    partition_index: int = int32()
    voter_directory_id: Uuid = uuid("1+", ignorable=True)
    leader_id: int = int32()
    leader_epoch: int = int32()


class BeginQuorumEpochRequestTopicData(Message):
    """Partitions of a topic: `BeginQuorumEpochRequest.topics`."""

    topic_name: str = string()
    partitions: list[BeginQuorumEpochRequestPartitionData] = array(
        BeginQuorumEpochRequestPartitionData
    )


class LeaderEndpoint(Message):
    """How to reach the leader: `BeginQuorumEpochRequest.leader_endpoints`."""

    name: str = string("1+")
    host: str = string("1+")
    port: int = uint16("1+")


class BeginQuorumEpochRequest(Message, key=53, versions="0-1", flexible="1+"):
    """A new KRaft leader makes itself known to the voters.

    v1 directory ids and endpoints (KIP-853).
    """

    cluster_id: str | None = string(nullable=True, default=None)
    voter_id: int = int32("1+", default=-1, ignorable=True)
    topics: list[BeginQuorumEpochRequestTopicData] = array(BeginQuorumEpochRequestTopicData)
    leader_endpoints: list[LeaderEndpoint] = array(LeaderEndpoint, "1+", ignorable=True)


class BeginQuorumEpochResponsePartitionData(Message):
    """One partition: `BeginQuorumEpochResponse.topics.partitions`."""

    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()


class BeginQuorumEpochResponseTopicData(Message):
    """Partitions of a topic: `BeginQuorumEpochResponse.topics`."""

    topic_name: str = string()
    partitions: list[BeginQuorumEpochResponsePartitionData] = array(
        BeginQuorumEpochResponsePartitionData
    )


class NodeEndpoint(Message):
    """How to reach a leader: `BeginQuorumEpochResponse.node_endpoints`."""

    node_id: int = int32("1+")
    host: str = string("1+")
    port: int = uint16("1+")


class BeginQuorumEpochResponse(Message, key=53, versions="0-1", flexible="1+"):
    """The epoch the voter has, or why it disagrees."""

    error_code: int = int16()
    topics: list[BeginQuorumEpochResponseTopicData] = array(BeginQuorumEpochResponseTopicData)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", tag=0)
