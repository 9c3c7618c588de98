"""The three indexes of a segment: by offset, by time, and of aborted transactions.

They are sparse and derivable: rebuilding one gives the same answers, so a damaged file costs time,
never data. In memory entries are C arrays (12 bytes each); files are written when a segment
becomes inactive or is closed, because an unclean start rebuilds the active one anyway::

    .index      8 B: relative offset i32 of a batch's last record | position i32 of that batch
    .timeindex 12 B: timestamp i64, larger than all before | relative offset i32
    .txnindex  34 B: version i16 = 0 | producer i64 | first, last and last stable offset i64

Invariant: an offset entry's position is where a batch starts, and no batch before it ends at or
after the entry's offset, so looking up gives a lower bound to scan from.
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from struct import Struct
from typing import Final, NamedTuple

INDEX_ENTRY: Final = 8
TIME_ENTRY: Final = Struct(">qi")
ABORTED_ENTRY: Final = Struct(">hqqqq")

_LITTLE = sys.byteorder == "little"


class DamagedIndex(Exception):  # noqa: N818 (callers rebuild)
    """An index file whose contents can't be right."""


class OffsetIndex:
    """Positions of batches by offset, in memory.

    The end of an entry's batch is not in the file: it is known for appended entries, and learned
    for the others when a search reads their headers. If the batches of two entries are adjacent,
    the position of the second is then known without reading the log.
    """

    __slots__ = ("_ends", "_offsets", "_positions")

    def __init__(self) -> None:
        """Start empty."""
        self._offsets = array("i")
        self._positions = array("i")
        self._ends = array("i")  # 0 if it is not known

    def __len__(self) -> int:
        """Number of entries."""
        return len(self._offsets)

    @property
    def last(self) -> tuple[int, int]:
        """(relative offset, position) of the last entry; (0, 0) if there is none."""
        return (self._offsets[-1], self._positions[-1]) if self._offsets else (0, 0)

    def append(self, relative_offset: int, position: int, size: int = 0) -> None:
        """Append an entry for a batch of `size` bytes (0: unknown)."""
        self._offsets.append(relative_offset)
        self._positions.append(position)
        self._ends.append(position + size if size else 0)

    def learn(self, relative_offset: int, position: int, size: int) -> None:
        """A batch was read: if there is an entry for it, it is right, and its end is known."""
        slot = bisect_left(self._positions, position)
        if (
            slot < len(self._positions)
            and self._positions[slot] == position
            and self._offsets[slot] == relative_offset
        ):
            self._ends[slot] = position + size

    def batch_of(self, relative_offset: int) -> tuple[int, int] | None:
        """(position, size) of the first batch that ends at or after an offset.

        None if the entries alone do not determine it.
        """
        slot = bisect_left(self._offsets, relative_offset)
        if not 0 < slot < len(self._offsets):
            return None
        position, end = self._positions[slot], self._ends[slot]
        touches = self._ends[slot - 1] == position
        return (position, end - position) if end and touches else None

    def lookup(self, relative_offset: int) -> tuple[int, int]:
        """The last entry at or below `relative_offset`, (-1, 0) if there is none.

        It is (relative offset, position): scan from the position.
        """
        slot = bisect_right(self._offsets, relative_offset) - 1
        return (self._offsets[slot], self._positions[slot]) if slot >= 0 else (-1, 0)

    def entry_before(self, relative_offset: int, count: int) -> int:
        """The relative offset of the entry `count` before that of `lookup`, -1 before the first."""
        slot = bisect_right(self._offsets, relative_offset) - 1 - count
        return self._offsets[slot] if slot >= 0 else -1

    def offset_at(self, position: int) -> int | None:
        """Return the relative offset of the first entry at or after `position`, or None."""
        slot = bisect_left(self._positions, position)
        return self._offsets[slot] if slot < len(self._offsets) else None

    def truncate_to(self, relative_offset: int) -> None:
        """Drop entries at and above `relative_offset`."""
        keep = bisect_left(self._offsets, relative_offset)
        del self._offsets[keep:]
        del self._positions[keep:]
        del self._ends[keep:]

    def to_bytes(self) -> bytes:
        """The file's bytes."""
        both = array("i", bytes(2 * self._offsets.itemsize * len(self._offsets)))
        both[0::2] = self._offsets
        both[1::2] = self._positions
        if _LITTLE:
            both.byteswap()
        return both.tobytes()

    @classmethod
    def from_bytes(cls, data: bytes, *, segment_bytes: int) -> "OffsetIndex":
        """Read a file; zero-filled space at its end (Kafka preallocates) is left off.

        Raises:
            DamagedIndex: odd length, entries not rising, or pointing past the segment.
        """
        if len(data) % INDEX_ENTRY:
            raise DamagedIndex(f"{len(data)} bytes are not whole entries")
        both = array("i", data)
        if _LITTLE:
            both.byteswap()
        self = cls()
        self._offsets, self._positions = both[0::2], both[1::2]
        while self._positions and self._positions[-1] == 0 and self._offsets[-1] == 0:
            self._offsets.pop()
            self._positions.pop()
        self._ends = array("i", bytes(self._offsets.itemsize * len(self._offsets)))
        self._check(segment_bytes)
        return self

    def _check(self, segment_bytes: int) -> None:
        for column in (self._offsets, self._positions):
            if column and (column[0] < 0 or not _rises(column)):
                raise DamagedIndex("the entries do not rise")
        if self._positions and self._positions[-1] >= segment_bytes:
            raise DamagedIndex("an entry points past the end of the segment")


def _rises(column: "array[int]") -> bool:
    return all(map(int.__lt__, column, column[1:]))


class TimeIndex:
    """The last offsets up to which a timestamp was the largest, in memory."""

    __slots__ = ("_offsets", "_timestamps")

    def __init__(self) -> None:
        """Start empty."""
        self._timestamps = array("q")
        self._offsets = array("i")

    def __len__(self) -> int:
        """Number of entries."""
        return len(self._timestamps)

    @property
    def last(self) -> tuple[int, int]:
        """(timestamp, relative offset) of the last entry; (-1, 0) if there is none."""
        return (self._timestamps[-1], self._offsets[-1]) if self._timestamps else (-1, 0)

    def maybe_append(self, timestamp: int, relative_offset: int) -> bool:
        """Add an entry if the timestamp is larger than all before; whether it was."""
        if timestamp <= self.last[0] or (self._offsets and relative_offset < self._offsets[-1]):
            return False
        self._timestamps.append(timestamp)
        self._offsets.append(relative_offset)
        return True

    def lookup(self, timestamp: int) -> tuple[int, int]:
        """The last entry at or below `timestamp`, (-1, 0) if there is none.

        It is (timestamp, relative offset): scan from the batch that ends there.
        """
        slot = bisect_right(self._timestamps, timestamp) - 1
        return (self._timestamps[slot], self._offsets[slot]) if slot >= 0 else (-1, 0)

    def truncate_to(self, relative_offset: int) -> None:
        """Drop entries at and above `relative_offset`."""
        keep = bisect_left(self._offsets, relative_offset)
        del self._timestamps[keep:]
        del self._offsets[keep:]

    def to_bytes(self) -> bytes:
        """The file's bytes."""
        pack = TIME_ENTRY.pack
        return b"".join(map(pack, self._timestamps, self._offsets))

    @classmethod
    def from_bytes(cls, data: bytes) -> "TimeIndex":
        """Read a file; zero-filled space at its end is left off.

        Raises:
            DamagedIndex: odd length or entries not rising.
        """
        if len(data) % TIME_ENTRY.size:
            raise DamagedIndex(f"{len(data)} bytes are not whole entries")
        self = cls()
        entries = list(TIME_ENTRY.iter_unpack(data))
        while entries and entries[-1] == (0, 0):
            entries.pop()
        self._timestamps = array("q", [timestamp for timestamp, _ in entries])
        self._offsets = array("i", [offset for _, offset in entries])
        if not _rises(self._timestamps) or (self._offsets and self._offsets[0] < 0):
            raise DamagedIndex("the entries do not rise")
        if any(map(int.__gt__, self._offsets, self._offsets[1:])):
            raise DamagedIndex("the offsets go back")
        return self


class AbortedTransaction(NamedTuple):
    """One aborted transaction of a segment, as Fetch hands it to read_committed consumers."""

    producer_id: int
    first_offset: int
    last_offset: int
    """Offset of the abort marker."""
    last_stable_offset: int
    """The last stable offset after the marker was written."""

    def to_bytes(self) -> bytes:
        """The file's entry."""
        return ABORTED_ENTRY.pack(0, *self)


def parse_aborted(data: bytes) -> list[AbortedTransaction]:
    """Return the entries of a `.txnindex`; raise `DamagedIndex` if they are inconsistent."""
    if len(data) % ABORTED_ENTRY.size:
        raise DamagedIndex(f"{len(data)} bytes are not whole entries")
    aborted: list[AbortedTransaction] = []
    before = -1
    for version, *fields in ABORTED_ENTRY.iter_unpack(data):
        if version != 0:
            raise DamagedIndex(f"an entry of version {version}")
        entry = AbortedTransaction(*fields)
        if not 0 <= entry.first_offset <= entry.last_offset or entry.last_offset <= before:
            raise DamagedIndex("the markers do not rise, or one is before its transaction")
        if entry.last_stable_offset > entry.last_offset + 1:
            raise DamagedIndex("a last stable offset is above its marker")
        before = entry.last_offset
        aborted.append(entry)
    return aborted
