"""Verify that a batch belongs to an open transaction before it is appended (KIP-890).

    Produce up to v11   the client has added the partition: the coordinator verifies that
    Produce from v12    the leader adds the partition by the same request (transaction version 2)

The coordinator is asked once per transaction and partition: while a transaction is open in the log
there is nothing to verify. A guard taken before the request and checked after it prevents a
transaction that has ended meanwhile from admitting the batch; it is verified once more then.
Requests of one producer are verified and appended in sequence, so that its batches stay in order.

The coordinators are Apache Kafka's (`external_coordinators`).
"""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakValueDictionary

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import TopicPartition
from sparkraft.coordinator.internal_topics import KeyType
from sparkraft.server.coordinator.directory import NO_LEADER

if TYPE_CHECKING:
    from sparkraft.client.connection import Connection
    from sparkraft.protocol.messages import k24_add_partitions_to_txn as k24
    from sparkraft.server.config import NodeConfig
    from sparkraft.server.coordinator.directory import CoordinatorDirectory
    from sparkraft.server.coordinator.external_coordinators import ExternalCoordinators
    from sparkraft.server.coordinator.host import ImageSource

CHECK_MS_MAX = 10_000
"""Less than the clients' timeout of a Produce; it then fails with a retriable error."""

_RETRIABLE = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
    }
)


class AddPartitionsCheck(NamedTuple):
    """Whether partitions belong to a producer's open transaction.

    Attributes:
        adds: whether partitions that do not are added (Produce from v12 on).
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: list[TopicPartition]
    adds: bool


class TransactionVerification:
    """See the module docstring."""

    def __init__(
        self,
        config: "NodeConfig",
        metadata: "ImageSource",
        directory: "CoordinatorDirectory",
        external: "ExternalCoordinators",
    ) -> None:
        """Connect to coordinators on demand."""
        self._config = config
        self._metadata = metadata
        self._directory = directory
        self._external = external
        self._connections: dict[int, Connection] = {}
        self._locks: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()

    @property
    def is_possible(self) -> bool:
        """Whether the cluster has transaction coordinators."""
        return self._directory.has_topic(KeyType.TRANSACTION)

    @property
    def is_enabled(self) -> bool:
        """`transaction.partition.verification.enable`."""
        return self._config.flag("transaction.partition.verification.enable")

    def lock_of(self, producer_id: int) -> asyncio.Lock:
        """Held while a request of this producer is verified and appended; first come first."""
        lock = self._locks.get(producer_id)
        if lock is None:
            lock = self._locks[producer_id] = asyncio.Lock()
        return lock

    async def verify(self, check: AddPartitionsCheck) -> dict[TopicPartition, ErrorCode]:
        """The coordinator's result per partition, as an error that producers handle."""
        try:
            async with asyncio.timeout(CHECK_MS_MAX / 1000):
                results = await self._send(check)
        except (KafkaError, TimeoutError) as error:
            code = error.code if isinstance(error, KafkaError) else ErrorCode.REQUEST_TIMED_OUT
            results = dict.fromkeys(check.partitions, code)
        return {one: _for_producer(code, adds=check.adds) for one, code in results.items()}

    async def _send(self, check: AddPartitionsCheck) -> dict[TopicPartition, ErrorCode]:
        from sparkraft.protocol.messages import k24_add_partitions_to_txn as k24

        topics: dict[str, k24.AddPartitionsToTxnTopic] = {}
        for name, index in check.partitions:
            topic = topics.setdefault(name, k24.AddPartitionsToTxnTopic(name=name))
            topic.partitions.append(index)
        request = k24.AddPartitionsToTxnRequest(
            transactions=[
                k24.AddPartitionsToTxnTransaction(
                    transactional_id=check.transactional_id,
                    producer_id=check.producer_id,
                    producer_epoch=check.producer_epoch,
                    verify_only=not check.adds,
                    topics=list(topics.values()),
                )
            ]
        )
        broker_id = self._coordinator_of(check.transactional_id)
        connection = await self._connected(broker_id)
        try:
            response = await connection.send(request, timeout_ms=CHECK_MS_MAX)
        except KafkaError:
            self._connections.pop(broker_id, None)
            await connection.close()
            raise
        return _results(response, check)

    def _coordinator_of(self, transactional_id: str) -> int:
        leader = self._directory.leader_of(KeyType.TRANSACTION, transactional_id)
        if leader in (NO_LEADER, self._config.node_id):
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return leader

    async def _connected(self, broker_id: int) -> "Connection":
        known = self._connections.get(broker_id)
        if known is not None and not known.is_closed:
            return known
        registration = self._metadata.image.brokers.get(broker_id)
        if registration is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        opened = await self._external.connect(registration)
        other = self._connections.get(broker_id)
        if other is not None and not other.is_closed:  # Opened by another request meanwhile.
            await opened.close()
            return other
        self._connections[broker_id] = opened
        return opened

    async def close(self) -> None:
        """Close the connections."""
        for broker_id in sorted(self._connections):
            with suppress(KafkaError):
                await self._connections[broker_id].close()
        self._connections.clear()


def _results(
    response: "k24.AddPartitionsToTxnResponse", check: AddPartitionsCheck
) -> dict[TopicPartition, ErrorCode]:
    if response.error_code:
        raise KafkaError(ErrorCode(response.error_code))
    results = dict.fromkeys(check.partitions, ErrorCode.UNKNOWN_SERVER_ERROR)
    for result in response.results_by_transaction:
        for topic in result.topic_results:
            for part in topic.results_by_partition:
                results[topic.name, part.partition_index] = ErrorCode(part.partition_error_code)
    return results


def _for_producer(code: ErrorCode, *, adds: bool) -> ErrorCode:
    """Translate as Kafka does: errors that old clients treat as fatal become retriable ones."""
    if code in _RETRIABLE or (code is ErrorCode.CONCURRENT_TRANSACTIONS and not adds):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
