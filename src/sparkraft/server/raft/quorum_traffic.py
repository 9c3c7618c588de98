"""Counters of a member of the quorum: appends, fetches, commits (Kafka's KafkaRaftMetrics)."""

from collections import deque
from typing import TYPE_CHECKING

from sparkraft.client.connection import ChannelTraffic
from sparkraft.server.recent_values import RecentValues

if TYPE_CHECKING:
    from sparkraft.base.env import Clock

UNCOMMITTED_MAX = 1_000
"""Appends whose commit is timed; a leader without a majority may append more."""


class QuorumTraffic:
    """See the module docstring.

    Attributes:
        appended: records appended as the leader.
        fetched: records fetched from the leader.
        commit_ms: from a leader's append to its commit.
        leaders: how often this node learned of a new leader.
        applied_ms: append time of the last record passed to the listeners, wall clock.
        channel: requests to other members and their responses.
    """

    def __init__(self, clock: "Clock") -> None:
        self._clock = clock
        self.appended = RecentValues(clock)
        self.fetched = RecentValues(clock)
        self.commit_ms = RecentValues(clock)
        self.leaders = 0
        self.applied_ms = 0
        self.channel = ChannelTraffic()
        self._uncommitted: deque[tuple[int, int]] = deque(maxlen=UNCOMMITTED_MAX)
        """End offset and time of the leader's appends."""

    def on_append(self, count: int, end_offset: int) -> None:
        """Count records appended as the leader."""
        self.appended.add(count)
        self._uncommitted.append((end_offset, self._clock.mono_ms()))

    def on_fetched(self, count: int) -> None:
        """Count records fetched from the leader."""
        self.fetched.add(count)

    def on_commit(self, high_watermark: int) -> None:
        """Time the appends below the high watermark."""
        uncommitted = self._uncommitted
        if not uncommitted or uncommitted[0][0] > high_watermark:
            return
        now_ms = self._clock.mono_ms()
        while uncommitted and uncommitted[0][0] <= high_watermark:
            self.commit_ms.add(now_ms - uncommitted.popleft()[1])

    def on_applied(self, append_time_ms: int) -> None:
        """A committed batch was passed to the listeners."""
        self.applied_ms = append_time_ms

    def on_leader(self, leader_id: int | None) -> None:
        """Another leader, or another epoch: earlier appends may be lost."""
        self._uncommitted.clear()
        if leader_id is not None:
            self.leaders += 1
