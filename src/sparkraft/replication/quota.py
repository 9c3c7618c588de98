"""How fast replication may be (KIP-73): a rate over a few windows of time.

    windows   |  0.9 s: 8 MB  |  1.9 s: 12 MB  |  now: 2 MB   → 22 MB in 2.4 s

The rate is what was counted in the windows kept, over the time since the oldest began, at least one
window. It is Kafka's `SimpleRate`. Exceeding is allowed: what is on its way is counted when it has
arrived, and makes the next ones wait.

Not here: which replicas are throttled (`sparkraft.server.broker.replication_throttles`).
"""

from collections import deque

UNLIMITED = (1 << 63) - 1
"""Kafka's default for every replication rate."""


class ReplicationQuota:
    """One side's bytes, and whether they are too many."""

    def __init__(self, *, windows: int, window_ms: int) -> None:
        """Count nothing yet, allow everything.

        Args:
            windows: `replication.quota.window.num`, how many are kept.
            window_ms: their length.
        """
        self.bytes_per_second = UNLIMITED
        self._window_ms = window_ms
        self._windows_max = windows
        self._windows: deque[tuple[int, int]] = deque()
        """Start and bytes of each, the newest last."""

    def set_rate(self, bytes_per_second: int) -> None:
        """Allow this many bytes per second from now on."""
        self.bytes_per_second = bytes_per_second

    def record(self, count: int, now: int) -> None:
        """Count `count` bytes at `now`, monotonic ms."""
        windows = self._windows
        if windows and now < windows[-1][0] + self._window_ms:
            start, before = windows.pop()
            windows.append((start, before + count))
        else:
            windows.append((now, count))
        self._forget(now)

    def rate(self, now: int) -> float:
        """Bytes a second, as of `now`."""
        self._forget(now)
        windows = self._windows
        if not windows:
            return 0.0
        elapsed_ms = max(now - windows[0][0], self._window_ms)
        return sum(count for _, count in windows) * 1000 / elapsed_ms

    def is_exceeded(self, now: int) -> bool:
        """Whether there was more than allowed."""
        if self.bytes_per_second == UNLIMITED:
            return False
        return self.rate(now) > self.bytes_per_second

    def wait_ms(self, now: int) -> int:
        """How long until it is no longer exceeded, if nothing is counted meanwhile; 0 if it isn't.

        Each window in turn is the oldest one kept: until it is forgotten, the time since it began
        may have grown long enough for what was counted.
        """
        if not self.is_exceeded(now):
            return 0
        begin = now
        total = sum(count for _, count in self._windows)
        for start, count in self._windows:
            forgotten = start + self._windows_max * self._window_ms
            needed = -(-total * 1000 // self.bytes_per_second)
            due = begin if needed <= self._window_ms else max(begin, start + needed)
            if due < forgotten:
                return due - now
            begin = forgotten
            total -= count
        return begin - now

    def _forget(self, now: int) -> None:
        oldest = now - self._windows_max * self._window_ms
        while self._windows and self._windows[0][0] <= oldest:
            self._windows.popleft()
