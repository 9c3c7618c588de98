"""DescribeTransactions and the filters of ListTransactions (KIP-664, KIP-994, KIP-1152)."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from sparkraft.base.errors import ErrorCode
from sparkraft.coordinator.transaction.known_ids import Overview
from sparkraft.coordinator.transaction.metadata import TransactionMetadata
from sparkraft.coordinator.transaction.states import LABELS, TransactionState
from sparkraft.protocol.messages import k65_describe_transactions as k65
from sparkraft.protocol.messages import k66_list_transactions as k66

NO_DURATION = -1
_STATES_BY_LABEL = {label: state for state, label in LABELS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListFilter:
    """Which transactional ids to list; an empty collection does not restrict.

    Attributes:
        duration_ms: transactions that have been running for longer; NO_DURATION for all ids.
        matches: whether an id matches the pattern; None without a pattern.
    """

    states: Collection[TransactionState] = ()
    producer_ids: Collection[int] = ()
    duration_ms: int = NO_DURATION
    matches: Callable[[str], bool] | None = None

    def permits(self, one: Overview, now_ms: int) -> bool:
        """Whether `one` is listed; `now_ms` is the wall clock."""
        return (
            (not self.producer_ids or one.producer_id in self.producer_ids)
            and (not self.states or one.state in self.states)
            and (self.duration_ms < 0 or now_ms - one.start_ms > self.duration_ms)
            and (self.matches is None or self.matches(one.transactional_id))
        )


def known_states(labels: Collection[str]) -> tuple[frozenset[TransactionState], list[str]]:
    """The states called `labels`, and the labels of no state, each once."""
    named = dict.fromkeys(labels)
    known = frozenset(_STATES_BY_LABEL[label] for label in named if label in _STATES_BY_LABEL)
    return known, [label for label in named if label not in _STATES_BY_LABEL]


def listed(one: Overview) -> k66.TransactionState:
    """An entry of ListTransactions."""
    return k66.TransactionState(
        transactional_id=one.transactional_id,
        producer_id=one.producer_id,
        transaction_state=one.state.label,
    )


def described(transactional_id: str, one: TransactionMetadata | None) -> k65.TransactionState:
    """An entry of DescribeTransactions, with all partitions of the transaction."""
    if one is None:
        return k65.TransactionState(
            transactional_id=transactional_id,
            error_code=int(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
        )
    topics: dict[str, k65.TopicData] = {}
    for topic, partition in sorted(one.partitions):
        if topic not in topics:
            topics[topic] = k65.TopicData(topic=topic)
        topics[topic].partitions.append(partition)
    return k65.TransactionState(
        transactional_id=transactional_id,
        transaction_state=one.state.label,
        transaction_timeout_ms=one.timeout_ms,
        transaction_start_time_ms=one.start_ms,
        producer_id=one.producer_id,
        producer_epoch=one.producer_epoch,
        topics=list(topics.values()),
    )
