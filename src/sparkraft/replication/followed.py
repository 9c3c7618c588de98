"""One partition that a follower fetches: where it stands, and from where it goes on.

    follow ──▶ TRUNCATING ──▶ FETCHING ◀──▶ OUT_OF_RANGE
                  (no epoch known)   │  ▲
                                     ▼  └── follow, at a later leader epoch
                                  FAILED

Not here: what moves it from stage to stage (`fetcher`).
"""

from enum import Enum

from sparkraft.replication.fetch_session import FetchPosition
from sparkraft.replication.replica import Replica

NO_EPOCH = -1


class Stage(Enum):
    """Where a partition stands; `NEXT_STAGES` has the ways between."""

    TRUNCATING = "truncating"
    """Its log knows no leader epoch: it is cut to the high watermark at the next `build`."""
    FETCHING = "fetching"
    """It is in the next request, unless it is set aside for a while."""
    OUT_OF_RANGE = "out of range"
    """The leader doesn't have the offset: its bounds are asked for."""
    FAILED = "failed"
    """Its disk failed or its epoch is over; a later leader epoch begins anew."""


NEXT_STAGES: dict[Stage, frozenset[Stage]] = {
    Stage.TRUNCATING: frozenset({Stage.FETCHING, Stage.FAILED}),
    Stage.FETCHING: frozenset({Stage.OUT_OF_RANGE, Stage.FAILED}),
    Stage.OUT_OF_RANGE: frozenset({Stage.FETCHING, Stage.FAILED}),
    Stage.FAILED: frozenset(),
}
"""Within one leader epoch; `follow` at a later one begins at TRUNCATING or FETCHING."""


class FollowedPartition:
    """What a fetcher knows of it.

    Attributes:
        replica: its log here, and what is committed.
        fetch_offset: where the next request begins.
        last_fetched_epoch: of our last record; -1 where the log knows none.
        lag: offsets to the leader's high watermark as of the last answer; None before the first.
        backoff_ms: how long it was set aside the last time; 0 since it delivered.
    """

    __slots__ = (
        "backoff_ms",
        "fetch_offset",
        "index",
        "lag",
        "last_fetched_epoch",
        "leader_epoch",
        "replica",
        "stage",
        "topic",
    )

    def __init__(self, topic: str, index: int, leader_epoch: int, replica: Replica) -> None:
        """Begin to follow in `leader_epoch`."""
        self.topic = topic
        self.index = index
        self.leader_epoch = leader_epoch
        self.replica = replica
        latest = replica.latest_epoch
        if latest is None:
            self.stage = Stage.TRUNCATING
            self.fetch_offset = replica.high_watermark
            self.last_fetched_epoch = NO_EPOCH
        else:
            self.stage = Stage.FETCHING
            self.fetch_offset = replica.log_end_offset
            self.last_fetched_epoch = latest
        self.lag: int | None = None
        self.backoff_ms = 0

    def __str__(self) -> str:
        """`topic-index`, as in logs."""
        return f"{self.topic}-{self.index}"

    def enter(self, stage: Stage) -> None:
        """Go on to another stage, by a way that `NEXT_STAGES` has."""
        assert stage in NEXT_STAGES[self.stage], (self.stage, stage)
        self.stage = stage

    def read_position(self) -> None:
        """Fetch from the log's end on, whatever happened to it."""
        self.fetch_offset = self.replica.log_end_offset
        latest = self.replica.latest_epoch
        self.last_fetched_epoch = NO_EPOCH if latest is None else latest

    def fetch_position(self) -> FetchPosition:
        """What the next request asks of it."""
        return FetchPosition(
            self.fetch_offset,
            self.replica.log_start_offset,
            self.leader_epoch,
            self.last_fetched_epoch,
        )
