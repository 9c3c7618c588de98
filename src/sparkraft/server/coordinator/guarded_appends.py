"""Appends to open transactions, under a guard between the coordinator's answer and the append.

A producer continues as soon as the coordinator has decided its transaction (KIP-890), so the marker
of that transaction may arrive while the next one is verified. The answer may be older than the
marker and is void then: the marker removes the guard.
"""

from typing import TYPE_CHECKING, Protocol

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import TopicPartition
from sparkraft.server.coordinator.partition_check import (
    AddPartitionsCheck,
    CheckKind,
    NotVerifiedError,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from sparkraft.server.broker.partition import HostedPartition
    from sparkraft.server.broker.replica_manager import ReplicaManager
    from sparkraft.server.coordinator.transaction_verification import TransactionVerification

PARTITIONS_PER_CHECK = 1_000
"""A request with more of them is verified in parts."""

_CHECKS_MAX = 2
"""No second marker follows while the append waits, so one more check is enough."""


class ProducerOfBatch(Protocol):
    """The producer that a batch is of."""

    @property
    def producer_id(self) -> int: ...

    @property
    def producer_epoch(self) -> int: ...


class GuardedAppends:
    """The batches of one request: verifies them, and checks each right before its append."""

    def __init__(
        self,
        replicas: "ReplicaManager",
        verification: "TransactionVerification",
        kind: CheckKind,
    ) -> None:
        """Nothing is verified yet."""
        self._replicas = replicas
        self._verification = verification
        self._kind = kind
        self._guards: dict[TopicPartition, object] = {}
        self._results: dict[TopicPartition, ErrorCode] = {}

    async def verify(
        self,
        transactional_id: str,
        batches: "Sequence[tuple[TopicPartition, ProducerOfBatch]]",
    ) -> None:
        """Verify batches whose transaction is not open in the log yet.

        Raises:
            KafkaError: INVALID_PRODUCER_ID_MAPPING for batches of several producers.
        """
        if not batches:
            return
        turn = self._replicas.env.turn(self._replicas.env.work_max.partitions)
        for _ in range(_CHECKS_MAX):
            unverified = await turn.carry_out(self._unverified(batches))
            if not unverified or not self._is_needed:
                return
            _, producer = batches[0]
            for at in range(0, len(unverified), PARTITIONS_PER_CHECK):
                check = AddPartitionsCheck(
                    transactional_id,
                    producer.producer_id,
                    producer.producer_epoch,
                    unverified[at : at + PARTITIONS_PER_CHECK],
                    self._kind,
                )
                self._results |= await self._verification.verify(check)

    def _unverified(
        self, batches: "Sequence[tuple[TopicPartition, ProducerOfBatch]]"
    ) -> "Generator[int, None, list[TopicPartition]]":
        """The partitions whose transaction is not open in the log yet, with their guards taken."""
        producer_id = batches[0][1].producer_id
        found: list[TopicPartition] = []
        for topic_partition, producer in batches:
            if producer.producer_id != producer_id:
                raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
            if self._begin(topic_partition, producer):
                found.append(topic_partition)
            yield 1
        return found

    @property
    def _is_needed(self) -> bool:
        """Whether the coordinator must be asked. Adding partitions cannot be switched off."""
        return self._kind is CheckKind.ADD or self._verification.is_enabled

    @property
    def is_concurrent(self) -> bool:
        """Whether partitions could not be added because a completion is in progress.

        Only a request that adds partitions is repeated here; others are repeated by the client.
        """
        return self._kind is CheckKind.ADD and bool(self._concurrent())

    def forget_concurrent(self) -> None:
        """Have `verify` ask about those partitions again."""
        for one in self._concurrent():
            del self._results[one]
            self._guards.pop(one, None)

    def _concurrent(self) -> list[TopicPartition]:
        concurrent = ErrorCode.CONCURRENT_TRANSACTIONS
        return [one for one, code in self._results.items() if code is concurrent]

    def _begin(self, topic_partition: TopicPartition, producer: ProducerOfBatch) -> bool:
        """Take the guard of a check; False if the batch needs none."""
        if self._results.get(topic_partition, ErrorCode.NONE) is not ErrorCode.NONE:
            return False
        hosted = self._replicas.hosted(*topic_partition)
        if hosted is None or not hosted.is_leader:
            return False  # The append fails for that reason.
        producers = hosted.log.producers
        if producers.has_open_transaction(producer.producer_id, producer.producer_epoch):
            return False
        if producers.is_verified(producer.producer_id, self._guards.get(topic_partition)):
            return False
        self._guards[topic_partition] = producers.begin_verification(producer.producer_id)
        return True

    def check(
        self,
        partition: "HostedPartition",
        producer: ProducerOfBatch,
        *,
        base_sequence: int,
    ) -> None:
        """Reject a batch, right before its append, that does not belong to an open transaction.

        Raises:
            KafkaError: INVALID_TXN_STATE, OUT_OF_ORDER_SEQUENCE_NUMBER; NotVerifiedError with the
                coordinator's error.
        """
        producer_id = producer.producer_id
        producers = partition.log.producers
        topic_partition = (partition.topic, partition.index)
        code = self._results.get(topic_partition, ErrorCode.NONE)
        if code is not ErrorCode.NONE:
            raise NotVerifiedError(code, "the coordinator rejected it")
        if producers.has_open_transaction(producer_id, producer.producer_epoch):
            return
        if not producers.is_verified(producer_id, self._guards.get(topic_partition)):
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE, "the batch does not belong to an open transaction"
            )
        if (
            self._kind is CheckKind.ADD
            and producers.get(producer_id) is None
            and base_sequence != 0
        ):
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} starts with sequence {base_sequence}, not 0",
            )
