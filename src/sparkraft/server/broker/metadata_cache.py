"""The cluster image this broker acts on: the last one published to it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparkraft.metadata.image import ClusterImage


class MetadataCache:
    """Holds the current image; the first to get a new one from the `MetadataPublisher`.

    Attributes:
        image: as of the last committed record published here; replaced, never changed.
    """

    __slots__ = ("image",)

    def __init__(self, image: "ClusterImage") -> None:
        self.image = image

    def on_image(self, image: "ClusterImage") -> None:
        """Replace the image."""
        self.image = image
