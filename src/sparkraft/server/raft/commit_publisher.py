"""Publishes committed records to the listeners, to each from its own position.

Invariants:
    * A listener gets every batch with records once, in order, and none above the high watermark.
    * An event-loop iteration publishes a bounded number of batches.
    * A large batch is decoded and replayed in pieces, and all its listeners get it whole.

A listener that is new, or below the start of the log, gets the image of the latest snapshot. It is
made in pieces (`snapshot_load`), one in each iteration. Commits wait until it is complete, and all
listeners get it in the same iteration. Changes of leaders do not wait, so a controller resigns at
once. If a newer snapshot replaces the log, the load starts again with that one.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sparkraft.base.ids import BrokerId, LeaderEpoch, Millis, Offset
from sparkraft.base.loop_work import LoopBound
from sparkraft.protocol.framing import decode_metadata_record
from sparkraft.raft.events import LeaderAndEpoch
from sparkraft.records.batch import BatchHeader, iter_batches
from sparkraft.records.record import decode_records
from sparkraft.server.raft.metadata_log_listener import (
    BatchPreparer,
    CommittedBatch,
    HighWatermarkListener,
    MetadataLogListener,
    SnapshotPreparer,
)
from sparkraft.server.raft.snapshot_load import RECORDS_PER_ITERATION as SNAPSHOT_RECORDS
from sparkraft.server.raft.snapshot_load import SnapshotLoad
from sparkraft.storage.raft_log import RaftLog
from sparkraft.storage.snapshot_files import ZERO_SNAPSHOT, SnapshotId

BATCHES_PER_ITERATION: LoopBound = 64
"""Batches published in one event-loop iteration: a millisecond, if each has one record."""

RECORDS_PER_ITERATION: LoopBound = 500
"""Records after which no other batch is published in the same event-loop iteration: about 4 ms. A
batch with more is decoded and replayed in pieces of this size before it is published."""

READ_BYTES = 1 << 20

RECENT_MAX = 1000
"""Own appends kept decoded until they commit; older ones are read back from the log."""


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

    def advance_to(self, offset: Offset) -> None:
        """Continue with the batch at `offset`."""
        self.next_offset = offset

    def report_leader(self, leader: LeaderAndEpoch) -> None:
        """Notify the listener of a leader it does not know yet."""
        self.reported_leader = leader
        self.listener.on_leader_change(leader.leader_id, leader.epoch)


class CommitPublisher:
    """See the module docstring."""

    def __init__(
        self,
        log: RaftLog,
        local_id: BrokerId,
        on_error: Callable[[Exception], None],
        on_applied: Callable[[int], None],
        *,
        snapshot_records_max: int = SNAPSHOT_RECORDS,
    ) -> None:
        """Publish to those that `register`.

        Args:
            log: the files.
            local_id: this node's id.
            on_error: called once if a listener or a record fails, which ends the node.
            on_applied: called with the append time of each batch with records.
            snapshot_records_max: records of a snapshot that are applied in one iteration.
        """
        self._on_applied = on_applied
        self._log = log
        self._local_id = local_id
        self._on_error = on_error
        self._contexts: list[_Context] = []
        self._recent: deque[CommittedBatch] = deque()
        self._high_watermark = Offset(-1)
        self._leader: LeaderAndEpoch | None = None
        self._epoch_start = Offset(0)
        self._scheduled = False
        self._stopped = False
        self._snapshot_records_max = snapshot_records_max
        self._load: SnapshotLoad | None = None
        self._read: deque[tuple[BatchHeader, memoryview]] = deque()
        self._large: tuple[Offset, Iterator[CommittedBatch | None]] | None = None
        """A large batch that is being prepared: its offset, and the pieces of work left."""

    def register(self, listener: MetadataLogListener) -> None:
        """Publish everything to `listener`, beginning with the latest snapshot."""
        self._contexts.append(_Context(listener))
        self.advance()

    def remember(self, batch: CommittedBatch) -> None:
        """Keep an own append, decoded already, until it commits."""
        self._recent.append(batch)
        if len(self._recent) > RECENT_MAX:
            self._recent.popleft()

    def forget(self) -> None:
        """Drop batches kept or read ahead, after a truncation."""
        self._recent.clear()
        self._read.clear()
        self._large = None

    def set_leader(self, leader: LeaderAndEpoch, epoch_start: Offset) -> None:
        """Set the leader; `epoch_start` is the first offset of the epoch if this node leads it."""
        self._leader = leader
        self._epoch_start = epoch_start

    def set_high_watermark(self, high_watermark: Offset) -> None:
        """Set the end of what may be published, exclusive."""
        self._high_watermark = high_watermark

    def stop(self) -> None:
        """Publish nothing more; abandon a load."""
        self._stopped = True
        self._load = self._large = None

    def advance(self) -> None:
        """Publish what is committed: a bounded amount now, the rest in later iterations."""
        if self._scheduled or self._stopped:
            return
        try:
            more = self._publish_some()
        except Exception as error:
            self.stop()
            self._on_error(error)
            return
        if more:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._resume)

    def _resume(self) -> None:
        self._scheduled = False
        self.advance()

    def _publish_some(self) -> bool:
        """Load a piece of a snapshot, or publish some batches; returns whether more is left."""
        if not self._load_some():
            self._publish_batches()
        for context in self._contexts:
            self._report_leader(context)
        return self._load is not None or any(self._is_behind(c) for c in self._contexts)

    def _publish_batches(self) -> None:
        records = 0
        for _ in range(BATCHES_PER_ITERATION):
            if records >= RECORDS_PER_ITERATION:
                break
            behind = [c for c in self._contexts if self._is_behind(c)]
            if not behind:
                break
            first = min(c.next_offset for c in behind if c.next_offset is not None)
            records += self._publish(first)

    def _is_behind(self, context: _Context) -> bool:
        """Whether a batch of the log can be published to it."""
        at = context.next_offset
        return at is not None and self._log.start <= at < self._high_watermark

    def _is_lost(self, context: _Context) -> bool:
        """Whether it needs a snapshot: it is new, or its position is below the log start."""
        return context.next_offset is None or context.next_offset < self._log.start

    def _load_some(self) -> bool:
        """Load a piece of the latest snapshot for those that need it; False if it is not needed."""
        lost = [context for context in self._contexts if self._is_lost(context)]
        if not lost or self._high_watermark < 0:
            self._load = None
            return False
        latest = self._log.latest_snapshot
        if latest is None or latest == ZERO_SNAPSHOT or latest.offset > self._high_watermark:
            self._load = None
            if self._log.start == 0:
                for context in lost:
                    context.advance_to(Offset(0))
            return False  # otherwise a snapshot was just installed, and its commit follows
        if self._load is None or self._load.id != latest:
            self._load = self._begin_load(latest, lost)
        image = self._load.advance()
        if image is not None:
            self._load = None
            for context in lost:
                context.listener.on_snapshot(image)
                context.advance_to(latest.offset)
        return True

    def _begin_load(self, snapshot: SnapshotId, lost: Sequence[_Context]) -> SnapshotLoad:
        prepare = [
            context.listener.prepare_snapshot
            for context in lost
            if isinstance(context.listener, SnapshotPreparer)
        ]
        data = self._log.open_snapshot(snapshot)
        return SnapshotLoad(snapshot, data, self._snapshot_records_max, prepare)

    def _publish(self, offset: Offset) -> int:
        """Give the batch at `offset` to the listeners that are next; its number of records.

        A large one gets a piece of its preparation instead, until it is prepared.
        """
        batch = self._batch_at(offset)
        if batch is None:
            return RECORDS_PER_ITERATION
        for context in self._contexts:
            if context.next_offset != offset:
                continue
            following = Offset(batch.last_offset + 1)
            context.advance_to(following)
            if batch.records:
                context.listener.on_commit(batch)
            if context.on_high_watermark is not None and not self._is_behind(context):
                context.on_high_watermark(following)
        if batch.records:
            self._on_applied(batch.append_time_ms)
        return len(batch.records)

    def _batch_at(self, offset: Offset) -> CommittedBatch | None:
        """The batch at `offset`; None if it is large and not prepared yet."""
        if self._large is None or self._large[0] != offset:
            found = self._find(offset)
            if _count(found) <= RECORDS_PER_ITERATION:
                return found if isinstance(found, CommittedBatch) else _decode(*found)
            prepare = [
                context.listener.prepare_commit
                for context in self._contexts
                if context.next_offset == offset and isinstance(context.listener, BatchPreparer)
            ]
            self._large = offset, _in_pieces(found, prepare)
        batch = next(self._large[1])
        if batch is not None:
            self._large = None
        return batch

    def _find(self, offset: Offset) -> CommittedBatch | tuple[BatchHeader, memoryview]:
        recent = self._recent
        while recent and recent[0].base_offset < offset:
            recent.popleft()
        if recent and recent[0].base_offset == offset:
            # Kept until a later batch is needed: another listener may still need this one.
            return recent[0]
        while self._read and self._read[0][0].last_offset < offset:
            self._read.popleft()
        if not self._read or self._read[0][0].base_offset > offset:
            pieces = self._log.read(offset, up_to=self._high_watermark, max_bytes=READ_BYTES)
            self._read = deque(found for piece in pieces for found in iter_batches(piece))
        return self._read[0]

    def _report_leader(self, context: _Context) -> None:
        leader = self._leader
        if leader is None or leader == context.reported_leader:
            return
        if leader.leader_id == self._local_id and (context.next_offset or 0) <= self._epoch_start:
            return
        context.report_leader(leader)


def _count(found: CommittedBatch | tuple[BatchHeader, memoryview]) -> int:
    return len(found.records) if isinstance(found, CommittedBatch) else found[0].records_count


def _in_pieces(
    found: CommittedBatch | tuple[BatchHeader, memoryview],
    prepare: Sequence[Callable[[CommittedBatch], Iterator[int]]],
) -> Iterator[CommittedBatch | None]:
    """Decode a large batch and let its listeners prepare; yields None after each piece."""
    if isinstance(found, CommittedBatch):
        batch = found
    else:
        header, view = found
        records: list[Any] = []
        for record in decode_records(view):
            records.append(decode_metadata_record(record.value or b"")[0])
            if not len(records) % RECORDS_PER_ITERATION:
                yield None
        batch = _committed(header, view, records)
    for each in prepare:
        for _ in each(batch):
            yield None
    yield batch


def _decode(header: BatchHeader, view: memoryview) -> CommittedBatch:
    records: list[Any] = []
    if not header.is_control:
        values = (record.value or b"" for record in decode_records(view))
        records = [decode_metadata_record(value)[0] for value in values]
    return _committed(header, view, records)


def _committed(header: BatchHeader, view: memoryview, records: list[Any]) -> CommittedBatch:
    return CommittedBatch(
        Offset(header.base_offset),
        header.last_offset,
        LeaderEpoch(header.partition_leader_epoch),
        Millis(header.max_timestamp),
        len(view),
        records,
    )
