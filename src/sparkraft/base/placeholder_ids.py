"""Ids that stand for a topic without an id, inside one broker (KIP-516).

With inter.broker.protocol.version below 2.8 topics have no id, and brokers know them by name. An
image has each topic under an id, so such a topic gets one that is derived from its name:

    bytes 0-7   zero; no id that Kafka or sparkraft makes at random has that (UUID version 4)
    bytes 8-15  of the SHA-256 of the name, the first bit set

It is never written to a log's folder or sent: the wire has the zero id instead.
"""

from hashlib import sha256

from sparkraft.base.ids import Uuid

_PREFIX = bytes(8)
_FIRST_BIT = 0x80


def placeholder_id(topic: str) -> Uuid:
    """Return the id that stands for a topic of this name without an id."""
    digest = sha256(topic.encode()).digest()
    return Uuid(_PREFIX + bytes((digest[0] | _FIRST_BIT,)) + digest[1:8])


def is_placeholder(topic_id: bytes) -> bool:
    """Whether an id stands for a topic without an id; neither the zero id nor Kafka's others do."""
    return topic_id[:8] == _PREFIX and topic_id[8] >= _FIRST_BIT


def known_id(topic_id: Uuid) -> Uuid | None:
    """Return the topic's own id; None if it has none."""
    return None if is_placeholder(topic_id) else topic_id


def wire_id(topic_id: Uuid) -> Uuid:
    """Return the topic's id in requests and responses: zero if it has none."""
    return Uuid.ZERO if is_placeholder(topic_id) else topic_id


def is_same_topic(one: bytes, other: bytes) -> bool:
    """Whether two ids under one name may be those of one topic, which gets its id or loses it."""
    return one == other or is_placeholder(one) or is_placeholder(other)
