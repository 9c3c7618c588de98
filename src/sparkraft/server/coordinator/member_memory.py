"""Memory of the members of groups: their metadata, assignments and subscriptions.

A member may bring as much as a request holds and stays for its session timeout, up to half an hour.
A regular expression counts with all topics, since it may match them. Above
sparkraft.group.members.max.bytes in all groups of this broker, joins, subscriptions and assignments
are refused with COORDINATOR_NOT_AVAILABLE, so that clients try again. Kafka has no such bound.

Requests add to an estimate. At the bound the groups are counted, if enough has been added since the
last count or `RECOUNT_MS` have passed.
"""

from collections.abc import Callable

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Millis

RECOUNT_MS = 1_000
"""Counting takes less than a microsecond a member."""

RECOUNT_DIVISOR = 8
"""Groups are counted earlier if requests have added this fraction of the bound: members that join
again replace what they had."""


class MemberMemory:
    """See the module docstring.

    Args:
        bytes_max: the bound; 0 or less: none.
        count: counts the bytes that all groups hold.
    """

    def __init__(self, bytes_max: int, count: Callable[[], int]) -> None:
        self._bytes_max = bytes_max
        self._count = count
        self._estimate = 0
        self._added = 0
        """Since the last count."""
        self._counted_ms: Millis | None = None

    def admit(self, count: int, now: Millis) -> None:
        """Let a group take `count` bytes more.

        Raises:
            KafkaError: COORDINATOR_NOT_AVAILABLE.
        """
        if self._bytes_max <= 0:
            return
        if self._estimate + count > self._bytes_max:
            self._recount(now)
        if self._estimate + count > self._bytes_max:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"the members of this broker's groups hold {self._estimate} bytes, and "
                f"sparkraft.group.members.max.bytes is {self._bytes_max}",
            )
        self._estimate += count
        self._added += count

    def _recount(self, now: Millis) -> None:
        is_old = self._counted_ms is None or now - self._counted_ms >= RECOUNT_MS
        if is_old or self._added * RECOUNT_DIVISOR >= self._bytes_max:
            self._counted_ms = now
            self._added = 0
            self._estimate = self._count()
