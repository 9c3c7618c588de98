"""A leader's view of one follower, from its fetches (Kafka's `Replica` and `ReplicaState`).

A fetch at offset 12 means that the follower has everything below 12. So its log end offset is the
offset of its last fetch, and it was caught up at time t if it has since fetched from the leader's
log end at t:

    now   fetch   leader's LEO    caught up at
    100   5       5               100    it has everything
    200   5       9               100
    300   9       14              200    it has everything up to its previous fetch
"""

UNKNOWN_OFFSET = -1
"""The offset of a follower that has not fetched in this leadership."""

UNKNOWN_BROKER_EPOCH = -1
"""For a Fetch older than version 15 (KIP-903), and a follower that has not fetched."""

NEVER = -(1 << 62)
"""A time before all other times, in milliseconds."""


class FollowerState:
    """One follower of a led partition. Times are monotonic milliseconds."""

    __slots__ = (
        "broker_epoch",
        "has_fetched",
        "last_caught_up_ms",
        "last_fetch_leader_end",
        "last_fetch_ms",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self) -> None:
        self.log_end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.last_fetch_leader_end = UNKNOWN_OFFSET
        """The leader's log end offset at the last fetch."""
        self.last_fetch_ms = NEVER
        self.last_caught_up_ms = NEVER
        self.broker_epoch = UNKNOWN_BROKER_EPOCH
        self.has_fetched = False
        """In this leadership, in any epoch."""

    def begin_epoch(self, *, in_sync: bool, leader_end: int, now_ms: int) -> None:
        """Start a leader epoch: ISR members count as caught up now, others as never caught up.

        So the high watermark does not wait for a follower that left the ISR, and no follower joins
        it before it has fetched. Offsets from an earlier epoch of the same leader stay valid: the
        leader's log has not changed.
        """
        self.last_caught_up_ms = now_ms if in_sync else NEVER
        if self.has_fetched:
            self.last_fetch_leader_end = leader_end
            self.last_fetch_ms = now_ms if in_sync else NEVER

    def on_fetch(
        self, offset: int, *, log_start_offset: int, leader_end: int, broker_epoch: int, now_ms: int
    ) -> None:
        """Record a fetch from `offset` on, read while the leader's log ended at `leader_end`."""
        if offset >= leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif offset >= self.last_fetch_leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
        self.last_fetch_leader_end = max(leader_end, self.last_fetch_leader_end)
        self.last_fetch_ms = now_ms
        self.broker_epoch = broker_epoch
        self.has_fetched = True

    def fetched_again(self, now_ms: int) -> None:
        """Record a fetch identical to the last one, of a follower that has everything."""
        self.last_caught_up_ms = self.last_fetch_ms = now_ms

    def is_caught_up(self, leader_end: int, now_ms: int, lag_ms_max: int) -> bool:
        """Whether it has everything, or had everything within the last `lag_ms_max`."""
        return self.log_end_offset == leader_end or now_ms - self.last_caught_up_ms <= lag_ms_max
