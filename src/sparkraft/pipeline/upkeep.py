"""Upkeep of Delta tables beside running pipelines: compaction of small files, removal of old ones.

Compaction changes no rows, so it never conflicts with appended files; a merge that commits first
makes it start over with the files that are there then. Removal deletes files that no version within
the retention needs, and files without a commit, such as those of killed tasks. Those of running
tasks are younger than `RETAIN_HOURS_MIN`.
"""

from __future__ import annotations

import logging
import re
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sparkraft.pipeline.conflicts import commit_with_retries
from sparkraft.pipeline.spec import SpecError
from sparkraft.pipeline.table_files import filesystem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from deltalake import DeltaTable

log = logging.getLogger(__name__)

TARGET_BYTES: Final = 128 << 20
"""Size of compacted files; those of at least this size stay as they are."""

RETAIN_HOURS: Final = 168
"""Delta's own default: a week."""

RETAIN_HOURS_MIN: Final = 1
"""Longer than any batch: files of a running batch have no commit yet."""


class Upkeep(NamedTuple):
    """The numbers of files before and after, and of files that were deleted."""

    before: int
    after: int
    deleted: int


def keep_up(path: str, *, target_bytes: int = TARGET_BYTES, retain_hours: int) -> Upkeep:
    """Compact a table and delete files that are no longer needed.

    Raises:
        SpecError: the path is not a table, or the retention is too short.
    """
    from deltalake import DeltaTable

    check_retention(retain_hours)
    if not DeltaTable.is_deltatable(path):
        raise SpecError(f"{path} is not a Delta table")
    table = DeltaTable(path)
    before = len(table.file_uris())
    _compact(table, target_bytes)
    table.update_incremental()
    after = len(table.file_uris())
    return Upkeep(before, after, _vacuum(table, path, retain_hours))


_DELETION_VECTORS: Final = re.compile(r"(?:^|/)deletion_vector_[^/]*$")


def _vacuum(table: DeltaTable, path: str, retain_hours: int) -> int:
    """Delete old files that are not needed; return their number.

    deltalake 1.6 takes files of deletion vectors for files without a commit. In a table with such
    files, it deletes only those that a commit has removed, and the others are deleted here.
    """
    asked: dict[str, Any] = {
        "retention_hours": retain_hours,
        "enforce_retention_duration": False,
    }
    found = table.vacuum(dry_run=True, full=True, **asked)
    needed = {each for each in found if _DELETION_VECTORS.search(each)}
    if not needed:
        return len(table.vacuum(dry_run=False, full=True, **asked))
    deleted = table.vacuum(dry_run=False, full=False, **asked)
    others = {*found} - {*deleted} - needed
    system, base = filesystem(path)
    for each in others:
        system.delete_file(f"{base}/{each}")
    return len(deleted) + len(others)


class CompactionPolicy:
    """Compacts a table beside its pipeline when it has many small files.

    A compaction runs in a thread, one at a time. Its errors are logged, and never fail a batch; a
    process that ends waits for it.

    Args:
        name: of the table, in the log.
        limit: small files that can be joined; 0 for never.
        files: partition and size of each file.
        keep_up: compacts the table.
    """

    def __init__(
        self,
        name: str,
        limit: int,
        files: Callable[[], Iterable[tuple[Any, int]]],
        keep_up: Callable[[], Upkeep],
    ) -> None:
        self._name = name
        self._limit = limit
        self._files = files
        self._keep_up = keep_up
        self._batches = 0
        self._thread: threading.Thread | None = None

    def after_batch(self) -> None:
        """Start a compaction if one is due; looked at in every `_BATCHES_PER_LOOK` batches."""
        is_due = self._batches % _BATCHES_PER_LOOK == 0
        self._batches += 1
        if not self._limit or not is_due or (self._thread and self._thread.is_alive()):
            return
        self._thread = threading.Thread(target=self._run, name=f"compaction of {self._name}")
        self._thread.start()

    def _run(self) -> None:
        try:
            if joinable(self._files()) >= self._limit:
                done = self._keep_up()
                log.info("%s: %d files became %d", self._name, done.before, done.after)
        except Exception:
            log.warning("%s could not be compacted", self._name, exc_info=True)


_BATCHES_PER_LOOK: Final = 10
"""A look reads the table's log."""


def joinable(files: Iterable[tuple[Any, int]]) -> int:
    """How many files fewer there may be if the small ones of each partition were joined."""
    small = Counter(partition for partition, size in files if size < TARGET_BYTES // 2)
    return sum(count - 1 for count in small.values())


def delta_files(path: str) -> list[tuple[Any, int]]:
    """Partition and size of each file of a Delta table; none if it does not exist."""
    import pyarrow as pa
    from deltalake import DeltaTable

    if not DeltaTable.is_deltatable(path):
        return []
    actions = pa.table(DeltaTable(path).get_add_actions(flatten=False)).to_pylist()
    return [(str(each.get("partition")), each["size_bytes"]) for each in actions]


def check_retention(hours: int) -> None:
    """Refuse to delete files of running batches."""
    if hours < RETAIN_HOURS_MIN:
        raise SpecError(
            f"files are kept for at least {RETAIN_HOURS_MIN} hour: those of a running batch have "
            "no commit yet"
        )


def _compact(table: DeltaTable, target_bytes: int) -> None:
    from deltalake.exceptions import CommitFailedError

    def compact() -> None:
        table.update_incremental()
        table.optimize.compact(target_size=target_bytes)

    commit_with_retries(compact, CommitFailedError, table.table_uri)
