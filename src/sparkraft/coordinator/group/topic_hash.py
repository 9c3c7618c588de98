"""The hash of a group's subscribed topics (KIP-1101): differs if a topic, partition or rack does.

    topic   byte 0 | topic id (2 int64) | name | partition count int32
            then for each partition: index int32 | for each rack, sorted: length int32 | text
    group   the hash int64 of each existing topic, sorted by name

All integers are little-endian; a text is its UTF-16 units, then their number as an int32. The
values are Kafka's, so a group does not change its epoch when its coordinator moves.
"""

import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING

from sparkraft.coordinator.group.xxh3 import xxh3_64_in_steps
from sparkraft.coordinator.steps import PIECE_UNITS, Steps, pieces, sorted_in_steps
from sparkraft.metadata.image import ClusterImage, Topic

if TYPE_CHECKING:
    from sparkraft.base.ids import Uuid

_INT32 = struct.Struct("<i")
_UINT64 = struct.Struct("<Q")
_IDS = struct.Struct(">QQ")
_IDS_LITTLE = struct.Struct("<QQ")
_VERSION = b"\0"

NO_TOPICS = 0
"""The hash of a group without existing topics."""


class TopicHashes:
    """Hashes of the topics of the current image, computed once for all groups of a shard."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._known: dict[Uuid, tuple[Topic, int]] = {}

    @property
    def image(self) -> ClusterImage:
        return self._image

    def set_image(self, image: ClusterImage) -> None:
        """Later hashes are of `image`."""
        if image.brokers is not self._image.brokers and _racks(image) != _racks(self._image):
            self._known.clear()
        self._image = image

    def of_group(self, topics: Iterable[str]) -> Steps[int]:
        """The hash of a group with these topics, unsigned; unknown ones do not count."""
        image = self._image
        found = bytearray()
        units = 0
        for name in (yield from sorted_in_steps(topics)):
            topic = image.topic(name)
            if topic is not None:
                known = self._known.get(topic.id)
                if known is not None and known[0] is topic:
                    found += _UINT64.pack(known[1])
                else:
                    found += _UINT64.pack((yield from self.of_topic(topic)))
            units += 1
            if units == PIECE_UNITS:
                yield units
                units = 0
        yield units
        if not found:
            return NO_TOPICS
        return (yield from xxh3_64_in_steps(bytes(found)))

    def of_topic(self, topic: Topic) -> Steps[int]:
        """The hash of one topic, unsigned."""
        found = yield from xxh3_64_in_steps((yield from self._topic_bytes(topic)))
        self._known[topic.id] = (topic, found)
        return found

    def _topic_bytes(self, topic: Topic) -> Steps[bytes]:
        parts = [_VERSION, _IDS_LITTLE.pack(*_IDS.unpack(topic.id)), _text(topic.name)]
        parts.append(_INT32.pack(len(topic.partitions)))
        brokers = self._image.brokers
        for piece in pieces(topic.in_order()):
            for index, partition in piece:
                racks = sorted(
                    rack
                    for replica in partition.replicas
                    if (broker := brokers.get(replica)) is not None
                    and (rack := broker.rack) is not None
                )
                parts.append(_INT32.pack(index))
                parts += [_INT32.pack(_units(rack)) + _text(rack) for rack in racks]
            yield len(piece)
        return b"".join(parts)


def _racks(image: ClusterImage) -> dict[int, str | None]:
    return {broker_id: broker.rack for broker_id, broker in image.brokers.items()}


def _units(text: str) -> int:
    """Length in UTF-16 units, as Java counts."""
    return len(text.encode("utf-16-le")) // 2


def _text(text: str) -> bytes:
    encoded = text.encode("utf-16-le")
    return encoded + _INT32.pack(len(encoded) // 2)
