"""Records of `__transaction_state`: one key per transactional id; a tombstone when it expires.

    key   = type int16 = 0 | TransactionLogKey (v0)
    value = version int16 | TransactionLogValue; v1 adds the tagged fields of KIP-890

v0 is written while transaction.version is 0; its readers lose the previous and the next producer
id and the client's version. Keys of other types, and values of unknown versions, are skipped, as
in Kafka.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

from sparkraft.base.errors import DecodeError
from sparkraft.base.ids import TopicPartition
from sparkraft.base.ordering import in_order
from sparkraft.coordinator.steps import PIECE_UNITS, Steps, pieces
from sparkraft.coordinator.transaction.metadata import TransactionMetadata
from sparkraft.coordinator.transaction.states import TransactionState
from sparkraft.protocol.codec import Encoded, decode_slices, encode_elements
from sparkraft.protocol.framing import (
    decode_record_key,
    decode_versioned,
    encode_record_key,
    encode_versioned,
)
from sparkraft.protocol.messages.transaction_records import (
    TRANSACTION_RECORDS,
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)

VALUE_VERSION_MAX = 1
_VERSION_BYTES = 2
_TAGGED_FROM = 1
_STATES = {
    state.value: state
    for state in TransactionState
    if state not in {TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE}
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionRecord:
    """A record to write, or one that was read.

    Attributes:
        metadata: None for a tombstone.
        value_version: version to write the value in.
    """

    transactional_id: str
    metadata: TransactionMetadata | None = None
    value_version: int = VALUE_VERSION_MAX


def encode_record(record: TransactionRecord) -> tuple[bytes, bytes | None]:
    """Key and value in the format of the log."""
    key = encode_record_key(TransactionLogKey(transactional_id=record.transactional_id))
    if record.metadata is None:
        return key, None
    value = _value_of(record.metadata, record.value_version, _partitions_of(record.metadata))
    return key, encode_versioned(value, record.value_version)


def is_long(record: TransactionRecord) -> bool:
    """Whether its transaction has many partitions, all of which the value names."""
    return record.metadata is not None and len(record.metadata.partitions) > PIECE_UNITS


def encode_record_in_steps(record: TransactionRecord) -> Steps[tuple[bytes, bytes | None]]:
    """The same; the partitions are ordered and encoded in pieces."""
    metadata = record.metadata
    if metadata is None or metadata.state is TransactionState.EMPTY or not is_long(record):
        return encode_record(record)
    version = record.value_version
    topics: list[PartitionsSchema] = []
    for piece in pieces((yield from in_order(metadata.partitions))):
        _add_partitions(topics, piece)
        yield len(piece)
    buffers = []
    for part in pieces(topics):
        buffers.append(encode_elements(TransactionLogValue, version, part))
        yield len(part)
    value = _value_of(metadata, version, cast("Any", Encoded(len(topics), buffers)))
    key = encode_record_key(TransactionLogKey(transactional_id=record.transactional_id))
    return key, encode_versioned(value, version)


def decode_record(key: bytes, value: bytes | None) -> TransactionRecord | None:
    """Decode a record; None if its type or the version of its value is unknown.

    Raises:
        DecodeError: the key or the value is malformed.
    """
    found = decode_record_key(TRANSACTION_RECORDS, key)
    if found is None:
        return None
    transactional_id = _id_of(found[0])
    if value is None:
        return TransactionRecord(transactional_id=transactional_id)
    version = int.from_bytes(value[:2], "big", signed=True)
    if version > VALUE_VERSION_MAX:
        return None
    known = decode_versioned(TransactionLogValue, value)
    partitions = frozenset(
        (topic.topic, index)
        for topic in known.transaction_partitions or ()
        for index in topic.partition_ids
    )
    return TransactionRecord(
        transactional_id=transactional_id,
        metadata=_metadata_of(transactional_id, known, partitions),
        value_version=version,
    )


def decode_record_in_steps(key: bytes, value: bytes | None) -> Steps[TransactionRecord | None]:
    """The same; a value is decoded in pieces.

    Raises:
        DecodeError: without the field and the place.
    """
    found = decode_record_key(TRANSACTION_RECORDS, key)
    if found is None or value is None or len(value) < _VERSION_BYTES:
        return decode_record(key, value)
    version = int.from_bytes(value[:_VERSION_BYTES], "big", signed=True)
    if not 0 <= version <= VALUE_VERSION_MAX:
        return decode_record(key, value)
    content = memoryview(value)[_VERSION_BYTES:]
    known = yield from decode_slices(TransactionLogValue, version, content)
    partitions: set[TopicPartition] = set()
    for topic in known.transaction_partitions or ():
        for piece in pieces(topic.partition_ids):
            partitions.update((topic.topic, index) for index in piece)
            yield len(piece)
    transactional_id = _id_of(found[0])
    return TransactionRecord(
        transactional_id=transactional_id,
        metadata=_metadata_of(transactional_id, known, frozenset(partitions)),
        value_version=version,
    )


def _id_of(key: Any) -> str:
    assert isinstance(key, TransactionLogKey)
    return key.transactional_id


def _value_of(
    metadata: TransactionMetadata, version: int, partitions: list[PartitionsSchema] | None
) -> TransactionLogValue:
    value = TransactionLogValue(
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=metadata.state.value,
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=metadata.updated_ms,
        transaction_start_timestamp_ms=metadata.start_ms,
    )
    if version >= _TAGGED_FROM:
        value.previous_producer_id = metadata.previous_producer_id
        value.next_producer_id = metadata.next_producer_id
        value.client_transaction_version = metadata.client_version
    return value


def _partitions_of(metadata: TransactionMetadata) -> list[PartitionsSchema] | None:
    if metadata.state is TransactionState.EMPTY:
        return None
    topics: list[PartitionsSchema] = []
    _add_partitions(topics, sorted(metadata.partitions))
    return topics


def _add_partitions(topics: list[PartitionsSchema], ordered: Iterable[TopicPartition]) -> None:
    """Add partitions that follow those in `topics`."""
    for topic, partition in ordered:
        if not topics or topics[-1].topic != topic:
            topics.append(PartitionsSchema(topic=topic))
        topics[-1].partition_ids.append(partition)


def _metadata_of(
    transactional_id: str, value: TransactionLogValue, partitions: frozenset[TopicPartition]
) -> TransactionMetadata:
    state = _STATES.get(value.transaction_status)
    if state is None:
        raise DecodeError(
            f"transaction status {value.transaction_status} is unknown", path="transactionStatus"
        )
    return TransactionMetadata(
        transactional_id=transactional_id,
        producer_id=value.producer_id,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        partitions=partitions,
        updated_ms=value.transaction_last_update_timestamp_ms,
        start_ms=value.transaction_start_timestamp_ms,
        client_version=value.client_transaction_version,
    )
