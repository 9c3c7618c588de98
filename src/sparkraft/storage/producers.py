"""State of a partition's idempotent and transactional producers (KIP-98, KIP-360).

For each producer id: its epoch, its last ten batches (to recognise a retry), and the first offset
of its open transaction. The state is derived from the log; a snapshot `<offset>.snapshot` at each
roll and at a clean stop only shortens the replay::

    version i16 = 1 | crc u32 of what follows | count i32
    { producer_id i64 | epoch i16 | last_sequence i32 | last_offset i64 | offset_delta i32
      | timestamp i64 | coordinator_epoch i32 | current_txn_first_offset i64 }*

Invariants:
    * `check` decides and changes nothing; `apply` alone changes state, after the bytes are written.
    * snapshot + replay of the rest == replay of everything, but for expired producers. A snapshot
      keeps a producer's last batch; those before it are looked up in the log (`remember`), as far
      back as `producer_replay` goes.

Not here: asking coordinators about transactions (`server.coordinator.guarded_appends`, KIP-890),
the index of aborted ones (`storage.index`).
"""

from collections.abc import Iterator
from itertools import islice
from operator import attrgetter
from struct import Struct
from typing import NamedTuple

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.records.batch import (
    CONTROL_BIT,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    SEQUENCE_MODULUS,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
)
from sparkraft.records.control import EndTransaction, parse_end_transaction
from sparkraft.records.crc import crc32c
from sparkraft.storage.index import AbortedTransaction

BATCHES_KEPT = 10
"""Kafka keeps five, the maximum in flight on a connection. When leadership moves, a producer may
have five batches in flight to the old leader and send the next ones to the new leader before those
five time out and are retried. With five kept, the first retry would be unknown and refused as out
of order; the Java producer retries it until its delivery timeout, and all later batches wait."""

LIMIT_SAMPLE = 64
"""Producers that are looked at to forget some of them: tens of microseconds."""

_SNAPSHOT_HEAD = Struct(">hIi")
_SNAPSHOT_ENTRY = Struct(">qhiqiqiq")
_CRC_END = 6
_SNAPSHOT_VERSION = 1

_EPOCH_MAX = 32_767

_EPOCH_PER_TRANSACTION_VERSION = 2
"""From this transaction version on each transaction ends in an epoch of its own (KIP-890)."""


class BatchMark(NamedTuple):
    """One appended batch of a producer."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        """Sequence of its first record."""
        return (self.last_sequence - self.offset_delta) % SEQUENCE_MODULUS

    @property
    def first_offset(self) -> int:
        """Offset of its first record."""
        return self.last_offset - self.offset_delta


class ProducerState:
    """One producer's state in one partition; batches are oldest first."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_timestamp",
        "producer_id",
        "txn_first_offset",
    )

    def __init__(self, producer_id: int) -> None:
        """A producer of which nothing is known."""
        self.producer_id = producer_id
        self.epoch = NO_PRODUCER_EPOCH
        self.coordinator_epoch = -1
        self.last_timestamp = NO_TIMESTAMP
        self.txn_first_offset = -1
        self.batches: list[BatchMark] = []

    @property
    def last_sequence(self) -> int:
        """Sequence of its last record; -1 if none is known."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def adopt_epoch(self, epoch: int) -> None:
        """Enter `epoch`; batches of an older one no longer count."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches = []


class CompletedTransaction(NamedTuple):
    """A transaction whose marker has been appended."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


class DamagedSnapshot(Exception):  # noqa: N818 (callers fall back to an older one)
    """A producer snapshot that can't be right."""


class Producers:
    """The producers of one partition."""

    __slots__ = (
        "_open",
        "_states",
        "_unreplicated",
        "_verifying",
        "_verifying_before",
        "first_unstable_offset",
    )

    def __init__(self) -> None:
        """No producer is known."""
        self._states: dict[int, ProducerState] = {}
        # Open transactions, and completed ones whose marker is above the high watermark:
        # first offset -> producer id, and first offset -> marker's offset.
        self._open: dict[int, int] = {}
        self._unreplicated: dict[int, int] = {}
        # Producer id -> what a verification with the coordinator was begun under (KIP-890).
        self._verifying: dict[int, object] = {}
        self._verifying_before: frozenset[int] = frozenset()
        self.first_unstable_offset: int | None = None
        """First offset of an open or unreplicated transaction."""

    def __len__(self) -> int:
        """Number of producers."""
        return len(self._states)

    def __iter__(self) -> Iterator[ProducerState]:
        """The producers' states, by producer id."""
        return (self._states[key] for key in sorted(self._states))

    def get(self, producer_id: int) -> ProducerState | None:
        """The known state of one producer."""
        return self._states.get(producer_id)

    def duplicate_of(self, header: BatchHeader) -> BatchMark | None:
        """The same batch if it is among the last `BATCHES_KEPT` of this producer and epoch."""
        state = self._states.get(header.producer_id)
        if state is None or state.epoch != header.producer_epoch:
            return None
        first, last = header.base_sequence, header.last_sequence
        for mark in state.batches:
            if mark.last_sequence == last and mark.first_sequence == first:
                return mark
        return None

    def check(self, header: BatchHeader, *, is_client: bool) -> None:
        """Refuse a data batch that a leader may not append; changes nothing.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE.
        """
        state = self._states.get(header.producer_id)
        if state is None:
            # An unknown producer may start with any sequence: retention may have expired its state.
            return
        if header.producer_epoch < state.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} has epoch {state.epoch}, "
                f"the batch {header.producer_epoch}",
            )
        if is_client:
            _check_sequence(state, header)
        if state.txn_first_offset >= 0 and not header.is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} has an open transaction, the batch is outside it",
            )

    def check_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        end: EndTransaction,
        *,
        transaction_version: int = 0,
    ) -> None:
        """Refuse a marker that a leader may not append; changes nothing.

        Args:
            producer_id: the producer whose transaction ends.
            producer_epoch: the marker's.
            end: the marker's content.
            transaction_version: of the producer's client. From 2 on, the marker's epoch is above
                that of the records; below, a late marker cannot be distinguished from one of the
                current transaction (KIP-890, KIP-1228). Epoch 32767 is exempt, as in Kafka: an
                earlier version may have used it for records.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
        """
        state = self._states.get(producer_id) or ProducerState(producer_id)
        strict = transaction_version >= _EPOCH_PER_TRANSACTION_VERSION
        # A repeated marker has the epoch of the one that was written, and finds no transaction.
        is_current = producer_epoch == state.epoch and state.txn_first_offset >= 0
        if producer_epoch < state.epoch or (strict and is_current and producer_epoch < _EPOCH_MAX):
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {producer_id} has epoch {state.epoch}, the marker {producer_epoch}",
            )
        if end.coordinator_epoch < state.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"the marker of producer {producer_id} has coordinator epoch "
                f"{end.coordinator_epoch}, which is older than {state.coordinator_epoch}",
            )

    def apply(
        self, header: BatchHeader, batch: Buffer, base_offset: int
    ) -> CompletedTransaction | None:
        """Take in an appended batch of a producer.

        Args:
            header: its header; the base offset in it is not looked at.
            batch: its bytes, read only for transaction markers.
            base_offset: the offset it was given.

        Returns:
            The transaction that a marker completed, if it had any data here; the caller writes an
            aborted one to the transaction index, then calls `complete`.
        """
        if header.attributes & CONTROL_BIT:
            return self._apply_marker(header, batch, base_offset)
        state = self._state(header.producer_id)
        state.adopt_epoch(header.producer_epoch)
        delta = header.last_offset_delta
        mark = BatchMark(header.last_sequence, base_offset + delta, delta, header.max_timestamp)
        if len(state.batches) >= BATCHES_KEPT:
            del state.batches[0]
        state.batches.append(mark)
        state.last_timestamp = header.max_timestamp
        if header.attributes & TRANSACTIONAL_BIT and state.txn_first_offset < 0:
            state.txn_first_offset = base_offset
            self._open[base_offset] = header.producer_id
            self._verifying.pop(header.producer_id, None)
            if self.first_unstable_offset is None:
                self.first_unstable_offset = base_offset
        return None

    def remember(self, header: BatchHeader) -> None:
        """Take in a data batch that is older than the last one of a producer's snapshot.

        To be called in the log's order, before anything is applied. In Kafka only the last batch
        is known after a clean restart: of two that were under way the first is out of order then,
        which is the end of an idempotent producer of librdkafka.
        """
        state = self._states.get(header.producer_id)
        if state is None or state.epoch != header.producer_epoch or not state.batches:
            return
        last = state.batches[-1]
        if header.last_offset >= last.last_offset:
            return
        delta, timestamp = header.last_offset_delta, header.max_timestamp
        older = BatchMark(header.last_sequence, header.last_offset, delta, timestamp)
        state.batches = [*state.batches[:-1], older, last][-BATCHES_KEPT:]

    def _apply_marker(
        self, header: BatchHeader, batch: Buffer, base_offset: int
    ) -> CompletedTransaction | None:
        end = parse_end_transaction(batch)
        if end is None:
            return None  # compaction emptied it: nothing is left of the transaction
        self._verifying.pop(header.producer_id, None)
        state = self._state(header.producer_id)
        first_offset = state.txn_first_offset
        state.adopt_epoch(header.producer_epoch)
        state.coordinator_epoch = end.coordinator_epoch
        state.last_timestamp = header.max_timestamp
        state.txn_first_offset = -1
        if first_offset < 0:
            return None
        return CompletedTransaction(header.producer_id, first_offset, base_offset, end.aborted)

    def _state(self, producer_id: int) -> ProducerState:
        state = self._states.get(producer_id)
        if state is None:
            state = self._states[producer_id] = ProducerState(producer_id)
        return state

    def last_stable_offset_after(self, done: CompletedTransaction) -> int:
        """Return the last stable offset after `done` is complete."""
        others = [first for first, owner in self._open.items() if owner != done.producer_id]
        return min(others, default=done.last_offset + 1)

    def aborted_entry(self, done: CompletedTransaction) -> AbortedTransaction:
        """Return the transaction index entry for `done`, aborted and not yet `complete`."""
        stable = self.last_stable_offset_after(done)
        return AbortedTransaction(done.producer_id, done.first_offset, done.last_offset, stable)

    def complete(self, done: CompletedTransaction) -> None:
        """Close a transaction; its first offset stays unstable until its marker is replicated."""
        if self._open.pop(done.first_offset, None) is not None:
            self._unreplicated[done.first_offset] = done.last_offset

    def replicated_to(self, high_watermark: int) -> None:
        """Forget completed transactions whose markers are below `high_watermark`."""
        if self._unreplicated:
            self._unreplicated = {
                first: last for first, last in self._unreplicated.items() if last >= high_watermark
            }
            self._find_first_unstable()

    def _find_first_unstable(self) -> None:
        self.first_unstable_offset = min([*self._open, *self._unreplicated], default=None)

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer has begun a transaction here in `epoch`."""
        state = self._states.get(producer_id)
        return state is not None and state.txn_first_offset >= 0 and state.epoch == epoch

    def begin_verification(self, producer_id: int) -> object:
        """A guard for one question to the coordinator; it holds until a marker ends a transaction.

        A response for a transaction that has since ended therefore admits no batch.
        """
        return self._verifying.setdefault(producer_id, object())

    def is_verified(self, producer_id: int, guard: object) -> bool:
        """Return whether the coordinator's verification under `guard` is still valid."""
        return guard is not None and self._verifying.get(producer_id) is guard

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers idle for `expiration_ms`, unless a transaction is open.

        Guards that were there at the previous call are dropped too: nothing was appended.
        """
        stale = self._verifying_before
        self._verifying = {key: one for key, one in self._verifying.items() if key not in stale}
        self._verifying_before = frozenset(self._verifying)
        self._states = {
            key: state
            for key, state in self._states.items()
            if state.txn_first_offset >= 0 or now_ms - state.last_timestamp < expiration_ms
        }

    def limit(self, producers_max: int) -> None:
        """Forget producers above `producers_max`, those that are idle longest of the next few.

        A forgotten producer continues, as after `expire`. Producers are looked at in turn, so one
        append costs the same however many there are, and an active one is passed over.
        """
        if len(self._states) <= producers_max:
            return
        turn = list(islice(self._states.values(), LIMIT_SAMPLE))
        idle = [state for state in turn if state.txn_first_offset < 0]
        idle.sort(key=attrgetter("last_timestamp"))
        forgotten = {state.producer_id for state in idle[: LIMIT_SAMPLE // 2]}
        for state in turn:
            del self._states[state.producer_id]
            if state.producer_id not in forgotten:
                self._states[state.producer_id] = state

    def to_snapshot(self) -> bytes:
        """The bytes of a `.snapshot` file."""
        body = bytearray(len(self._states).to_bytes(4, "big"))
        for state in self:
            last = state.batches[-1] if state.batches else BatchMark(-1, -1, 0, -1)
            body += _SNAPSHOT_ENTRY.pack(
                state.producer_id,
                state.epoch,
                last.last_sequence,
                last.last_offset,
                last.offset_delta,
                state.last_timestamp,
                state.coordinator_epoch,
                state.txn_first_offset,
            )
        return _SNAPSHOT_VERSION.to_bytes(2, "big") + crc32c(body).to_bytes(4, "big") + body

    @classmethod
    def from_snapshot(cls, data: bytes) -> "Producers":
        """Read a `.snapshot` file; `DamagedSnapshot` if its CRC or shape is wrong."""
        if len(data) < _SNAPSHOT_HEAD.size:
            raise DamagedSnapshot(f"{len(data)} bytes are too short for a producer snapshot")
        version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
        if version != _SNAPSHOT_VERSION:
            raise DamagedSnapshot(f"version {version} is not known")
        if crc != crc32c(memoryview(data)[_CRC_END:]):
            raise DamagedSnapshot("the CRC is wrong")
        if len(data) != _SNAPSHOT_HEAD.size + count * _SNAPSHOT_ENTRY.size:
            raise DamagedSnapshot(f"{count} producers in {len(data)} bytes")
        self = cls()
        for fields in _SNAPSHOT_ENTRY.iter_unpack(memoryview(data)[_SNAPSHOT_HEAD.size :]):
            self._load(*fields)
        return self

    def _load(  # noqa: PLR0913, PLR0917 (a snapshot entry's fields, in its order)
        self,
        producer_id: int,
        epoch: int,
        last_sequence: int,
        last_offset: int,
        offset_delta: int,
        timestamp: int,
        coordinator_epoch: int,
        txn_first_offset: int,
    ) -> None:
        state = self._state(producer_id)
        state.epoch = epoch
        state.coordinator_epoch = coordinator_epoch
        state.last_timestamp = timestamp
        state.txn_first_offset = txn_first_offset
        if last_offset >= 0:
            state.batches = [BatchMark(last_sequence, last_offset, offset_delta, timestamp)]
        if txn_first_offset >= 0:
            self._open[txn_first_offset] = producer_id
            self._find_first_unstable()


def _check_sequence(state: ProducerState, header: BatchHeader) -> None:
    first = header.base_sequence
    if header.producer_epoch != state.epoch:
        if first != 0 and state.epoch != NO_PRODUCER_EPOCH:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {state.producer_id} starts epoch {header.producer_epoch} "
                f"with sequence {first} instead of 0",
            )
        return
    if state.epoch == NO_PRODUCER_EPOCH:
        return
    last = state.last_sequence
    if first != (last + 1) % SEQUENCE_MODULUS:
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {state.producer_id} sent sequence {first} after {last}",
        )
