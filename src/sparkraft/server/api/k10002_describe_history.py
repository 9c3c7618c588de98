"""DescribeHistory: v0, ours. Past leaders, elections and ISRs, by the metadata log and the journal.

Behaviour:
    * Every node, brokers included, responds from its own copy of the log, as of now or of an
      earlier offset or time: leaders and their first offsets, elections and their causes, ISR
      changes, registrations and fencings of brokers. Causes of elections that this node decided
      come from its journal, others are derived from the log.
    * A time or offset that is not retained, or not committed: OFFSET_OUT_OF_RANGE. A topic that
      never existed: UNKNOWN_TOPIC_OR_PARTITION. At most 1,000 changes of each partition or broker,
      and 20,000 in all.
Versions: v0 only; not advertised.    Not done: -
"""

from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.controller.decision_context import why_not_leader
from sparkraft.controller.history import History
from sparkraft.controller.journal import ElectionJournal, JournalEntry
from sparkraft.controller.leader_election import Reason
from sparkraft.controller.past_events import PartitionEvent
from sparkraft.metadata.image import ClusterImage
from sparkraft.metadata.partition_state import PartitionState
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages import k10002_describe_history as k10002
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import on_cluster, on_each
from sparkraft.server.api.item_errors import check_topic
from sparkraft.server.api.registry import Api, RequestContext
from sparkraft.server.raft.past_reader import HistoryQuery

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkraft.base.ids import Uuid

EVENTS_MAX = 1_000
"""Changes returned of one partition or broker, however many are requested."""

ANSWER_EVENTS_MAX = 20_000
"""Changes in one response: a few megabytes. With many partitions, each gets fewer."""

OUT_OF_SYNC_MAX = 100
"""Partitions listed that a broker is not in sync with."""


async def handle(
    node: Any, context: RequestContext, request: k10002.DescribeHistoryRequest
) -> k10002.DescribeHistoryResponse:
    for topic in request.topics:
        check_topic(context, AclOperation.DESCRIBE, topic.name)
    driver = node.controller
    journal = None if driver is None else driver.core.journal
    answer = k10002.DescribeHistoryResponse(
        error_message=None,
        node_id=node.raft.node_id,
        is_controller=driver is not None and driver.is_active,
    )
    if request.journal_only:
        answer.partitions = _journalled(journal, request)
        return answer
    named = {topic.name: topic.partitions for topic in request.topics}
    history = await node.raft.past.read(
        HistoryQuery(
            wanted=lambda topic, index: topic in named and _is_in(named[topic], index),
            brokers=request.broker_ids,
            events_max=_events_max(node.image, request),
            at_offset=request.at_offset,
            at_ms=request.at_ms,
            whole_log=request.whole_log,
        )
    )
    reasons = _Reasons(journal)
    answer.start_offset, answer.offset = history.start, history.image.offset
    answer.at_ms = history.at_ms
    for name, partitions in named.items():
        answer.partitions += _partitions(history, reasons, name, partitions)
    answer.brokers = [_broker(history, reasons, broker_id) for broker_id in request.broker_ids]
    return answer


def _events_max(image: ClusterImage, request: k10002.DescribeHistoryRequest) -> int:
    told = len(request.broker_ids)
    for wanted in request.topics:
        topic = image.topic(wanted.name)
        everything = 1 if topic is None else len(topic.partitions)
        told += everything if wanted.partitions is None else len(wanted.partitions)
    fair = ANSWER_EVENTS_MAX // max(1, told)
    return max(1, min(request.events_max, EVENTS_MAX, fair))


def _is_in(partitions: list[int] | None, index: int) -> bool:
    return partitions is None or index in partitions


class _Reasons:
    """Causes in this node's journal, by the leader epoch that each election started."""

    def __init__(self, journal: ElectionJournal | None) -> None:
        self._noted = {
            (
                e.epoch,
                e.election.topic_id,
                e.election.partition,
                e.election.leader_epoch,
            ): e.election
            for e in (() if journal is None else journal.entries())
        }

    def of(self, event: PartitionEvent) -> tuple[Reason, bool] | None:
        """The event's cause, and whether it is from the journal."""
        if event.election is None or event.after is None:
            return None
        noted = self._noted.get(
            (event.epoch, event.topic_id, event.partition, event.after.leader_epoch)
        )
        if noted is not None and noted.leader == event.after.leader:
            return noted.reason, True
        return event.election, False


# ---- partitions


def _partitions(
    history: History, reasons: _Reasons, name: str, wanted: list[int] | None
) -> list[k10002.HistoryPartition]:
    topic = history.image.topic(name)
    topic_id = topic.id if topic is not None else next(reversed(history.topic_ids(name)), None)
    if topic_id is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
    indexes = wanted if wanted is not None else sorted(topic.partitions) if topic else []
    found = []
    for index in indexes:
        partition = history.image.partition(topic_id, index)
        events = history.partition_events(topic_id, index)
        if partition is None and not events:
            wrong = f"topic {name} has no partition {index}"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, wrong)
        found.append(
            k10002.HistoryPartition(
                topic=name,
                topic_id=topic_id,
                partition=index,
                state=_state(partition),
                offline_replicas=_offline(history.image, partition),
                events=[_event(event, reasons) for event in events],
            )
        )
    return found


def _offline(image: ClusterImage, partition: PartitionState | None) -> list[int]:
    if partition is None:
        return []
    why_not = why_not_leader(image, partition, {})
    return [replica for replica in partition.replicas if why_not(replica) is not None]


def _state(partition: PartitionState | None) -> k10002.PartitionState | None:
    if partition is None:
        return None
    return k10002.PartitionState(
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        elr=list(partition.elr),
        last_known_elr=list(partition.last_known_elr),
        adding=list(partition.adding_replicas),
        removing=list(partition.removing_replicas),
        leader_recovery_state=partition.leader_recovery_state,
        directories=list(partition.directories),
    )


def _event(event: PartitionEvent, reasons: _Reasons) -> k10002.HistoryEvent:
    told = k10002.HistoryEvent(
        offset=event.offset,
        at_ms=event.at_ms,
        controller_epoch=event.epoch,
        topic=event.topic,
        topic_id=event.topic_id,
        partition=event.partition,
        before=_state(event.before),
        after=_state(event.after),
        occasion=event.cause.kind.value,
        cause=event.cause.text,
    )
    found = reasons.of(event)
    if found is not None:
        reason, noted = found
        told.election = _reason(reason, from_journal=noted, is_derived=noted or event.derived)
        told.cause = reason.cause.text
    return told


def _reason(reason: Reason, *, from_journal: bool, is_derived: bool) -> k10002.ElectionReason:
    return k10002.ElectionReason(
        kind=reason.name,
        chosen_by=reason.chosen_by.value,
        candidates=list(reason.candidates),
        isr=list(reason.isr),
        elr=list(reason.elr),
        live=list(reason.live),
        ruled_out=[k10002.RuledOut(replica=r, why=why) for r, why in reason.ruled_out],
        from_journal=from_journal,
        is_derived=is_derived,
    )


# ---- brokers


def _broker(history: History, reasons: _Reasons, broker_id: int) -> k10002.HistoryBroker:
    image = history.image
    known = image.brokers.get(broker_id)
    told = k10002.HistoryBroker(broker_id=broker_id, rack=None, is_registered=known is not None)
    if known is not None:
        told.broker_epoch = known.epoch
        told.is_fenced = known.fenced
        told.is_shutting_down = known.in_controlled_shutdown
        told.rack = known.rack
        told.directories = list(known.directories)
        told.cordoned_directories = list(known.cordoned_directories or ())
    for topic in image.topics_in_order():
        for index, partition in topic.in_order():
            if broker_id in partition.replicas:
                _count(told, topic.name, index, partition)
    told.changes = [
        k10002.BrokerChange(
            offset=e.offset, at_ms=e.at_ms, broker_epoch=e.broker_epoch, what=e.what
        )
        for e in history.broker_events(broker_id)
    ]
    told.elections = [_event(event, reasons) for event in history.elections_of(broker_id)]
    return told


def _count(told: k10002.HistoryBroker, topic: str, index: int, partition: PartitionState) -> None:
    broker_id = told.broker_id
    told.replicas += 1
    told.leads += partition.leader == broker_id
    told.preferred += partition.preferred_leader == broker_id
    told.in_sync += broker_id in partition.isr
    told.eligible += broker_id in partition.elr
    if broker_id not in partition.isr and len(told.out_of_sync) < OUT_OF_SYNC_MAX:
        told.out_of_sync.append(k10002.LaggingPartition(topic=topic, partition=index))


# ---- the journal alone


def _journalled(
    journal: ElectionJournal | None, request: k10002.DescribeHistoryRequest
) -> list[k10002.HistoryPartition]:
    """This node's own elections of the partitions, and those that the brokers won or lost."""
    named = {topic.name: topic.partitions for topic in request.topics}
    brokers = set(request.broker_ids)
    found: dict[tuple[Uuid, int], k10002.HistoryPartition] = {}
    entries: Iterable[JournalEntry] = () if journal is None else journal.entries()
    for entry in entries:
        election = entry.election
        asked = election.topic in named and _is_in(named[election.topic], election.partition)
        if not asked and not brokers & {election.leader, election.previous}:
            continue
        key = (election.topic_id, election.partition)
        if key not in found:
            found[key] = k10002.HistoryPartition(
                topic=election.topic, topic_id=election.topic_id, partition=election.partition
            )
        found[key].events.append(
            k10002.HistoryEvent(
                offset=entry.offset,
                at_ms=entry.wall_ms,
                controller_epoch=entry.epoch,
                topic=election.topic,
                topic_id=election.topic_id,
                partition=election.partition,
                before=k10002.PartitionState(leader=election.previous),
                after=k10002.PartitionState(
                    leader=election.leader, leader_epoch=election.leader_epoch
                ),
                occasion=election.reason.cause.kind.value,
                cause=election.reason.cause.text,
                election=_reason(election.reason, from_journal=True, is_derived=True),
            )
        )
    return list(found.values())


API = Api(
    key=ApiKey.DESCRIBE_HISTORY,
    handle=handle,
    zookeeper=False,
    authorize=(
        on_cluster(AclOperation.DESCRIBE),
        on_each(AclOperation.DESCRIBE, AclResourceType.TOPIC),
    ),
    controller=True,
)
