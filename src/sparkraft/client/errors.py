"""Errors of planned changes and of transactions, and how the client's users read a `KafkaError`."""

from sparkraft.base.errors import ErrorCode, KafkaError


class PlanError(Exception):
    """A change cannot be planned or carried out; the message is for the person who wants it."""


class UnreadableBatchError(KafkaError):
    """CORRUPT_MESSAGE: a stored batch cannot be decoded; the consumer stays in front of it.

    `consumer.seek((topic, partition), next_offset)` continues after it.

    Attributes:
        topic: of the batch.
        partition: of the batch.
        base_offset: its first offset.
        next_offset: the first offset after it.
    """

    def __init__(
        self, topic: str, partition: int, base_offset: int, next_offset: int, reason: object
    ) -> None:
        super().__init__(
            ErrorCode.CORRUPT_MESSAGE,
            f"the batch at offset {base_offset} of {topic}-{partition} cannot be read: {reason}; "
            f"seek to offset {next_offset} to continue after it",
        )
        self.topic = topic
        self.partition = partition
        self.base_offset = base_offset
        self.next_offset = next_offset


class TransactionError(KafkaError):
    """A transactional producer cannot do what was asked; the same call will not work later."""


class ProducerFencedError(TransactionError):
    """Another producer has taken the transactional id, or the coordinator ended the transaction.

    Close this producer. PRODUCER_FENCED or INVALID_PRODUCER_EPOCH from a coordinator.
    """


class AbortableTransactionError(TransactionError):
    """The open transaction cannot be committed; abort it, then begin another one (KIP-890)."""


class FatalTransactionError(TransactionError):
    """The producer cannot continue, for instance without authorization; close it."""


def sentence_of(error: KafkaError) -> str:
    """The error as text: its detail, and its name for reference."""
    if error.code in {ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT} and error.detail:
        return error.detail
    return f"{error.detail} ({error.code.name})" if error.detail else error.code.name
