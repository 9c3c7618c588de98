"""What a row of `./bench loop` measures on one node."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import TypeVar

from benchmarks.bench_node import ask
from sparkraft.base.errors import ErrorCode
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages import k55_describe_quorum as k55
from sparkraft.protocol.messages import k10002_describe_history as k10002
from tests.support.nodes import NodeProcess, SparkraftNode

Prepared = TypeVar("Prepared")

ROUNDS = 3
SECONDS = 7
"""A round's probe; 2,100 probes in all rounds."""

HISTORY_TRIES = 20
"""A snapshot may let the log be cleaned while a history is read from it."""


@dataclass
class Outcome:
    """One round of one node."""

    latencies: list[float]
    """The probe's, in ms."""
    figures: dict[str, float] = field(default_factory=dict)
    """Name with unit → value; more is better if the unit is MB/s."""
    interruptions: int | None = None
    """Elections and fencings, if the load itself counts them: on a node of its own, or after a
    restart that it needs."""

    @property
    def p99(self) -> float:
        """In ms."""
        return sorted(self.latencies)[len(self.latencies) * 99 // 100]


Load = Callable[[NodeProcess, int], Outcome | list[Outcome]]
"""Runs one round on a node; the number of the round makes names unique. Rows that take long to
prepare a node of their own run all rounds there."""


def once(prepare: Callable[[NodeProcess], Prepared]) -> Callable[[NodeProcess], Prepared]:
    """Prepare a node before its first round only; later rounds get what was returned then."""
    known: dict[int, Prepared] = {}

    @wraps(prepare)
    def prepared(node: NodeProcess) -> Prepared:
        if node.port not in known:
            known[node.port] = prepare(node)
        return known[node.port]

    return prepared


class NotMeasuredError(Exception):
    """This machine cannot run a row; says why."""


# ---- elections and fencings


class Interruptions:
    """Elections of a node's quorum and changes of its broker, from now on."""

    def __init__(self, node: NodeProcess) -> None:
        self._node = node
        self._epoch = quorum_epoch(node)
        _, self._offset = changes_since(node, -1)

    def count(self) -> int:
        """How many there were until now."""
        changes, _ = changes_since(self._node, self._offset)
        return quorum_epoch(self._node) - self._epoch + len(changes)


def watched(node: NodeProcess, measure: Callable[[], Outcome]) -> Outcome:
    """The outcome with the interruptions of `node`; Kafka's are not counted."""
    if not isinstance(node, SparkraftNode):
        return measure()
    interruptions = Interruptions(node)
    outcome = measure()
    outcome.interruptions = interruptions.count()
    return outcome


def changes_since(node: NodeProcess, offset: int) -> tuple[list[str], int]:
    """What became of the broker after `offset` of the metadata log, and the present offset."""
    request = k10002.DescribeHistoryRequest(broker_ids=[1], events_max=1_000)
    _, answer = ask(node.port, ApiKey.DESCRIBE_HISTORY, 0, request)
    tries = 1
    while answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and tries < HISTORY_TRIES:
        _, answer = ask(node.port, ApiKey.DESCRIBE_HISTORY, 0, request)
        tries += 1
    assert answer.error_code == 0, answer
    changes = answer.brokers[0].changes
    return [change.what for change in changes if change.offset > offset], answer.offset


def quorum_epoch(node: NodeProcess) -> int:
    """The epoch of the metadata quorum."""
    partition = k55.DescribeQuorumRequestPartitionData(partition_index=0)
    topic = k55.DescribeQuorumRequestTopicData(
        topic_name="__cluster_metadata", partitions=[partition]
    )
    request = k55.DescribeQuorumRequest(topics=[topic])
    _, answer = ask(node.port, ApiKey.DESCRIBE_QUORUM, 1, request)
    return int(answer.topics[0].partitions[0].leader_epoch)
