"""Topics as the bytes of Metadata responses: encoded once, and joined for each client.

A topic's bytes depend on the topic, on which brokers are live, and on the variant: listener,
version, and whether authorized operations are shown. The first two are parts of an immutable image,
so a piece is valid as long as they are the same objects.

Invariant: pieces do not depend on the client. The handler authorizes each name first.
"""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from sparkraft.base.ids import Uuid
    from sparkraft.metadata.image import ClusterImage, Topic

VARIANTS_MAX = 4
"""A cluster's clients seldom use more listeners and versions; each costs 40 bytes a partition."""

STALE_MAX = 1_000
"""Pieces of deleted topics that are kept until the next Metadata request."""


class AllTopics(NamedTuple):
    """Every topic of an image, in order of names."""

    topic_count: int
    buffers: Sequence[bytes]


class TopicPieces:
    """The encoded topics of one variant."""

    def __init__(self, image: "ClusterImage") -> None:
        self._brokers = image.brokers
        self._pieces: dict[Uuid, tuple[Topic, bytes]] = {}
        self._all: tuple[object, AllTopics] | None = None

    def is_of(self, image: "ClusterImage") -> bool:
        """Whether the same brokers are live in `image`."""
        return self._brokers is image.brokers

    def get(self, topic: "Topic") -> bytes | None:
        """The piece of a topic in its present state; None if it is not encoded."""
        known = self._pieces.get(topic.id)
        return known[1] if known is not None and known[0] is topic else None

    def put(self, topic: "Topic", piece: bytes) -> None:
        """Keep the piece of a topic."""
        self._pieces[topic.id] = topic, piece

    def all_of(self, image: "ClusterImage") -> AllTopics | None:
        """All topics of `image`; None if they are not joined."""
        known = self._all
        return known[1] if known is not None and known[0] is image.topics_by_id else None

    def put_all(self, image: "ClusterImage", topics: AllTopics) -> None:
        """Keep all topics of `image` joined."""
        self._all = image.topics_by_id, topics

    def drop_deleted(self, image: "ClusterImage") -> None:
        """Drop the pieces of topics that `image` does not have, if there are many."""
        if len(self._pieces) > len(image.topics_by_id) + STALE_MAX:
            known = image.topics_by_id
            self._pieces = {key: piece for key, piece in self._pieces.items() if key in known}


class EncodedTopics:
    """The variants in use, the last used last."""

    def __init__(self) -> None:
        self._variants: OrderedDict[Hashable, TopicPieces] = OrderedDict()

    def variant(self, image: "ClusterImage", key: Hashable) -> TopicPieces:
        """The pieces of a variant that are valid for `image`; empty if it is new."""
        found = self._variants.get(key)
        if found is None or not found.is_of(image):
            found = self._variants[key] = TopicPieces(image)
        self._variants.move_to_end(key)
        if len(self._variants) > VARIANTS_MAX:
            self._variants.popitem(last=False)
        found.drop_deleted(image)
        return found
