"""DescribeHistory: v0, ours. Past leaders, elections and ISRs, by the metadata log and the journal.

Behaviour:
    * Every node, brokers included, responds from its own copy of the log, as of now or of an
      earlier offset or time: leaders and their first offsets, elections and their causes, ISR
      changes, registrations and fencings of brokers. Causes of elections that this node decided
      come from its journal, others are derived from the log.
    * A broker named repeatedly is answered once.
    * In ZooKeeper mode, each broker answers with the present state, and with the changes that it
      decided as the controller (`zookeeper_history`).
    * A time or offset that is not retained, or not committed: OFFSET_OUT_OF_RANGE. A topic that
      never existed: UNKNOWN_TOPIC_OR_PARTITION. At most 1,000 changes of each partition or broker,
      and 20,000 in all.
Versions: v0 only; not advertised.    Not done: -
"""

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.loop_work import LoopBound
from sparkraft.controller.history import History
from sparkraft.controller.journal import ElectionJournal, JournalEntry
from sparkraft.controller.leader_election import Election, Reason
from sparkraft.controller.past_events import BrokerEvent, PartitionEvent
from sparkraft.metadata.image import ClusterImage
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.codec import encode_parts
from sparkraft.protocol.messages import k10002_describe_history as k10002
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import on_cluster, on_each
from sparkraft.server.api.encoded_array import encoded_in_pieces
from sparkraft.server.api.history_values import (
    PARTITIONS,
    broker_of,
    count_partitions,
    is_in,
    offline_replicas,
    reason_of,
    state_of,
)
from sparkraft.server.api.item_errors import check_topic
from sparkraft.server.api.registry import Api, RequestContext
from sparkraft.server.api.zookeeper_history import describe_in_zookeeper_mode
from sparkraft.server.raft.past_reader import HistoryQuery

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkraft.base.ids import Uuid

EVENTS_MAX = 1_000
"""Changes returned of one partition or broker, however many are requested."""

ANSWER_EVENTS_MAX = 20_000
"""Changes in one response: a few megabytes. With many partitions, each gets fewer."""

CHANGES: LoopBound = 50
"""Changes described or encoded at once: below a millisecond."""

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
    if node.raft is None:
        return (
            yield from describe_in_zookeeper_mode(node, request, _events_max(node.image, request))
        )
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
            wanted=lambda topic, index: topic in named and is_in(named[topic], index),
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
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} does not exist")
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
                state=state_of(partition),
                offline_replicas=offline_replicas(history.image, partition),
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


def _event(event: PartitionEvent, reasons: _Reasons) -> k10002.HistoryEvent:
    described = k10002.HistoryEvent(
        offset=event.offset,
        at_ms=event.at_ms,
        controller_epoch=event.epoch,
        topic=event.topic,
        topic_id=event.topic_id,
        partition=event.partition,
        before=state_of(event.before),
        after=state_of(event.after),
        occasion=event.cause.kind.value,
        cause=event.cause.text,
    )
    found = reasons.of(event)
    if found is not None:
        reason, noted = found
        described.election = reason_of(
            reason, from_journal=noted, is_derived=noted or event.derived
        )
        described.cause = reason.cause.text
    return described


# ---- brokers


def _brokers(
    history: History, reasons: _Reasons, broker_ids: "Sequence[int]"
) -> Work[list[k10002.HistoryBroker]]:
    """Each broker once, in the requested order."""
    image = history.image
    found = {}
    for broker_id in broker_ids:
        if broker_id not in found:
            found[broker_id] = broker_of(image, broker_id)
        yield 1
    if found:
        yield from count_partitions(image, found)
    for broker_id, described in found.items():
        described.changes = yield from _changes(history.broker_events(broker_id))
        described.elections = yield from _events(history.elections_of(broker_id), reasons)
    return list(found.values())


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
        asked = election.topic in named and is_in(named[election.topic], election.partition)
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
                election=reason_of(election.reason, from_journal=True, is_derived=True),
            )
        )
    return list(found.values())


API = Api(
    key=ApiKey.DESCRIBE_HISTORY,
    handle=handle,
    authorize=(
        on_cluster(AclOperation.DESCRIBE),
        on_each(AclOperation.DESCRIBE, AclResourceType.TOPIC),
    ),
    controller=True,
)
