"""Vote (key 52): v0-2, flexible from v0.

KIP-595.

Structs that Kafka names alike in request and response bear the name of their message in front.
"""

from sparkraft.base.ids import Uuid
from sparkraft.protocol.declare import (
    Message,
    array,
    boolean,
    int16,
    int32,
    int64,
    string,
    uint16,
    uuid,
)


class VoteRequestPartitionData(Message):
    """One partition: `VoteRequest.topics.partitions`."""

    partition_index: int = int32()
    replica_epoch: int = int32()
    replica_id: int = int32()
    replica_directory_id: Uuid = uuid("1+", ignorable=True)
    voter_directory_id: Uuid = uuid("1+", ignorable=True)
    last_offset_epoch: int = int32()
    last_offset: int = int64()
    pre_vote: bool = boolean("2+")


class VoteRequestTopicData(Message):
    """Partitions of a topic: `VoteRequest.topics`."""

    topic_name: str = string()
    partitions: list[VoteRequestPartitionData] = array(VoteRequestPartitionData)


class VoteRequest(Message, key=52, versions="0-2", flexible="0+"):
    """A voter asks for votes, or in v2 first whether it would get them (pre-vote, KIP-996).

    v1 directory ids (KIP-853).
    """

    cluster_id: str | None = string(nullable=True, default=None)
    voter_id: int = int32("1+", default=-1, ignorable=True)
    topics: list[VoteRequestTopicData] = array(VoteRequestTopicData)


class VoteResponsePartitionData(Message):
    """One partition: `VoteResponse.topics.partitions`."""

    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()
    vote_granted: bool = boolean()


class VoteResponseTopicData(Message):
    """Partitions of a topic: `VoteResponse.topics`."""

    topic_name: str = string()
    partitions: list[VoteResponsePartitionData] = array(VoteResponsePartitionData)


class NodeEndpoint(Message):
    """How to reach a leader: `VoteResponse.node_endpoints`."""

    node_id: int = int32("1+")
    host: str = string("1+")
    port: int = uint16("1+")


class VoteResponse(Message, key=52, versions="0-2", flexible="0+"):
    """Whether the vote is given, and which leader and epoch the other one knows."""

    error_code: int = int16()
    topics: list[VoteResponseTopicData] = array(VoteResponseTopicData)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", tag=0)
