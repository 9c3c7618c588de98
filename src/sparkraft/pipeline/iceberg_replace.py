"""Snapshots that replace files of an Iceberg table, prepared in the least time.

A commit fails if another snapshot was first, and is prepared again on top of that one. The longer a
preparation takes, the more of these races it loses to a busy pipeline. Two things take most of the
time in `pyiceberg`: it reads the manifests of the table three times in each attempt, and it copies
the whole metadata about twenty times. Here manifests, which never change, are read once for all
attempts, and the metadata is copied once for each update.

Not here: which files are replaced (`iceberg_upkeep`, `table_merge`), and retries (`conflicts`).
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestEntry, ManifestEntryStatus
from pyiceberg.table import Transaction
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _OverwriteFiles
from pyiceberg.utils.concurrent import ExecutorFactory

if TYPE_CHECKING:
    from collections.abc import Sequence


class Manifests:
    """Entries of the manifests that were read; shared by the attempts of one commit."""

    def __init__(self) -> None:
        self._entries: dict[str, list[Any]] = {}

    def read(self, manifests: Sequence[Any], io: Any) -> list[list[Any]]:
        """Return the live entries of each manifest; read several unknown ones at once."""
        unknown = [each for each in manifests if each.manifest_path not in self._entries]
        read = ExecutorFactory.get_or_create().map(
            lambda each: each.fetch_manifest_entry(io), unknown
        )
        for manifest, entries in zip(unknown, read, strict=True):
            self._entries[manifest.manifest_path] = entries
        return [self._entries[each.manifest_path] for each in manifests]

    def live(self, table: Any) -> dict[str, Any] | None:
        """The data files of the current snapshot by path; None if it has delete files."""
        snapshot = table.current_snapshot()
        manifests = [] if snapshot is None else snapshot.manifests(table.io)
        if any(each.content == ManifestContent.DELETES for each in manifests):
            return None
        entries = chain.from_iterable(self.read(manifests, table.io))
        return {entry.data_file.file_path: entry.data_file for entry in entries}


class QuickTransaction(Transaction):
    """A transaction that applies its updates to the metadata once, not for each field read."""

    def __init__(self, table: Any) -> None:
        super().__init__(table)
        self._applied: tuple[Any, Any, Any] = (None, None, None)

    @property
    def table_metadata(self) -> Any:
        base, updates, applied = self._applied
        if base is not self._table.metadata or updates is not self._updates:
            base, updates = self._table.metadata, self._updates
            applied = super().table_metadata
            self._applied = base, updates, applied
        return applied


class ReplaceFiles(_OverwriteFiles):
    """An overwrite that reads each manifest once (as Iceberg's MergingSnapshotProducer keeps them).

    Args:
        transaction: of the table.
        properties: of the snapshot.
        known: manifests of earlier attempts, and of this one afterwards.
    """

    def __init__(
        self, transaction: Transaction, properties: dict[str, str], known: Manifests
    ) -> None:
        super().__init__(
            operation=Operation.OVERWRITE,
            transaction=transaction,
            io=transaction._table.io,  # noqa: SLF001 (its own way to its files)
            snapshot_properties=properties,
        )
        self._known = known

    def _deleted_entries(self) -> list[Any]:
        deleted = [
            _as(ManifestEntryStatus.DELETED, entry, self._snapshot_id)
            for _, entries in self._present()
            for entry in entries
            if entry.data_file.content == DataFileContent.DATA
            and entry.data_file in self._deleted_data_files
        ]
        self._validate_required_deletes(deleted)
        return deleted

    def _existing_manifests(self) -> list[Any]:
        existing = []
        for manifest, entries in self._present():
            kept = [each for each in entries if each.data_file not in self._deleted_data_files]
            if len(kept) == len(entries):
                existing.append(manifest)
            elif kept:
                with self.new_manifest_writer(self.spec(manifest.partition_spec_id)) as writer:
                    for entry in kept:
                        existing_entry = _as(ManifestEntryStatus.EXISTING, entry, entry.snapshot_id)
                        writer.add_entry(existing_entry)
                existing.append(writer.to_manifest_file())
        return existing

    def _present(self) -> list[tuple[Any, list[Any]]]:
        """Manifests of the snapshot before, with their live entries."""
        snapshot = self._transaction.table_metadata.snapshot_by_name(self._target_branch)
        manifests = [] if snapshot is None else snapshot.manifests(self._io)
        return list(zip(manifests, self._known.read(manifests, self._io), strict=True))


def _as(status: Any, entry: Any, snapshot_id: int) -> Any:
    return ManifestEntry.from_args(
        status=status,
        snapshot_id=snapshot_id,
        sequence_number=entry.sequence_number,
        file_sequence_number=entry.file_sequence_number,
        data_file=entry.data_file,
    )
