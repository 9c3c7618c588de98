"""Upkeep of Delta tables beside running pipelines: compaction of small files, removal of old ones.

Compaction changes no rows, so it never conflicts with appended files; a merge that commits first
makes it start over with the files that are there then. Removal deletes files that no version within
the retention needs, and files without a commit, such as those of killed tasks. Those of running
tasks are younger than `RETAIN_HOURS_MIN`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from sparkraft.pipeline.conflicts import commit_with_retries
from sparkraft.pipeline.spec import SpecError

if TYPE_CHECKING:
    from deltalake import DeltaTable

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
    deleted = table.vacuum(
        retention_hours=retain_hours, dry_run=False, enforce_retention_duration=False, full=True
    )
    return Upkeep(before, after, len(deleted))


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
