"""Upkeep of Iceberg tables beside running pipelines: compaction, expiry, removal of old files.

    1. Small files of a partition are joined into one; a row group is in memory at a time. Files
       that come meanwhile are left for the next time: a commit that lost its race to a batch joins
       nothing again, unless batches replaced a file of each group.
    2. Snapshots that are older than the retention expire, except the last one and those of branches
       and tags. Readers of an older snapshot fail then.
    3. Files that no snapshot names are deleted if they are older than the retention: those of
       expired snapshots, and those without a commit, such as those of killed tasks. Files of
       metadata in JSON stay; Iceberg's `write.metadata.delete-after-commit.enabled` limits them.

Not here: Delta tables (`upkeep`).
"""

from __future__ import annotations

import posixpath
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sparkraft.pipeline.conflicts import commit_with_retries
from sparkraft.pipeline.iceberg import (
    data_files,
    retried_errors,
    transaction_of,
    write_snapshot,
)
from sparkraft.pipeline.spec import SpecError
from sparkraft.pipeline.table_files import FileWriter, filesystem
from sparkraft.pipeline.table_rewrite import FileReader, folder_of
from sparkraft.pipeline.upkeep import Upkeep, check_retention

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sparkraft.pipeline.iceberg import IcebergSink
    from sparkraft.pipeline.table_files import TableFile
    from sparkraft.pipeline.table_rewrite import DataFile

_FILES_MAX: Final = 1000
"""Small files that become one: they are read one after another."""


_ATTEMPTS_MAX: Final = 30
_PAUSE_S_MAX: Final = 0.2
"""A pipeline may commit several times while a commit is prepared. A long pause would only let more
files arrive."""


class _Joined(NamedTuple):
    """Files that were joined, and the result."""

    paths: tuple[str, ...]
    files: tuple[TableFile, ...]


def keep_up(sink: IcebergSink, *, target_bytes: int, retain_hours: int) -> Upkeep:
    """Compact a table, expire its snapshots, and delete files that are no longer needed.

    Raises:
        SpecError: the table does not exist, or the retention is too short.
    """
    check_retention(retain_hours)
    table = sink.loaded()
    if table is None:
        raise SpecError(f"{sink.table} is not a table of the catalog")
    before = _count(table)
    _compact(sink, target_bytes)
    oldest = datetime.now(UTC) - timedelta(hours=retain_hours)

    def expire() -> None:
        loaded = sink.loaded()
        expiring = loaded.maintenance.expire_snapshots().older_than(oldest.replace(tzinfo=None))
        if expiring._snapshot_ids_to_expire:  # noqa: SLF001 (an empty commit is still one)
            expiring.commit()

    commit_with_retries(expire, retried_errors(), sink.name, _ATTEMPTS_MAX, _PAUSE_S_MAX)
    table = sink.loaded()
    return Upkeep(before, _count(table), _delete_old(table, oldest))


def iceberg_files(sink: IcebergSink) -> list[tuple[Any, int]]:
    """Partition and size of each file of a table; none if the table does not exist."""
    table = sink.loaded()
    found = [] if table is None else table.scan().plan_files()
    return [(str(each.file.partition), each.file.file_size_in_bytes) for each in found]


def _count(table: Any) -> int:
    return sum(1 for _ in table.scan().plan_files())


def _compact(sink: IcebergSink, target_bytes: int) -> None:
    from sparkraft.pipeline.iceberg_replace import Manifests

    known: list[_Joined] = []
    manifests = Manifests()

    def compact() -> None:
        table = sink.loaded()
        folder = f"{table.location()}/data"
        present = data_files(table, sink.name, folder, manifests)
        joined = [each for each in known if present.keys() >= set(each.paths)]
        if not joined:
            groups = _groups((file for file, _ in present.values()), target_bytes)
            joined = [_join(folder, group) for group in groups]
            known[:] = joined
        if not joined:
            return
        transaction = transaction_of(table)
        added = [file for each in joined for file in each.files]
        removed = [present[path][1] for each in joined for path in each.paths]
        properties = {"sparkraft.compacted": "true"}
        write_snapshot(transaction, folder, added, removed, properties, manifests)
        transaction.commit_transaction()

    commit_with_retries(compact, retried_errors(), sink.name, _ATTEMPTS_MAX, _PAUSE_S_MAX)


def _groups(files: Iterable[DataFile], target_bytes: int) -> Iterator[Sequence[DataFile]]:
    """Small files of one partition that together have about the target's size."""
    parts: dict[tuple[tuple[str, str | None], ...], list[DataFile]] = defaultdict(list)
    for file in files:
        if file.size < target_bytes:
            parts[tuple(file.partition.items())].append(file)
    for small in parts.values():
        bins: list[list[DataFile]] = []
        # The largest first: then at most one of the results has less than half the target's size.
        for file in sorted(small, key=lambda each: (-each.size, each.path)):
            for group in bins:
                size = sum(each.size for each in group)
                if size + file.size <= target_bytes and len(group) < _FILES_MAX:
                    group.append(file)
                    break
            else:
                bins.append([file])
        yield from (group for group in bins if len(group) > 1)


def _join(folder: str, group: Sequence[DataFile]) -> _Joined:
    files = FileWriter(folder, "compacted")
    for each in group:
        for rows in FileReader(folder, each.path).read():
            files.add_to(folder_of(group[0].path), group[0].partition, rows)
    files.close()
    return _Joined(tuple(each.path for each in group), tuple(files.written))


def _delete_old(table: Any, oldest: datetime) -> int:
    """Delete files that no snapshot names."""
    from pyarrow import fs

    named = {_plain(path) for path in _named(table)}
    deleted = 0
    for below in ("data", "metadata"):
        system, base = filesystem(f"{table.location()}/{below}")
        found = system.get_file_info(fs.FileSelector(base, recursive=True, allow_not_found=True))
        for info in found:
            if info.type != fs.FileType.File or info.extension not in {"parquet", "avro"}:
                continue
            path = f"{table.location()}/{below}/{info.path.removeprefix(base).lstrip('/')}"
            if _plain(path) not in named and info.mtime < oldest:
                system.delete_file(info.path)
                deleted += info.extension == "parquet"
    return deleted


def _plain(location: str) -> str:
    """A location without its scheme, of which some have two spellings."""
    return posixpath.normpath(location.partition("://")[2] or location)


def _named(table: Any) -> Iterator[str]:
    """Data files, manifests and lists of manifests of all snapshots."""
    seen = set()
    for snapshot in table.metadata.snapshots:
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path in seen:
                continue
            seen.add(manifest.manifest_path)
            yield manifest.manifest_path
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                yield entry.data_file.file_path
