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
from sparkraft.client import transaction_requests as requests
from sparkraft.client.transaction_requests import ADD_BACKOFF_MS
from sparkraft.client.values import Committed, GroupMetadata
from sparkraft.client.wire_exchange import info_of
from sparkraft.pipeline.wire import PEER_GONE, TRANSACTION_COORDINATOR, check

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from sparkraft.base.ids import TopicPartition
    from sparkraft.pipeline.wire import Cluster

T = TypeVar("T")

ONGOING: Final = "Ongoing"
"""The state of an open transaction, in ListTransactions and DescribeTransactions."""

_PATIENCE_SECONDS: Final = 60.0
"""The time for a request with its retries, as `max.block.ms`: a new coordinator needs seconds."""

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


NO_PRODUCER: Final = ProducerEpoch(*requests.NO_PRODUCER)


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

    def init(self, transactional_id: str, current: ProducerEpoch = NO_PRODUCER) -> ProducerEpoch:
        """Abort the open transaction of an id, fence its producer, and return the next epoch.

        Args:
            transactional_id: the id.
            current: its producer. The coordinator refuses the request if the id has another one
                by now (KIP-360), so nothing of a successor is fenced.
        """
        request = requests.init_producer_id(
            transactional_id, timeout_ms=self.timeout_ms, current=current
        )

        def attempt() -> ProducerEpoch:
            answer = self._ask(transactional_id, request)
            check(answer.error_code, f"InitProducerId of {transactional_id}")
            return ProducerEpoch(answer.producer_id, answer.producer_epoch)

        return self.retrying(attempt)

    def add_partitions(
        self, transactional_id: str, producer: ProducerEpoch, partitions: Collection[TopicPartition]
    ) -> None:
        """Make partitions a part of the transaction, which the first ones begin."""
        request = requests.add_partitions(transactional_id, producer, partitions)

        def attempt() -> None:
            answer = self._ask(transactional_id, request)
            for code, name in requests.added_partitions(answer):
                check(code, f"AddPartitionsToTxn of {transactional_id}: {name}")

        self.retrying(attempt)

    def commit_offsets(
        self, transactional_id: str, producer: ProducerEpoch, shown: GroupOffsets
    ) -> None:
        """Make a group's offsets a part of the transaction, which they begin if it has not begun.

        The group sees them once the transaction is committed. Deleted partitions are left out.
        """
        group = GroupMetadata(group_id=shown.group)
        offsets = {each: Committed(offset=offset) for each, offset in shown.offsets.items()}
        adding = requests.add_offsets(transactional_id, producer, shown.group)
        storing = requests.commit_offsets(transactional_id, producer, offsets, group)

        def add() -> None:
            # The first look-up creates the topic of offsets. Kafka's AddOffsetsToTxn does not.
            self.cluster.coordinator(shown.group)
            answer = self._ask(transactional_id, adding)
            check(answer.error_code, f"AddOffsetsToTxn of {transactional_id}: {shown.group}")

        def store() -> None:
            connection = self.cluster.coordinator(shown.group)
            answer = connection.ask(storing, version_max=_version_max(storing))
            for topic in answer.topics:
                for each in topic.partitions:
                    if each.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                        place = f"{topic.name}-{each.partition_index}"
                        check(each.error_code, f"TxnOffsetCommit to group {shown.group}: {place}")

        self.retrying(add)
        self.retrying(store)

    def end(self, transactional_id: str, producer: ProducerEpoch, *, committed: bool) -> bool:
        """Commit or abort a transaction; whether it has ended that way, now or before."""
        request = requests.end(transactional_id, producer, committed=committed)

        def attempt() -> bool:
            answer = self._ask(transactional_id, request)
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
            entry = self._ask(transactional_id, request).transaction_states[0]
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

    def _ask(self, transactional_id: str, request: Any) -> Any:
        connection = self.cluster.coordinator(transactional_id, kind=TRANSACTION_COORDINATOR)
        return connection.ask(request, version_max=_version_max(request))

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
                pause_ms = self.cluster.options.retry_pause_ms if seldom else ADD_BACKOFF_MS
                time.sleep(pause_ms / 1000)


_PATTERN_VERSION_MIN: Final = 2


def _version_max(request: Any) -> int | None:
    return requests.V1_MAX.get(info_of(request).key)


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
