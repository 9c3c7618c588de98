"""Cache of decoded Produce requests, keyed by their bytes up to the records.

A client repeats a few such prefixes millions of times: one batch for one partition, with the same
acks and timeout. The handler of Produce learns a shape from a successful request and recognizes
later ones by their first bytes. Keys begin with the session's `cache_tag`, because the permissions
of one principal do not apply to another.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparkraft.security.session import Session
    from sparkraft.server.broker.partition import HostedPartition

SHAPES_MAX = 20_000
"""Above it shapes start over: 10,000 partitions of two clients fit, in a few megabytes."""

SIZES_MAX = 16
"""Prefix lengths tried per version; requests of other lengths take the long path."""

VERSION_BYTES = tuple(bytes((version,)) for version in range(64))
"""A version as the byte that stands in a shape's key."""


class ProduceShape:
    """The decoded result of a request's bytes up to its records.

    Attributes:
        head: the response up to the base offset.
        tail: the response after the log start offset.
        transactional_id: of its transactional batches; None if they are not.
    """

    __slots__ = ("acks", "head", "partition", "tail", "timeout_ms", "transactional_id")

    def __init__(
        self,
        partition: "HostedPartition",
        *,
        acks: int,
        timeout_ms: int,
        transactional_id: str | None,
        head: bytes,
        tail: bytes,
    ) -> None:
        self.partition = partition
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.transactional_id = transactional_id
        self.head = head
        self.tail = tail


class ProduceShapes:
    """The shapes a broker has learned.

    Attributes:
        shapes: by the session's `cache_tag`, the version as a byte, and the prefix.
        sizes: version → lengths of its prefixes.
    """

    def __init__(self) -> None:
        self.shapes: dict[bytes, ProduceShape] = {}
        self.sizes: dict[int, tuple[int, ...]] = {}

    def has_room(self, version: int, size: int) -> bool:
        """Whether a shape with a prefix of `size` bytes may be remembered."""
        sizes = self.sizes.get(version, ())
        return size in sizes or len(sizes) < SIZES_MAX

    def put(self, session: "Session", version: int, prefix: bytes, shape: ProduceShape) -> None:
        """Remember a shape; all are forgotten when there are too many."""
        if len(self.shapes) >= SHAPES_MAX:
            self.shapes.clear()
            self.sizes.clear()
        self.shapes[session.cache_tag + VERSION_BYTES[version] + prefix] = shape
        sizes = self.sizes.get(version, ())
        if len(prefix) not in sizes:
            self.sizes[version] = (*sizes, len(prefix))
