"""Producers and aborted transactions, derived from a log's batches (KIP-98).

The newest producer snapshot at or below `replay_from` and the batches after it determine the
producer state at the log end offset. A snapshot holds each producer's last batch only; the log's
last pages before it hold earlier batches that may still be retried. Every abort marker found on the
way belongs in its segment's `.txnindex`; a file that disagrees is rewritten.

Invariant: the result does not depend on the snapshot it started from, except for producers that
    retention has expired.
"""

from collections.abc import Iterator

from sparkraft.records.batch import BatchHeader
from sparkraft.records.errors import CorruptRecords
from sparkraft.storage.disk import Disk
from sparkraft.storage.index import AbortedTransaction
from sparkraft.storage.names import SNAPSHOT, offset_name
from sparkraft.storage.producers import DamagedSnapshot, Producers
from sparkraft.storage.segment import Segment

TAIL_ENTRIES = 64
"""Entries of the offset index to look back: as many large batches, or 256 KiB of small ones; this
takes some milliseconds."""


def rebuild_producers(  # noqa: PLR0913 (a log in its parts: recovery has no more yet)
    disk: Disk,
    directory: str,
    segments: list[Segment],
    *,
    snapshots: list[int],
    start: int,
    end: int,
    replay_from: int | None = None,
) -> Producers:
    """The producers' state at `end`.

    Args:
        disk: files.
        directory: the log's.
        segments: in order.
        snapshots: offsets of the producer snapshots; damaged ones are removed, here and on disk.
        start: log start offset.
        end: offset of the requested state; batches from there on are not read.
        replay_from: no snapshot above it is used, because transaction indexes from there on are
            not to be trusted; None: they are.
    """
    limit = end if replay_from is None else min(end, replay_from)
    producers, begin = _newest_snapshot(disk, directory, snapshots, start=start, limit=limit)
    if len(producers):
        for header in _tail(segments, begin):
            producers.remember(header)
    if begin >= end:
        return producers
    for index, segment in enumerate(segments):
        if index + 1 < len(segments) and segments[index + 1].base_offset <= begin:
            continue
        found = _replay(segment, producers, begin, end)
        kept = [entry for entry in segment.aborted if entry.last_offset < begin]
        segment.set_aborted([*kept, *found])
    return producers


def _newest_snapshot(
    disk: Disk, directory: str, snapshots: list[int], *, start: int, limit: int
) -> tuple[Producers, int]:
    for offset in sorted(snapshots, reverse=True):
        if offset > limit:
            continue
        path = f"{directory}/{offset_name(offset, SNAPSHOT)}"
        try:
            return Producers.from_snapshot(disk.read(path)), offset
        except (DamagedSnapshot, FileNotFoundError):
            disk.unlink(path)
            snapshots.remove(offset)
    return Producers(), start


def _tail(segments: list[Segment], end: int) -> Iterator[BatchHeader]:
    """Headers of producers' last data batches below `end`, in order."""
    places: list[tuple[Segment, int]] = []
    left = TAIL_ENTRIES
    for segment in reversed([each for each in segments if each.base_offset < end]):
        places.append((segment, segment.start_before(end, left)))
        left -= max(len(segment.offset_index), 1)
        if left <= 0:
            break
    for segment, position in reversed(places):
        try:
            for header, _ in segment.headers(position):
                if header.base_offset >= end:
                    break
                if header.has_producer_id and not header.is_control:
                    yield header
        except CorruptRecords:
            continue  # readers of these records get the error


def _replay(
    segment: Segment, producers: Producers, begin: int, end: int
) -> list[AbortedTransaction]:
    """Take the segment's batches in [begin, end) in; the transactions aborted there."""
    aborted: list[AbortedTransaction] = []
    position = 0
    if begin > segment.base_offset:
        found = segment.position_of(begin)
        if found is None:
            return aborted
        position = found[1]
    for header, at in segment.headers(position):
        if header.base_offset >= end:
            break
        if not header.has_producer_id or header.last_offset < begin:
            continue
        batch = segment.read_batch(at, header) if header.is_control else b""
        done = producers.apply(header, batch, header.base_offset)
        if done is None:
            continue
        if done.aborted:
            aborted.append(producers.aborted_entry(done))
        producers.complete(done)
    return aborted
