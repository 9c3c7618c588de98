"""How long requests take, per API and version: histograms of whole milliseconds.

    arrival ── queue ──▶ handled ── local ──▶ response, or a wait ── remote ──▶ response
    └────────────────────────────── total ─────────────────────────────────────────┘

Queue is the wait for an event-loop iteration with time for the client; local is the handling of
the received chunk, up to the write of its responses; remote is the wait for replication, records
or the controller, and for earlier responses of the connection. Most requests take less than a
millisecond: these are counted by one addition (`instant`), and have no time in any part.

Kafka measures the same parts (`RequestMetrics`), per thread. Not here: the time that a client
takes to read a response.
"""

from bisect import bisect_left

BOUNDS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000)
"""Inclusive upper bounds of the buckets; the last bucket has none."""


class Histogram:
    """Durations by bucket of `BOUNDS_MS`, and their sum."""

    __slots__ = ("counts", "total_ms")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_MS) + 1)
        self.total_ms = 0

    def add(self, duration_ms: int, count: int) -> None:
        """Count `count` durations."""
        self.counts[bisect_left(BOUNDS_MS, duration_ms)] += count
        self.total_ms += duration_ms * count

    def add_all(self, other: "Histogram") -> None:
        """Count those of `other`."""
        self.counts = [one + more for one, more in zip(self.counts, other.counts, strict=True)]
        self.total_ms += other.total_ms


class RequestTimes:
    """The times of the requests of one route; see the module docstring.

    Attributes:
        instant: requests that took less than a millisecond, and are in no histogram.
        remote: of requests whose response had to wait.
    """

    __slots__ = ("instant", "local", "queue", "remote", "total")

    def __init__(self) -> None:
        self.instant = 0
        self.total = Histogram()
        self.queue = Histogram()
        self.local = Histogram()
        self.remote = Histogram()

    @property
    def requests(self) -> int:
        """How many requests there were."""
        return self.instant + sum(self.total.counts)

    def on_handled(self, count: int, queue_ms: int, local_ms: int) -> None:
        """Requests had their responses at once."""
        if not queue_ms and not local_ms:
            self.instant += count
            return
        self.total.add(queue_ms + local_ms, count)
        self.queue.add(queue_ms, count)
        self.local.add(local_ms, count)

    def on_waited(self, queue_ms: int, local_ms: int, remote_ms: int) -> None:
        """A response had to wait."""
        self.total.add(queue_ms + local_ms + remote_ms, 1)
        self.queue.add(queue_ms, 1)
        self.local.add(local_ms, 1)
        self.remote.add(remote_ms, 1)

    def add_to(self, sums: "RequestTimes") -> None:
        """Add these times to `sums`, instant ones as durations of 0."""
        for one, other in (
            (sums.total, self.total),
            (sums.queue, self.queue),
            (sums.local, self.local),
            (sums.remote, self.remote),
        ):
            one.add_all(other)
        for one in (sums.total, sums.queue, sums.local):
            one.add(0, self.instant)
