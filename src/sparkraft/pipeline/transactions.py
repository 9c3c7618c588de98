"""Blocking requests to transaction coordinators, for Spark's driver and tasks (KIP-98, KIP-664).

Transactions follow the flow of transaction.version 1, which all brokers serve: the client adds
partitions, and EndTxn leaves the producer epoch as it is. So another process can repeat EndTxn, and
as each transaction begins with InitProducerId, which raises the epoch, the response is about that
transaction and no other one:

    the transaction is open             it is committed
    it is committed already             NONE (TransactionCoordinator.endTransactionWithTV1)
    it timed out, or its id was taken   PRODUCER_FENCED: its epoch was raised

Not here: which transactions make a batch (`exactly_once`); asyncio (`sparkraft.client`).
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.pipeline.wire import PEER_GONE, TRANSACTION_COORDINATOR, by_topic, check

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from sparkraft.base.ids import TopicPartition
    from sparkraft.pipeline.wire import Cluster
    from sparkraft.protocol.messages.k28_txn_offset_commit import TxnOffsetCommitRequest

T = TypeVar("T")

ONGOING: Final = "Ongoing"
"""The state of an open transaction, in ListTransactions and DescribeTransactions."""

_INIT_VERSION_MAX: Final = 5
_ADD_VERSION_MAX: Final = 3
_END_VERSION_MAX: Final = 4
_OFFSETS_VERSION_MAX: Final = 4
"""Higher versions select the flow of transaction.version 2, or two-phase commit (KIP-939)."""

_PATIENCE_SECONDS: Final = 60.0
"""The time for a request with its retries, as `max.block.ms`: a new coordinator needs seconds."""

_PAUSE_SECONDS: Final = 0.02
"""Before a repeated request: Kafka's ADD_PARTITIONS_RETRY_BACKOFF_MS."""

NOT_COMMITTED: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
    }
)
"""Responses for a transaction that ended differently, or whose id began another one."""


class ProducerEpoch(NamedTuple):
    """A producer id with its epoch."""

    producer_id: int
    producer_epoch: int


NO_PRODUCER: Final = ProducerEpoch(-1, -1)


class Described(NamedTuple):
    """The state of a transactional id."""

    producer: ProducerEpoch
    state: str


class GroupOffsets(NamedTuple):
    """A group's offsets, to be committed in a transaction."""

    group: str
    offsets: Mapping[TopicPartition, int]


class TransactionCalls:
    """Requests to the coordinators of a cluster; all are repeated until they succeed or time out.

    Raises `KafkaError` for what is refused, or after a minute of errors that may pass.
    """

    def __init__(self, cluster: Cluster, *, timeout_ms: int) -> None:
        """Prepare.

        Args:
            cluster: the cluster of the coordinators.
            timeout_ms: `transaction.timeout.ms`: coordinators abort older transactions.
        """
        self.cluster = cluster
        self.timeout_ms = timeout_ms

    def init(self, transactional_id: str) -> ProducerEpoch:
        """Abort the open transaction of an id, fence its producer, and return the next epoch."""
        from sparkraft.protocol.messages.k22_init_producer_id import InitProducerIdRequest

        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=self.timeout_ms
        )

        def attempt() -> ProducerEpoch:
            answer = self._ask(transactional_id, request, _INIT_VERSION_MAX)
            check(answer.error_code, f"InitProducerId of {transactional_id}")
            return ProducerEpoch(answer.producer_id, answer.producer_epoch)

        return self.retrying(attempt)

    def add_partitions(
        self, transactional_id: str, producer: ProducerEpoch, partitions: Collection[TopicPartition]
    ) -> None:
        """Make partitions a part of the transaction, which the first ones begin."""
        from sparkraft.protocol.messages import k24_add_partitions_to_txn as message

        request = message.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[
                message.AddPartitionsToTxnTopic(name=name, partitions=numbers)
                for name, numbers in by_topic(partitions)
            ],
        )

        def attempt() -> None:
            answer = self._ask(transactional_id, request, _ADD_VERSION_MAX)
            codes = [
                (each.partition_error_code, f"{topic.name}-{each.partition_index}")
                for topic in answer.results_by_topic_v3_and_below
                for each in topic.results_by_partition
            ]
            # Partitions that were not attempted do not show the reason.
            codes.sort(key=lambda each: each[0] == ErrorCode.OPERATION_NOT_ATTEMPTED)
            for code, name in codes:
                check(code, f"AddPartitionsToTxn of {transactional_id}: {name}")

        self.retrying(attempt)

    def commit_offsets(
        self, transactional_id: str, producer: ProducerEpoch, shown: GroupOffsets
    ) -> None:
        """Make a group's offsets a part of the transaction, which they begin if it has not begun.

        The group sees them once the transaction is committed. Deleted partitions are left out.
        """
        from sparkraft.protocol.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest

        adding = AddOffsetsToTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            group_id=shown.group,
        )
        storing = _offsets_request(transactional_id, producer, shown)

        def add() -> None:
            # The first look-up creates the topic of offsets. Kafka's AddOffsetsToTxn does not.
            self.cluster.coordinator(shown.group)
            answer = self._ask(transactional_id, adding, _OFFSETS_VERSION_MAX)
            check(answer.error_code, f"AddOffsetsToTxn of {transactional_id}: {shown.group}")

        def store() -> None:
            connection = self.cluster.coordinator(shown.group)
            answer = connection.ask(storing, version_max=_OFFSETS_VERSION_MAX)
            for topic in answer.topics:
                for each in topic.partitions:
                    if each.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                        place = f"{topic.name}-{each.partition_index}"
                        check(each.error_code, f"TxnOffsetCommit to group {shown.group}: {place}")

        self.retrying(add)
        self.retrying(store)

    def end(self, transactional_id: str, producer: ProducerEpoch, *, committed: bool) -> bool:
        """Commit or abort a transaction; whether it has ended that way, now or before."""
        from sparkraft.protocol.messages.k26_end_txn import EndTxnRequest

        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            committed=committed,
        )

        def attempt() -> bool:
            answer = self._ask(transactional_id, request, _END_VERSION_MAX)
            if answer.error_code in NOT_COMMITTED:
                return False
            check(answer.error_code, f"EndTxn of {transactional_id}")
            return True

        return self.retrying(attempt)

    def describe(self, transactional_id: str) -> Described | None:
        """The state of an id; None if its coordinator does not know it."""
        from sparkraft.protocol.messages.k65_describe_transactions import (
            DescribeTransactionsRequest,
        )

        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])

        def attempt() -> Described | None:
            entry = self._ask(transactional_id, request, None).transaction_states[0]
            if entry.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                return None
            check(entry.error_code, f"DescribeTransactions of {transactional_id}")
            producer = ProducerEpoch(entry.producer_id, entry.producer_epoch)
            return Described(producer, entry.transaction_state)

        return self.retrying(attempt)

    def ids(self, pattern: str, *, states: Iterable[str] = ()) -> dict[str, str]:
        """The ids that match a pattern as a whole, of all coordinators, in order; with states.

        Args:
            pattern: valid in RE2 and in Python. Brokers from 4.1 on apply it (KIP-1152).
            states: only ids in one of them; empty for all.
        """
        wanted = list(states)
        matches = re.compile(pattern).fullmatch

        def attempt() -> dict[str, str]:
            from sparkraft.protocol.messages.k66_list_transactions import ListTransactionsRequest

            self.cluster.topics([])
            found = {}
            for node_id in self.cluster.node_ids():
                connection = self.cluster.broker(node_id)
                request = ListTransactionsRequest(state_filters=wanted)
                if connection.serves(request, at_least=_PATTERN_VERSION_MIN):
                    request.transactional_id_pattern = pattern
                answer = connection.ask(request)
                check(answer.error_code, f"ListTransactions of broker {node_id}")
                for each in answer.transaction_states:
                    found[each.transactional_id] = each.transaction_state
            return {each: found[each] for each in sorted(filter(matches, found))}

        return self.retrying(attempt)

    def _ask(self, transactional_id: str, request: Any, version_max: int | None) -> Any:
        connection = self.cluster.coordinator(transactional_id, kind=TRANSACTION_COORDINATOR)
        return connection.ask(request, version_max=version_max)

    def retrying(self, attempt: Callable[[], T]) -> T:
        """Repeat `attempt` for a minute while it fails with an error that Kafka calls retriable."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                return attempt()
            except KafkaError as error:
                if not error.code.is_retriable or time.monotonic() > deadline:
                    raise
                if error.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                    self.cluster.forget()
                seldom = error.code in PEER_GONE
                time.sleep(self.cluster.options.retry_pause_ms / 1000 if seldom else _PAUSE_SECONDS)


_PATTERN_VERSION_MIN: Final = 2


def _offsets_request(
    transactional_id: str, producer: ProducerEpoch, shown: GroupOffsets
) -> TxnOffsetCommitRequest:
    """Without a member: Kafka checks the generation only of those that name one (KIP-447)."""
    from sparkraft.protocol.messages import k28_txn_offset_commit as message

    return message.TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=shown.group,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        topics=[
            message.TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    message.TxnOffsetCommitRequestPartition(
                        partition_index=number,
                        committed_offset=shown.offsets[topic, number],
                        committed_metadata="",
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in by_topic(shown.offsets)
        ],
    )


class OpenTransaction:
    """The transaction of a `Producer`; it begins with the first partition that is added.

    Args:
        calls: to the coordinators.
        transactional_id: of the transaction.
        producer: returns the producer id and epoch, when the first batch is built.
    """

    def __init__(
        self,
        calls: TransactionCalls,
        transactional_id: str,
        producer: Callable[[], ProducerEpoch],
    ) -> None:
        self._calls = calls
        self._make_producer = producer
        self.transactional_id = transactional_id
        self.producer = NO_PRODUCER
        self.partitions: set[TopicPartition] = set()

    def begin(self) -> ProducerEpoch:
        """Return the producer id and epoch of its batches."""
        if self.producer == NO_PRODUCER:
            self.producer = self._make_producer()
        return self.producer

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Add the partitions that are not a part of it yet, before records are sent to them."""
        new = set(partitions) - self.partitions
        if new:
            self._calls.add_partitions(self.transactional_id, self.producer, new)
            self.partitions |= new
