"""Records of `__transaction_state`: the last state of each transactional id (KIP-98)."""

from typing import Final

from sparkraft.protocol.declare import Message, array, int8, int16, int32, int32s, int64, string


class TransactionLogKey(Message, key=0, versions="0"):
    """A transactional id."""

    transactional_id: str = string()


class PartitionsSchema(Message):
    """Partitions in the transaction: `TransactionLogValue.transaction_partitions`."""

    topic: str = string()
    partition_ids: list[int] = int32s()


class TransactionLogValue(Message, key=0, versions="0-1", flexible="1+"):
    """State, producer and partitions of a transaction.

    v1 tagged fields of transactions version 2 (KIP-890).
    """

    producer_id: int = int64()
    previous_producer_id: int = int64("1+", default=-1, tag=0)
    next_producer_id: int = int64("1+", default=-1, tag=1)
    producer_epoch: int = int16()
    next_producer_epoch: int = int16("1+", default=-1, tag=3)
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[PartitionsSchema] | None = array(PartitionsSchema, nullable=True)
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    client_transaction_version: int = int16("1+", tag=2)


TRANSACTION_RECORDS: Final[dict[int, tuple[type[Message], type[Message]]]] = {
    0: (TransactionLogKey, TransactionLogValue),
}
"""Type in the record key to the classes of key and value."""
