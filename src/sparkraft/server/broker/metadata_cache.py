"""The cluster image this broker acts on: the last one published to it."""

from typing import TYPE_CHECKING

from sparkraft.server.broker.encoded_topics import EncodedTopics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkraft.metadata.image import ClusterImage


class MetadataCache:
    """Holds the current image; the first to get a new one from the `MetadataPublisher`.

    Attributes:
        image: as of the last committed record published here; replaced, never changed.
        encoded: its topics as bytes of Metadata responses.
    """

    __slots__ = ("_names", "_names_of", "encoded", "image")

    def __init__(self, image: "ClusterImage") -> None:
        self.image = image
        self.encoded = EncodedTopics()
        self._names: Sequence[str] = ()
        self._names_of: object = None

    def on_image(self, image: "ClusterImage") -> None:
        """Replace the image."""
        self.image = image

    def topic_names(self, image: "ClusterImage") -> "Sequence[str]":
        """The names of all topics in `image`, sorted; once for every change of them."""
        by_name = image.topics_by_name
        if self._names_of is not by_name:
            self._names = sorted(by_name)
            self._names_of = by_name
        return self._names
