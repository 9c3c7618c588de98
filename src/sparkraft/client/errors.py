"""Errors of planned changes and of transactions, and how the client's users read a `KafkaError`."""

from sparkraft.base.errors import ErrorCode, KafkaError


class PlanError(Exception):
    """A change cannot be planned or carried out; the message is for the person who wants it."""


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
