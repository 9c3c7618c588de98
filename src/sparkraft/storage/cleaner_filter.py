"""Which batches and records a cleaning keeps (Kafka's Cleaner, CleanedTransactionMetadata).

A record of a key stays while no later one of that key lies in the part that was indexed; a
tombstone goes once its batch's delete horizon is over (KIP-534). Besides:

* Records of aborted transactions go. A transaction's marker stays while any of its batches does,
  and then until a delete horizon of its own.
* The batch with an active producer's last sequence is retained, without records if necessary: it
  identifies retries, and an idle producer continues its sequence.
* The last batch of the cleaned part stays likewise, so that the log's offsets lead up to its end.

Invariant: offsets neither change nor change places.
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

from sparkraft.base.errors import DecodeError
from sparkraft.records.batch import BatchHeader
from sparkraft.records.control import ControlType, parse_control_key
from sparkraft.records.errors import CorruptRecords
from sparkraft.records.filter import (
    Place,
    delete_horizon,
    places,
    with_records,
    without_records,
)
from sparkraft.records.record import decompressed
from sparkraft.storage.index import AbortedTransaction

_DIGEST_BYTES = 16
STORED_BYTES_MAX = 1 << 31
"""Decompressed size limit of a stored batch. The node accepted it once, so the limit cannot be
lower."""


class OffsetMap:
    """The last offset of each key in the part that was indexed.

    A key of fewer than 16 bytes stands for itself, a longer one for its digest of 16.
    """

    __slots__ = ("_offsets", "_room", "latest")

    def __init__(self, entries_max: int) -> None:
        """Empty.

        Args:
            entries_max: it is full then; at least one batch goes in whatever it holds.
        """
        self._offsets: dict[bytes, int] = {}
        self._room = entries_max
        self.latest = -1
        """Last offset that was indexed, with all before it from the dirty part's start on."""

    def __len__(self) -> int:
        """Number of keys."""
        return len(self._offsets)

    @property
    def is_full(self) -> bool:
        """Whether no further batch goes in."""
        return len(self._offsets) >= self._room

    def put(self, key: bytes, offset: int) -> None:
        """A later record of a key."""
        self._offsets[_name(key)] = offset

    def put_all(self, base: int, found: Sequence[Place], start: int) -> None:
        """Put the keys of a batch with this base offset, from offset `start` on."""
        offsets = self._offsets
        for place in found:
            key = place[5]
            offset = base + place[4]
            if key is not None and offset >= start:
                offsets[key if len(key) < _DIGEST_BYTES else _name(key)] = offset

    def superseded(self, key: bytes, offset: int) -> bool:
        """Whether a later record of `key` is there."""
        name = key if len(key) < _DIGEST_BYTES else _name(key)
        return self._offsets.get(name, -1) > offset


def _name(key: bytes) -> bytes:
    return key if len(key) < _DIGEST_BYTES else blake2b(key, digest_size=_DIGEST_BYTES).digest()


class LastRecord(NamedTuple):
    """A producer's last write, as the log records it."""

    offset: int
    """Sequence of its last data record; -1 if only a marker is known."""
    epoch: int


class Transactions:
    """Which transactions are met on the way through a log, from its start.

    Args:
        aborted: all aborted ones of the part that is read.
    """

    def __init__(self, aborted: Sequence[AbortedTransaction]) -> None:
        """Nothing is read yet."""
        self._ahead = sorted(aborted, key=lambda entry: entry.first_offset, reverse=True)
        self._aborted: dict[int, AbortedTransaction] = {}
        self._seen: set[int] = set()
        """Producers of `_aborted` that had a batch."""
        self._committed: set[int] = set()
        self.kept: list[AbortedTransaction] = []
        """Aborted transactions whose marker stays; taken by the segment that it is in."""

    def on_batch(self, header: BatchHeader) -> bool:
        """A data batch comes; whether its transaction was aborted."""
        self._advance(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborted:
            self._seen.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def on_marker(self, header: BatchHeader, kind: ControlType | None) -> bool:
        """A control batch comes, with its record's type; whether nothing needs it any more."""
        self._advance(header.last_offset)
        producer_id = header.producer_id
        if kind is None:
            return True  # it was emptied before
        if kind is ControlType.ABORT:
            aborted = self._aborted.pop(producer_id, None)
            if aborted is None or producer_id not in self._seen:
                return True
            self._seen.remove(producer_id)
            self.kept.append(aborted)
            return False
        if kind is ControlType.COMMIT:
            was_seen = producer_id in self._committed
            self._committed.discard(producer_id)
            return not was_seen
        return False

    def _advance(self, offset: int) -> None:
        while self._ahead and self._ahead[-1].first_offset <= offset:
            entry = self._ahead.pop()
            self._aborted.setdefault(entry.producer_id, entry)


class Rules(NamedTuple):
    """Settings of one cleaning of one log."""

    last_records: Mapping[int, LastRecord]
    """Of active producers, by id."""
    end: int
    """First offset that is not cleaned."""
    now_ms: int
    delete_retention_ms: int


class BatchFilter:
    """Decides over each batch in turn, from the log's first on."""

    def __init__(self, offsets: OffsetMap, transactions: Transactions, rules: Rules) -> None:
        """Begin at the log's start."""
        self._offsets = offsets
        self._transactions = transactions
        self._rules = rules
        self.records_in = self.records_out = 0

    def filter(self, header: BatchHeader, batch: bytes) -> bytes:
        """Return the batch itself, a copy with fewer records, or nothing.

        Raises:
            CorruptRecords: its records mean nothing.
        """
        self.records_in += header.records_count
        data = plain_bytes(header, batch)
        found = _places(header, data)
        gone = self._is_unneeded(header, found)
        horizon = delete_horizon(header)
        is_over = horizon is not None and horizon <= self._rules.now_ms
        drop_all = gone and (is_over or not header.is_control)
        kept = found
        if drop_all:
            kept = []
        elif not header.is_control:
            kept = self._kept(header, found, keep_tombstones=not is_over)
        self.records_out += len(kept)
        if not kept:
            return without_records(header) if self._must_stay(header) else b""
        tombstones = gone or any(not place.has_value for place in kept)
        new_horizon = None
        if tombstones and horizon is None:
            new_horizon = self._rules.now_ms + self._rules.delete_retention_ms
        if new_horizon is None and len(kept) == len(found):
            return batch
        return with_records(header, data, kept, new_horizon)

    def _is_unneeded(self, header: BatchHeader, found: Sequence[Place]) -> bool:
        """Whether the transaction it belongs to makes the batch worthless."""
        if not header.is_control:
            return self._transactions.on_batch(header)
        return self._transactions.on_marker(header, marker_kind(found))

    def _kept(
        self, header: BatchHeader, found: Sequence[Place], *, keep_tombstones: bool
    ) -> list[Place]:
        offsets, base = self._offsets, header.base_offset
        kept = []
        latest, superseded = offsets.latest, offsets.superseded
        for place in found:
            _, _, _, _, offset_delta, key, has_value = place
            offset = base + offset_delta
            if offset <= latest:
                if key is None or superseded(key, offset):
                    continue
                if not (has_value or keep_tombstones):
                    continue
            kept.append(place)
        return kept

    def _must_stay(self, header: BatchHeader) -> bool:
        if header.next_offset == self._rules.end:
            return True
        last = self._rules.last_records.get(header.producer_id)
        if last is None or not header.has_producer_id:
            return False
        if last.offset >= 0:
            return header.last_offset == last.offset
        return header.is_control and header.producer_epoch == last.epoch


def plain_bytes(header: BatchHeader, batch: bytes) -> bytes:
    """Decompress a stored batch's records; `CorruptRecords` if that is impossible."""
    try:
        return bytes(decompressed(batch, STORED_BYTES_MAX))
    except DecodeError as error:
        raise CorruptRecords(f"the batch at offset {header.base_offset}: {error}") from error


def _places(header: BatchHeader, data: bytes) -> list[Place]:
    try:
        return places(data, header.records_count)
    except DecodeError as error:
        raise CorruptRecords(f"the batch at offset {header.base_offset}: {error}") from error


def marker_kind(found: Sequence[Place]) -> ControlType | None:
    """Return a control batch's first record; None if cleaning emptied the batch."""
    return parse_control_key(found[0].key) if found else None


def marker_of(header: BatchHeader, batch: bytes) -> ControlType | None:
    """The same for a batch as stored."""
    return marker_kind(_places(header, plain_bytes(header, batch)))


def index_batch(offsets: OffsetMap, header: BatchHeader, batch: bytes, start: int) -> None:
    """Put the keys of a data batch into the map, from offset `start` on."""
    offsets.put_all(header.base_offset, _places(header, plain_bytes(header, batch)), start)
