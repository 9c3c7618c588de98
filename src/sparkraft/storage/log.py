"""One partition's log: append, read, truncate, retain; offsets by time and by epoch.

The log start offset, high watermark and log end offset bound what exists, what is committed and
what is written: ``log_start_offset <= high_watermark <= log_end_offset``. Epochs, producers and
indexes are derived from the batches (`storage.recovery` rebuilds them).

Threads: one thread (the event loop's) owns a log and calls everything. Only `flush` may run in
another, beside appends and reads: it notes the log end offset, then syncs the files that hold data
below it, and at last advances `recovery_point` to that offset unless the log was truncated in the
meantime. It touches no file that an append may still change except by `fsync`, and writes the epoch
checkpoint from a copy of its entries.

Durability: an append is in the page cache when it returns, so a killed process loses nothing. A
power loss keeps what is below `recovery_point`. `AppendInfo.needs_fsync` asks the caller to `flush`
before it answers (`flush.messages`).

After a `StorageFault` the log refuses every call with KAFKA_STORAGE_ERROR: the content of the disk
is unknown until the log is loaded again. A failed fsync is never retried.

Not here: permission to append, acknowledgements, the high watermark's advance (`server`,
`replication`).
"""

from collections.abc import Callable, Sequence
from threading import Lock
from typing import NamedTuple

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Offset, Uuid
from sparkraft.records.batch import (
    HEAD_PATCH,
    LOG_OVERHEAD,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    crc_ok,
    iter_batches,
)
from sparkraft.records.control import EndTransaction, parse_end_transaction
from sparkraft.records.errors import CorruptRecords
from sparkraft.records.validate import Origin, Prepared, check_produced
from sparkraft.storage.checkpoints import format_epochs, format_partition_metadata
from sparkraft.storage.log_view import NO_HINT, FoundOffset, ReadableLog, ReadResult
from sparkraft.storage.names import CLEANED, LEADER_EPOCHS, PARTITION_METADATA
from sparkraft.storage.producer_replay import rebuild_producers
from sparkraft.storage.producers import CompletedTransaction, Producers
from sparkraft.storage.segment import RELATIVE_OFFSET_MAX, Segment

__all__ = ["AppendInfo", "FoundOffset", "Origin", "PartitionLog", "ReadResult"]


class AppendInfo(NamedTuple):
    """Result of an append."""

    base_offset: int
    """Offset of the first record; of the original batch if `duplicate`. -1 if nothing was
    appended."""
    last_offset: int
    log_append_time: int
    """ms; -1 unless the topic stamps records itself."""
    log_start_offset: int
    duplicate: bool
    """The producer sent this batch before; nothing was appended."""
    needs_fsync: bool
    """`flush` must have returned before the append is acknowledged."""


_NOTHING = AppendInfo(-1, -1, -1, -1, duplicate=False, needs_fsync=False)


class PartitionLog(ReadableLog):
    """A partition's log; made by `storage.recovery.load_log`."""

    __slots__ = ()

    # -- appending -------------------------------------------------------------------------------

    def append_as_leader(
        self,
        records: Buffer,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        prepared: Prepared | None = None,
    ) -> AppendInfo:
        """Check one batch, give it the next offsets and write it.

        Args:
            records: one batch as a producer sent it; for RAFT one or more with final offsets.
            leader_epoch: stamped on the batch.
            now_ms: wall clock.
            origin: source of the append; see `Origin`.
            prepared: the result of `check_produced` under the present `rules`; None: check now.

        Raises:
            KafkaError: refused, as by Kafka's validator and producer state; nothing was written.
            StorageFault: the disk failed; the log is unusable from now on.
        """
        if self._fault is not None:
            raise self._refusal()
        if origin is Origin.RAFT:
            return self._append_given(list(iter_batches(records)), now_ms, contiguous=True)
        header, rest = prepared or check_produced(records, self._rules, now_ms, origin)
        size = header[1] + LOG_OVERHEAD
        config = self._segments.config
        if size > config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"the batch has {size} bytes, and segment.bytes is {config.segment_bytes}",
            )
        if header[9] != NO_PRODUCER_ID:
            duplicate = self._check_producer(header, records, origin)
            if duplicate is not None:
                return duplicate
        base_offset = self.log_end_offset
        last_offset = base_offset + header[6]
        head = HEAD_PATCH.pack(base_offset, header[1], leader_epoch)
        try:
            segment = self._segments.active
            if self._metadata_pending or segment.must_roll(
                config, size=size, max_timestamp=header[8], last_offset=last_offset, now_ms=now_ms
            ):
                segment = self._segment_for(size, header[8], base_offset, last_offset, now_ms)
            if self._epochs.latest != leader_epoch:
                self._epochs.assign(leader_epoch, base_offset)
            position = segment.append((head, rest), size)
        except OSError as error:
            raise self._fail("append to", error) from error
        segment.note_batch(last_offset, header[8], size, position)
        self.log_end_offset = Offset(last_offset + 1)
        if header[9] != NO_PRODUCER_ID:
            self._apply_producer(header, head, rest, base_offset, segment)
        return AppendInfo(
            base_offset,
            last_offset,
            header[8] if self._rules.log_append_time else NO_TIMESTAMP,
            self.log_start_offset,
            False,  # noqa: FBT003 (a tuple built on the hot path)
            last_offset + 1 - self._flush_point >= config.flush_messages,
        )

    def append_as_follower(self, records: Buffer, leader_epoch: int | None = None) -> AppendInfo:
        """Write batches as a leader handed them out; offsets, epochs and bytes stay.

        Offsets may be missing. A new segment begins at the log end offset, not at its first batch.

        Args:
            records: whole batches; an incomplete last batch is ignored.
            leader_epoch: of the fetch; a batch of a later epoch is left out, with everything after
                it.

        Raises:
            KafkaError: CORRUPT_MESSAGE for a wrong CRC or offsets that go back or were there.
            StorageFault: the disk failed.
        """
        if self._fault is not None:
            raise self._refusal()
        batches = []
        for header, view in iter_batches(records):
            if leader_epoch is not None and header.partition_leader_epoch > leader_epoch:
                break
            if not crc_ok(view):
                raise CorruptRecords(
                    f"the CRC of the batch at offset {header.base_offset} is wrong"
                )
            batches.append((header, view))
        return self._append_given(batches, self._clock.wall_ms(), contiguous=False)

    def _append_given(
        self, batches: list[tuple[BatchHeader, memoryview]], now_ms: int, *, contiguous: bool
    ) -> AppendInfo:
        if not batches:
            return _NOTHING
        self._check_offsets(batches, contiguous=contiguous)
        run: list[tuple[BatchHeader, memoryview]] = []
        size = 0
        for header, view in batches:
            if run and not self._segments.has_room(
                size + len(view), header.max_timestamp, header.last_offset, now_ms
            ):
                self._append_run(run, size, now_ms)
                run, size = [], 0
            run.append((header, view))
            size += len(view)
        self._append_run(run, size, now_ms)
        last_offset = batches[-1][0].last_offset
        return AppendInfo(
            batches[0][0].base_offset,
            last_offset,
            NO_TIMESTAMP,
            self.log_start_offset,
            duplicate=False,
            needs_fsync=last_offset + 1 - self._flush_point >= self.config.flush_messages,
        )

    def _check_offsets(
        self, batches: list[tuple[BatchHeader, memoryview]], *, contiguous: bool
    ) -> None:
        expected = int(self.log_end_offset)
        for header, _ in batches:
            if header.base_offset < expected or header.last_offset_delta < 0:
                raise CorruptRecords(
                    f"{self.name}: expected a batch at offset {expected}, got {header.base_offset}"
                )
            if contiguous and header.base_offset != expected:
                raise CorruptRecords(f"{self.name}: {header.base_offset} leaves a gap")
            expected = header.last_offset + 1

    def _append_run(
        self, run: list[tuple[BatchHeader, memoryview]], size: int, now_ms: int
    ) -> None:
        """Write batches that fit one segment, then take them in one by one."""
        first, last = run[0][0], run[-1][0]
        # Compaction leaves holes in what a leader hands out. One between two segments would pass
        # for a lost tail when the log is recovered; within a segment it doesn't.
        base = int(self.log_end_offset)
        if last.last_offset - base > RELATIVE_OFFSET_MAX:
            base = first.base_offset
        try:
            segment = self._segment_for(size, last.max_timestamp, base, last.last_offset, now_ms)
            position = segment.append([view for _, view in run], size)
        except OSError as error:
            raise self._fail("append to", error) from error
        for header, view in run:
            segment.note_batch(header.last_offset, header.max_timestamp, len(view), position)
            position += len(view)
            if header.partition_leader_epoch >= 0:
                self._epochs.assign(header.partition_leader_epoch, header.base_offset)
            if header.has_producer_id:
                done = self._producers.apply(header, view, header.base_offset)
                if done is not None:
                    self._complete(done, segment)
                self._producers.limit(self.config.producer_ids_max)
        self.log_end_offset = Offset(last.last_offset + 1)

    def check_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        end: EndTransaction,
        *,
        transaction_version: int,
    ) -> None:
        """Refuse a transaction marker as `Producers.check_marker` does; before it is appended."""
        self._producers.check_marker(
            producer_id, producer_epoch, end, transaction_version=transaction_version
        )

    def _check_producer(
        self, header: BatchHeader, records: Buffer, origin: Origin
    ) -> AppendInfo | None:
        is_client = origin is Origin.CLIENT
        if header.is_control:
            end = parse_end_transaction(records)
            if end is not None:
                self._producers.check_marker(header.producer_id, header.producer_epoch, end)
            return None
        mark = self._producers.duplicate_of(header) if is_client else None
        if mark is None:
            self._producers.check(header, is_client=is_client)
            return None
        return AppendInfo(
            mark.first_offset,
            mark.last_offset,
            mark.timestamp,  # Kafka returns a duplicate's own time, whatever the timestamp type.
            self.log_start_offset,
            duplicate=True,
            needs_fsync=self.config.flush_messages == 1 and mark.last_offset >= self.recovery_point,
        )

    def _apply_producer(
        self, header: BatchHeader, head: bytes, rest: Buffer, base_offset: int, segment: Segment
    ) -> None:
        batch = head + bytes(rest) if header.is_control else b""
        done = self._producers.apply(header, batch, base_offset)
        if done is not None:
            self._complete(done, segment)
        self._producers.limit(self.config.producer_ids_max)

    def _complete(self, done: CompletedTransaction, segment: Segment) -> None:
        if done.aborted:
            try:
                segment.add_aborted(self._producers.aborted_entry(done))
            except OSError as error:
                raise self._fail("write the transaction index of", error) from error
        self._producers.complete(done)

    def _segment_for(
        self, size: int, max_timestamp: int, base_offset: int, last_offset: int, now_ms: int
    ) -> Segment:
        """The active segment, rolled if it can't take `size` more bytes."""
        if self._metadata_pending:
            self._write_metadata()
        segments = self._segments
        if segments.has_room(size, max_timestamp, last_offset, now_ms):
            return segments.active
        return segments.roll(base_offset, now_ms, self._producers.to_snapshot())

    def roll(self) -> None:
        """Begin a new segment at the log end offset; nothing happens on an empty one."""
        if self._segments.active.size:
            try:
                self._roll(self._clock.wall_ms())
            except OSError as error:
                raise self._fail("roll", error) from error

    def _roll(self, now_ms: int) -> None:
        self._segments.roll(self.log_end_offset, now_ms, self._producers.to_snapshot())

    # -- moving the bounds -----------------------------------------------------------------------

    def set_high_watermark(self, offset: int) -> None:
        """Set what is committed; kept within [log start offset, log end offset]."""
        bounded = min(max(offset, self.log_start_offset), self.log_end_offset)
        self.high_watermark = Offset(bounded)
        self._producers.replicated_to(bounded)

    def assign_epoch(self, epoch: int) -> None:
        """Note that leadership `epoch` begins at the log end offset."""
        self._epochs.assign(epoch, self.log_end_offset)

    def delete_records_before(self, offset: int) -> Offset:
        """Advance the log start offset (DeleteRecords); -1 means to the high watermark.

        Segments below it go with the next `apply_retention`.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE above the high watermark or below -1.
        """
        target = self.high_watermark if offset == -1 else offset
        if target < 0 or target > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not within [0, {self.high_watermark}]",
            )
        self.advance_log_start(target)
        return self.log_start_offset

    def advance_log_start(self, offset: int) -> bool:
        """Advance the log start offset to the leader's; return whether it moved."""
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = Offset(offset)
        self.high_watermark = Offset(max(self.high_watermark, offset))
        self._epochs.truncate_from_start(offset)
        self._producers.replicated_to(offset)
        self.on_start_moved()
        return True

    def truncate_to(self, offset: int) -> bool:
        """Remove every record at and after `offset`; whether there were any.

        A batch that reaches across `offset` goes as a whole, and the log ends before it.
        """
        if offset >= self.log_end_offset:
            self._epochs.truncate_from_end(self.log_end_offset)
            return False
        if offset < self._segments.first_base:
            self.truncate_fully_and_start_at(offset)
            return True
        try:
            offset = self._segments.batch_bound(offset)
            with self._mutex:
                self._truncations += 1
                self.recovery_point = Offset(min(self.recovery_point, offset))
            # Before a file goes: a hole below the recovery point would pass for a cleaning's.
            self._tell_truncated()
            offset = self._segments.truncate_to(offset)
            self._disk.fault_point("truncated_before_epochs")
            self.log_start_offset = Offset(min(self.log_start_offset, offset))
            self._epochs.truncate_from_end(offset)
            self._write_epochs()
            self._reload_producers(offset)
        except OSError as error:
            raise self._fail("truncate", error) from error
        self.log_end_offset = Offset(offset)
        self._flush_point = min(self._flush_point, offset)
        self._tail_hint = NO_HINT
        self.set_high_watermark(min(self.high_watermark, offset))
        self._tell_truncated()
        return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Delete all records; the log continues, empty, at `offset`."""
        try:
            with self._mutex:
                self._truncations += 1
                self.recovery_point = Offset(offset)
            self._segments.clear()
            self._disk.fault_point("log_cleared_before_started_anew")
            self._segments.start_at(offset, self._clock.wall_ms())
            self._epochs.clear()
            self._write_epochs()
        except OSError as error:
            raise self._fail("truncate", error) from error
        self._producers = Producers()
        self.log_start_offset = self.log_end_offset = self.high_watermark = Offset(offset)
        self._flush_point = offset
        self._tail_hint = NO_HINT
        self._tell_truncated()

    def _tell_truncated(self) -> None:
        if self.keeper is not None:
            self.keeper.on_truncated(self)

    def _reload_producers(self, end_offset: int) -> None:
        """Rebuild the producer state from the log below `end_offset`."""
        self._producers = rebuild_producers(
            self._disk,
            self.directory,
            list(self._segments),
            snapshots=self._segments.snapshots,
            start=self.log_start_offset,
            end=end_offset,
        )
        self._producers.replicated_to(end_offset)

    # -- retention -------------------------------------------------------------------------------

    def expired_until(self, now_ms: int) -> int:
        """The offset up to which whole segments may go: by time, size and log start offset."""
        return self._segments.expired_until(
            now_ms,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
            log_end_offset=self.log_end_offset,
        )

    def apply_retention(
        self, now_ms: int, persist_log_start: Callable[[], None] | None = None
    ) -> int:
        """Delete segments that retention or DeleteRecords released; return their number.

        Args:
            now_ms: wall clock.
            persist_log_start: writes the log-start checkpoint of the log's directory; called after
                the offset has advanced and before a file goes: no crash brings records back.
        """
        try:
            until = self.expired_until(now_ms)
            if until <= self._segments.first_base:
                return 0
            if until >= self.log_end_offset and self._segments.active.size:
                self._roll(now_ms)
            if self.advance_log_start(until) and persist_log_start is not None:
                persist_log_start()
            self._write_epochs_if_new()
            return self._segments.delete_below(until, now_ms)
        except OSError as error:
            raise self._fail("remove segments of", error) from error

    def remove_deleted_files(self, now_ms: int) -> None:
        """Unlink `.deleted` files whose `file.delete.delay.ms` is over."""
        self._segments.remove_deleted_files(now_ms)

    def take_deleted_files(self, now_ms: int) -> list[str]:
        """The same files, for the caller to delete."""
        return self._segments.take_deleted_files(now_ms)

    # -- cleaning --------------------------------------------------------------------------------

    def replace_segments(self, old: Sequence[Segment], new: Segment) -> list[str] | None:
        """Put a cleaned segment in place of the ones it was made from; see `Segments.replace`.

        Raises:
            StorageFault: the disk failed.
        """
        if self._fault is not None:
            return None
        try:
            self._write_epochs_if_new()
            return self._segments.replace(old, new)
        except OSError as error:
            raise self._fail("clean", error) from error

    def remove_later(self, paths: Sequence[str], now_ms: int) -> None:
        """Unlink files after `file.delete.delay.ms`; they are on no way back after a crash."""
        self._segments.remove_later(paths, now_ms)

    def remove_cleaned_files(self) -> None:
        """Unlink what a cleaning that was given up has left."""
        try:
            for name in self._disk.listdir(self.directory):
                if name.endswith(CLEANED):
                    self._disk.unlink(f"{self.directory}/{name}")
        except OSError as error:
            raise self._fail("clean", error) from error

    # -- syncing ---------------------------------------------------------------------------------

    @property
    def _mutex(self) -> Lock:
        if self._flush_lock is None:
            self._flush_lock = Lock()
        return self._flush_lock

    def flush(self, up_to: int | None = None) -> None:
        """Sync everything below `up_to` (the log end offset); may run in any thread.

        On return `recovery_point` is at least that offset, unless the log was truncated meanwhile.

        Raises:
            StorageFault: a sync failed. It is never tried again: the kernel may have dropped the
                pages, and a second call would lie.
        """
        if self._fault is not None:
            raise self._refusal()
        target = self.log_end_offset if up_to is None else min(up_to, self.log_end_offset)
        if target <= self.recovery_point and not self._segments.cut_unsynced:
            return
        truncations = self._truncations
        try:
            if self._metadata_unsynced:
                self._metadata_unsynced = False
                self._disk.fsync(f"{self.directory}/{PARTITION_METADATA}")
            if self._epochs.dirty:
                self._write_epochs()
            self._disk.fault_point("epochs_synced_before_records")
            self._segments.sync(self.recovery_point, target)
        except OSError as error:
            if self._fault is not None:  # deleted or moved meanwhile: its files have other names
                raise self._refusal() from error
            raise self._fail("sync", error) from error
        self._disk.fault_point("synced_before_recovery_point")
        with self._mutex:
            if truncations == self._truncations and target > self.recovery_point:
                self.recovery_point = Offset(target)
                self._flush_point = max(self._flush_point, target)
        self.last_flush_ms = self._clock.wall_ms()

    # -- files beside the segments ---------------------------------------------------------------

    def set_topic_id(self, topic_id: Uuid) -> None:
        """Give the log its topic's id; written before the first append."""
        self.topic_id = topic_id
        self._metadata_pending = True

    def write_metadata(self) -> None:
        """Put `partition.metadata` in place now."""
        try:
            self._write_metadata()
        except OSError as error:
            raise self._fail("write partition.metadata of", error) from error

    def _write_metadata(self) -> None:
        """Not synced yet: `flush` does it before the recovery point passes any record.

        Creating 10,000 partitions would else wait for 20,000 syncs.
        """
        assert self.topic_id is not None
        self._put(PARTITION_METADATA, format_partition_metadata(self.topic_id), synced=False)
        self._metadata_pending = False
        self._metadata_unsynced = True

    def _write_epochs_if_new(self) -> None:
        """Call it before batches are deleted: their leader epochs are recorded nowhere else."""
        if self._epochs.dirty:
            self._write_epochs()

    def _write_epochs(self) -> None:
        with self._mutex:  # in the loop, and in the thread that syncs
            self._epochs.dirty = False
            self._put(LEADER_EPOCHS, format_epochs(self._epochs.entries), synced=True)

    def _put(self, name: str, data: bytes, *, synced: bool) -> None:
        """Replace a file atomically; its name is durable once the directory is synced."""
        path = f"{self.directory}/{name}"
        fresh = path + ".tmp"
        self._disk.write(fresh, data)
        if synced:
            self._disk.fsync(fresh)
        self._disk.fault_point("checkpoint_before_rename")
        self._disk.rename(fresh, path)

    def moved_to(self, directory: str, log_dir: str) -> None:
        """Follow the directory, which the caller has renamed."""
        self.log_dir = log_dir
        self._segments.moved_to(directory)

    def close(self) -> None:
        """A clean stop: `prepare_close`, then `flush`."""
        if self._fault is None:
            self.prepare_close()
            self.flush()

    def prepare_close(self) -> None:
        """Write what a clean stop leaves: indexes, a producer snapshot, epochs; not synced."""
        if self._fault is not None:
            return
        try:
            if self._metadata_pending:
                self._write_metadata()
            self._segments.close(self.log_end_offset, self._producers.to_snapshot())
        except OSError as error:
            raise self._fail("close", error) from error
