"""Replays the metadata log and keeps an image that ignores open transactions (KIP-868).

Three images:
    * *latest*: all records so far, committed or not; the active controller decides on it.
    * *before_transaction*: the image that an abort restores, while a transaction is open.
    * *stable*: the last committed image outside transactions, for brokers, responses, snapshots.

A broker or standby controller replays committed records only, so its *latest* is never past the
high watermark. The active controller replays its own decisions at once and calls `commit` later.

A batch takes effect as a whole. The work for a large one can be done before, in pieces (`prepare`).
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sparkraft.base.errors import InvariantBroken
from sparkraft.base.loop_work import LoopBound
from sparkraft.metadata.apply import Record, apply
from sparkraft.metadata.image import EMPTY_IMAGE, ClusterImage
from sparkraft.protocol.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
)

_Point = tuple[ClusterImage, ClusterImage | None]
"""The image after a batch, and the one before the transaction that is open there."""

RECORDS_PER_PIECE: LoopBound = 500
"""Records of a batch that are replayed in one piece: 2 ms."""


class _Prepared(NamedTuple):
    """The replay of a batch that has had no effect yet."""

    records: Sequence[Record]
    before: _Point
    after: _Point

    def is_of(self, records: Sequence[Record], point: _Point) -> bool:
        """Whether it is what these records lead to from this point."""
        same = self.before[0] is point[0] and self.before[1] is point[1]
        return same and self.records is records


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
        self._prepared: _Prepared | None = None

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

    def prepare(self, records: Sequence[Record]) -> Iterator[int]:
        """Do the work of `replay_batch` in pieces, without an effect; yields their records.

        It is discarded if another batch is replayed, or the image reverts, before this one.
        """
        before = point = self._point
        for start in range(0, len(records), RECORDS_PER_PIECE):
            piece = records[start : start + RECORDS_PER_PIECE]
            point = _replayed(point, piece)
            yield len(piece)
        self._prepared = _Prepared(records, before, point)

    def replay_batch(self, records: Sequence[Record], *, last_offset: int, epoch: int) -> None:
        """Replay one batch whose last record is at `last_offset`; not yet committed."""
        prepared, self._prepared = self._prepared, None
        if prepared is not None and prepared.is_of(records, self._point):
            point = prepared.after
        else:
            point = _replayed(self._point, records)
        self._latest, self._before_transaction = point
        self._latest = self._latest.at(last_offset, epoch)
        self._uncommitted.append(self._point)

    @property
    def _point(self) -> _Point:
        return self._latest, self._before_transaction

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
        self._prepared = None

    def load(self, image: ClusterImage) -> None:
        """Start over from a snapshot's image."""
        self._stable = image
        self._committed = (image, None)
        self.revert()


def _replayed(point: _Point, records: Sequence[Record]) -> _Point:
    """The point after these records."""
    latest, before = point
    for record in records:
        kind = type(record)
        if kind is BeginTransactionRecord:
            if before is not None:
                raise InvariantBroken("a metadata transaction begins inside another")
            before = latest
        elif kind is EndTransactionRecord:
            if before is None:
                raise InvariantBroken("a metadata transaction ends that never began")
            before = None
        elif kind is AbortTransactionRecord:
            if before is None:
                raise InvariantBroken("a metadata transaction aborts that never began")
            latest, before = before, None
        else:
            latest = apply(latest, record)
    return latest, before
