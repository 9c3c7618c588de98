"""The core's view of its log: offsets, epochs, snapshots and voter sets, but no records.

It changes together with the log effects of `Ready`, so it is ahead of the disk only by work that
the driver already has; everything below `durable_end` is known to be on disk.

Invariants:
    * start <= high watermark <= end, durable_end <= end; the high watermark never goes back.
    * Epochs and their start offsets both increase.
    * The voter set in force is the latest one in the log, committed or not (KIP-853).
"""

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TypeVar

from sparkraft.base.errors import InvariantBroken
from sparkraft.base.ids import LeaderEpoch, Offset
from sparkraft.raft.events import (
    EpochAndOffset,
    KRaftVersionChange,
    LogBatch,
    VotersChange,
)
from sparkraft.raft.voters import VoterSet

T = TypeVar("T")

FIRST_OFFSET = Offset(0)
"""The start of a log that was never cleaned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredLog:
    """The log as the driver found it on disk.

    `epochs` are (epoch, first offset), ascending; `snapshots` have their sizes in bytes; `voters`
    and `kraft_versions` are (offset, value), ascending. A snapshot's entry has the last offset that
    the snapshot contains (-1 for the zero checkpoint).
    """

    start: Offset = FIRST_OFFSET
    end: Offset = FIRST_OFFSET
    epochs: tuple[tuple[LeaderEpoch, Offset], ...] = ()
    snapshots: dict[EpochAndOffset, int] = field(default_factory=dict)
    voters: tuple[tuple[Offset, VoterSet], ...] = ()
    kraft_versions: tuple[tuple[Offset, int], ...] = ()


class LogView:
    """See the module docstring; `static_voters` apply until the log has a voter set."""

    def __init__(self, recovered: RecoveredLog, static_voters: VoterSet) -> None:
        self.start = recovered.start
        self.end = recovered.end
        self.durable_end = recovered.end
        self.high_watermark: Offset | None = None
        self.generation = 0
        self.snapshots = dict(recovered.snapshots)
        self.static_voters = static_voters
        self._epochs = list(recovered.epochs)
        self._voters = list(recovered.voters)
        self._kraft_versions = list(recovered.kraft_versions)

    @property
    def voters(self) -> VoterSet:
        """The voter set in force."""
        return self._voters[-1][1] if self._voters else self.static_voters

    @property
    def voters_offset(self) -> Offset | None:
        """The offset of the voter set in force; -1 for the zero checkpoint, None if static."""
        return self._voters[-1][0] if self._voters else None

    @property
    def kraft_version(self) -> int:
        """The kraft.version in force."""
        return self._kraft_versions[-1][1] if self._kraft_versions else 0

    @property
    def latest_snapshot(self) -> EpochAndOffset | None:
        return max(self.snapshots, default=None)

    @property
    def earliest_snapshot(self) -> EpochAndOffset | None:
        """The oldest snapshot kept."""
        return min(self.snapshots, default=None)

    @property
    def last_epoch(self) -> LeaderEpoch:
        """The epoch of the last record, or of the snapshot that the log starts at; else 0."""
        return self._last_epoch_below(self.end)

    @property
    def end_point(self) -> EpochAndOffset:
        """The end of the log."""
        return EpochAndOffset(self.last_epoch, self.end)

    @property
    def durable_point(self) -> EpochAndOffset:
        """The end of the log on disk, which a candidate may claim."""
        return EpochAndOffset(self._last_epoch_below(self.durable_end), self.durable_end)

    def _last_epoch_below(self, offset: Offset) -> LeaderEpoch:
        for epoch, first in reversed(self._epochs):
            if first < offset:
                return epoch
        snapshots = [snapshot.epoch for snapshot in self.snapshots if snapshot.offset <= offset]
        return max(snapshots, default=LeaderEpoch(0))

    def voters_at(self, offset: Offset) -> tuple[VoterSet, int]:
        """Voter set and kraft.version as of a snapshot that ends at `offset` (exclusive)."""
        voters = [value for at, value in self._voters if at < offset]
        versions = [value for at, value in self._kraft_versions if at < offset]
        return (voters[-1] if voters else self.static_voters, versions[-1] if versions else 0)

    def end_of_epoch(self, epoch: LeaderEpoch) -> EpochAndOffset:
        """The end of the largest epoch at or below `epoch`, as in Kafka's metadata log."""
        at = bisect_right(self._epochs, epoch, key=lambda entry: entry[0])
        if at == len(self._epochs):
            return self.end_point
        end = self._epochs[at][1]
        if at:
            return EpochAndOffset(self._epochs[at - 1][0], end)
        earliest = self.earliest_snapshot
        if earliest is not None and earliest.offset == end:
            return earliest
        return EpochAndOffset(epoch, end)

    def truncation_point(self, diverging: EpochAndOffset) -> Offset:
        """The offset to truncate to if the leader's `diverging.epoch` ended at its offset."""
        if diverging.epoch == 0:
            return min(diverging.offset, self.end)
        local = self.end_of_epoch(diverging.epoch)
        if local.epoch == diverging.epoch:
            return min(local.offset, diverging.offset)
        return local.offset

    def append(self, batch: LogBatch) -> None:
        """Append `batch`."""
        if batch.base_offset != self.end or batch.epoch < self.last_epoch:
            raise InvariantBroken(f"{batch} does not follow {self.end_point}")
        if not self._epochs or batch.epoch > self._epochs[-1][0]:
            self._epochs.append((batch.epoch, batch.base_offset))
        for delta, control in enumerate(batch.controls):
            offset = Offset(batch.base_offset + delta)
            if isinstance(control, VotersChange):
                self._voters.append((offset, control.voters))
            elif isinstance(control, KRaftVersionChange):
                self._kraft_versions.append((offset, control.kraft_version))
        self.end = batch.next_offset

    def truncate_to(self, offset: Offset) -> None:
        """Remove everything from `offset` on; never below the high watermark."""
        if offset < max(self.high_watermark or 0, self.start):
            raise InvariantBroken(
                f"cannot truncate to {offset}, committed up to {self.high_watermark}"
            )
        self.end = min(self.end, offset)
        self.durable_end = min(self.durable_end, self.end)
        self.generation += 1
        self._epochs = [entry for entry in self._epochs if entry[1] < offset]
        self._voters = [entry for entry in self._voters if entry[0] < offset]
        self._kraft_versions = [entry for entry in self._kraft_versions if entry[0] < offset]

    def install(
        self, snapshot: EpochAndOffset, size: int, kraft_version: int, voters: VoterSet | None
    ) -> None:
        """Replace the log by `snapshot`."""
        self.start = self.end = self.durable_end = snapshot.offset
        self.generation += 1
        self.snapshots = {snapshot: size}
        self._epochs = []
        last = Offset(snapshot.offset - 1)
        self._voters = [] if voters is None else [(last, voters)]
        self._kraft_versions = [(last, kraft_version)] if kraft_version else []
        self.advance_high_watermark(snapshot.offset)

    def clean(self, log_start_offset: Offset) -> None:
        """Remove everything below `log_start_offset`, except the values in force there."""
        self.start = max(self.start, log_start_offset)
        self.snapshots = {
            snapshot: size
            for snapshot, size in self.snapshots.items()
            if snapshot.offset >= log_start_offset
        }
        kept = max(0, bisect_right(self._epochs, log_start_offset, key=lambda entry: entry[1]) - 1)
        self._epochs = self._epochs[kept:]
        if self._epochs and self._epochs[0][1] < log_start_offset:
            self._epochs[0] = (self._epochs[0][0], log_start_offset)
        self._voters = _latest_from(self._voters, log_start_offset)
        self._kraft_versions = _latest_from(self._kraft_versions, log_start_offset)

    def advance_high_watermark(self, offset: Offset) -> bool:
        """Raise the high watermark, never lower it; returns whether it moved."""
        if self.high_watermark is not None and offset <= self.high_watermark:
            return False
        if offset > self.end:
            raise InvariantBroken(f"high watermark {offset} beyond the log end {self.end}")
        self.high_watermark = offset
        return True


def _latest_from(history: list[tuple[Offset, T]], offset: Offset) -> list[tuple[Offset, T]]:
    """The entries from the one in force just below `offset` on."""
    older = [entry for entry in history if entry[0] < offset]
    return older[-1:] + [entry for entry in history if entry[0] >= offset]
