"""Replication quotas (KIP-73): a rate over a few time windows.

    windows   |  0.9 s: 8 MB  |  1.9 s: 12 MB  |  now: 2 MB   → 22 MB in 2.4 s

The rate is the bytes of all kept windows, divided by the time since the oldest started, at least
one window. It is Kafka's `SimpleRate`. The rate may be exceeded: bytes in flight are counted on
arrival, and delay the next requests.

Not here: which replicas are throttled (`sparkraft.server.broker.replication_throttles`).
"""

from collections import deque

UNLIMITED = (1 << 63) - 1
"""Kafka's default for every replication rate."""


class ReplicationQuota:
    """The bytes of one direction, and whether they exceed the quota."""

    def __init__(self, *, windows: int, window_ms: int) -> None:
        """Unlimited until `bytes_per_second` is set.

        Args:
            windows: `replication.quota.window.num`, the number of windows kept.
            window_ms: the length of a window.
        """
        self.bytes_per_second = UNLIMITED
        self._window_ms = window_ms
        self._windows_max = windows
        self._windows: deque[tuple[int, int]] = deque()
        """Start and bytes of each window, the newest last."""

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
        """Bytes per second, as of `now`."""
        self._forget(now)
        windows = self._windows
        if not windows:
            return 0.0
        elapsed_ms = max(now - windows[0][0], self._window_ms)
        return sum(count for _, count in windows) * 1000 / elapsed_ms

    def is_exceeded(self, now: int) -> bool:
        """Whether the rate exceeds the quota."""
        if self.bytes_per_second == UNLIMITED:
            return False
        return self.rate(now) > self.bytes_per_second

    def wait_ms(self, now: int) -> int:
        """Milliseconds until the quota is not exceeded if nothing more is recorded; 0 if it is not.

        Each window in turn becomes the oldest one: before it expires, the time since its start may
        already be long enough for the bytes of all windows.
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
