"""Histories of partitions and brokers as of earlier moments, cut from those of later moments.

For a history a node replays up to 300,000 offsets of its log. The history as of a later moment has
the same events, so one is kept for a window of moments: the events after the wanted one are left
out, and the state is that of the timeline. A step to a neighboring moment asks no node.

A history is kept for one cluster and one reading of its log (`Timeline.generation`), and only if
all nodes responded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from sparkraft.base.errors import KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.protocol.messages.k10002_describe_history import (
    DescribeHistoryRequest,
    DescribeHistoryResponse,
    HistoryBroker,
    HistoryPartition,
    HistoryTopic,
    LaggingPartition,
    PartitionState,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from sparkraft.client.history import HistoryReport
    from sparkraft.client.past.state import PastBroker, PastPartition, PastState
    from sparkraft.console.timeline import Timeline

    Fetch = Callable[[DescribeHistoryRequest], Awaitable[tuple[HistoryReport | None, str]]]

WINDOW_OFFSETS = 100_000
"""A history is requested as of a moment this much later, or as of the newest one."""

EVENTS_MAX = 1_000
"""Requested of each partition or broker: the most that a node returns."""

REPORTS_MAX = 32
"""Histories that are kept; one has up to 1,000 events, less than a megabyte."""

_MIGRATING, _UNASSIGNED, _LOST = (number.to_bytes(16, "big") for number in range(3))
"""Directory ids with a meaning (KIP-858), as in `metadata.image`."""

OUT_OF_SYNC_MAX = 100
"""Partitions listed that a broker is not in sync with, as a node lists them."""


class _Key(NamedTuple):
    """The log and the subject of a history."""

    cluster_id: str
    generation: int
    topic_id: bytes
    """Empty: the subject is a broker."""
    number: int


@dataclass(frozen=True, slots=True)
class _Moment:
    """A partition or a broker as of an offset."""

    key: _Key
    at_ms: int
    subject: HistoryPartition | HistoryBroker


class PastHistories:
    """See the module docstring; `fetch` requests a history of the nodes."""

    def __init__(self, timeline: Timeline, fetch: Fetch) -> None:
        self._timeline = timeline
        self._fetch = fetch
        self._kept: dict[_Key, list[HistoryReport]] = {}

    async def partition(
        self, topic: str, partition: int, at_offset: int, *, shown: int
    ) -> HistoryReport | None:
        """The history of a partition up to an offset, at least its last `shown` events.

        Returns:
            None if the timeline does not have the offset, the partition does not exist there, or
            no such history is available.
        """
        request = DescribeHistoryRequest(
            topics=[HistoryTopic(name=topic, partitions=[partition])], events_max=EVENTS_MAX
        )
        return await self._history(
            request, at_offset, shown, lambda state: self._partition_at(state, topic, partition)
        )

    async def broker(self, broker_id: int, at_offset: int, *, shown: int) -> HistoryReport | None:
        """The same of a broker that is registered at the offset."""
        request = DescribeHistoryRequest(broker_ids=[broker_id], events_max=EVENTS_MAX)
        return await self._history(
            request, at_offset, shown, lambda state: self._broker_at(state, broker_id)
        )

    async def _history(
        self,
        request: DescribeHistoryRequest,
        at_offset: int,
        shown: int,
        find: Callable[[PastState], _Moment | None],
    ) -> HistoryReport | None:
        try:
            moment = await self._timeline.as_of(at_offset, find)
        except KafkaError:
            return None
        if moment is None:
            return None
        for kept in self._kept.get(moment.key, ()):
            if (found := _cut(kept, moment, at_offset, shown)) is not None:
                return found
        # Of a topic that was created again, only the histories before that have the older one.
        for end in (min(at_offset + WINDOW_OFFSETS, self._timeline.next_offset - 1), at_offset):
            report = await self._as_of(request, end)
            if report is None:
                return None
            if (found := _cut(report, moment, at_offset, shown)) is not None:
                if not report.silent:
                    self._keep(moment.key, report)
                return found
        return None

    async def _as_of(self, request: DescribeHistoryRequest, end: int) -> HistoryReport | None:
        request.at_offset = end
        try:
            report, _ = await self._fetch(request)
        except KafkaError:
            return None  # A node lags, or a topic was deleted: ask as of the offset.
        return report

    def _keep(self, key: _Key, report: HistoryReport) -> None:
        self._kept[key] = [*self._kept.pop(key, ()), report]
        while sum(map(len, self._kept.values())) > REPORTS_MAX:
            longest_unused = next(iter(self._kept))
            del self._kept[longest_unused][0]
            if not self._kept[longest_unused]:
                del self._kept[longest_unused]

    # ---- in a thread

    def _key(self, topic_id: bytes, number: int) -> _Key:
        return _Key(self._timeline.cluster_id, self._timeline.generation, topic_id, number)

    def _partition_at(self, state: PastState, topic: str, index: int) -> _Moment | None:
        known = state.topic(topic)
        partition = None if known is None else known.partitions.get(index)
        if known is None or partition is None:
            return None
        subject = HistoryPartition(
            topic=topic,
            topic_id=Uuid(known.id),
            partition=index,
            state=_state_of(partition),
            offline_replicas=[
                replica
                for replica, directory in zip(
                    partition.replicas, partition.directories, strict=True
                )
                if not _is_live(state.brokers.get(replica), directory)
            ],
        )
        return _Moment(self._key(known.id, index), state.at_ms, subject)

    def _broker_at(self, state: PastState, broker_id: int) -> _Moment | None:
        known = state.brokers.get(broker_id)
        if known is None:
            return None
        subject = HistoryBroker(
            broker_id=broker_id,
            is_registered=True,
            broker_epoch=known.epoch,
            is_fenced=known.is_fenced,
            is_shutting_down=known.is_shutting_down,
            rack=known.rack,
            directories=list(map(Uuid, known.directories)),
            cordoned_directories=list(map(Uuid, known.cordoned or ())),
        )
        for topic in state.topics_in_order():
            for index in sorted(topic.partitions):
                _count(subject, topic.name, index, topic.partitions[index])
        return _Moment(self._key(b"", broker_id), state.at_ms, subject)


def _is_live(broker: PastBroker | None, directory: bytes) -> bool:
    """Whether a replica could lead: see `controller.decision_context.why_not_leader`."""
    if broker is None or broker.is_fenced or broker.is_shutting_down:
        return False
    if directory in {_MIGRATING, _UNASSIGNED}:
        return True
    return directory != _LOST and (not broker.directories or directory in broker.directories)


def _state_of(partition: PastPartition) -> PartitionState:
    return PartitionState(
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        elr=list(partition.elr),
        last_known_elr=list(partition.last_known_elr),
        adding=list(partition.adding),
        removing=list(partition.removing),
        leader_recovery_state=partition.recovery,
        directories=list(map(Uuid, partition.directories)),
    )


def _count(subject: HistoryBroker, topic: str, index: int, partition: PastPartition) -> None:
    broker_id = subject.broker_id
    if broker_id not in partition.replicas:
        return
    subject.replicas += 1
    subject.leads += partition.leader == broker_id
    subject.preferred += partition.replicas[0] == broker_id
    subject.in_sync += broker_id in partition.isr
    subject.eligible += broker_id in partition.elr
    if broker_id not in partition.isr and len(subject.out_of_sync) < OUT_OF_SYNC_MAX:
        subject.out_of_sync.append(LaggingPartition(topic=topic, partition=index))


# ---- cutting


def _cut(
    report: HistoryReport, moment: _Moment, at_offset: int, shown: int
) -> HistoryReport | None:
    """The report as of an offset; None if it does not have the last `shown` events before it."""
    whole = report.history
    if not whole.start_offset - 1 <= at_offset <= whole.offset:
        return None
    subject: Any = moment.subject
    lists: list[tuple[str, Sequence[Any]]]
    if isinstance(subject, HistoryPartition):
        (known,) = whole.partitions
        if known.topic_id != subject.topic_id:
            return None  # The topic was created again in between.
        lists = [("events", known.events)]
    else:
        (known,) = whole.brokers
        lists = [("changes", known.changes), ("elections", known.elections)]
    for name, events in lists:
        earlier = [each for each in events if each.offset <= at_offset]
        if len(events) >= EVENTS_MAX and len(earlier) < shown:
            return None
        setattr(subject, name, earlier)
    is_partition = isinstance(subject, HistoryPartition)
    return replace(
        report,
        history=DescribeHistoryResponse(
            error_message=None,
            node_id=whole.node_id,
            is_controller=whole.is_controller,
            start_offset=whole.start_offset,
            offset=at_offset,
            at_ms=moment.at_ms,
            partitions=[subject] if is_partition else [],
            brokers=[] if is_partition else [subject],
        ),
    )
