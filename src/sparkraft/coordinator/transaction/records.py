"""Records of `__transaction_state`: one key per transactional id; a tombstone when it expires.

    key   = type int16 = 0 | TransactionLogKey (v0)
    value = version int16 | TransactionLogValue; v1 adds the tagged fields of KIP-890

v0 is written while transaction.version is 0; its readers lose the previous and the next producer
id and the client's version. Keys of other types, and values of unknown versions, are skipped, as
in Kafka.
"""

from dataclasses import dataclass

from sparkraft.base.errors import DecodeError
from sparkraft.coordinator.transaction.metadata import TransactionMetadata
from sparkraft.coordinator.transaction.states import TransactionState
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
    return key, encode_versioned(
        _value_of(record.metadata, record.value_version), record.value_version
    )


def decode_record(key: bytes, value: bytes | None) -> TransactionRecord | None:
    """Decode a record; None if its type or the version of its value is unknown.

    Raises:
        DecodeError: the key or the value is malformed.
    """
    found = decode_record_key(TRANSACTION_RECORDS, key)
    if found is None:
        return None
    decoded = found[0]
    assert isinstance(decoded, TransactionLogKey)
    transactional_id = decoded.transactional_id
    if value is None:
        return TransactionRecord(transactional_id=transactional_id)
    version = int.from_bytes(value[:2], "big", signed=True)
    if version > VALUE_VERSION_MAX:
        return None
    known = decode_versioned(TransactionLogValue, value)
    return TransactionRecord(
        transactional_id=transactional_id,
        metadata=_metadata_of(transactional_id, known),
        value_version=version,
    )


def _value_of(metadata: TransactionMetadata, version: int) -> TransactionLogValue:
    value = TransactionLogValue(
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=metadata.state.value,
        transaction_partitions=_partitions_of(metadata),
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
    topics: dict[str, PartitionsSchema] = {}
    for topic, partition in sorted(metadata.partitions):
        if topic not in topics:
            topics[topic] = PartitionsSchema(topic=topic)
        topics[topic].partition_ids.append(partition)
    return list(topics.values())


def _metadata_of(transactional_id: str, value: TransactionLogValue) -> TransactionMetadata:
    state = _STATES.get(value.transaction_status)
    if state is None:
        raise DecodeError(
            f"transaction status {value.transaction_status} is unknown", path="transactionStatus"
        )
    partitions = frozenset(
        (topic.topic, index)
        for topic in value.transaction_partitions or ()
        for index in topic.partition_ids
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
