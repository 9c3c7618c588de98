"""The answer of a broker in ZooKeeper mode to DescribeHistory.

The present state is that of the controller's last UpdateMetadata. Changes, of which no log exists,
are those in this broker's journal: it decided them as the controller. A client asks all brokers.
"""

from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.base.placeholder_ids import placeholder_id, wire_id
from sparkraft.protocol.messages import k10002_describe_history as k10002
from sparkraft.server.api.history_values import (
    PARTITIONS,
    Work,
    broker_of,
    count_partitions,
    is_in,
    offline_replicas,
    reason_of,
    state_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkraft.metadata.image import ClusterImage
    from sparkraft.server.broker_services import BrokerServices
    from sparkraft.zookeeper.controller.journal import ControllerJournal
    from sparkraft.zookeeper.controller.partition_journal import PartitionChange
    from sparkraft.zookeeper.controller.values import LeaderAndIsr

Described = dict[tuple[Uuid, int], k10002.HistoryPartition]
"""By topic id and partition."""


def describe_in_zookeeper_mode(
    broker: "BrokerServices", request: k10002.DescribeHistoryRequest, events_max: int
) -> Work[k10002.DescribeHistoryResponse]:
    """Describe the present state and at most `events_max` changes of each partition and broker.

    Raises:
        KafkaError: UNSUPPORTED_VERSION for a state of the past.
    """
    if request.at_offset >= 0 or request.at_ms >= 0:
        wrong = "in ZooKeeper mode no log of the metadata exists: only the present is available"
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, wrong)
    journal = broker.controller_journal
    assert journal is not None, "only in ZooKeeper mode"
    described = yield from _present(broker, request)
    brokers = {each: broker_of(broker.image, each) for each in request.broker_ids}
    if brokers:
        yield from count_partitions(broker.image, brokers)
    yield from _add_changes(broker.image, journal, request, described, brokers)
    for partition in described.values():
        partition.events = partition.events[-events_max:]
    for each in brokers.values():
        each.elections = each.elections[-events_max:]
        each.changes = list(_changes_of(journal, each.broker_id))[-events_max:]
    named = {topic.name for topic in request.topics}
    return k10002.DescribeHistoryResponse(
        error_message=None,
        node_id=broker.node_id,
        is_controller=broker.controlled.controller_id == broker.node_id,
        at_ms=broker.clock.wall_ms(),
        partitions=list(described.values()),
        brokers=list(brokers.values()),
        in_zookeeper_mode=True,
        notes=[
            k10002.HistoryNote(at_ms=e.at_ms, topic=e.topic, kind=e.kind, text=e.text)
            for e in journal.entries
            if e.topic in named
        ],
    )


def _present(broker: "BrokerServices", request: k10002.DescribeHistoryRequest) -> Work[Described]:
    """The partitions of the requested topics that exist, without changes."""
    image = broker.image
    found: Described = {}
    for wanted in request.topics:
        topic = image.topic(wanted.name)
        if topic is None:
            continue
        for index, partition in topic.in_order():
            if is_in(wanted.partitions, index):
                found[topic.id, index] = k10002.HistoryPartition(
                    topic=wanted.name,
                    topic_id=wire_id(topic.id),
                    partition=index,
                    state=state_of(partition),
                    offline_replicas=offline_replicas(image, partition),
                )
                yield 1
    return found


def _add_changes(
    image: "ClusterImage",
    journal: "ControllerJournal",
    request: k10002.DescribeHistoryRequest,
    described: Described,
    brokers: dict[int, k10002.HistoryBroker],
) -> Work[None]:
    """Add the changes of the requested partitions, and the elections of the requested brokers."""
    named = {topic.name: topic.partitions for topic in request.topics}
    for number, change in enumerate(list(journal.partitions.changes)):
        if number % PARTITIONS == PARTITIONS - 1:
            yield PARTITIONS
        if change.topic in named and is_in(named[change.topic], change.partition):
            key = (_id_of(change, image), change.partition)
            if key not in described:  # of a topic that was deleted
                described[key] = k10002.HistoryPartition(
                    topic=change.topic, topic_id=change.topic_id, partition=change.partition
                )
            described[key].events.append(_event(change))
        before = -1 if change.before is None else change.before.leader
        for each in {before, change.after.leader} if before != change.after.leader else ():
            if each in brokers:
                brokers[each].elections.append(_event(change))


def _id_of(change: "PartitionChange", image: "ClusterImage") -> Uuid:
    """The id of the topic in the image; it may have had none when it changed."""
    if change.topic_id != Uuid.ZERO:
        return change.topic_id
    return image.topics_by_name.get(change.topic) or placeholder_id(change.topic)


def _event(change: "PartitionChange") -> k10002.HistoryEvent:
    reason = change.reason
    return k10002.HistoryEvent(
        offset=-1,
        at_ms=change.at_ms,
        controller_epoch=change.controller_epoch,
        topic=change.topic,
        topic_id=change.topic_id,
        partition=change.partition,
        before=None if change.before is None else _state(change, change.before),
        after=_state(change, change.after),
        occasion=change.cause.kind.value,
        cause=change.cause.text,
        election=None if reason is None else reason_of(reason, from_journal=True, is_derived=True),
    )


def _state(change: "PartitionChange", state: "LeaderAndIsr") -> k10002.PartitionState:
    return k10002.PartitionState(
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        replicas=list(change.assignment.replicas),
        isr=list(state.isr),
        adding=list(change.assignment.adding),
        removing=list(change.assignment.removing),
        leader_recovery_state=state.recovery_state,
    )


def _changes_of(journal: "ControllerJournal", broker: int) -> "Iterator[k10002.BrokerChange]":
    for entry in journal.entries:
        if broker in entry.brokers:
            what = entry.text if entry.topic else entry.text.partition(":")[0]
            yield k10002.BrokerChange(offset=-1, at_ms=entry.at_ms, broker_epoch=-1, what=what)
