"""The state of one transactional id, and how each transition changes it.

    epoch      of the producer, up to 32767 (int16)
    exhausted  an epoch of 32766 or more: the next bump needs a new producer id, from epoch 0

With transaction version 2, PrepareCommit and PrepareAbort already hold the bumped epoch, and the
new producer id if the epoch is exhausted; the markers carry the old id and the bumped epoch, and
CompleteCommit and CompleteAbort adopt the new id (KIP-890).
"""

from typing import NamedTuple

from sparkraft.base.ids import TopicPartition
from sparkraft.coordinator.runtime import NO_PRODUCER_ID
from sparkraft.coordinator.transaction.states import NEXT_STATES, TransactionState

NO_EPOCH = -1
NO_TIMESTAMP = -1
EPOCH_MAX = 32_767
EXHAUSTED_EPOCH = EPOCH_MAX - 1
EPOCH_PER_TRANSACTION = 2
"""The transaction version from which every transaction ends with an epoch bump (KIP-890)."""

NO_PARTITIONS: frozenset[TopicPartition] = frozenset()


class TransactionMetadata(NamedTuple):
    """One transactional id.

    A tuple, because each transaction makes three: a third of the time of a frozen dataclass.

    Attributes:
        previous_producer_id: the id before the current one was assigned; -1 if there was none.
        next_producer_id: assigned by the running completion; -1 if it keeps the id.
        last_producer_epoch: accepted from retries of InitProducerId. Not in the record: -1 after
            loading, as in Kafka (KAFKA-20310).
        partitions: of the transaction; while prepared, those that get markers.
        start_ms: of the transaction, wall clock; -1 before the first one.
        updated_ms: of the last transition, wall clock.
        client_version: transaction version of the client's requests.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    updated_ms: int
    state: TransactionState = TransactionState.EMPTY
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    last_producer_epoch: int = NO_EPOCH
    partitions: frozenset[TopicPartition] = NO_PARTITIONS
    start_ms: int = NO_TIMESTAMP
    client_version: int = 0

    @property
    def is_exhausted(self) -> bool:
        """Whether the next epoch bump needs a new producer id."""
        return self.producer_epoch >= EXHAUSTED_EPOCH

    def is_timed_out(self, now_ms: int) -> bool:
        """Whether the transaction has timed out; `now_ms` is the wall clock."""
        return self.state is TransactionState.ONGOING and self.start_ms + self.timeout_ms < now_ms

    # Transitions

    def initialized(
        self, *, producer_id: int, epoch: int, last_epoch: int, timeout_ms: int, now_ms: int
    ) -> "TransactionMetadata":
        """After InitProducerId: Empty, with the next epoch or a new producer id."""
        return self._moved(
            TransactionState.EMPTY,
            now_ms,
            producer_id=producer_id,
            previous_producer_id=self.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms,
            partitions=NO_PARTITIONS,
            start_ms=NO_TIMESTAMP,
        )

    def with_partitions(
        self, added: frozenset[TopicPartition], *, client_version: int, now_ms: int
    ) -> "TransactionMetadata":
        """After AddPartitionsToTxn: Ongoing, with more partitions."""
        is_ongoing = self.state is TransactionState.ONGOING
        return self._moved(
            TransactionState.ONGOING,
            now_ms,
            previous_producer_id=self.producer_id,
            partitions=self.partitions | added,
            start_ms=self.start_ms if is_ongoing else now_ms,
            client_version=client_version,
        )

    def prepared(
        self,
        *,
        commit: bool,
        client_version: int,
        epoch: int,
        last_epoch: int,
        next_producer_id: int,
        now_ms: int,
    ) -> "TransactionMetadata":
        """After a decision: PrepareCommit or PrepareAbort, with the epoch of the markers."""
        is_ongoing = self.state is TransactionState.ONGOING
        return self._moved(
            TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT,
            now_ms,
            previous_producer_id=self.producer_id,
            next_producer_id=next_producer_id,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            start_ms=self.start_ms if is_ongoing else now_ms,
            client_version=client_version,
        )

    def completed(self, now_ms: int) -> "TransactionMetadata":
        """After all markers: CompleteCommit or CompleteAbort, with the final producer id."""
        is_commit = self.state is TransactionState.PREPARE_COMMIT
        return self._moved(
            TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT,
            now_ms,
            producer_id=self.final_producer_id,
            producer_epoch=self.final_epoch,
            previous_producer_id=self.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            partitions=NO_PARTITIONS,
        )

    @property
    def final_producer_id(self) -> int:
        """The producer id once a prepared transaction is complete."""
        if self.next_producer_id == NO_PRODUCER_ID:
            return self.producer_id
        return self.next_producer_id

    @property
    def final_epoch(self) -> int:
        """The epoch then."""
        return self.producer_epoch if self.next_producer_id == NO_PRODUCER_ID else 0

    def _moved(
        self, state: TransactionState, now_ms: int, **changes: object
    ) -> "TransactionMetadata":
        assert state in NEXT_STATES[self.state], (self.state, state)
        return self._replace(state=state, updated_ms=now_ms, **changes)  # type: ignore[arg-type]
