"""Planted bugs in the storage, each seen by one of S1 to S9 alone.

What a disk lost or mixed up is often mended by replication before anybody outside notices, so only
the invariant that is meant is looked at.
"""

import errno
from typing import Any

from sparkraft.records.batch import HEAD_PATCH_SIZE, BatchHeader, with_timestamps
from sparkraft.records.validate import check_produced
from sparkraft.storage import log
from sparkraft.storage.dir_checkpoints import DirCheckpoints
from sparkraft.storage.index import OffsetIndex
from sparkraft.storage.log import PartitionLog
from sparkraft.storage.log_dir import LogDir, Steps
from sparkraft.storage.names import DELETED, LOG, METADATA_DIR
from sparkraft.storage.recovery import _Recovery
from sparkraft.storage.segment import Segment
from sparkraft.storage.segments import Segments
from tests.mutants.mutant import NODES, Mutant, Patches, registrar

STORAGE_MUTANTS: dict[str, Mutant] = {}

_plant = registrar(STORAGE_MUTANTS, tiers=NODES, workload="produce-consume", isolated=True)


@_plant("an unclean start cuts the log back to its recovery point", "S1")
def _recovery_trusts_the_recovery_point_alone() -> Patches:
    original = _Recovery._walk

    def walk(self: Any, segment: Segment, following: Segment | None) -> bool:
        whole = original(self, segment, following)
        if following is None and segment.base_offset <= self._recovery_point < self._end:
            self._end = segment.truncate_to(self._recovery_point)
        return whole

    return [(_Recovery, "_walk", walk)]


@_plant("log recovery does not check CRCs", "S2", scenario="killed-then-unplugged")
def _recovery_without_crcs() -> Patches:
    def read_batch(self: Segment, position: int, header: BatchHeader) -> bytes:
        return self._disk.pread(self.log_path, header.size_in_bytes, position)

    return [(Segment, "read_batch", read_batch)]


@_plant("an index entry points past its batch", "S3")
def _index_entries_after_their_batches() -> Patches:
    original = OffsetIndex.append

    def append(self: OffsetIndex, relative_offset: int, position: int, size: int = 0) -> None:
        original(self, relative_offset, position + size, size)

    return [(OffsetIndex, "append", append)]


@_plant("the leader-epoch checkpoint is written in its place, and not synced", "S4")
def _epochs_written_in_place() -> Patches:
    def put(self: PartitionLog, name: str, data: bytes, *, synced: bool) -> None:
        _ = synced
        self._disk.write(f"{self.directory}/{name}", data)

    return [(PartitionLog, "_put", put)]


@_plant("producer state of truncated records is kept", "S5")
def _producers_of_what_was_cut() -> Patches:
    return [(PartitionLog, "_reload_producers", lambda _self, _end: None)]


@_plant("old segments are deleted before the new log start is on disk", "S7")
def _segments_go_before_the_start_is_kept() -> Patches:
    def starts_steps(_self: DirCheckpoints, _log_dir: LogDir) -> Steps[None]:
        yield 1

    return [
        (DirCheckpoints, "starts_steps", starts_steps),
        (DirCheckpoints, "write_starts", lambda _self, _log_dir: None),
    ]


@_plant("retention deletes everything, including records above the high watermark", "S7")
def _retention_above_the_high_watermark() -> Patches:
    original = Segments.expired_until

    def expired(self: Segments, now_ms: int, **bounds: Any) -> int:
        until = original(self, now_ms, **bounds)
        all_of_it = until and METADATA_DIR not in self.directory
        return bounds["log_end_offset"] if all_of_it else until

    return [(Segments, "expired_until", expired)]


@_plant("indexes outlive the segment that was removed", "S8")
def _indexes_outlive_their_segment() -> Patches:
    def mark_deleted(self: Segment) -> list[str]:
        self.deleted = True
        path = self.path(LOG)
        if self._disk.size(path) < 0:
            return []
        self._disk.rename(path, path + DELETED)
        return [path + DELETED]

    return [(Segment, "mark_deleted", mark_deleted)]


@_plant("an append that finds the disk full counts as done", "S8")
def _a_full_disk_is_ignored() -> Patches:
    original = Segment.append

    def append(self: Any, buffers: Any, size: int) -> int:
        if "/records-" in self.log_path and self.size % 16 == 5:
            self._disk.fail("append", path=self.log_path, error=errno.ENOSPC)
        try:
            return original(self, buffers, size)
        except OSError:
            return int(self.size)

    return [(Segment, "append", append)]


@_plant("a leader changes the timestamp type of records", "S9")
def _a_time_type_of_its_own() -> Patches:
    original = check_produced

    def checked(records: Any, *arguments: Any) -> Any:
        header, rest = original(records, *arguments)
        batch = bytes(HEAD_PATCH_SIZE) + bytes(rest)
        stamped = with_timestamps(batch, log_append_time=True, max_timestamp=header.max_timestamp)
        return header, b"".join(stamped)[HEAD_PATCH_SIZE:]

    return [(log, "check_produced", checked)]
