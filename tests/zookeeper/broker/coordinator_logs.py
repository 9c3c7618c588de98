"""The logs of `__consumer_offsets` and `__transaction_state` of a broker of either kind."""

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from sparkraft.records.batch import iter_batches
from sparkraft.records.record import decode_records

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"

_VERSION_BYTES = 2


class Entry(NamedTuple):
    """A record of a coordinator; `value` is None for a tombstone."""

    offset: int
    key: bytes
    value: bytes | None


def entries_of(log_dir: Path, topic: str, partition: int = 0) -> list[Entry]:
    """All records but markers, in the order of the segments.

    A batch that is still written is left out, and so is a segment that the cleaner has replaced
    since the folder was listed.
    """
    folder = log_dir / f"{topic}-{partition}"
    found: list[Entry] = []
    for segment in sorted(folder.glob("*.log")):
        with suppress(FileNotFoundError):
            found += _entries_in(segment)
    return found


def _entries_in(segment: Path) -> list[Entry]:
    return [
        Entry(record.offset, record.key, record.value)
        for header, batch in iter_batches(segment.read_bytes())
        if not header.is_control
        for record in decode_records(batch)
        if record.key is not None
    ]


def versions_of(entries: list[Entry], *, since: int = 0) -> dict[int, set[int]]:
    """Type of the key → versions of the values, from an offset on."""
    found: dict[int, set[int]] = {}
    for entry in entries:
        if entry.value is not None and entry.offset >= since:
            versions = found.setdefault(_number(entry.key), set())
            versions.add(_number(entry.value))
    return found


def is_compacted(entries: list[Entry], least: int) -> bool:
    """Whether so many offsets were written, and compaction has removed most of the records."""
    written = entries[-1].offset + 1 if entries else 0
    return written >= least and 2 * len(entries) < written


def _number(data: bytes) -> int:
    return int.from_bytes(data[:_VERSION_BYTES], "big", signed=True)
