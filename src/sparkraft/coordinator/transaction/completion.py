"""EndTxn, and aborts by the coordinator itself: the response of each state (KIP-98, KIP-890).

Without an epoch per transaction (EndTxn up to v4):

    state                commit         abort
    Ongoing              PrepareCommit  PrepareAbort
    CompleteCommit       done           INVALID_TXN_STATE
    CompleteAbort        INVALID_TXN_STATE  done
    Empty                INVALID_TXN_STATE  INVALID_TXN_STATE

With it (EndTxn v5), a repeated request has the epoch before the current one:

    state                commit         repeated           abort               repeated
    Ongoing              PrepareCommit  PRODUCER_FENCED    PrepareAbort        PRODUCER_FENCED
    Empty                INVALID_TXN_STATE  PRODUCER_FENCED  PrepareAbort      PRODUCER_FENCED
    CompleteCommit       INVALID_TXN_STATE  done           PrepareAbort        INVALID_TXN_STATE
    CompleteAbort        INVALID_TXN_STATE  INVALID_TXN_STATE  PrepareAbort    done

A request with the epoch before is repeated only if the last transaction ended with an epoch bump.
After that of an older client, whose end keeps the epoch, a fenced producer has sent it, and gets
PRODUCER_FENCED. In Kafka 4.3.1 it gets the epoch of its successor.

Prepared states answer CONCURRENT_TRANSACTIONS, as do transitions that are not committed yet: in
Kafka the completion is pending as soon as the decision is committed. With an epoch per transaction
this comes before all other checks, since a transition may change the producer id; without one it
comes after those of the producer id and epoch.
"""

from dataclasses import dataclass

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.coordinator.runtime import NO_PRODUCER_ID, Instant
from sparkraft.coordinator.transaction.decision import ProducerIdNeeded
from sparkraft.coordinator.transaction.metadata import (
    EPOCH_MAX,
    EPOCH_PER_TRANSACTION,
    EXHAUSTED_EPOCH,
    NO_EPOCH,
    TransactionMetadata,
)
from sparkraft.coordinator.transaction.states import TransactionState


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A client's request to end a transaction.

    Attributes:
        client_version: 2 if the client expects an epoch per transaction, else 0.
    """

    producer_id: int
    producer_epoch: int
    commit: bool
    client_version: int

    @property
    def bumps_epoch(self) -> bool:
        """Whether the transaction ends with an epoch bump."""
        return self.client_version >= EPOCH_PER_TRANSACTION


def complete(
    known: TransactionMetadata,
    request: Completion,
    new_producer_id: int | None,
    now: Instant,
    *,
    is_pending: bool = False,
) -> TransactionMetadata | None:
    """The prepared transaction; None if the transaction has ended as requested already.

    The order of checks is that of Kafka's TransactionCoordinator.endTransaction and
    endTransactionWithTV1.

    Args:
        known: the state of the id.
        request: from its producer.
        new_producer_id: None if none has been allocated yet.
        now: the current time.
        is_pending: whether a transition of the id is not committed yet, or it is prepared.

    Raises:
        KafkaError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, INVALID_TXN_STATE,
            CONCURRENT_TRANSACTIONS.
        ProducerIdNeeded: `new_producer_id` is None, but needed.
    """
    if request.bumps_epoch:
        if is_pending:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        is_done = _is_repeated(known, request)
    else:
        is_done = _check_fixed_epoch(known, request, is_pending=is_pending)
    if is_done:
        return None
    return _prepared(known, request, new_producer_id, now)


def abort(
    known: TransactionMetadata,
    *,
    transaction_version: int,
    new_producer_id: int | None,
    now: Instant,
) -> TransactionMetadata:
    """Abort an open transaction without its producer, which is fenced by an epoch bump.

    Args:
        known: Ongoing.
        transaction_version: of the cluster, since no client asks.
        new_producer_id: None if none has been allocated yet.
        now: the current time.

    Raises:
        ProducerIdNeeded: `new_producer_id` is None, but needed.
    """
    if transaction_version >= EPOCH_PER_TRANSACTION:
        request = Completion(
            producer_id=known.producer_id,
            producer_epoch=known.producer_epoch,
            commit=False,
            client_version=transaction_version,
        )
        return _prepared(known, request, new_producer_id, now)
    return known.prepared(
        commit=False,
        client_version=0,
        epoch=min(known.producer_epoch + 1, EPOCH_MAX),
        last_epoch=NO_EPOCH,
        next_producer_id=NO_PRODUCER_ID,
        now_ms=now.wall_ms,
    )


def _prepared(
    known: TransactionMetadata, request: Completion, new_producer_id: int | None, now: Instant
) -> TransactionMetadata:
    epoch, last_epoch, next_producer_id = (
        known.producer_epoch,
        known.last_producer_epoch,
        NO_PRODUCER_ID,
    )
    if request.bumps_epoch:
        if known.is_exhausted:
            if new_producer_id is None:
                raise ProducerIdNeeded
            next_producer_id = new_producer_id
        epoch, last_epoch = min(known.producer_epoch + 1, EPOCH_MAX), known.producer_epoch
    return known.prepared(
        commit=request.commit,
        client_version=request.client_version,
        epoch=epoch,
        last_epoch=last_epoch,
        next_producer_id=next_producer_id,
        now_ms=now.wall_ms,
    )


def _check_fixed_epoch(
    known: TransactionMetadata, request: Completion, *, is_pending: bool
) -> bool:
    """Whether the transaction has ended as requested; raises KafkaError if it cannot."""
    if known.producer_id != request.producer_id:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if known.producer_epoch != request.producer_epoch:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    if is_pending:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if known.state is TransactionState.ONGOING:
        return False
    if known.state is _ended_state(request):
        return True
    raise _invalid_state(known, request)


def _is_repeated(known: TransactionMetadata, request: Completion) -> bool:
    """Whether this is a repeated request; raises KafkaError if it cannot be granted."""
    current, requested = known.producer_epoch, request.producer_epoch
    is_after_rotation = (
        known.previous_producer_id == request.producer_id
        and requested == EXHAUSTED_EPOCH
        and current == 0
    )
    if known.producer_id != request.producer_id and not is_after_rotation:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    has_completed = known.state in {
        TransactionState.COMPLETE_COMMIT,
        TransactionState.COMPLETE_ABORT,
    }
    has_bumped = known.client_version >= EPOCH_PER_TRANSACTION
    is_repeated = is_after_rotation or (has_bumped and current == requested + 1)
    if not ((is_repeated and has_completed) or requested == current):
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    if known.state is TransactionState.ONGOING:
        return False
    if is_repeated:
        if known.state is _ended_state(request):
            return True
        raise _invalid_state(known, request)
    if request.commit:
        raise _invalid_state(known, request)
    return False


def _ended_state(request: Completion) -> TransactionState:
    return TransactionState.COMPLETE_COMMIT if request.commit else TransactionState.COMPLETE_ABORT


def _invalid_state(known: TransactionMetadata, request: Completion) -> KafkaError:
    action = "commit" if request.commit else "abort"
    return KafkaError(
        ErrorCode.INVALID_TXN_STATE,
        f"TransactionalId {known.transactional_id} cannot {action} in state {known.state.label}",
    )
