"""One partition that a follower fetches: its stage and its position.

    follow ──▶ TRUNCATING ──▶ FETCHING ◀──▶ OUT_OF_RANGE
       (no epoch known, or Fetch   │  ▲
        does not show divergence)  │  │
                                     ▼  └── follow, at a later leader epoch
                                  FAILED

Not here: the causes of transitions (`fetcher`).
"""

from enum import Enum

from sparkraft.replication.fetch_session import FetchPosition
from sparkraft.replication.replica import Replica

NO_EPOCH = -1


class Stage(Enum):
    """The state of a followed partition; `NEXT_STAGES` has the transitions."""

    TRUNCATING = "truncating"
    """Its log has no leader epoch: the next `build` truncates it to the high watermark. Or Fetch
    does not show that logs diverge: request the leader's end of its newest epoch."""
    FETCHING = "fetching"
    """It is in the next request, unless it is backing off."""
    OUT_OF_RANGE = "out of range"
    """The leader does not have the offset: request its log start and end offsets."""
    FAILED = "failed"
    """Its disk failed or its leader epoch ended; a later leader epoch restarts it."""


NEXT_STAGES: dict[Stage, frozenset[Stage]] = {
    Stage.TRUNCATING: frozenset({Stage.FETCHING, Stage.FAILED}),
    Stage.FETCHING: frozenset({Stage.OUT_OF_RANGE, Stage.FAILED}),
    Stage.OUT_OF_RANGE: frozenset({Stage.FETCHING, Stage.FAILED}),
    Stage.FAILED: frozenset(),
}
"""Within one leader epoch; `follow` in a later one starts at TRUNCATING or FETCHING."""


class FollowedPartition:
    """A fetcher's state of one partition.

    Attributes:
        replica: the local replica.
        fetch_offset: the offset of the next request.
        last_fetched_epoch: the epoch of our last record; -1 if there is none, or if Fetch does not
            have it.
        lag: offsets to the leader's high watermark in the last response; None before the first.
        backoff_ms: the last backoff; 0 after a success.
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
        "truncates_on_fetch",
    )

    def __init__(
        self,
        topic: str,
        index: int,
        leader_epoch: int,
        replica: Replica,
        *,
        truncates_on_fetch: bool = True,
    ) -> None:
        self.topic = topic
        self.index = index
        self.leader_epoch = leader_epoch
        self.replica = replica
        self.truncates_on_fetch = truncates_on_fetch
        latest = replica.latest_epoch
        if latest is None or not truncates_on_fetch:
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
        """`topic-index`, for logs."""
        return f"{self.topic}-{self.index}"

    def enter(self, stage: Stage) -> None:
        """Enter `stage`; `NEXT_STAGES` must allow it."""
        assert stage in NEXT_STAGES[self.stage], (self.stage, stage)
        self.stage = stage

    def read_position(self) -> None:
        """Set the position to the end of the local log."""
        self.fetch_offset = self.replica.log_end_offset
        latest = self.replica.latest_epoch if self.truncates_on_fetch else None
        self.last_fetched_epoch = NO_EPOCH if latest is None else latest

    def fetch_position(self) -> FetchPosition:
        """The position for the next request."""
        return FetchPosition(
            self.fetch_offset,
            self.replica.log_start_offset,
            self.leader_epoch,
            self.last_fetched_epoch,
            self.topic,
        )
