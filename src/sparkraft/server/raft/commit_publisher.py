"""Passes committed records on to the listeners, each from where it stands.

Invariants:
    * A listener sees every batch with records once, in order, none above the high watermark.
    * Batches go out a bounded number at a time; the loop gets its turn in between.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from sparkraft.base.ids import BrokerId, LeaderEpoch, Millis, Offset
from sparkraft.protocol.framing import decode_metadata_record
from sparkraft.raft.events import LeaderAndEpoch
from sparkraft.records.batch import BatchHeader, iter_batches
from sparkraft.records.record import decode_records
from sparkraft.server.raft.metadata_log_listener import (
    CommittedBatch,
    HighWatermarkListener,
    MetadataLogListener,
)
from sparkraft.storage.raft_log import RaftLog
from sparkraft.storage.snapshot_files import ZERO_SNAPSHOT, SnapshotData, SnapshotId

BATCHES_A_TURN = 64
"""Batches handed out before the loop gets its turn: some milliseconds of work."""

READ_BYTES = 1 << 20

RECENT_MAX = 1000
"""Own appends remembered decoded until they commit; more are read back from the log."""


class LoadedSnapshot:
    """A `SnapshotReader` over a snapshot's file."""

    def __init__(self, snapshot: SnapshotId, data: SnapshotData) -> None:
        """Read nothing yet."""
        self._id = snapshot
        self._data = data

    @property
    def offset(self) -> Offset:
        """See `SnapshotReader`."""
        return self._id.offset

    @property
    def epoch(self) -> LeaderEpoch:
        """See `SnapshotReader`."""
        return self._id.epoch

    @property
    def last_contained_log_timestamp(self) -> Millis:
        """See `SnapshotReader`."""
        return self._data.content().last_contained_log_timestamp

    def records(self) -> Iterator[list[Any]]:
        """See `SnapshotReader`."""
        for raw in self._data.records():
            yield [decode_metadata_record(value)[0] for value in raw]


class _Context:
    """One listener's position; `next_offset` is None until its first call."""

    __slots__ = ("listener", "next_offset", "on_high_watermark", "reported_leader")

    def __init__(self, listener: MetadataLogListener) -> None:
        self.listener = listener
        self.next_offset: Offset | None = None
        self.reported_leader: LeaderAndEpoch | None = None
        self.on_high_watermark: Callable[[Offset], None] | None = None
        if isinstance(listener, HighWatermarkListener):
            self.on_high_watermark = listener.on_high_watermark


class CommitPublisher:
    """See the module docstring."""

    def __init__(
        self, log: RaftLog, local_id: BrokerId, on_error: Callable[[Exception], None]
    ) -> None:
        """`on_error` is told when a listener or a record fails: the node can't go on then."""
        self._log = log
        self._local_id = local_id
        self._on_error = on_error
        self._contexts: list[_Context] = []
        self._recent: deque[CommittedBatch] = deque()
        self._high_watermark = Offset(-1)
        self._leader: LeaderAndEpoch | None = None
        self._epoch_start = Offset(0)
        self._scheduled = False
        self._failed = False
        self._read: deque[tuple[BatchHeader, memoryview]] = deque()

    def register(self, listener: MetadataLogListener) -> None:
        """Pass on everything to `listener`, beginning with the latest snapshot."""
        self._contexts.append(_Context(listener))
        self.advance()

    def remember(self, batch: CommittedBatch) -> None:
        """An own append, decoded already; dropped again where it doesn't commit here."""
        self._recent.append(batch)
        if len(self._recent) > RECENT_MAX:
            self._recent.popleft()

    def forget(self) -> None:
        """The log was cut: what was remembered or read ahead may be wrong."""
        self._recent.clear()
        self._read.clear()

    def set_leader(self, leader: LeaderAndEpoch, epoch_start: Offset) -> None:
        """Who leads; `epoch_start` is the first offset of our own epoch where that is us."""
        self._leader = leader
        self._epoch_start = epoch_start

    def set_high_watermark(self, high_watermark: Offset) -> None:
        """What may be passed on."""
        self._high_watermark = high_watermark

    def advance(self) -> None:
        """Pass on what there is, at most a turn's worth now and the rest in later turns."""
        if self._scheduled or self._failed:
            return
        try:
            more = self._turn()
        except Exception as error:
            self._failed = True
            self._on_error(error)
            return
        if more:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._resume)

    def _resume(self) -> None:
        self._scheduled = False
        self.advance()

    def _turn(self) -> bool:
        """Whether more is left."""
        for context in self._contexts:
            self._maybe_load_snapshot(context)
        for _ in range(BATCHES_A_TURN):
            behind = [c for c in self._contexts if self._is_behind(c)]
            if not behind:
                break
            self._pass_on(min(c.next_offset for c in behind if c.next_offset is not None))
        for context in self._contexts:
            self._tell_leader(context)
        return any(self._is_behind(context) for context in self._contexts)

    def _is_behind(self, context: _Context) -> bool:
        return context.next_offset is not None and context.next_offset < self._high_watermark

    def _maybe_load_snapshot(self, context: _Context) -> None:
        """A listener that is new, or that stands below the log's start, gets the snapshot."""
        if self._high_watermark < 0:
            return
        fresh = context.next_offset is None
        if not fresh and (context.next_offset or 0) >= self._log.start:
            return
        latest = self._log.latest_snapshot
        if latest is None or latest == ZERO_SNAPSHOT or latest.offset > self._high_watermark:
            context.next_offset = Offset(self._log.start)
            return
        context.listener.on_snapshot(LoadedSnapshot(latest, self._log.open_snapshot(latest)))
        context.next_offset = latest.offset

    def _pass_on(self, offset: Offset) -> None:
        batch = self._batch_at(offset)
        for context in self._contexts:
            if context.next_offset != offset:
                continue
            context.next_offset = Offset(batch.last_offset + 1)
            if batch.records:
                context.listener.on_commit(batch)
            if context.on_high_watermark is not None and not self._is_behind(context):
                context.on_high_watermark(context.next_offset)

    def _batch_at(self, offset: Offset) -> CommittedBatch:
        recent = self._recent
        while recent and recent[0].base_offset < offset:
            recent.popleft()
        if recent and recent[0].base_offset == offset:
            # Kept until a batch behind it is asked for: another listener may still need it.
            return recent[0]
        while self._read and self._read[0][0].last_offset < offset:
            self._read.popleft()
        if not self._read or self._read[0][0].base_offset > offset:
            pieces = self._log.read(offset, up_to=self._high_watermark, max_bytes=READ_BYTES)
            self._read = deque(found for piece in pieces for found in iter_batches(piece))
        header, view = self._read[0]
        return _decode(header, view)

    def _tell_leader(self, context: _Context) -> None:
        leader = self._leader
        if leader is None or leader == context.reported_leader:
            return
        if leader.leader_id == self._local_id and (context.next_offset or 0) <= self._epoch_start:
            return
        context.reported_leader = leader
        context.listener.on_leader_change(leader.leader_id, leader.epoch)


def _decode(header: BatchHeader, view: memoryview) -> CommittedBatch:
    records: list[Any] = []
    if not header.is_control:
        values = (record.value or b"" for record in decode_records(view))
        records = [decode_metadata_record(value)[0] for value in values]
    return CommittedBatch(
        Offset(header.base_offset),
        header.last_offset,
        LeaderEpoch(header.partition_leader_epoch),
        Millis(header.max_timestamp),
        len(view),
        records,
    )
