"""Moves a replica to another log directory of its broker (KIP-113, KIP-858).

A copy, the *future replica*, reads from the current replica, whether that leads or follows:

    TRUNCATING ──▶ COPYING ──▶ caught up: ASSIGN ──▶ in the metadata ──▶ caught up: SWAP
         ▲            │
         └────────────┘  the replica was truncated, or the copy is ahead of it

Kafka's ReplicaAlterLogDirsThread. A driver calls `step` until it returns WAIT, and carries out the
other results. The copy truncates by leader epoch like a follower whose leader is the current
replica (OffsetForLeaderEpoch), also after a restart, when it may have missed a truncation.

The controller learns the new directory before the swap: if the old one fails in between, it knows
that this replica is not lost. If the move ends otherwise, the assignment is reverted there.

Not here: files (`sparkraft.storage.future_logs`), requests (`sparkraft.server.broker`).
"""

from enum import Enum
from typing import Any, Protocol

from sparkraft.records.batch import BATCH_OVERHEAD, parse_header
from sparkraft.replication.truncation import EpochsOfLog, truncation_point


class MoveStage(Enum):
    """The state of the copy; `NEXT_MOVE_STAGES` has the transitions."""

    TRUNCATING = "truncating"
    """It may have records that the replica does not have: truncate it first."""
    COPYING = "copying"
    """It is a prefix of the replica."""


NEXT_MOVE_STAGES: dict[MoveStage, frozenset[MoveStage]] = {
    MoveStage.TRUNCATING: frozenset({MoveStage.COPYING, MoveStage.TRUNCATING}),
    MoveStage.COPYING: frozenset({MoveStage.TRUNCATING}),
}


class Promotion(Enum):
    """The metadata's knowledge of the new directory (Kafka's ReassignmentState)."""

    NONE = "none"
    """None: the copy has not caught up yet."""
    ASKED = "asked"
    """AssignReplicasToDirs was requested."""
    ACCEPTED = "accepted"
    """The metadata has the replica in the new directory."""


class Next(Enum):
    """The result of a step."""

    MORE = "more"
    """Call `step` again at once."""
    ASSIGN = "assign"
    """Caught up for the first time: assign the directory at the controller, then `on_accepted`."""
    SWAP = "swap"
    """Caught up, and assigned in the metadata: swap now, before the next append."""
    WAIT = "wait"
    """Wait for the controller, or for appends."""


class Source(EpochsOfLog, Protocol):
    """The replica's log."""

    @property
    def log_start_offset(self) -> int:
        """The first offset in the log."""
        ...

    @property
    def high_watermark(self) -> int:
        """The end of what is known to be committed, exclusive."""
        ...

    def read(self, offset: int, *, max_bytes: int, up_to: int) -> Any:
        """Pieces of batches from `offset` on, at least one batch, and their size."""
        ...


class Copy(EpochsOfLog, Protocol):
    """The copy's log."""

    @property
    def log_start_offset(self) -> int:
        """The first offset in the log."""
        ...

    @property
    def high_watermark(self) -> int:
        """The replica's high watermark at the last step."""
        ...

    @property
    def latest_epoch(self) -> int | None:
        """The newest leader epoch in it."""
        ...

    @property
    def size_in_bytes(self) -> int:
        """The size of all its batches."""
        ...

    def append_as_follower(self, records: Any) -> Any:
        """Append batches as they are."""
        ...

    def truncate_to(self, offset: int) -> bool:
        """Remove everything from `offset` on."""
        ...

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove everything; continue, empty, at `offset`."""
        ...

    def set_high_watermark(self, offset: int) -> None:
        """Set the end of what is committed, exclusive."""
        ...

    def advance_log_start(self, offset: int) -> bool:
        """Delete everything below `offset`."""
        ...


class DirectoryMove:
    """See the module docstring. Logs may raise `KafkaError` and disk errors.

    Attributes:
        copied_bytes: bytes copied by this object.
    """

    def __init__(self, replica: Source, copy: Copy, *, tell_cluster: bool) -> None:
        """Start, or continue after a restart.

        Args:
            replica: the log to copy.
            copy: its copy so far.
            tell_cluster: whether the metadata has directories (metadata.version 3.7-IV2).
        """
        self.replica = replica
        self.copy = copy
        self.stage = MoveStage.TRUNCATING
        self.promotion = Promotion.NONE if tell_cluster else Promotion.ACCEPTED
        self.copied_bytes = 0
        self._fallback = copy.high_watermark
        """Truncation offset if the copy has no epochs: its high watermark."""

    @property
    def lag(self) -> int:
        """Offsets that the copy lags; negative while it must be truncated."""
        return self.replica.log_end_offset - self.copy.log_end_offset

    @property
    def may_be_known(self) -> bool:
        """Whether the metadata may have the replica in the new directory already."""
        return self.promotion is not Promotion.NONE

    def on_truncated(self, offset: int) -> None:
        """The replica was truncated to `offset` durably; truncate the copy, too."""
        self._enter(MoveStage.TRUNCATING)
        self._fallback = min(offset, self.copy.log_end_offset)

    def on_accepted(self) -> None:
        """The metadata say that the replica lies in the new directory."""
        self.promotion = Promotion.ACCEPTED

    def step(self, max_bytes: int) -> Next:
        """Truncate, or copy at most `max_bytes` (or one batch)."""
        replica, copy = self.replica, self.copy
        if self.stage is MoveStage.TRUNCATING:
            self._truncate()
            return Next.MORE
        if copy.log_end_offset > replica.log_end_offset:
            self._enter(MoveStage.TRUNCATING)
            self._fallback = replica.log_end_offset
            return Next.MORE
        if copy.log_end_offset < replica.log_start_offset:
            copy.truncate_fully_and_start_at(replica.log_start_offset)
        if copy.log_end_offset < replica.log_end_offset:
            self._copy(max_bytes)
        copy.set_high_watermark(replica.high_watermark)
        copy.advance_log_start(min(replica.log_start_offset, copy.high_watermark))
        if copy.log_end_offset < replica.log_end_offset:
            return Next.MORE
        return self._caught_up()

    def _caught_up(self) -> Next:
        if self.promotion is Promotion.NONE:
            self.promotion = Promotion.ASKED
            return Next.ASSIGN
        return Next.SWAP if self.promotion is Promotion.ACCEPTED else Next.WAIT

    def _truncate(self) -> None:
        copy = self.copy
        latest = copy.latest_epoch
        if latest is None:
            copy.truncate_to(self._fallback)
            self._enter(MoveStage.COPYING)
            return
        epoch, end_offset = self.replica.end_offset_for_epoch(latest) or (-1, -1)
        point = truncation_point(copy, epoch=epoch, end_offset=end_offset, fallback=self._fallback)
        copy.truncate_to(point.offset)
        self._enter(MoveStage.COPYING if point.completed else MoveStage.TRUNCATING)

    def _copy(self, max_bytes: int) -> None:
        replica, copy = self.replica, self.copy
        pieces, size = replica.read(
            copy.log_end_offset, max_bytes=max_bytes, up_to=replica.log_end_offset
        )
        records = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if copy.log_start_offset == copy.log_end_offset and size >= BATCH_OVERHEAD:
            header = parse_header(records)
            if header.base_offset < copy.log_end_offset <= header.last_offset:
                # The replica starts inside its first batch, which is read whole.
                copy.truncate_fully_and_start_at(header.base_offset)
        before = copy.size_in_bytes
        copy.append_as_follower(records)
        self.copied_bytes += copy.size_in_bytes - before

    def _enter(self, stage: MoveStage) -> None:
        assert stage is self.stage or stage in NEXT_MOVE_STAGES[self.stage], (self.stage, stage)
        self.stage = stage
