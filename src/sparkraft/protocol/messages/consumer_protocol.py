"""Data that members of a classic consumer group exchange through JoinGroup and SyncGroup.

Each is preceded by its version as an int16 (`sparkraft.protocol.framing.encode_versioned`).
"""

from sparkraft.protocol.declare import Message, array, blob, int32, int32s, string, strings


class ConsumerProtocolSubscriptionTopicPartition(Message):
    """Partitions of a topic: `ConsumerProtocolSubscription.owned_partitions`."""

    topic: str = string("1+")
    partitions: list[int] = int32s("1+")


class ConsumerProtocolSubscription(Message, versions="0-3"):
    """Metadata of a member in JoinGroup: topics it wants and partitions it has.

    v1 owned partitions (KIP-429), v2 generation (KIP-792), v3 rack (KIP-881).
    """

    topics: list[str] = strings()
    user_data: bytes | None = blob(nullable=True, default=None)
    owned_partitions: list[ConsumerProtocolSubscriptionTopicPartition] = array(
        ConsumerProtocolSubscriptionTopicPartition, "1+", ignorable=True
    )
    generation_id: int = int32("2+", default=-1, ignorable=True)
    rack_id: str | None = string("3+", nullable=True, default=None, ignorable=True)


class ConsumerProtocolAssignmentTopicPartition(Message):
    """Partitions of a topic: `ConsumerProtocolAssignment.assigned_partitions`."""

    topic: str = string()
    partitions: list[int] = int32s()


class ConsumerProtocolAssignment(Message, versions="0-3"):
    """The assignment that the group leader sends to one member through SyncGroup."""

    assigned_partitions: list[ConsumerProtocolAssignmentTopicPartition] = array(
        ConsumerProtocolAssignmentTopicPartition
    )
    user_data: bytes | None = blob(nullable=True, default=None)
