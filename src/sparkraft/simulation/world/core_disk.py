"""The disk of one raft core on the event heap, which models kills and power losses.

The election state is replaced atomically. The log is synced below `durable_end`; the rest is in the
page cache. Finished snapshots are synced.

A snapshot contains a digest over all records below its end (see `fold`), the voters at that offset,
and padding that makes it several chunks long.
"""

import pickle
import random
from bisect import bisect_left
from dataclasses import dataclass, field
from hashlib import blake2b

from sparkraft.base.ids import LeaderEpoch, Offset
from sparkraft.raft.events import (
    ElectionState,
    EpochAndOffset,
    KRaftVersionChange,
    LogBatch,
    VotersChange,
)
from sparkraft.raft.log_view import RecoveredLog
from sparkraft.raft.voters import VoterSet

EMPTY_FOLD = b""
"""The state before the first record."""


def fold(state: bytes, batch: LogBatch) -> bytes:
    """Return the state after `batch`: a digest that differs for any other history."""
    told = (batch.base_offset, batch.last_offset, batch.epoch, batch.payload, batch.controls)
    return blake2b(state + repr(told).encode(), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class SnapshotContent:
    """The content of a snapshot."""

    fold: bytes
    kraft_version: int
    voters: VoterSet
    padding: bytes = b""

    def encode(self) -> bytes:
        return pickle.dumps((self.fold, self.kraft_version, self.voters, self.padding))

    @classmethod
    def decode(cls, raw: bytes) -> "SnapshotContent":
        """Decode a snapshot; `pickle` raises its own errors for damaged bytes."""
        return cls(*pickle.loads(raw))


@dataclass(slots=True)
class CoreDisk:
    """See the module docstring; `partial` is a snapshot being fetched."""

    election: ElectionState | None = None
    start: int = 0
    batches: list[LogBatch] = field(default_factory=list)
    durable_end: int = 0
    snapshots: dict[EpochAndOffset, bytes] = field(default_factory=dict)
    partial: bytearray = field(default_factory=bytearray)
    truncations: int = 0
    unsynced_election: ElectionState | None = None
    """The election state after a power loss; only a planted bug sets it."""

    @property
    def end(self) -> int:
        """The offset of the next record."""
        return self.batches[-1].next_offset if self.batches else self.start

    def index_of(self, offset: int) -> int:
        """Return the index of the first batch at or above `offset`."""
        return bisect_left(self.batches, offset, key=lambda batch: batch.base_offset)

    def batch_below(self, offset: int) -> LogBatch | None:
        """Return the last batch whose base offset is below `offset`."""
        at = self.index_of(offset)
        return self.batches[at - 1] if at else None

    def cut_to(self, offset: int) -> list[LogBatch]:
        """Remove the batches at or above `offset` and return them."""
        at = self.index_of(offset)
        removed = self.batches[at:]
        del self.batches[at:]
        self.durable_end = min(self.durable_end, self.end)
        self.truncations += 1
        return removed

    def lose_power(self, dice: random.Random) -> int:
        """Lose the unsynced batches from a random one on; return the number of lost batches."""
        first = self.index_of(self.durable_end)
        unsynced = len(self.batches) - first
        kept = dice.randint(0, unsynced) if unsynced and dice.random() < 0.5 else 0  # noqa: PLR2004 (a coin)
        del self.batches[first + kept :]
        if self.unsynced_election is not None:
            self.election, self.unsynced_election = self.unsynced_election, None
        self.partial = bytearray()
        return unsynced - kept

    def recover(self) -> RecoveredLog:
        """Return the log as a driver recovers and syncs it on opening."""
        self.partial = bytearray()
        self.durable_end = self.end
        epochs: list[tuple[LeaderEpoch, Offset]] = []
        voters: list[tuple[Offset, VoterSet]] = []
        versions: list[tuple[Offset, int]] = []
        if self.snapshots:
            first = min(self.snapshots)
            content = SnapshotContent.decode(self.snapshots[first])
            if content.kraft_version:
                voters.append((Offset(first.offset - 1), content.voters))
                versions.append((Offset(first.offset - 1), content.kraft_version))
        for batch in self.batches:
            if not epochs or batch.epoch > epochs[-1][0]:
                epochs.append((batch.epoch, batch.base_offset))
            for delta, control in enumerate(batch.controls):
                at = Offset(batch.base_offset + delta)
                if isinstance(control, VotersChange):
                    voters.append((at, control.voters))
                elif isinstance(control, KRaftVersionChange):
                    versions.append((at, control.kraft_version))
        return RecoveredLog(
            start=Offset(self.start),
            end=Offset(self.end),
            epochs=tuple(epochs),
            snapshots={key: len(raw) for key, raw in self.snapshots.items()},
            voters=tuple(voters),
            kraft_versions=tuple(versions),
        )
