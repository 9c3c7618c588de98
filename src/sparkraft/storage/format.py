"""Formats log directories: `meta.properties`, `bootstrap.checkpoint`, the zero checkpoint.

    DIR/meta.properties                       in every directory, last: it marks the format as
                                              complete DIR/bootstrap.checkpoint                  in
                                              every directory: the first records of the cluster
                                              METADATA_DIR/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint
                                              in a dynamic quorum with known voters (KIP-853)

Invariant: a directory that has a `meta.properties` was formatted to the end.

Not here: which features and voters a cluster starts with (`sparkraft.server.node_format`).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sparkraft.base.env import Clock, Entropy, random_uuid
from sparkraft.base.ids import BrokerId, LeaderEpoch, Millis, Uuid
from sparkraft.records.control import ControlType
from sparkraft.storage.disk import Disk
from sparkraft.storage.meta_properties import (
    BadMetaProperties,
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from sparkraft.storage.names import BOOTSTRAP_CHECKPOINT, METADATA_DIR
from sparkraft.storage.snapshot_files import (
    ZERO_SNAPSHOT,
    SnapshotFile,
    open_snapshot,
    snapshot_batches,
)


class FormatError(Exception):
    """The directories can't be formatted; its text is for the person who asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatRequest:
    """The content to write.

    Attributes:
        directories: all log directories.
        metadata_directory: the one of them that has the metadata log.
        bootstrap_records: framed metadata records, metadata.version first.
        voter_controls: encoded KRaftVersion and KRaftVoters records; empty without known voters.
        directory_id: of the metadata directory, if the voter set names it.
        ignore_formatted: leave directories alone that are formatted already.
    """

    directories: tuple[str, ...]
    metadata_directory: str
    cluster_id: str
    node_id: BrokerId
    bootstrap_records: tuple[bytes, ...]
    voter_controls: tuple[tuple[ControlType, bytes], ...] = ()
    directory_id: Uuid | None = None
    ignore_formatted: bool = False


def format_directories(
    disk: Disk, request: FormatRequest, *, clock: Clock, entropy: Entropy
) -> list[str]:
    """Format what is not formatted yet, in sorted order; the directories written.

    Raises:
        FormatError: one is formatted and `ignore_formatted` is off, or belongs to others.
    """
    formatted = _existing(disk, request)
    if formatted and not request.ignore_formatted:
        raise FormatError(
            f"Log directory {min(formatted)} is already formatted. "
            "Use --ignore-formatted to ignore this directory and format the others."
        )
    written = []
    for directory in sorted(set(request.directories) - set(formatted)):
        _format_one(disk, request, directory, clock=clock, entropy=entropy)
        written.append(directory)
    return written


def _existing(disk: Disk, request: FormatRequest) -> dict[str, MetaProperties]:
    """The directories that are formatted; all of this node and cluster."""
    found = {}
    for directory in request.directories:
        try:
            meta = read_meta_properties(disk, directory)
        except BadMetaProperties as error:
            raise FormatError(f"{directory}: {error}") from error
        if meta is None:
            continue
        if meta.cluster_id != request.cluster_id:
            raise FormatError(
                f"{directory} belongs to cluster {meta.cluster_id}, not to {request.cluster_id}"
            )
        if meta.node_id != request.node_id:
            raise FormatError(
                f"{directory} belongs to node {meta.node_id}, not to node {request.node_id}"
            )
        found[directory] = meta
    return found


def _format_one(
    disk: Disk, request: FormatRequest, directory: str, *, clock: Clock, entropy: Entropy
) -> None:
    now = clock.wall_ms()
    disk.mkdir(directory)
    write_checkpoint(disk, f"{directory}/{BOOTSTRAP_CHECKPOINT}", request.bootstrap_records, now)
    is_metadata = directory == request.metadata_directory
    if is_metadata and request.voter_controls:
        _write_zero_checkpoint(disk, directory, request.voter_controls, now)
    given = request.directory_id if is_metadata else None
    meta = MetaProperties(
        cluster_id=request.cluster_id,
        node_id=request.node_id,
        directory_id=given or random_uuid(entropy),
    )
    write_meta_properties(disk, directory, meta)


def write_checkpoint(disk: Disk, path: str, records: Iterable[bytes], now: Millis) -> None:
    """A `bootstrap.checkpoint` with these framed records, on disk when this returns."""
    batches = snapshot_batches(
        records, epoch=LeaderEpoch(0), now=now, last_contained_log_timestamp=Millis(0)
    )
    disk.replace(path, b"".join(batches))


def _write_zero_checkpoint(
    disk: Disk, directory: str, controls: tuple[tuple[ControlType, bytes], ...], now: Millis
) -> None:
    metadata = f"{directory}/{METADATA_DIR}"
    disk.mkdir(metadata)
    file = SnapshotFile(disk, metadata, ZERO_SNAPSHOT)
    for batch in snapshot_batches(
        (),
        epoch=ZERO_SNAPSHOT.epoch,
        now=now,
        last_contained_log_timestamp=now,
        controls=controls,
    ):
        file.append(batch)
    file.freeze()


def read_checkpoint(disk: Disk, log_dir: str) -> Iterator[bytes]:
    """Return the framed records of a directory's `bootstrap.checkpoint`; none if there is no file.

    The zero checkpoint may hold records too (KIP-1170): they come first.
    """
    zero = f"{log_dir}/{METADATA_DIR}/{ZERO_SNAPSHOT.file_name}"
    for path in (zero, f"{log_dir}/{BOOTSTRAP_CHECKPOINT}"):
        if disk.size(path) < 0:
            continue
        found = [record for batch in open_snapshot(disk, path).records() for record in batch]
        if found:
            yield from found
            return
