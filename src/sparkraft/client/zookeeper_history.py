"""The history of partitions and brokers in ZooKeeper mode, merged from the journals of brokers.

Each broker has the changes that it decided as the controller. So their order is that of the
controllers' epochs, and of the clock of one broker within an epoch. The present state is the active
controller's, if that is one of ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client.leadership import LeadershipAdmin

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sparkraft.base.ids import Uuid
    from sparkraft.client.cluster import Cluster

_Key = tuple[str, "Uuid", int]


async def zookeeper_history(cluster: Cluster, request: Any, answers: Sequence[Any]) -> Any:
    """Merge the responses of all brokers into one `DescribeHistoryResponse`.

    Raises:
        KafkaError: UNKNOWN_TOPIC_OR_PARTITION if no broker knows one; UNSUPPORTED_VERSION for a
            state of the past.
    """
    for answer in answers:
        if answer.error_code:
            raise KafkaError(ErrorCode(answer.error_code), answer.error_message or "")
    merged = merge(answers, request.events_max)
    _check_known(merged, request)
    try:
        moving = await LeadershipAdmin(cluster).reassignments()
    except KafkaError:
        moving = {}  # while no controller is elected
    for partition in merged.partitions:
        found = moving.get((partition.topic, partition.partition))
        if found is not None and partition.state is not None:
            partition.state.adding = list(found.adding)
            partition.state.removing = list(found.removing)
    return merged


def merge(answers: Sequence[Any], events_max: int) -> Any:
    """Return the controller's response with the changes of all of them."""
    base = max(answers, key=lambda answer: (answer.is_controller, -answer.node_id))
    base.partitions = _partitions(base, answers, events_max)
    for broker in base.brokers:
        same = [b for answer in answers for b in answer.brokers if b.broker_id == broker.broker_id]
        broker.elections = _in_order(event for each in same for event in each.elections)
        broker.changes = sorted(
            (change for each in same for change in each.changes), key=lambda change: change.at_ms
        )
    base.notes = sorted(
        (note for answer in answers for note in answer.notes), key=lambda note: note.at_ms
    )
    return base


def _partitions(base: Any, answers: Sequence[Any], events_max: int) -> list[Any]:
    """Return the partitions of the controller, and those of deleted topics without another."""
    found: dict[_Key, Any] = {_key(each): each for each in base.partitions}
    events: dict[_Key, list[Any]] = {}
    for answer in answers:
        for each in answer.partitions:
            events.setdefault(_key(each), []).extend(each.events)
            if _key(each) not in found:
                each.state = None  # the controller does not have it
                found[_key(each)] = each
    for key, each in found.items():
        each.events = _in_order(events[key])[-events_max:]
    existing = {each.topic for each in found.values() if each.state is not None}
    kept = [e for e in found.values() if e.state is not None or e.topic not in existing]
    return sorted(kept, key=lambda each: (each.topic, each.partition))


def _key(partition: Any) -> _Key:
    return partition.topic, partition.topic_id, partition.partition


def _in_order(events: Iterable[Any]) -> list[Any]:
    return sorted(events, key=lambda event: (event.controller_epoch, event.at_ms))


def _check_known(merged: Any, request: Any) -> None:
    known = {(each.topic, each.partition) for each in merged.partitions}
    topics = {topic for topic, _ in known} | {note.topic for note in merged.notes}
    for wanted in request.topics:
        if wanted.name not in topics:
            wrong = f"topic {wanted.name} does not exist"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, wrong)
        for index in wanted.partitions or ():
            if (wanted.name, index) not in known:
                wrong = f"topic {wanted.name} has no partition {index}"
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, wrong)
