"""One pass over the partitions of a Fetch request, as far as it has come."""

from collections.abc import Iterable

from sparkraft.protocol.messages.k01_fetch import PartitionData
from sparkraft.server.broker.fetch_sessions import SessionPartition

Found = list[tuple[SessionPartition, PartitionData]]


class FetchReading:
    """See the module docstring.

    Attributes:
        wanted: the partitions to read.
        left: bytes that the response has room for.
        parked: the request was read before, and waited.
        may_skip: a follower's partitions without changes may be left out.
        found: the partitions read so far.
        total: their bytes.
        urgent: the response must not wait.
    """

    __slots__ = ("found", "left", "may_skip", "now_ms", "parked", "total", "urgent", "wanted")

    def __init__(self, wanted: Iterable[SessionPartition], left: int, *, parked: bool) -> None:
        self.wanted = wanted
        self.left = left
        self.parked = parked
        self.now_ms: int | None = None
        self.may_skip = False
        self.found: Found = []
        self.total = 0
        self.urgent = False
