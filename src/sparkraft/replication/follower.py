"""What a leader knows of one follower, from its fetches (Kafka's `Replica` and `ReplicaState`).

A fetch at offset 12 says: everything below 12 is here. So a follower's log end offset is the offset
of its last fetch, and it was caught up at the time t if it has fetched, since then, from where the
leader's log ended at t:

    now   fetch   leader's LEO    caught up at
    100   5       5               100    it has everything
    200   5       9               100
    300   9       14              200    it has what there was when it asked last
"""

UNKNOWN_OFFSET = -1
"""Of a follower that has not fetched in this leadership."""

UNKNOWN_BROKER_EPOCH = -1
"""Of a fetch older than version 15 (KIP-903), and of a follower that has not fetched."""

NEVER = -(1 << 62)
"""A time before all others, in milliseconds."""


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
        """Nothing is known."""
        self.log_end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.last_fetch_leader_end = UNKNOWN_OFFSET
        """Where the leader's log ended at the last fetch."""
        self.last_fetch_ms = NEVER
        self.last_caught_up_ms = NEVER
        self.broker_epoch = UNKNOWN_BROKER_EPOCH
        self.has_fetched = False
        """In this leadership, of whatever epoch."""

    def begin_epoch(self, *, in_sync: bool, leader_end: int, now_ms: int) -> None:
        """A leader epoch begins: members of the ISR count as caught up now, others as never.

        So that the high watermark is not held for one that left the ISR, and none joins it before
        it has fetched. What was learnt in an earlier epoch of the same leader stays: the leader's
        log has not changed.
        """
        self.last_caught_up_ms = now_ms if in_sync else NEVER
        if self.has_fetched:
            self.last_fetch_leader_end = leader_end
            self.last_fetch_ms = now_ms if in_sync else NEVER

    def on_fetch(
        self, offset: int, *, log_start_offset: int, leader_end: int, broker_epoch: int, now_ms: int
    ) -> None:
        """Note a fetch from `offset` on, read while the leader's log ended at `leader_end`."""
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
        """Note a fetch that is the same as the last, of a follower that has everything."""
        self.last_caught_up_ms = self.last_fetch_ms = now_ms

    def is_caught_up(self, leader_end: int, now_ms: int, lag_ms_max: int) -> bool:
        """Whether it has everything, or had everything within the last `lag_ms_max`."""
        return self.log_end_offset == leader_end or now_ms - self.last_caught_up_ms <= lag_ms_max
