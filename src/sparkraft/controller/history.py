"""The history of partitions and brokers, derived from the metadata log: leaders, times, causes.

A `History` reads committed batches and keeps the events of the selected partitions, each with its
cause (`causes`).

Not here: journals, which have details that the log has not (`journal`, the brokers' ISR changes),
and reading the log (`sparkraft.server.raft.past_reader`).
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sparkraft.base.ids import Uuid
from sparkraft.controller.causes import BROKER_RECORDS, Mark, Seen, broker_change, explain_by
from sparkraft.controller.decision import RECORDS_PER_BATCH
from sparkraft.controller.leader_election import Cause, CauseKind
from sparkraft.controller.past_events import BrokerEvent, PartitionEvent
from sparkraft.metadata.apply import apply
from sparkraft.metadata.image import ClusterImage, Topic
from sparkraft.metadata.partition_state import NO_LEADER, PartitionState
from sparkraft.protocol.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
)

SPLIT_RECORDS = frozenset({RECORDS_PER_BATCH, 1_000, 10_000})
"""Sizes of batches that the next one may continue: ours, our earlier versions', and Kafka's."""

SPLIT_BATCHES_MAX = 400
"""Number of batches to wait for a cause: enough for 100,000 partitions of one broker."""


class History:
    """See the module docstring.

    Attributes:
        image: the cluster after all batches so far.
        at_ms: append time of the last batch; -1 before the first.
        start: first offset that was read; earlier events are unknown.
    """

    def __init__(
        self,
        image: ClusterImage,
        wanted: Callable[[str, int], bool],
        *,
        events_max: int,
        brokers: Sequence[int] = (),
    ) -> None:
        """Start at `image`.

        Args:
            image: the cluster before the first batch.
            wanted: takes topic and partition; returns whether to keep its events.
            events_max: number of newest events to keep per partition and per broker.
            brokers: brokers whose elections to keep, won or lost, for every partition.
        """
        self.image = image
        self.at_ms = -1
        self.start = image.offset + 1
        self._wanted = wanted
        self._events_max = events_max
        self._partitions: dict[tuple[Uuid, int], deque[PartitionEvent]] = {}
        self._brokers: dict[int, deque[BrokerEvent]] = {}
        self._elections: dict[int, deque[PartitionEvent]] = {
            broker_id: deque(maxlen=events_max) for broker_id in brokers
        }
        self._before_transaction: ClusterImage | None = None
        self._open: list[Seen] = []
        self._open_batches = 0

    def partition_events(self, topic_id: Uuid, partition: int) -> list[PartitionEvent]:
        """The events of a partition, oldest first."""
        return list(self._partitions.get((topic_id, partition), ()))

    def broker_events(self, broker_id: int) -> list[BrokerEvent]:
        """The events of a broker, oldest first."""
        return list(self._brokers.get(broker_id, ()))

    def elections_of(self, broker_id: int) -> list[PartitionEvent]:
        """Elections that a broker of `brokers` won or lost, oldest first."""
        return list(self._elections.get(broker_id, ()))

    def topic_ids(self, name: str) -> list[Uuid]:
        """The topic ids that a name has had, in the order of their first events kept."""
        return list(
            dict.fromkeys(
                topic_id
                for (topic_id, _), events in self._partitions.items()
                if events[-1].topic == name
            )
        )

    def feed(
        self,
        records: Sequence[Any],
        *,
        base_offset: int,
        last_offset: int,
        epoch: int,
        at_ms: int,
        later: Sequence[Any] = (),
    ) -> None:
        """Read a committed batch: its records, offsets (inclusive), epoch and append time.

        `later` are records of the same batch after the end of the requested range. They only help
        to find causes: the record that fences a broker follows those of its partitions.
        """
        for _ in self.feed_steps(
            records,
            base_offset=base_offset,
            last_offset=last_offset,
            epoch=epoch,
            at_ms=at_ms,
            later=later,
        ):
            pass

    def feed_steps(
        self,
        records: Sequence[Any],
        *,
        base_offset: int,
        last_offset: int,
        epoch: int,
        at_ms: int,
        later: Sequence[Any] = (),
    ) -> Iterator[int]:
        """As `feed`; yields 1 after each record, so that the caller may pause."""
        seen: list[Seen] = []
        marks: list[Mark] = []
        self.at_ms = at_ms
        for number, record in enumerate(records):
            before = self.image
            self.image = self._after(record)
            place = (base_offset + number, at_ms)
            marks += self._note_broker(before, record, place)
            for event in self._events(before, record, place, epoch):
                self._keep(event)
                if event.cause is _UNKNOWN:
                    seen.append(Seen(event, before))
            yield 1
        self.image = self.image.at(last_offset, epoch)
        for record in later:
            if isinstance(record, BROKER_RECORDS):
                marks += broker_change(self.image, record)[1]
        self._explain(seen, marks, is_split=len(records) + len(later) in SPLIT_RECORDS)

    def pass_over(self, *, last_offset: int, epoch: int, at_ms: int) -> None:
        """Skip a batch that is known to change nothing."""
        self.at_ms = at_ms
        self.image = self.image.at(last_offset, epoch)

    def _after(self, record: Any) -> ClusterImage:
        """Metadata transactions contain bootstrap records only; none creates a partition."""
        if isinstance(record, BeginTransactionRecord):
            self._before_transaction = self.image
        elif isinstance(record, AbortTransactionRecord) and self._before_transaction is not None:
            return self._before_transaction
        return apply(self.image, record)

    def _keep(self, event: PartitionEvent) -> None:
        if not self._wanted(event.topic, event.partition):
            return
        key = (event.topic_id, event.partition)
        events = self._partitions.get(key)
        if events is None:
            events = self._partitions[key] = deque(maxlen=self._events_max)
        events.append(event)

    # ---- changes of a record

    def _events(
        self, before: ClusterImage, record: Any, place: tuple[int, int], epoch: int
    ) -> list[PartitionEvent]:
        events = []
        for topic, index, cause in _touched(before, self.image, record):
            was = before.partition(topic.id, index)
            now = self.image.partition(topic.id, index)
            if was == now:
                continue
            concerned = self._concerned(was, now)
            if concerned or self._wanted(topic.name, index):
                made = PartitionEvent(*place, epoch, topic.name, topic.id, index, was, now, cause)
                events.append(made)
                for broker_id in concerned:
                    self._elections[broker_id].append(made)
        return events

    def _concerned(self, was: PartitionState | None, now: PartitionState | None) -> list[int]:
        """The watched brokers that were or became the leader."""
        before = NO_LEADER if was is None else was.leader
        after = NO_LEADER if now is None else now.leader
        if before == after or not self._elections:
            return []
        return [broker_id for broker_id in (before, after) if broker_id in self._elections]

    def _note_broker(self, before: ClusterImage, record: Any, place: tuple[int, int]) -> list[Mark]:
        """Keep the events of a broker record; return the marks it leaves."""
        if not isinstance(record, BROKER_RECORDS):
            return []
        broker_id = record.broker_id
        descriptions, marks = broker_change(before, record)
        events = self._brokers.get(broker_id)
        if events is None:
            events = self._brokers[broker_id] = deque(maxlen=self._events_max)
        events += [
            BrokerEvent(*place, broker_id, record.broker_epoch, what) for what in descriptions
        ]
        return marks

    # ---- causes

    def _explain(self, seen: list[Seen], marks: list[Mark], *, is_split: bool) -> None:
        if self._open and marks:
            for earlier in self._open:
                explain_by(earlier, marks)
            self._open = []
        self._open_batches += 1
        if not self._open or self._open_batches > SPLIT_BATCHES_MAX:
            self._open, self._open_batches = [], 0
        for one in seen:
            # If no mark explains the event, a later batch of a large decision may have one.
            if not explain_by(one, marks) and is_split:
                self._open.append(one)


_UNKNOWN = Cause(CauseKind.ISR_CHANGED, "")
"""The cause of an event until it has been found."""


def _touched(
    before: ClusterImage, after: ClusterImage, record: Any
) -> list[tuple[Topic, int, Cause]]:
    """The partitions that a record may change, each with the cause if the record implies it."""
    if isinstance(record, PartitionRecord):
        made = Cause(CauseKind.CREATED, "the partition was created")
        return [(after.topics_by_id[Uuid(record.topic_id)], record.partition_id, made)]
    if isinstance(record, PartitionChangeRecord):
        return [(after.topics_by_id[Uuid(record.topic_id)], record.partition_id, _UNKNOWN)]
    if isinstance(record, RemoveTopicRecord):
        topics = [before.topics_by_id[Uuid(record.topic_id)]]
        cause = Cause(CauseKind.DELETED, "the topic was deleted")
    elif isinstance(record, ClearElrRecord):
        names = [record.topic_name] if record.topic_name else sorted(before.topics_by_name)
        topics = [topic for name in names if (topic := before.topic(name)) is not None]
        cause = Cause(CauseKind.ELR_CLEARED, "min.insync.replicas was changed")
    else:
        return []
    return [(t, index, cause) for t in topics for index in sorted(t.partitions)]
