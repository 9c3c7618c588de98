"""Reads the committed metadata log again, from a snapshot on, to answer queries about the past.

It yields to the event loop every few milliseconds. If the log is cleaned during a read, the read
fails and may be retried.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Offset
from sparkraft.base.loop_work import LoopBound
from sparkraft.controller.history import History
from sparkraft.metadata.apply import apply
from sparkraft.metadata.image import EMPTY_IMAGE, ClusterImage
from sparkraft.protocol.framing import decode_metadata_record
from sparkraft.protocol.messages.metadata_records import NoOpRecord
from sparkraft.records.batch import BatchHeader, iter_batches
from sparkraft.records.record import decode_records
from sparkraft.server.raft.committed_log import LogReader, cleaned, committed_end, is_idle
from sparkraft.storage.snapshot_files import ZERO_SNAPSHOT, SnapshotId

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkraft.storage.raft_log import RaftLog

RECORDS_MAX = 300_000
"""Offsets read for one query unless it wants the whole log: a few seconds of one node."""

BATCHES_PER_ITERATION: LoopBound = 64
"""Batches read in one event-loop iteration: a millisecond, if each has one record."""

RECORDS_PER_ITERATION: LoopBound = 500
"""Records after which no other batch is read in the same event-loop iteration: about 4 ms."""

READ_BYTES = 1 << 20

_NO_OP_KEY = 20
"""The type byte after the frame version of a metadata record; most of an idle log is NoOp."""

_NO_OP = NoOpRecord()


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryQuery:
    """The part of the past to read.

    Attributes:
        wanted: takes a topic and a partition; returns whether to report its changes.
        brokers: brokers whose elections are reported, too.
        events_max: changes reported per partition or broker.
        at_offset: the last record that counts; -1 for everything committed.
        at_ms: batches appended later do not count; -1 for all.
        whole_log: read the whole log, not only the last `RECORDS_MAX` offsets.
    """

    wanted: "Callable[[str, int], bool]"
    brokers: Sequence[int] = ()
    events_max: int
    at_offset: int = -1
    at_ms: int = -1
    whole_log: bool = False


class PastReader:
    """Reads earlier metadata, one query at a time."""

    def __init__(self, reader: LogReader) -> None:
        self._reader = reader
        self._lock = asyncio.Lock()

    async def read(self, query: HistoryQuery) -> History:
        """Read the history that `query` selects.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE for a time or offset that was deleted or is not
                committed yet, or if the log was cleaned during the read.
        """
        async with self._lock:
            try:
                return await self._read(query)
            except FileNotFoundError as error:
                raise cleaned() from error

    async def _read(self, query: HistoryQuery) -> History:
        log = self._reader.log
        committed = committed_end(self._reader)
        if query.at_offset >= committed:
            wrong = f"offset {query.at_offset} is not committed; the log goes up to {committed}"
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, wrong)
        up_to = Offset(committed if query.at_offset < 0 else query.at_offset + 1)
        snapshot = _choose(log, up_to, query)
        image = EMPTY_IMAGE if snapshot is None else await _load(log, snapshot)
        history = History(image, query.wanted, events_max=query.events_max, brokers=query.brokers)
        position = Offset(log.start if snapshot is None else snapshot.offset)
        done = 0
        while position < up_to:
            # Read up to `committed`: a batch that contains `up_to` would not be read otherwise.
            for header, view in _batches(log, position, committed):
                too_late = 0 <= query.at_ms < header.max_timestamp
                if too_late or header.base_offset >= up_to:
                    return history
                for records in _feed(history, header, view, up_to):
                    done += records
                    if done >= RECORDS_PER_ITERATION:
                        done = 0
                        await asyncio.sleep(0)
                position = Offset(header.last_offset + 1)
            await asyncio.sleep(0)
        return history


def _choose(log: "RaftLog", up_to: Offset, query: HistoryQuery) -> SnapshotId | None:
    """The snapshot to start from: as late as the query allows; None for the log start."""
    known = [s for s in sorted(log.snapshots) if s != ZERO_SNAPSHOT and s.offset <= up_to]
    if query.at_ms >= 0:
        known = [s for s in known if _timestamp_of(log, s) <= query.at_ms]
    if not known:
        if log.start > 0:
            wrong = f"the metadata log starts at offset {log.start}"
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, wrong)
        return None
    from_start = log.start == 0
    if query.whole_log:
        return None if from_start else known[0]
    if from_start and up_to <= RECORDS_MAX:
        return None
    near = [s for s in known if up_to - s.offset <= RECORDS_MAX]
    return near[0] if near else known[-1]


def _timestamp_of(log: "RaftLog", snapshot: SnapshotId) -> int:
    return log.open_snapshot(snapshot).content().last_contained_log_timestamp


async def _load(log: "RaftLog", snapshot: SnapshotId) -> ClusterImage:
    image = EMPTY_IMAGE
    for values in log.open_snapshot(snapshot).records():
        for count, value in enumerate(values, 1):
            image = apply(image, decode_metadata_record(value)[0])
            if not count % RECORDS_PER_ITERATION:
                await asyncio.sleep(0)
        await asyncio.sleep(0)
    return image.at(snapshot.offset - 1, snapshot.epoch)


def _batches(
    log: "RaftLog", position: Offset, up_to: Offset
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """A bounded number of batches from `position` on."""
    if position < log.start:
        raise cleaned()
    count = records = 0
    for piece in log.read(position, up_to=up_to, max_bytes=READ_BYTES):
        for header, view in iter_batches(piece):
            if count == BATCHES_PER_ITERATION or records >= RECORDS_PER_ITERATION:
                return
            count += 1
            records += header.records_count
            yield header, view


def _feed(history: History, header: BatchHeader, view: memoryview, up_to: Offset) -> Iterator[int]:
    """Feed a batch, and yield the number of records handled by each step."""
    last_offset = Offset(min(header.last_offset, up_to - 1))
    if header.is_control or is_idle(header, view):
        history.pass_over(
            last_offset=last_offset,
            epoch=header.partition_leader_epoch,
            at_ms=header.max_timestamp,
        )
        return
    records: list[Any] = []
    for record in decode_records(view):
        value = record.value or b""
        records.append(_NO_OP if value[1] == _NO_OP_KEY else decode_metadata_record(value)[0])
        yield 1
    counted = up_to - header.base_offset
    yield from history.feed_steps(
        records[:counted],
        later=records[counted:],
        base_offset=header.base_offset,
        last_offset=last_offset,
        epoch=header.partition_leader_epoch,
        at_ms=header.max_timestamp,
    )
