"""InitProducerId: which producer id and epoch a transactional id gets next (KIP-98, KIP-360).

no transaction, no epoch given       the next epoch, which fences older producers
no transaction, the current epoch    the next epoch: a producer recovers from an error
no transaction, the previous epoch   the same as before: the producer repeats the request
an exhausted epoch                   a new producer id, epoch 0
a transaction is open                it is aborted first; the producer repeats the request
"""

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.coordinator.runtime import NO_PRODUCER_ID, Instant
from sparkraft.coordinator.transaction.decision import ProducerIdNeeded
from sparkraft.coordinator.transaction.metadata import (
    EXHAUSTED_EPOCH,
    NO_EPOCH,
    TransactionMetadata,
)
from sparkraft.protocol.messages.k22_init_producer_id import InitProducerIdRequest


def check_timeout(timeout_ms: int, max_timeout_ms: int) -> None:
    """Raise KafkaError for a transaction timeout outside of 1 to `max_timeout_ms`."""
    if not 0 < timeout_ms <= max_timeout_ms:
        raise KafkaError(
            ErrorCode.INVALID_TRANSACTION_TIMEOUT,
            f"The transaction timeout {timeout_ms} is not between 1 and {max_timeout_ms} ms",
        )


def initialize(
    known: TransactionMetadata | None,
    request: InitProducerIdRequest,
    new_producer_id: int | None,
    now: Instant,
) -> TransactionMetadata:
    """The id's metadata after the request; it has no open transaction.

    Args:
        known: before the request; None for a new transactional id.
        request: with a transactional id.
        new_producer_id: None if none has been allocated yet.
        now: the current time.

    Raises:
        KafkaError: PRODUCER_FENCED.
        ProducerIdNeeded: `new_producer_id` is None, but needed.
    """
    if known is None:
        if new_producer_id is None:
            raise ProducerIdNeeded
        known = TransactionMetadata(
            transactional_id=str(request.transactional_id),
            producer_id=new_producer_id,
            producer_epoch=NO_EPOCH,
            timeout_ms=request.transaction_timeout_ms,
            updated_ms=now.wall_ms,
        )
    producer_id, epoch, last_epoch = _next(known, request, new_producer_id)
    return known.initialized(
        producer_id=producer_id,
        epoch=epoch,
        last_epoch=last_epoch,
        timeout_ms=request.transaction_timeout_ms,
        now_ms=now.wall_ms,
    )


def check_expected(known: TransactionMetadata, request: InitProducerIdRequest) -> None:
    """Raise PRODUCER_FENCED if the producer id in the request is not, or no longer, this id's."""
    expected = request.producer_id
    if expected in {NO_PRODUCER_ID, known.producer_id}:
        return
    is_repeated = request.producer_epoch >= EXHAUSTED_EPOCH
    if not (expected == known.previous_producer_id and is_repeated):
        raise KafkaError(ErrorCode.PRODUCER_FENCED)


def _next(
    known: TransactionMetadata, request: InitProducerIdRequest, new_producer_id: int | None
) -> tuple[int, int, int]:
    """Producer id, epoch and last epoch."""
    current, expected = known.producer_epoch, request.producer_epoch
    has_expected = request.producer_id != NO_PRODUCER_ID
    if known.is_exhausted and (not has_expected or expected == current):
        if new_producer_id is None:
            raise ProducerIdNeeded
        return new_producer_id, 0, current if has_expected else NO_EPOCH
    if not has_expected:
        return known.producer_id, current + 1, NO_EPOCH
    if current in {NO_EPOCH, expected}:
        return known.producer_id, current + 1, current
    if expected == known.last_producer_epoch:
        return known.producer_id, current, known.last_producer_epoch
    raise KafkaError(ErrorCode.PRODUCER_FENCED)
