"""Is a batch part of an open transaction? Asked of the coordinator before it is appended (KIP-890).

    Produce up to v11   the client has added the partition: the coordinator verifies that
    Produce from v12    the leader adds it, in the same question (transactions, version 2)

Asked once a transaction and partition: while one is open in the log there is nothing to ask. A
guard taken before the question and looked at after it keeps a transaction that ended meanwhile from
letting the batch in; it is asked once more then. Requests of one producer take turns, so that its
batches stay in order.

The coordinators are Apache Kafka's (`coordinators_elsewhere`).
"""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakValueDictionary

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import TopicPartition
from sparkraft.server.broker.coordinators_elsewhere import TRANSACTION_STATE

if TYPE_CHECKING:
    from sparkraft.client.connection import Connection
    from sparkraft.protocol.messages import k24_add_partitions_to_txn as k24
    from sparkraft.server.broker.services import BrokerServices

ASK_MS_MAX = 10_000
"""Below what clients wait for a Produce; they hear NOT_ENOUGH_REPLICAS then, and try again."""


_TRY_AGAIN = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
    }
)


class Question(NamedTuple):
    """Whether places are part of a producer's open transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    places: list[TopicPartition]
    add: bool
    """Add what is not part of it yet (Produce from v12 on)."""


class TransactionVerification:
    """See the module docstring."""

    def __init__(self, broker: "BrokerServices") -> None:
        """No coordinator is connected."""
        self._broker = broker
        self._connections: dict[int, Connection] = {}
        self._turns: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()

    @property
    def is_possible(self) -> bool:
        """Whether somebody in the cluster coordinates transactions."""
        return self._broker.image.topic(TRANSACTION_STATE) is not None

    @property
    def is_wanted(self) -> bool:
        """`transaction.partition.verification.enable`."""
        return self._broker.config.flag("transaction.partition.verification.enable")

    def turn_of(self, producer_id: int) -> asyncio.Lock:
        """Held while a request of this producer is verified and appended; first come first."""
        lock = self._turns.get(producer_id)
        if lock is None:
            lock = self._turns[producer_id] = asyncio.Lock()
        return lock

    async def ask(self, question: Question) -> dict[TopicPartition, ErrorCode]:
        """What the coordinator says of each place, in the words that a producer expects."""
        try:
            async with asyncio.timeout(ASK_MS_MAX / 1000):
                said = await self._ask(question)
        except (KafkaError, TimeoutError) as error:
            code = error.code if isinstance(error, KafkaError) else ErrorCode.REQUEST_TIMED_OUT
            said = dict.fromkeys(question.places, code)
        return {place: _for_producer(code, add=question.add) for place, code in said.items()}

    async def _ask(self, question: Question) -> dict[TopicPartition, ErrorCode]:
        from sparkraft.protocol.messages import k24_add_partitions_to_txn as k24

        topics: dict[str, k24.AddPartitionsToTxnTopic] = {}
        for name, index in question.places:
            topic = topics.setdefault(name, k24.AddPartitionsToTxnTopic(name=name))
            topic.partitions.append(index)
        request = k24.AddPartitionsToTxnRequest(
            transactions=[
                k24.AddPartitionsToTxnTransaction(
                    transactional_id=question.transactional_id,
                    producer_id=question.producer_id,
                    producer_epoch=question.producer_epoch,
                    verify_only=not question.add,
                    topics=list(topics.values()),
                )
            ]
        )
        node_id = self._coordinator_of(question.transactional_id)
        connection = await self._connected(node_id)
        try:
            answer = await connection.send(request, timeout_ms=ASK_MS_MAX)
        except KafkaError:
            self._connections.pop(node_id, None)
            await connection.close()
            raise
        return _read(answer, question)

    def _coordinator_of(self, transactional_id: str) -> int:
        image = self._broker.image
        index = self._broker.coordinators_elsewhere.index_of(TRANSACTION_STATE, transactional_id)
        topic = image.topic(TRANSACTION_STATE)
        partition = None if topic is None or index is None else image.partition(topic.id, index)
        if partition is None or partition.leader < 0 or partition.leader == self._broker.node_id:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return partition.leader

    async def _connected(self, node_id: int) -> "Connection":
        known = self._connections.get(node_id)
        if known is not None and not known.is_closed:
            return known
        registration = self._broker.image.brokers.get(node_id)
        if registration is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        made = await self._broker.coordinators_elsewhere.connect(registration)
        other = self._connections.get(node_id)
        if other is not None and not other.is_closed:  # somebody else was faster
            await made.close()
            return other
        self._connections[node_id] = made
        return made

    async def close(self) -> None:
        """Close the connections."""
        for node_id in sorted(self._connections):
            with suppress(KafkaError):
                await self._connections[node_id].close()
        self._connections.clear()


def _read(
    answer: "k24.AddPartitionsToTxnResponse", question: Question
) -> dict[TopicPartition, ErrorCode]:
    if answer.error_code:
        raise KafkaError(ErrorCode(answer.error_code))
    said = dict.fromkeys(question.places, ErrorCode.UNKNOWN_SERVER_ERROR)
    for result in answer.results_by_transaction:
        for topic in result.topic_results:
            for part in topic.results_by_partition:
                said[topic.name, part.partition_index] = ErrorCode(part.partition_error_code)
    return said


def _for_producer(code: ErrorCode, *, add: bool) -> ErrorCode:
    """Kafka's translations: what older clients would not try again becomes what they do."""
    if code in _TRY_AGAIN or (code is ErrorCode.CONCURRENT_TRANSACTIONS and not add):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
