"""Transactions on a simulated disk, parsed from bytes: state records, markers, open transactions.

Not here: the invariants (`transaction_checks`).
"""

from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import NamedTuple

from sparkraft.protocol.framing import decode_record_key, decode_versioned
from sparkraft.protocol.messages.classic_group_records import OffsetCommitKey, OffsetCommitValue
from sparkraft.protocol.messages.group_records import GROUP_RECORDS
from sparkraft.protocol.messages.transaction_records import (
    TRANSACTION_RECORDS,
    TransactionLogKey,
    TransactionLogValue,
)
from sparkraft.records.control import parse_end_transaction
from sparkraft.records.record import decode_records
from sparkraft.simulation.checks.stored_log import StoredBatch

STATE_TOPIC = "__transaction_state"
OFFSETS_TOPIC = "__consumer_offsets"

Partition = tuple[str, int]
"""Topic and partition index."""


class Status(IntEnum):
    """The states in records of `__transaction_state`."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def commits(self) -> bool:
        """Whether it is a decision to commit, pending or complete."""
        return self in {Status.PREPARE_COMMIT, Status.COMPLETE_COMMIT}

    @property
    def aborts(self) -> bool:
        """Whether it is a decision to abort, pending or complete."""
        return self in {Status.PREPARE_ABORT, Status.COMPLETE_ABORT}

    @property
    def is_prepared(self) -> bool:
        """Whether markers are being written."""
        return self in {Status.PREPARE_COMMIT, Status.PREPARE_ABORT}


ENDED = frozenset({Status.EMPTY, Status.COMPLETE_COMMIT, Status.COMPLETE_ABORT})
FROM_ENDED = frozenset({Status.EMPTY, Status.ONGOING, Status.PREPARE_ABORT})
SUCCESSORS = {
    Status.EMPTY: FROM_ENDED,
    Status.ONGOING: frozenset({Status.ONGOING, Status.PREPARE_COMMIT, Status.PREPARE_ABORT}),
    Status.PREPARE_COMMIT: frozenset({Status.PREPARE_COMMIT, Status.COMPLETE_COMMIT}),
    Status.PREPARE_ABORT: frozenset({Status.PREPARE_ABORT, Status.COMPLETE_ABORT}),
    Status.COMPLETE_COMMIT: FROM_ENDED,
    Status.COMPLETE_ABORT: FROM_ENDED,
}
"""The states that may follow each state (KIP-98, KIP-890)."""


class StateRecord(NamedTuple):
    """A record of `__transaction_state`; `status` is None for a tombstone."""

    offset: int
    leader_epoch: int
    timestamp: int
    transactional_id: str
    status: Status | None = None
    producer_id: int = -1
    next_producer_id: int = -1
    epoch: int = -1
    timeout_ms: int = -1
    updated_ms: int = -1
    start_ms: int = -1
    client_version: int = 0
    partitions: frozenset[Partition] = frozenset()


class Marker(NamedTuple):
    """The end of a transaction in one partition."""

    producer_id: int
    epoch: int
    committed: bool
    coordinator_epoch: int


class Ended(NamedTuple):
    """A data batch of a transaction, and its marker; None while the transaction is open."""

    batch: StoredBatch
    marker: Marker | None


def state_records(batch: StoredBatch) -> Iterator[StateRecord]:
    """Yield the records of a batch of `__transaction_state`."""
    if batch.header.is_control:
        return
    epoch = batch.header.partition_leader_epoch
    for record in decode_records(batch.data):
        found = decode_record_key(TRANSACTION_RECORDS, record.key or b"")
        assert found is not None
        key = found[0]
        assert isinstance(key, TransactionLogKey)
        name, at = key.transactional_id, (record.offset, epoch, record.timestamp)
        if record.value is None:
            yield StateRecord(*at, name)
            continue
        value = decode_versioned(TransactionLogValue, record.value)
        yield StateRecord(
            *at,
            name,
            Status(value.transaction_status),
            value.producer_id,
            value.next_producer_id,
            value.producer_epoch,
            value.transaction_timeout_ms,
            value.transaction_last_update_timestamp_ms,
            value.transaction_start_timestamp_ms,
            value.client_transaction_version,
            frozenset(
                (topic.topic, index)
                for topic in value.transaction_partitions or ()
                for index in topic.partition_ids
            ),
        )


def marker_of(batch: StoredBatch) -> Marker | None:
    """Return the marker in a control batch; None for a data batch or an emptied one."""
    header = batch.header
    if not header.is_control or not header.has_producer_id:
        return None
    end = parse_end_transaction(batch.data)
    if end is None:
        return None
    return Marker(header.producer_id, header.producer_epoch, not end.aborted, end.coordinator_epoch)


def transactions_in(batches: Iterable[StoredBatch]) -> list[Ended]:
    """Return all transactional data batches with their markers, ended ones first."""
    ended: list[Ended] = []
    still_open: dict[int, list[StoredBatch]] = {}
    for batch in batches:
        header = batch.header
        marker = marker_of(batch)
        if marker is not None:
            closed = still_open.pop(header.producer_id, [])
            ended += [Ended(each, marker) for each in closed]
        elif header.is_transactional and not header.is_control:
            still_open.setdefault(header.producer_id, []).append(batch)
    return ended + [Ended(each, None) for left in still_open.values() for each in left]


def numbers_in(topic: str, batch: StoredBatch) -> Iterator[int]:
    """Yield the numbers of the clients' transactions in a batch.

    A value begins with the number; a group offset is the number.
    """
    for record in decode_records(batch.data):
        if topic != OFFSETS_TOPIC:
            yield int(bytes(record.value or b"").partition(b".")[0])
            continue
        found = decode_record_key(GROUP_RECORDS, record.key or b"")
        if found is not None and isinstance(found[0], OffsetCommitKey) and record.value:
            yield decode_versioned(OffsetCommitValue, record.value).offset
