"""Transactions from outside: list, describe, their producers, ending hanging ones (KIP-664).

A transaction hangs if a partition's leader waits for a marker that no coordinator will send. The
last stable offset of the partition then stops, and with it every read_committed consumer.

The same manners as `admin`: retries inside, answers per thing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import by_topic
from sparkraft.client.admin import Admin
from sparkraft.client.cluster import TRANSACTION_COORDINATOR, Cluster, check, code_of
from sparkraft.client.partition_calls import PartitionCalls, refusal_of
from sparkraft.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from sparkraft.base.ids import TopicPartition
    from sparkraft.client.cluster import PartitionInfo

_DURATION_VERSION = 1
_PATTERN_VERSION = 2

PARTITIONS_PER_CALL_MAX = 500
"""Partitions that one search step asks for; as Kafka's tool."""

_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTransaction:
    """A transactional id as listed by its coordinator; `state` is Kafka's word."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionInfo:
    """A transactional id as described by its coordinator."""

    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int | None
    """Wall clock; None if no transaction is open."""
    partitions: tuple[TopicPartition, ...]
    """Partitions of the open transaction; those without a marker yet while it ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveProducer:
    """A producer that a replica of a partition remembers."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    """-1 before its first marker."""
    start_offset: int | None
    """First offset of its open transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """A transaction that is open in a partition."""

    partition: TopicPartition
    producer: ActiveProducer


class TransactionAdmin(PartitionCalls):
    """Calls on transactions over a `Cluster`, which stays the caller's to close."""

    def __init__(self, cluster: Cluster) -> None:
        """Speak through `cluster`."""
        self.cluster = cluster

    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        longer_than_ms: int = -1,
        pattern: str | None = None,
    ) -> list[ListedTransaction]:
        """List the transactional ids of every coordinator, in the order of their node ids.

        Args:
            states: only ids in one of these states.
            producer_ids: only these producers.
            longer_than_ms: only transactions that are open for longer; below 0: all (KIP-994).
            pattern: only ids that match this RE2 expression as a whole (KIP-1152).
        """
        from sparkraft.protocol.messages.k66_list_transactions import ListTransactionsRequest

        request = ListTransactionsRequest(
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=longer_than_ms,
            transactional_id_pattern=pattern,
        )
        least = _DURATION_VERSION if longer_than_ms >= 0 else 0
        least = least if pattern is None else _PATTERN_VERSION
        await self.cluster.retrying(lambda: self.cluster.refresh(()))
        found = []
        for node_id in sorted(self.cluster.view.nodes):
            ask = partial(self._list_of, node_id, request, least)
            answer = await self.cluster.retrying(ask)
            found += [
                ListedTransaction(
                    transactional_id=entry.transactional_id,
                    coordinator=node_id,
                    producer_id=entry.producer_id,
                    state=entry.transaction_state,
                )
                for entry in answer.transaction_states
            ]
        return found

    async def _list_of(self, node_id: int, request: Any, at_least: int) -> Any:
        connection = await self.cluster.connection(node_id)
        version = connection.version_for(ApiKey.LIST_TRANSACTIONS)
        if version < at_least:
            detail = f"node {node_id} serves ListTransactions to v{version}, below v{at_least}"
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, detail)
        answer = await self.cluster.ask_node(node_id, request, version=version)
        check(answer.error_code)
        return answer

    async def describe(self, transactional_id: str) -> TransactionInfo:
        """Describe one id; TRANSACTIONAL_ID_NOT_FOUND if no coordinator knows it."""
        from sparkraft.protocol.messages.k65_describe_transactions import (
            DescribeTransactionsRequest,
        )

        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        entry = await self._of_coordinator(
            transactional_id, request, lambda answer: answer.transaction_states[0]
        )
        return TransactionInfo(
            transactional_id=transactional_id,
            coordinator=await self.cluster.coordinator(
                transactional_id, kind=TRANSACTION_COORDINATOR
            ),
            producer_id=entry.producer_id,
            producer_epoch=entry.producer_epoch,
            state=entry.transaction_state,
            timeout_ms=entry.transaction_timeout_ms,
            start_ms=_unless_negative(entry.transaction_start_time_ms),
            partitions=tuple((t.topic, index) for t in entry.topics for index in t.partitions),
        )

    async def force_terminate(self, transactional_id: str) -> None:
        """Abort the open transaction of an id and fence its producer (KIP-939's tool)."""
        from sparkraft.protocol.messages.k22_init_producer_id import InitProducerIdRequest

        # The timeout has no effect on what is ended; it only has to be one that is allowed.
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=self.cluster.request_timeout_ms,
        )
        await self._of_coordinator(transactional_id, request, lambda answer: answer, version=5)

    async def _of_coordinator(
        self,
        transactional_id: str,
        request: Any,
        entry_of: Callable[[Any], Any],
        *,
        version: int | None = None,
    ) -> Any:
        kind = TRANSACTION_COORDINATOR

        async def attempt() -> Any:
            answer = await self.cluster.ask_coordinator(
                transactional_id, request, kind=kind, version=version
            )
            entry = entry_of(answer)
            if code_of(entry.error_code) in _MOVED:
                self.cluster.forget_coordinator(transactional_id, kind=kind)
            check(entry.error_code, f"transactional id {transactional_id!r}")
            return entry

        return await self.cluster.retrying(attempt)

    # producers of partitions

    async def producers(
        self, partitions: Iterable[TopicPartition], *, broker: int | None = None
    ) -> dict[TopicPartition, list[ActiveProducer] | KafkaError]:
        """The producers that the leader of a partition, or its replica on `broker`, remembers."""
        from sparkraft.protocol.messages import k61_describe_producers as k61

        def request(wanted: Iterable[TopicPartition]) -> Any:
            return k61.DescribeProducersRequest(
                topics=[
                    k61.TopicRequest(name=name, partition_indexes=indexes)
                    for name, indexes in by_topic(wanted).items()
                ]
            )

        wanted = set(partitions)
        if broker is None:
            found = await self._ask_leaders(wanted, request)
        else:
            ask = partial(self.cluster.ask_node, broker, request(wanted))
            answer = await self.cluster.retrying(ask)
            found = {
                (topic.name, entry.partition_index): refusal_of(entry) or entry
                for topic in answer.topics
                for entry in topic.partitions
            }
        return {
            tp: entry
            if isinstance(entry, KafkaError)
            else [_active(producer) for producer in entry.active_producers]
            for tp, entry in found.items()
        }

    async def abort(
        self, tp: TopicPartition, *, producer_id: int, producer_epoch: int, coordinator_epoch: int
    ) -> None:
        """Write an abort marker into one partition, without a coordinator's say.

        Args:
            tp: the partition.
            producer_id: of the hanging transaction.
            producer_epoch: of the hanging transaction.
            coordinator_epoch: the last one that the partition has seen of the producer.
        """
        from sparkraft.protocol.messages import k27_write_txn_markers as k27

        request = k27.WriteTxnMarkersRequest(
            markers=[
                k27.WritableTxnMarker(
                    producer_id=producer_id,
                    producer_epoch=producer_epoch,
                    transaction_result=False,
                    coordinator_epoch=coordinator_epoch,
                    topics=[k27.WritableTxnMarkerTopic(name=tp[0], partition_indexes=[tp[1]])],
                )
            ]
        )

        async def attempt() -> None:
            info = await self.cluster.leader(*tp)
            answer = await self.cluster.ask_node(info.leader, request)
            entry = answer.markers[0].topics[0].partitions[0]
            if entry.error_code:
                self.cluster.forget_topic(tp[0])
            check(entry.error_code, f"{tp[0]}-{tp[1]}")

        await self.cluster.retrying(attempt)

    # hanging transactions

    async def find_hanging(
        self, partitions: Iterable[TopicPartition], *, older_than_ms: int, now_ms: int,
        broker: int | None = None,
    ) -> list[OpenTransaction]:  # fmt: skip
        """Open transactions that no coordinator will end.

        Args:
            partitions: where to search.
            older_than_ms: only those whose producer was silent for longer; a shorter time than
                transaction.max.timeout.ms finds transactions that are only slow.
            now_ms: wall clock.
            broker: ask the replicas on this broker instead of the leaders.
        """
        open_ones = await self._open_transactions(partitions, now_ms - older_than_ms, broker)
        if not open_ones:
            return []
        listed = await self.list_transactions(
            producer_ids=sorted({t.producer.producer_id for t in open_ones})
        )
        ids = {entry.producer_id: entry.transactional_id for entry in listed}
        expected = {name: await self._expected(name) for name in sorted(set(ids.values()))}
        return [
            each
            for each in open_ones
            if each.partition not in expected.get(ids.get(each.producer.producer_id, ""), ())
        ]

    async def _open_transactions(
        self, partitions: Iterable[TopicPartition], before_ms: int, broker: int | None
    ) -> list[OpenTransaction]:
        found = []
        wanted = sorted(set(partitions))
        for start in range(0, len(wanted), PARTITIONS_PER_CALL_MAX):
            part = wanted[start : start + PARTITIONS_PER_CALL_MAX]
            for tp, producers in sorted((await self.producers(part, broker=broker)).items()):
                if isinstance(producers, KafkaError):
                    raise producers
                found += [
                    OpenTransaction(partition=tp, producer=producer)
                    for producer in producers
                    if producer.start_offset is not None and producer.last_timestamp < before_ms
                ]
        return found

    async def _expected(self, transactional_id: str) -> frozenset[TopicPartition]:
        """Partitions whose marker a coordinator will still send."""
        try:
            return frozenset((await self.describe(transactional_id)).partitions)
        except KafkaError as error:
            if error.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                return frozenset()
            raise

    async def partitions_to_search(
        self, topics: Iterable[str] | None, broker: int | None
    ) -> list[TopicPartition]:
        """Partitions of `topics` (None: of all), only those with a replica on `broker` if given."""
        admin = Admin(self.cluster)
        if topics is None:
            topics = await admin.list_topics()
        found: list[TopicPartition] = []
        for name, info in (await admin.describe_topics(topics)).items():
            if isinstance(info, KafkaError):
                raise info
            found += _with_replica(name, info.partitions, broker)
        return found


def _with_replica(
    name: str, partitions: Mapping[int, PartitionInfo], broker: int | None
) -> list[TopicPartition]:
    return [
        (name, index)
        for index, info in sorted(partitions.items())
        if broker is None or broker in info.replicas
    ]


def _active(entry: Any) -> ActiveProducer:
    return ActiveProducer(
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        start_offset=_unless_negative(entry.current_txn_start_offset),
    )


def _unless_negative(number: int) -> int | None:
    return number if number >= 0 else None
