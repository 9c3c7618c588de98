"""The metadata log on disk: `__cluster_metadata-0` with its snapshots (KIP-595, KIP-630).

A `PartitionLog` whose offsets and epochs come from the quorum, and beside its segments the
snapshots `<offset>-<epoch>.checkpoint`. At start everything is walked, CRC and all: a torn tail
is cut off, but damage below the recovery point is refused, because what is there was committed. A
snapshot ahead of the log empties the log to it.

Invariants:
    * A log that starts above 0 has a snapshot at or above its start.
    * Segments go only up to a snapshot that is on disk, and never above the high watermark.

Threads: as `PartitionLog`: one owner, only `flush` and a `SnapshotFile.freeze` run elsewhere.

Not here: which snapshot to take when (`server.controller`), quorum-state (`quorum_state`).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from sparkraft.base.env import Clock, Entropy
from sparkraft.base.errors import DecodeError
from sparkraft.base.ids import LeaderEpoch, Millis, Offset, Uuid
from sparkraft.records.batch import BatchHeader, Buffer
from sparkraft.records.control import ControlType, parse_control_key
from sparkraft.records.record import decode_records
from sparkraft.records.validate import Origin
from sparkraft.storage.config import LogConfig
from sparkraft.storage.disk import Disk, StorageFault
from sparkraft.storage.log import PartitionLog
from sparkraft.storage.names import METADATA_DIR, METADATA_TOPIC
from sparkraft.storage.recovery import LogPlace, load_log
from sparkraft.storage.snapshot_files import (
    BATCH_BYTES_MAX,
    SnapshotData,
    SnapshotFile,
    SnapshotId,
    open_snapshot,
    parse_snapshot_name,
)

METADATA_TOPIC_ID = Uuid(bytes(15) + b"\x01")
"""The one reserved topic id: the quorum's log has it in every cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftLogConfig:
    """Kafka's `metadata.log.*` and `metadata.max.*`; -1 means no limit."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000
    retention_bytes: int = 104_857_600
    retention_ms: int = 604_800_000


class RaftLog:
    """See the module docstring."""

    def __init__(self, disk: Disk, log: PartitionLog, config: RaftLogConfig, clock: Clock) -> None:
        """Use `open`."""
        self._disk = disk
        self._log = log
        self._config = config
        self._clock = clock
        self._snapshots: dict[SnapshotId, int] = {}

    @classmethod
    def open(
        cls,
        disk: Disk,
        log_dir: str,
        *,
        clock: Clock,
        entropy: Entropy,
        config: RaftLogConfig | None = None,
        recovery_point: int = 0,
    ) -> "RaftLog":
        """Recover what is in `log_dir`, or start empty.

        Args:
            disk: files.
            log_dir: `metadata.log.dir`.
            clock: wall time.
            entropy: random numbers.
            config: settings.
            recovery_point: a `recovery_point` of an earlier run; 0 if none is known.

        Raises:
            StorageFault: the disk failed, or no snapshot ends at the log start offset, or records
                below `recovery_point` are missing or damaged.
        """
        settings = config or RaftLogConfig()
        directory = f"{log_dir}/{METADATA_DIR}"
        try:
            disk.mkdir(directory)
        except OSError as error:
            raise StorageFault(log_dir, f"make {METADATA_DIR}", error) from error
        place = LogPlace(
            log_dir=log_dir,
            directory=directory,
            topic=METADATA_TOPIC,
            partition=0,
            clean=False,
            recovery_point=_needed(disk, directory, recovery_point),
            whole=True,
        )
        log_config = LogConfig(
            segment_bytes=settings.segment_bytes,
            segment_ms=settings.segment_ms,
            retention_bytes=-1,
            retention_ms=-1,
            max_message_bytes=BATCH_BYTES_MAX,
        )
        log = load_log(disk, place, log_config, clock=clock, entropy=entropy)
        if log.topic_id != METADATA_TOPIC_ID:
            log.set_topic_id(METADATA_TOPIC_ID)
            log.write_metadata()
        made = cls(disk, log, settings, clock)
        made._recover_snapshots()
        # A killed process may leave it in the page cache only; raft counts all of it as on disk.
        log.flush()
        return made

    def _recover_snapshots(self) -> None:
        """Keep complete snapshots at or above the log's start, remove all else.

        Segments go whole, so the first one left may begin below the snapshot that took the place
        of those before it: the log starts at that snapshot again.
        """
        for name in self._disk.listdir(self._log.directory):
            parsed = parse_snapshot_name(name)
            if parsed is None:
                continue
            snapshot, whole = parsed
            path = f"{self._log.directory}/{name}"
            if whole and snapshot.offset >= self._log.log_start_offset:
                self._snapshots[snapshot] = self._disk.size(path)
            else:
                self._disk.unlink(path)
        latest = self.latest_snapshot
        if self._log.log_start_offset > 0 and latest is None:
            cause = (
                f"it starts at {self._log.log_start_offset}, and no snapshot covers what is below"
            )
            raise StorageFault(self._log.log_dir, f"load {METADATA_DIR}", cause)
        if latest is not None and self._is_ahead(latest):
            self._start_at(latest)
        elif self._log.log_start_offset > 0:
            self._log.advance_log_start(min(self._snapshots).offset)

    def _is_ahead(self, snapshot: SnapshotId) -> bool:
        epoch = self._log.latest_epoch or 0
        return snapshot.epoch > epoch or (
            snapshot.epoch == epoch and snapshot.offset > self._log.log_end_offset
        )

    # ---- known entries

    @property
    def directory(self) -> str:
        """`<metadata.log.dir>/__cluster_metadata-0`."""
        return self._log.directory

    @property
    def log_dir(self) -> str:
        """The log directory it lies in."""
        return self._log.log_dir

    @property
    def start(self) -> Offset:
        """The first offset kept."""
        return self._log.log_start_offset

    @property
    def end(self) -> Offset:
        """The offset of the next record."""
        return self._log.log_end_offset

    @property
    def recovery_point(self) -> Offset:
        """Everything below it is on disk and committed: no crash and no leader takes it back."""
        return min(self._log.recovery_point, self._log.high_watermark)

    @property
    def epochs(self) -> list[tuple[int, int]]:
        """(epoch, first offset), ascending."""
        return self._log.leader_epochs

    @property
    def snapshots(self) -> dict[SnapshotId, int]:
        """The snapshots on disk and their sizes in bytes."""
        return dict(self._snapshots)

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        """The newest snapshot."""
        return max(self._snapshots, default=None)

    @property
    def size_in_bytes(self) -> int:
        """Bytes of all segments."""
        return self._log.size_in_bytes

    # ---- the log

    def append(self, records: Buffer) -> None:
        """Write whole batches with final offsets and epochs, CRC checked; in the page cache."""
        self._log.append_as_leader(
            records,
            leader_epoch=self._log.latest_epoch or LeaderEpoch(0),
            now_ms=self._clock.wall_ms(),
            origin=Origin.RAFT,
        )

    def flush(self, up_to: Offset) -> None:
        """Bring everything below `up_to` to disk; may run in any thread."""
        self._log.flush(up_to)

    def read(self, start: Offset, *, up_to: Offset, max_bytes: int) -> list[bytes]:
        """Batches from the one that holds `start`, as pieces; the last may be cut off."""
        found = self._log.read(start, max_bytes=max_bytes, up_to=up_to)
        return [bytes(piece) for piece in found.pieces]

    def batches(self, start: Offset, up_to: Offset) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Whole batches from `start` to `up_to`."""
        return self._log.read_batches(start, up_to)

    def time_of(self, offset: Offset) -> Millis:
        """The append time of the batch that holds `offset`; -1 if it is not in the log."""
        if not self.start <= offset < self.end:
            return Millis(-1)
        header, _ = next(self.batches(offset, self.end))
        return Millis(header.max_timestamp)

    def offset_at(self, at_ms: Millis, *, up_to: Offset) -> Offset:
        """The first offset appended at or after a time; `up_to` if there is none below it."""
        found = self._log.offset_for_timestamp(max(0, at_ms), up_to=up_to)
        return up_to if found is None else Offset(found.offset)

    def epoch_of(self, offset: Offset) -> int:
        """The epoch in which `offset` was appended; -1 if it is not known."""
        epoch = self._log.epoch_of(offset)
        return -1 if epoch is None else epoch

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int] | None:
        """(the largest epoch at or below `epoch`, its end offset); None if it is above all."""
        return self._log.end_offset_for_epoch(epoch)

    def control_records(self) -> Iterator[tuple[Offset, ControlType, bytes]]:
        """All control records of the log, with their offsets."""
        for header, view in self.batches(self.start, self.end):
            if header.is_control:
                yield from control_records(view)

    def truncate_to(self, offset: Offset) -> None:
        """Remove every record from `offset` on."""
        self._log.truncate_to(offset)

    def set_high_watermark(self, offset: Offset) -> None:
        """The committed offset: the upper bound for cleaning."""
        self._log.set_high_watermark(offset)

    def close(self) -> None:
        """A clean stop."""
        self._log.close()

    # ---- snapshots

    def new_snapshot(self, snapshot: SnapshotId) -> SnapshotFile | None:
        """Start writing a snapshot; None if it is already on disk."""
        if snapshot in self._snapshots:
            return None
        return SnapshotFile(self._disk, self._log.directory, snapshot)

    def keep_snapshot(self, snapshot: SnapshotId, size: int) -> None:
        """A `SnapshotFile` was frozen: it counts from now on."""
        self._snapshots[snapshot] = size

    def install_snapshot(self, snapshot: SnapshotId, size: int) -> None:
        """A frozen snapshot from the leader: empty the log to it and forget the older ones."""
        self._snapshots[snapshot] = size
        self._start_at(snapshot)

    def _start_at(self, snapshot: SnapshotId) -> None:
        self._log.truncate_fully_and_start_at(snapshot.offset)
        self._disk.fault_point("log_replaced_before_old_snapshots_go")
        self._forget_before(snapshot)

    def _forget_before(self, snapshot: SnapshotId) -> None:
        for old in [old for old in self._snapshots if old < snapshot]:
            del self._snapshots[old]
            self._disk.unlink(self._path(old))

    def _path(self, snapshot: SnapshotId) -> str:
        return f"{self._log.directory}/{snapshot.file_name}"

    def open_snapshot(self, snapshot: SnapshotId) -> SnapshotData:
        """Open a snapshot for reading; `FileNotFoundError` if it was deleted."""
        return open_snapshot(self._disk, self._path(snapshot))

    def read_snapshot(self, snapshot: SnapshotId, position: int, max_bytes: int) -> bytes:
        """Read part of a snapshot file; `FileNotFoundError` if it was deleted."""
        return self._disk.pread(self._path(snapshot), max_bytes, position)

    # ---- cleaning

    def clean(self, now: Millis) -> bool:
        """Let old snapshots and the segments below the next one go; whether any went.

        Always keeps the newest snapshot and everything above it. One goes when log and snapshots
        together are larger than the retention, or its content is older.
        """
        cleaned = False
        while len(self._snapshots) > 1:
            oldest, following = sorted(self._snapshots)[:2]
            if not (self._is_too_much() or self._is_too_old(oldest, now)):
                break
            if following.offset > self._log.high_watermark:
                break
            self._log.advance_log_start(following.offset)
            self._log.apply_retention(now)
            self._disk.fault_point("segments_gone_before_their_snapshot")
            self._forget_before(following)
            cleaned = True
        self._log.remove_deleted_files(now)
        return cleaned

    def _is_too_much(self) -> bool:
        limit = self._config.retention_bytes
        return limit >= 0 and self._log.size_in_bytes + sum(self._snapshots.values()) > limit

    def _is_too_old(self, snapshot: SnapshotId, now: Millis) -> bool:
        if self._config.retention_ms < 0:
            return False
        content = self.open_snapshot(snapshot).content()
        return now - content.last_contained_log_timestamp > self._config.retention_ms


def _needed(disk: Disk, directory: str, recovery_point: int) -> int:
    """Return the offset below which the log must be complete.

    It is 0 if a snapshot holds all records known to be committed: a crash while a fetched snapshot
    replaces the log may leave the snapshot alone.
    """
    found = [parse_snapshot_name(name) for name in disk.listdir(directory)]
    held = [snapshot.offset for snapshot, whole in filter(None, found) if whole]
    return 0 if max(held, default=0) >= recovery_point else recovery_point


def control_records(batch: Buffer) -> Iterator[tuple[Offset, ControlType, bytes]]:
    """Offset, type and encoded value of each record of a control batch."""
    for record in decode_records(batch):
        if record.value is None:
            raise DecodeError("a control record without a value")
        yield Offset(record.offset), parse_control_key(record.key), record.value
