"""Which leader epoch began at which offset (KIP-101, KIP-279): the leader-epoch checkpoint.

Derivable from the batches; the file exists because old batches may be gone or not scanned at start.

Invariant: epochs and start offsets both rise.
"""

from bisect import bisect_right


class LeaderEpochs:
    """The epochs of one partition's log."""

    __slots__ = ("_epochs", "_starts", "dirty")

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        """Take entries as read; those that break the invariant give way to later ones."""
        self._epochs: list[int] = []
        self._starts: list[int] = []
        for epoch, start in entries or ():
            self.assign(epoch, start)
        self.dirty = False
        """Whether the file lags behind."""

    @property
    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset), rising; in a thread that syncs, maybe without one half noted."""
        return list(zip(self._epochs, self._starts, strict=False))

    @property
    def latest(self) -> int | None:
        """The newest epoch."""
        return self._epochs[-1] if self._epochs else None

    def assign(self, epoch: int, start_offset: int) -> None:
        """Note that `epoch` begins at `start_offset`; entries that contradict it are dropped."""
        epochs, starts = self._epochs, self._starts
        if epochs and epochs[-1] == epoch and starts[-1] <= start_offset:
            return
        if epoch < 0 or start_offset < 0:
            return
        while epochs and (epochs[-1] >= epoch or starts[-1] >= start_offset):
            epochs.pop()
            starts.pop()
        epochs.append(epoch)
        starts.append(start_offset)
        self.dirty = True

    def truncate_from_end(self, end_offset: int) -> bool:
        """Drop epochs that begin at or after `end_offset`; whether there were any."""
        dropped = False
        while self._starts and self._starts[-1] >= end_offset:
            self._epochs.pop()
            self._starts.pop()
            dropped = self.dirty = True
        return dropped

    def truncate_from_start(self, start_offset: int) -> bool:
        """Let the epoch of `start_offset` begin there and drop older ones; whether that changed."""
        covered = bisect_right(self._starts, start_offset)
        if covered == 0 or (covered == 1 and self._starts[0] == start_offset):
            return False
        del self._epochs[: covered - 1]
        del self._starts[: covered - 1]
        self._starts[0] = start_offset
        self.dirty = True
        return True

    def clear(self) -> None:
        """Forget all."""
        self.dirty = self.dirty or bool(self._epochs)
        self._epochs.clear()
        self._starts.clear()

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int] | None:
        """Return (the largest epoch at or below `epoch`, its end offset).

        None if `epoch` is above all known epochs. An epoch below all of them ends at the first
        one's start offset.
        """
        if epoch == self.latest:
            return epoch, log_end_offset
        above = bisect_right(self._epochs, epoch)
        if epoch < 0 or above == len(self._epochs):
            return None
        if above == 0:
            return epoch, self._starts[0]
        return self._epochs[above - 1], self._starts[above]

    def epoch_of(self, offset: int) -> int | None:
        """The epoch in which `offset` was written."""
        slot = bisect_right(self._starts, offset) - 1
        return self._epochs[slot] if slot >= 0 else None
