"""Kafka's internal topics: every kind of coordinator leads the partitions of one of them."""

from enum import IntEnum

GROUP_METADATA_TOPIC = "__consumer_offsets"
"""Groups and committed offsets."""

TRANSACTION_STATE_TOPIC = "__transaction_state"

SHARE_GROUP_STATE_TOPIC = "__share_group_state"


class KeyType(IntEnum):
    """The kinds of keys that have coordinators; the value is the key type of FindCoordinator."""

    GROUP = 0
    """A group id."""
    TRANSACTION = 1
    """A transactional id."""
    SHARE = 2
    """A share partition, as `group:topicId:partition`."""


INTERNAL_TOPICS = {
    KeyType.GROUP: GROUP_METADATA_TOPIC,
    KeyType.TRANSACTION: TRANSACTION_STATE_TOPIC,
    KeyType.SHARE: SHARE_GROUP_STATE_TOPIC,
}
