"""Verify that a batch belongs to an open transaction before it is appended (KIP-890).

    Produce up to v11   the client has added the partition: the coordinator verifies that
    Produce from v12    the leader adds the partition by the same request (transaction version 2)

The coordinator is asked once per transaction and partition: while a transaction is open in the log
there is nothing to verify. A guard taken before the request and checked after it prevents a
transaction that has ended meanwhile from admitting the batch; it is verified once more then.
Requests of one producer are verified and appended in sequence, so that its batches stay in order.

The coordinator may be this broker, another one, or one of Apache Kafka's. One before Kafka 3.5
cannot verify: batches are appended without, as AddPartitionsToTxnManager does (`versionMismatch`).
"""

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import TopicPartition
from sparkraft.coordinator.internal_topics import KeyType
from sparkraft.protocol.errors import UnsupportedFieldError
from sparkraft.server.coordinator.broker_batches import BrokerBatches, BrokerConnections
from sparkraft.server.coordinator.directory import NO_LEADER
from sparkraft.server.coordinator.partition_check import AddPartitionsCheck, CheckKind
from sparkraft.server.coordinator.responses import Response

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from sparkraft.metadata.configs import ConfigValue
    from sparkraft.protocol.messages import k24_add_partitions_to_txn as k24
    from sparkraft.server.broker.partition import HostedPartition
    from sparkraft.server.config import NodeConfig
    from sparkraft.server.coordinator.directory import CoordinatorDirectory
    from sparkraft.server.coordinator.transaction_service import TransactionCoordinatorService

CHECK_MS_MAX = 10_000
"""Less than the clients' timeout of a Produce; it then fails with a retriable error."""

Results = dict[TopicPartition, ErrorCode]


class TransactionVerification:
    """See the module docstring."""

    def __init__(
        self,
        config: "NodeConfig",
        setting: "Callable[[str], ConfigValue]",
        directory: "CoordinatorDirectory",
        transactions: "TransactionCoordinatorService",
        connections: BrokerConnections,
        spawn: "Callable[[Coroutine[Any, Any, Any], str], Any]",
    ) -> None:
        """Check nothing yet.

        Args:
            config: of this broker.
            setting: the current value of a dynamic config.
            directory: finds coordinators.
            transactions: the coordinator on this broker.
            connections: to other brokers.
            spawn: runs a task of the node.
        """
        self._config = config
        self._setting = setting
        self._directory = directory
        self._transactions = transactions
        self._connections = connections
        self._batches: BrokerBatches[AddPartitionsCheck, Results] = BrokerBatches(
            self._request,
            spawn,
            "verification of transactions",
            size_of=lambda check: len(check.partitions),
        )
        self._locks: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()

    @property
    def is_enabled(self) -> bool:
        """`transaction.partition.verification.enable`."""
        return bool(self._setting("transaction.partition.verification.enable"))

    def lock_of(self, producer_id: int) -> asyncio.Lock:
        """Held while a request of this producer is verified and appended; first come first."""
        lock = self._locks.get(producer_id)
        if lock is None:
            lock = self._locks[producer_id] = asyncio.Lock()
        return lock

    def is_known(
        self,
        partition: "HostedPartition",
        transactional_id: str,
        producer_id: int,
        epoch: int,
        *,
        adds: bool,
    ) -> bool:
        """Whether a batch belongs to an open transaction; False if that is not known at once.

        Nor is it while another request of the producer is verified: batches stay in order.

        Args:
            partition: led here; the batch must be appended at once.
            transactional_id: of the request.
            producer_id: of the batch.
            epoch: the producer's.
            adds: whether the partition is added to the transaction with its first batch.
        """
        if producer_id in self._locks:
            return False
        if partition.log.producers.has_open_transaction(producer_id, epoch):
            return True
        place = (partition.topic, partition.index)
        return not adds and self._transactions.is_part(transactional_id, producer_id, epoch, place)

    async def verify(self, check: AddPartitionsCheck) -> Results:
        """The coordinator's result per partition, as Kafka's brokers translate it.

        NETWORK_EXCEPTION if the coordinator did not answer.
        """
        try:
            response = self._send(check)
            results = await _in_time(response) if isinstance(response, Awaitable) else response
        except KafkaError as error:
            results = dict.fromkeys(check.partitions, error.code)
        except TimeoutError:
            results = dict.fromkeys(check.partitions, ErrorCode.NETWORK_EXCEPTION)
        return {one: _translated(code, check.kind) for one, code in results.items()}

    def _send(self, check: AddPartitionsCheck) -> Response[Results]:
        broker_id = self._directory.leader_of(KeyType.TRANSACTION, check.transactional_id)
        if broker_id == NO_LEADER:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if broker_id == self._config.node_id:
            return self._transactions.start_check(check)
        return self._batches.submit(broker_id, check)

    async def _request(self, broker_id: int, checks: list[AddPartitionsCheck]) -> list[Results]:
        """One AddPartitionsToTxn for several transactional ids; the last check of an id counts."""
        from sparkraft.protocol.messages import k24_add_partitions_to_txn as k24

        sent = _newest(checks)
        request = k24.AddPartitionsToTxnRequest(
            transactions=[_transaction(check) for check in sent.values()]
        )
        try:
            response = await self._connections.send(broker_id, request, timeout_ms=CHECK_MS_MAX)
        except UnsupportedFieldError:
            return [dict.fromkeys(check.partitions, _unverified(check)) for check in checks]
        except KafkaError as error:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, error.detail) from error
        found = _results(response)
        return [
            _results_of(check, found) if sent[check.transactional_id] is check
            # Overtaken by a later request of the same id, and retried by the client.
            else dict.fromkeys(check.partitions, _overtaken(check, sent))
            for check in checks
        ]  # fmt: skip


async def _in_time(response: Awaitable[Results]) -> Results:
    await asyncio.sleep(0)  # from here on in a task, which a timeout needs (`responses.begin`)
    async with asyncio.timeout(CHECK_MS_MAX / 1000):
        return await response


def _newest(checks: list[AddPartitionsCheck]) -> dict[str, AddPartitionsCheck]:
    """By transactional id, the check of the highest epoch; of equal ones the last."""
    newest: dict[str, AddPartitionsCheck] = {}
    for check in checks:
        known = newest.get(check.transactional_id)
        if known is None or check.producer_epoch >= known.producer_epoch:
            newest[check.transactional_id] = check
    return newest


def _unverified(check: AddPartitionsCheck) -> ErrorCode:
    """The result if the coordinator serves AddPartitionsToTxn up to v3 only (Kafka before 3.5).

    It can add no partitions for a leader, but clients have added those that are only verified.
    """
    return ErrorCode.NETWORK_EXCEPTION if check.adds else ErrorCode.NONE


def _overtaken(check: AddPartitionsCheck, sent: dict[str, AddPartitionsCheck]) -> ErrorCode:
    if check.producer_epoch < sent[check.transactional_id].producer_epoch:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return ErrorCode.NETWORK_EXCEPTION


def _transaction(check: AddPartitionsCheck) -> "k24.AddPartitionsToTxnTransaction":
    from sparkraft.protocol.messages import k24_add_partitions_to_txn as k24

    topics: dict[str, k24.AddPartitionsToTxnTopic] = {}
    for name, index in check.partitions:
        topic = topics.setdefault(name, k24.AddPartitionsToTxnTopic(name=name))
        topic.partitions.append(index)
    return k24.AddPartitionsToTxnTransaction(
        transactional_id=check.transactional_id,
        producer_id=check.producer_id,
        producer_epoch=check.producer_epoch,
        verify_only=not check.adds,
        topics=list(topics.values()),
    )


def _results(
    response: "k24.AddPartitionsToTxnResponse",
) -> dict[tuple[str, TopicPartition], ErrorCode]:
    if response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        raise KafkaError(ErrorCode.INVALID_TXN_STATE, "the coordinator denies this broker")
    if response.error_code:
        raise KafkaError(ErrorCode(response.error_code))
    return {
        (result.transactional_id, (topic.name, part.partition_index)): ErrorCode(
            part.partition_error_code
        )
        for result in response.results_by_transaction
        for topic in result.topic_results
        for part in topic.results_by_partition
    }


def _results_of(
    check: AddPartitionsCheck, found: dict[tuple[str, TopicPartition], ErrorCode]
) -> Results:
    return {
        one: found.get((check.transactional_id, one), ErrorCode.UNKNOWN_SERVER_ERROR)
        for one in check.partitions
    }


def _translated(code: ErrorCode, kind: CheckKind) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and kind is CheckKind.DEFAULT:
        return ErrorCode.INVALID_TXN_STATE
    return code
