"""Replays the metadata log and keeps an image that ignores open transactions (KIP-868).

Three images:
    * *latest*: all records so far, committed or not; the active controller decides on it.
    * *before_transaction*: the image that an abort restores, while a transaction is open.
    * *stable*: the last committed image outside transactions, for brokers, responses, snapshots.

A broker or standby controller replays committed records only, so its *latest* is never past the
high watermark. The active controller replays its own decisions at once and calls `commit` later.
"""

from collections import deque
from collections.abc import Iterable

from sparkraft.base.errors import InvariantBroken
from sparkraft.metadata.apply import Record, apply
from sparkraft.metadata.image import EMPTY_IMAGE, ClusterImage
from sparkraft.protocol.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
)

_Point = tuple[ClusterImage, ClusterImage | None]
"""The image after a batch, and the one before the transaction that is open there."""


class Replay:
    """Images of one node's metadata log.

    Invariant: `stable` is never inside a transaction and never contains uncommitted records.
    """

    def __init__(self, image: ClusterImage = EMPTY_IMAGE) -> None:
        """Start from a loaded snapshot, or from an empty cluster."""
        self._stable = image
        self._latest = image
        self._before_transaction: ClusterImage | None = None
        # Ends of uncommitted batches, oldest first: (latest, before_transaction).
        self._uncommitted: deque[_Point] = deque()
        self._committed: _Point = (image, None)

    @property
    def stable(self) -> ClusterImage:
        """The newest committed image outside any transaction."""
        return self._stable

    @property
    def latest(self) -> ClusterImage:
        """The image after every replayed record."""
        return self._latest

    @property
    def committed_offset(self) -> int:
        """Offset of the last committed record; -1 for none."""
        return self._committed[0].offset

    @property
    def after_abort(self) -> ClusterImage:
        """The image after an abort: the latest, or the one before the open transaction."""
        return self._before_transaction or self._latest

    @property
    def in_transaction(self) -> bool:
        """Whether a metadata transaction is open."""
        return self._before_transaction is not None

    def replay_batch(self, records: Iterable[Record], *, last_offset: int, epoch: int) -> None:
        """Replay one batch whose last record is at `last_offset`; not yet committed."""
        for record in records:
            self._replay(record)
        self._latest = self._latest.at(last_offset, epoch)
        self._uncommitted.append((self._latest, self._before_transaction))

    def commit(self, offset: int) -> bool:
        """Everything up to `offset` is committed; whether `stable` moved."""
        moved = False
        while self._uncommitted and self._uncommitted[0][0].offset <= offset:
            self._committed = self._uncommitted.popleft()
            if self._committed[1] is None:
                self._stable = self._committed[0]
                moved = True
        return moved

    def revert(self) -> None:
        """Forget what was never committed: leadership is lost, and the log will say what holds."""
        self._latest, self._before_transaction = self._committed
        self._uncommitted.clear()

    def load(self, image: ClusterImage) -> None:
        """Start over from a snapshot's image."""
        self._stable = image
        self._committed = (image, None)
        self.revert()

    def _replay(self, record: Record) -> None:
        kind = type(record)
        if kind is BeginTransactionRecord:
            if self._before_transaction is not None:
                raise InvariantBroken("a metadata transaction begins inside another")
            self._before_transaction = self._latest
        elif kind is EndTransactionRecord:
            if self._before_transaction is None:
                raise InvariantBroken("a metadata transaction ends that never began")
            self._before_transaction = None
        elif kind is AbortTransactionRecord:
            if self._before_transaction is None:
                raise InvariantBroken("a metadata transaction aborts that never began")
            self._latest = self._before_transaction
            self._before_transaction = None
        else:
            self._latest = apply(self._latest, record)
