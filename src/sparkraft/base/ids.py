"""Identifiers and units used on every layer.

Not here: the wire form of messages (`sparkraft.protocol`).
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from typing import ClassVar, NewType, Self

Offset = NewType("Offset", int)
"""A record's position in a partition; counted from 0, -1 if unknown."""

LeaderEpoch = NewType("LeaderEpoch", int)
"""Counts the leaderships of a partition or quorum; -1 if unknown."""

BrokerId = NewType("BrokerId", int)
"""`node.id` of a broker or controller; -1 for none."""

ProducerId = NewType("ProducerId", int)
"""Names an idempotent producer; -1 for none."""

Millis = NewType("Millis", int)
"""Milliseconds: since 1970 on a wall clock, since an arbitrary start on a monotonic one."""


class Uuid(bytes):
    """16 bytes, written as 22 characters of URL-safe base64 as Kafka does.

    It is a `bytes`, so it hashes and compares like what the wire carries.
    """

    __slots__ = ()
    ZERO: ClassVar["Uuid"]

    def __new__(cls, value: bytes | memoryview = bytes(16)) -> Self:
        """Wrap `value`, which must be 16 bytes long."""
        self = super().__new__(cls, value)
        if len(self) != 16:  # noqa: PLR2004
            raise ValueError(f"a Uuid has 16 bytes, not {len(self)}")
        return self

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse Kafka's text form; `ValueError` if it is invalid."""
        if len(text) > 24:  # noqa: PLR2004
            raise ValueError(f"{text[:40]!r} is too long for a Uuid, which has 22 characters")
        try:
            raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        except ValueError as error:
            raise ValueError(f"{text!r} is not a Uuid in URL-safe base64") from error
        return cls(raw)

    def __str__(self) -> str:
        """Kafka's text form, 22 characters without padding."""
        return urlsafe_b64encode(self).rstrip(b"=").decode()

    def __repr__(self) -> str:
        """The same text, marked as an identifier."""
        return f"Uuid({self!s})"


Uuid.ZERO = Uuid(bytes(16))

TopicPartition = tuple[str, int]
"""A topic-partition: topic name and partition index."""

TopicIdPartition = tuple[Uuid, int]
"""A topic-partition by topic id: stays unambiguous if a topic is deleted and created again."""


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partition indexes of each topic, both in order: requests are built that way."""
    found: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        found.setdefault(topic, []).append(index)
    return found
