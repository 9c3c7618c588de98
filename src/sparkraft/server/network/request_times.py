"""How long requests take, per API and version: histograms of whole milliseconds.

    arrival ── queue ──▶ handled ── local ──▶ response, or a wait ── remote ──▶ response
    └────────────────────────────── total ─────────────────────────────────────────┘
                                                                    response ── send ──▶ written

Queue is the wait for an event-loop iteration with time for the client; local is the handling of
the received chunk, up to the write of its responses; remote is the wait for replication, records
or the controller, and for earlier responses of the connection. Send is the time until the socket
has taken the last byte of a response: more than 0 if the client reads more slowly than it is sent
to. Most requests take less than a millisecond: these are counted by one addition (`instant`), and
have no time in any part. Most responses that wait do so only remotely: these are in one histogram
(`waited`). A response that the socket takes at once is not counted for its send time.

Kafka measures the same parts (`RequestMetrics`), per thread; its total includes the send time.
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
        waited: of requests that took time only remotely, and are in no other histogram.
        remote: of other requests whose response had to wait.
        sending: responses that the socket has not taken yet, or never took.
        send: of responses that it did not take at once.
    """

    __slots__ = ("instant", "local", "queue", "remote", "send", "sending", "total", "waited")

    def __init__(self) -> None:
        self.instant = 0
        self.total = Histogram()
        self.queue = Histogram()
        self.local = Histogram()
        self.remote = Histogram()
        self.waited = Histogram()
        self.sending = 0
        self.send = Histogram()

    @property
    def requests(self) -> int:
        """How many requests there were."""
        return self.instant + sum(self.waited.counts) + sum(self.total.counts)

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
        if not queue_ms and not local_ms:
            self.waited.add(remote_ms, 1)
            return
        self.total.add(queue_ms + local_ms + remote_ms, 1)
        self.queue.add(queue_ms, 1)
        self.local.add(local_ms, 1)
        self.remote.add(remote_ms, 1)

    def on_unsent(self) -> None:
        """The socket did not take a response at once."""
        self.sending += 1

    def on_sent(self, send_ms: int) -> None:
        """It has taken such a response."""
        self.sending -= 1
        self.send.add(send_ms, 1)

    def add_to(self, sums: "RequestTimes") -> None:
        """Add these times to `sums`, with the parts that took no time as durations of 0."""
        for one, other in (
            (sums.total, self.total),
            (sums.total, self.waited),
            (sums.queue, self.queue),
            (sums.local, self.local),
            (sums.remote, self.remote),
            (sums.remote, self.waited),
            (sums.send, self.send),
        ):
            one.add_all(other)
        sums.total.add(0, self.instant)
        for one in (sums.queue, sums.local):
            one.add(0, self.instant + sum(self.waited.counts))
        sums.send.add(0, max(0, self.requests - sum(self.send.counts) - self.sending))
