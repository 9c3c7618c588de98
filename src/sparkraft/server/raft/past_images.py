"""Images of the cluster as of earlier offsets, made from the metadata log (`DescribeImage`).

An image is replayed from the nearest earlier one that is known: an image made for a recent request,
the node's own, a snapshot, or the empty cluster. All work is done in small steps, so that the event
loop keeps running. As in `metadata.replay`, an image never ends inside a metadata transaction.
"""

import asyncio
from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Millis, Offset
from sparkraft.base.loop_work import LoopBound
from sparkraft.metadata.apply import apply
from sparkraft.metadata.image import EMPTY_IMAGE, ClusterImage
from sparkraft.metadata.replay import Replay
from sparkraft.metadata.snapshot import Pieces, records_in_pieces
from sparkraft.protocol.framing import decode_metadata_record
from sparkraft.records.record import decode_records
from sparkraft.server.raft.committed_log import (
    LogReader,
    cleaned,
    committed_batches,
    committed_end,
    is_idle,
)
from sparkraft.storage.snapshot_files import ZERO_SNAPSHOT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkraft.records.batch import BatchHeader
    from sparkraft.storage.raft_log import RaftLog
    from sparkraft.storage.snapshot_files import SnapshotId

IMAGES_MAX = 2
"""Images kept for the pages that follow; each may be as large as the node's own."""

KEPT_SECONDS = 60.0
"""Images are forgotten this long after the last request."""

READS_MAX = 4
"""Images made at the same time; more requests are refused until one is done."""

END = object()
"""The records have ended."""

RECORD_UNITS = 5
"""Units of work of a record that is decoded and applied (`registry.Steps`)."""

PIECE_RECORDS: LoopBound = 100
"""Records replayed in one step: about 2 ms."""

Steps = Generator[int, None, Any]


@dataclass(slots=True)
class PastImage:
    """An image, and how far its records were returned.

    Attributes:
        image: the metadata as of its offset.
        at_ms: append time of that offset; -1 if it is unknown.
        position: the number of records that `records` has returned.
        records: the image's records from `position` on; None while a response is made.
    """

    image: ClusterImage
    at_ms: int
    position: int = 0
    records: "Pieces | None" = None

    def take_records(self, cursor: int) -> Generator[int, None, Pieces]:
        """The records from `cursor` on. A client that requests pages in order skips none."""
        records, self.records = self.records, None
        at = self.position
        if records is None or at != cursor:
            records, at = records_in_pieces(self.image), 0
        while at < cursor:
            found = next(records, END)
            if found is END:
                wrong = f"the image has fewer than {cursor} records"
                raise KafkaError(ErrorCode.POSITION_OUT_OF_RANGE, wrong)
            at += found is not None
            yield RECORD_UNITS
        return records

    def return_records(self, records: Pieces, position: int) -> None:
        """Keep the records from `position` on for the client's next page."""
        self.records, self.position = records, position


class PastImages:
    """See the module docstring."""

    def __init__(self, reader: LogReader) -> None:
        self._reader = reader
        self._kept: dict[tuple[int, int], PastImage] = {}
        """By offset and epoch, the most recently used last."""
        self._reads = 0
        self._forget_timer: asyncio.TimerHandle | None = None

    def image_at(
        self, *, at_offset: int, at_ms: int, current: ClusterImage
    ) -> Generator[int, None, PastImage]:
        """Make or find the image as of an offset and a time, -1 for the last committed.

        `current` is the node's own image, from which later ones are made.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE if the offset or time is deleted or not committed, or
                if the log was cleaned during the read; REQUEST_TIMED_OUT if `READS_MAX` are made.
        """
        log = self._reader.log
        end = committed_end(self._reader)
        if at_offset >= end:
            wrong = f"offset {at_offset} is not committed; the high watermark is {end}"
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, wrong)
        up_to = end if at_offset < 0 else Offset(at_offset + 1)
        if at_ms >= 0:
            up_to = log.offset_at(Millis(at_ms + 1), up_to=up_to)
        if self._reads >= READS_MAX:
            wrong = f"{READS_MAX} images are being read; retry"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, wrong)
        self._reads += 1
        try:
            base = yield from self._base(log, up_to, at_ms, current)
            found = yield from _replayed(log, base, up_to, end)
        except FileNotFoundError as error:
            raise cleaned() from error
        finally:
            self._reads -= 1
        return self._keep(found)

    def _base(
        self, log: "RaftLog", up_to: Offset, at_ms: int, current: ClusterImage
    ) -> Generator[int, None, PastImage]:
        """The latest known image that ends before `up_to`."""
        known = [*self._kept.values(), PastImage(current, log.time_of(current.offset))]
        fit = [k for k in known if 0 <= k.image.offset < up_to and not 0 <= at_ms < k.at_ms]
        best = max(fit, key=lambda each: each.image.offset, default=None)
        snapshots = [s for s in log.snapshots if s != ZERO_SNAPSHOT and s.offset <= up_to]
        snapshot = max(snapshots, default=None)
        if best is not None and (snapshot is None or best.image.offset >= snapshot.offset - 1):
            return best
        if snapshot is not None:
            loaded = yield from _loaded(log, snapshot)
            # The records below the log start may have been appended after that time.
            if not 0 <= at_ms < loaded.at_ms:
                return loaded
        if log.start > 0:
            wrong = f"the metadata log starts at offset {log.start}"
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, wrong)
        return PastImage(EMPTY_IMAGE, -1)

    def _keep(self, found: PastImage) -> PastImage:
        key = (found.image.offset, found.image.epoch)
        kept = self._kept.pop(key, found)
        self._kept[key] = kept
        while len(self._kept) > IMAGES_MAX:
            del self._kept[next(iter(self._kept))]
        if self._forget_timer is not None:
            self._forget_timer.cancel()
        loop = asyncio.get_running_loop()
        self._forget_timer = loop.call_later(KEPT_SECONDS, self.forget)
        return kept

    def forget(self) -> None:
        """Release all kept images."""
        if self._forget_timer is not None:
            self._forget_timer.cancel()
            self._forget_timer = None
        self._kept.clear()


def _loaded(log: "RaftLog", snapshot: "SnapshotId") -> Generator[int, None, PastImage]:
    data = log.open_snapshot(snapshot)
    at_ms = data.content().last_contained_log_timestamp
    image = EMPTY_IMAGE
    for batch in data.data_batches():
        for record in decode_records(batch):
            image = apply(image, decode_metadata_record(record.value or b"")[0])
            yield RECORD_UNITS
    return PastImage(image.at(snapshot.offset - 1, snapshot.epoch), at_ms)


def _replayed(
    log: "RaftLog", base: PastImage, up_to: Offset, end: Offset
) -> Generator[int, None, PastImage]:
    """Apply the records from `base` to `up_to`, exclusive; `end` is that of the committed log."""
    first = Offset(base.image.offset + 1)
    if first >= up_to:
        return base
    replay, at_ms = Replay(base.image), base.at_ms
    # Read up to `end`: a batch that contains `up_to` would not be read otherwise.
    for header, view in committed_batches(log, first, end):
        if header.base_offset >= up_to:
            break
        yield from _replay_batch(replay, header, view, range(first, up_to))
        if replay.stable.offset >= header.base_offset:
            at_ms = header.max_timestamp
    return PastImage(replay.stable, at_ms)


def _replay_batch(
    replay: Replay, header: "BatchHeader", view: memoryview, wanted: range
) -> Generator[int, None, None]:
    """Replay the records of a batch whose offsets are in `wanted`, a few in each step."""
    epoch = header.partition_leader_epoch
    if header.is_control or is_idle(header, view):
        _commit(replay, (), min(header.last_offset, wanted[-1]), epoch)
        yield 1
        return
    piece: list[Any] = []
    last_offset = header.base_offset
    for record in decode_records(view):
        if record.offset >= wanted.stop:
            break
        if record.offset < wanted.start:
            continue
        piece.append(decode_metadata_record(record.value or b"")[0])
        last_offset = record.offset
        if len(piece) == PIECE_RECORDS:
            _commit(replay, piece, last_offset, epoch)
            yield RECORD_UNITS * PIECE_RECORDS
            piece = []
    if piece:
        _commit(replay, piece, last_offset, epoch)
        yield RECORD_UNITS * len(piece)


def _commit(replay: Replay, records: "Sequence[Any]", last_offset: int, epoch: int) -> None:
    replay.replay_batch(records, last_offset=last_offset, epoch=epoch)
    replay.commit(last_offset)
