"""One pass over the partitions of a Fetch request, as far as it has come."""

from collections.abc import Iterable

from sparkraft.protocol.messages.k01_fetch import PartitionData
from sparkraft.server.broker.fetch_sessions import SessionPartition

Found = list[tuple[SessionPartition, PartitionData]]


class FetchReading:
    """See the module docstring.

    Attributes:
        wanted: the partitions to read.
        now_ms: when they are read; None if the request waited.
        left: bytes that the response has room for.
        may_skip: a follower's partitions without changes may be left out.
        found: the partitions read so far.
        total: their bytes.
        urgent: the response must not wait.
    """

    __slots__ = ("found", "left", "may_skip", "now_ms", "total", "urgent", "wanted")

    def __init__(
        self,
        wanted: Iterable[SessionPartition],
        left: int,
        *,
        now_ms: int | None,
        may_skip: bool,
        urgent: bool,
    ) -> None:
        self.wanted = wanted
        self.left = left
        self.now_ms = now_ms
        self.may_skip = may_skip
        self.found: Found = []
        self.total = 0
        self.urgent = urgent

    @property
    def parked(self) -> bool:
        """Whether the request was read before, and waited."""
        return self.now_ms is None

    def add(self, asked: SessionPartition, data: PartitionData, size: int, *, urgent: bool) -> None:
        """Add a partition that was read, with its bytes of records."""
        self.found.append((asked, data))
        self.total += size
        self.left -= size
        self.urgent = self.urgent or urgent
