"""DescribeHistory: v0, ours. Past leaders, elections and ISRs, by the metadata log and the journal.

Behaviour:
    * Every node, brokers included, responds from its own copy of the log, as of now or of an
      earlier offset or time: leaders and their first offsets, elections and their causes, ISR
      changes, registrations and fencings of brokers. Causes of elections that this node decided
      come from its journal, others are derived from the log.
    * A broker named repeatedly is answered once.
    * A time or offset that is not retained, or not committed: OFFSET_OUT_OF_RANGE. A topic that
      never existed: UNKNOWN_TOPIC_OR_PARTITION. At most 1,000 changes of each partition or broker,
      and 20,000 in all.
Versions: v0 only; not advertised.    Not done: -
"""

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.loop_work import LoopBound
from sparkraft.base.ordering import in_order
from sparkraft.controller.decision_context import why_not_leader
from sparkraft.controller.history import History
from sparkraft.controller.journal import ElectionJournal, JournalEntry
from sparkraft.controller.leader_election import Election, Reason
from sparkraft.controller.past_events import BrokerEvent, PartitionEvent
from sparkraft.metadata.image import ClusterImage
from sparkraft.metadata.partition_state import PartitionState
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.codec import encode_parts
from sparkraft.protocol.messages import k10002_describe_history as k10002
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import on_cluster, on_each
from sparkraft.server.api.encoded_array import encoded_in_pieces
from sparkraft.server.api.item_errors import check_topic
from sparkraft.server.api.registry import Api, RequestContext
from sparkraft.server.raft.past_reader import HistoryQuery

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkraft.base.ids import Uuid

EVENTS_MAX = 1_000
"""Changes returned of one partition or broker, however many are requested."""

ANSWER_EVENTS_MAX = 20_000
"""Changes in one response: a few megabytes. With many partitions, each gets fewer."""

OUT_OF_SYNC_MAX = 100
"""Partitions listed that a broker is not in sync with."""

CHANGES: LoopBound = 50
"""Changes described or encoded at once: below a millisecond."""

PARTITIONS: LoopBound = 250
"""Partitions of the image that are counted for the requested brokers at once."""

UNITS_OF_CHANGE = 3
"""Units of work of a change, which has two states and a reason."""

T = TypeVar("T")
Work: TypeAlias = Generator[Any, Any, T]


def handle(
    node: Any, context: RequestContext, request: k10002.DescribeHistoryRequest
) -> Work[list[bytes | memoryview]]:
    """Describe and encode in slices."""
    version = context.api_version
    answer = yield from describe(node, context, request)
    cls = k10002.DescribeHistoryResponse
    for partition in answer.partitions:
        partition.events = yield from encoded_in_pieces(cls, version, partition.events, CHANGES)
    for described in answer.brokers:
        described.changes = yield from encoded_in_pieces(cls, version, described.changes)
        described.elections = yield from encoded_in_pieces(
            cls, version, described.elections, CHANGES
        )
    partitions: Any = yield from encoded_in_pieces(cls, version, answer.partitions, CHANGES)
    brokers: Any = yield from encoded_in_pieces(cls, version, answer.brokers, CHANGES)
    answer.partitions, answer.brokers = partitions, brokers
    return encode_parts(answer, version)


def describe(
    node: Any, context: RequestContext, request: k10002.DescribeHistoryRequest
) -> Work[k10002.DescribeHistoryResponse]:
    """The response, in steps; see `registry.Steps`."""
    for topic in request.topics:
        check_topic(context, AclOperation.DESCRIBE, topic.name)
        yield 1
    driver = node.controller
    journal = None if driver is None else driver.core.journal
    answer = k10002.DescribeHistoryResponse(
        error_message=None,
        node_id=node.raft.node_id,
        is_controller=driver is not None and driver.is_active,
    )
    if request.journal_only:
        answer.partitions = yield from _journalled(journal, request)
        return answer
    named = {topic.name: topic.partitions for topic in request.topics}
    history: History = yield node.raft.past.read(
        HistoryQuery(
            wanted=lambda topic, index: topic in named and _is_in(named[topic], index),
            brokers=request.broker_ids,
            events_max=_events_max(node.image, request),
            at_offset=request.at_offset,
            at_ms=request.at_ms,
            whole_log=request.whole_log,
        )
    )
    reasons = _Reasons()
    yield from reasons.note(journal)
    answer.start_offset, answer.offset = history.start, history.image.offset
    answer.at_ms = history.at_ms
    for name, partitions in named.items():
        answer.partitions += yield from _partitions(history, reasons, name, partitions)
    answer.brokers = yield from _brokers(history, reasons, request.broker_ids)
    return answer


def _events_max(image: ClusterImage, request: k10002.DescribeHistoryRequest) -> int:
    described = len(request.broker_ids)
    for wanted in request.topics:
        topic = image.topic(wanted.name)
        everything = 1 if topic is None else len(topic.partitions)
        described += everything if wanted.partitions is None else len(wanted.partitions)
    fair = ANSWER_EVENTS_MAX // max(1, described)
    return max(1, min(request.events_max, EVENTS_MAX, fair))


def _is_in(partitions: list[int] | None, index: int) -> bool:
    return partitions is None or index in partitions


def _entries(journal: ElectionJournal | None) -> list[JournalEntry]:
    """All entries as they are now: others may be added between slices."""
    return [] if journal is None else list(journal.entries())


class _Reasons:
    """Causes in this node's journal, by the leader epoch that each election started."""

    def __init__(self) -> None:
        self._noted: dict[tuple[int, Uuid, int, int], Election] = {}

    def note(self, journal: ElectionJournal | None) -> Work[None]:
        """Remember the elections that a journal has."""
        for number, entry in enumerate(_entries(journal)):
            e = entry.election
            self._noted[entry.epoch, e.topic_id, e.partition, e.leader_epoch] = e
            if number % PARTITIONS == PARTITIONS - 1:
                yield PARTITIONS // 4

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
) -> Work[list[k10002.HistoryPartition]]:
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
                events=(yield from _events(events, reasons)),
            )
        )
        yield UNITS_OF_CHANGE
    return found


def _events(
    events: "Sequence[PartitionEvent]", reasons: _Reasons
) -> Work[list[k10002.HistoryEvent]]:
    found: list[k10002.HistoryEvent] = []
    for at in range(0, len(events), CHANGES):
        found += [_event(event, reasons) for event in events[at : at + CHANGES]]
        yield UNITS_OF_CHANGE * CHANGES
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
    described = k10002.HistoryEvent(
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
        described.election = _reason(reason, from_journal=noted, is_derived=noted or event.derived)
        described.cause = reason.cause.text
    return described


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


def _brokers(
    history: History, reasons: _Reasons, broker_ids: "Sequence[int]"
) -> Work[list[k10002.HistoryBroker]]:
    """Each broker once, in the requested order."""
    image = history.image
    found = {}
    for broker_id in broker_ids:
        if broker_id not in found:
            found[broker_id] = _broker(image, broker_id)
        yield 1
    if found:
        yield from _count_partitions(image, found)
    for broker_id, described in found.items():
        described.changes = yield from _changes(history.broker_events(broker_id))
        described.elections = yield from _events(history.elections_of(broker_id), reasons)
    return list(found.values())


def _count_partitions(image: ClusterImage, found: dict[int, k10002.HistoryBroker]) -> Work[None]:
    names = yield from in_order(image.topics_by_name)
    topics = (image.topics_by_id[image.topics_by_name[name]] for name in names)
    partitions = ((topic, one) for topic in topics for one in topic.in_order())
    for number, (topic, (index, partition)) in enumerate(partitions):
        for broker_id in partition.replicas:
            if broker_id in found:
                _count(found[broker_id], topic.name, index, partition)
        if number % PARTITIONS == PARTITIONS - 1:
            yield PARTITIONS // 4


def _changes(events: "Sequence[BrokerEvent]") -> Work[list[k10002.BrokerChange]]:
    found: list[k10002.BrokerChange] = []
    for at in range(0, len(events), CHANGES):
        found += [
            k10002.BrokerChange(
                offset=e.offset, at_ms=e.at_ms, broker_epoch=e.broker_epoch, what=e.what
            )
            for e in events[at : at + CHANGES]
        ]
        yield CHANGES // 2
    return found


def _broker(image: ClusterImage, broker_id: int) -> k10002.HistoryBroker:
    known = image.brokers.get(broker_id)
    described = k10002.HistoryBroker(
        broker_id=broker_id, rack=None, is_registered=known is not None
    )
    if known is not None:
        described.broker_epoch = known.epoch
        described.is_fenced = known.fenced
        described.is_shutting_down = known.in_controlled_shutdown
        described.rack = known.rack
        described.directories = list(known.directories)
        described.cordoned_directories = list(known.cordoned_directories or ())
    return described


def _count(
    described: k10002.HistoryBroker, topic: str, index: int, partition: PartitionState
) -> None:
    broker_id = described.broker_id
    described.replicas += 1
    described.leads += partition.leader == broker_id
    described.preferred += partition.preferred_leader == broker_id
    described.in_sync += broker_id in partition.isr
    described.eligible += broker_id in partition.elr
    if broker_id not in partition.isr and len(described.out_of_sync) < OUT_OF_SYNC_MAX:
        described.out_of_sync.append(k10002.LaggingPartition(topic=topic, partition=index))


# ---- the journal alone


def _journalled(
    journal: ElectionJournal | None, request: k10002.DescribeHistoryRequest
) -> Work[list[k10002.HistoryPartition]]:
    """This node's own elections of the partitions, and those that the brokers won or lost."""
    named = {topic.name: topic.partitions for topic in request.topics}
    brokers = set(request.broker_ids)
    found: dict[tuple[Uuid, int], k10002.HistoryPartition] = {}
    for number, entry in enumerate(_entries(journal)):
        if number % CHANGES == CHANGES - 1:
            yield UNITS_OF_CHANGE * CHANGES
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
