"""The committed history of the cluster, which explanations are compared with.

Replays every committed batch of the metadata log once and keeps everything: the image after each
record, each partition change with its possible causes, and the changes of each broker. It uses
neither journals nor the product's own view of its history.

The records of one decision share a batch. If a broker joins or leaves in a batch (a `Mark`), it is
the cause of changes in that batch that remove or restore the broker. All other ISR changes come
from the leader; `isr_oracle` records its requests.
"""

from bisect import bisect_right
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from sparkraft.controller.leader_election import CauseKind
from sparkraft.metadata.apply import apply
from sparkraft.metadata.image import EMPTY_IMAGE, ClusterImage
from sparkraft.metadata.partition_state import NO_LEADER, PartitionState
from sparkraft.protocol.framing import decode_metadata_record
from sparkraft.protocol.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from sparkraft.records.record import decode_records
from sparkraft.simulation.checks.election_reasons import Fact

if TYPE_CHECKING:
    from sparkraft.base.ids import Uuid

Where = tuple["Uuid", int]
"""Topic id and partition index."""


class CommittedBatch(NamedTuple):
    """A batch's offsets, leader epoch, and time by its controller's clock."""

    base_offset: int
    last_offset: int
    epoch: int
    at_ms: int


class Mark(NamedTuple):
    """A broker that joined or left within a batch."""

    broker_id: int
    occasion: CauseKind


class Change(NamedTuple):
    """A record that changed a partition.

    Attributes:
        offset: offset of the record.
        batch: the batch with the record.
        topic: topic name.
        where: topic id and partition index.
        before: None if the record created the partition.
        after: None if the record deleted it.
        image: the image before the record.
        marks: all brokers that joined or left in the batch.
    """

    offset: int
    batch: CommittedBatch
    topic: str
    where: Where
    before: PartitionState | None
    after: PartitionState | None
    image: ClusterImage
    marks: tuple[Mark, ...]

    @property
    def leaders(self) -> tuple[int, int]:
        """The leaders before and after; -1 for no leader."""
        return tuple(  # type: ignore[return-value]
            NO_LEADER if each is None else each.leader for each in (self.before, self.after)
        )

    @property
    def suspects(self) -> list[Mark]:
        """Marks of brokers that this change removed from the partition or restored."""
        before, after = self.before, self.after
        if before is None or after is None:
            return []
        lost = (set(before.isr) - {*after.isr}) | (set(before.elr) - {*after.elr, *after.isr})
        if before.leader != after.leader:
            lost.add(before.leader)
        removed = [
            mark
            for mark in self.marks
            if mark.occasion is not CauseKind.RETURNED and mark.broker_id in lost - {after.leader}
        ]
        if removed or before.leader != NO_LEADER or after.leader == NO_LEADER:
            return removed
        return [mark for mark in self.marks if mark.occasion is CauseKind.RETURNED]


class BrokerNote(NamedTuple):
    """One change of a broker's registration, in the words of `explain broker`."""

    offset: int
    at_ms: int
    broker_epoch: int
    what: str


class MetadataOracle:
    """See the module docstring.

    Attributes:
        batches: all committed batches in order, including control batches.
        facts: the states of each partition, with the offset that established each.
        changes: the same changes with their context.
        notes: registration changes of each broker.
        fencings: (epoch, broker) → base offsets of batches that fence the broker.
    """

    def __init__(self) -> None:
        self.batches: list[CommittedBatch] = []
        self.facts: dict[Where, list[Fact]] = {}
        self.changes: dict[Where, list[Change]] = {}
        self.notes: dict[int, list[BrokerNote]] = {}
        self.fencings: dict[tuple[int, int], list[int]] = {}
        self._offsets: list[int] = []
        self._images: list[ClusterImage] = []
        self._image = EMPTY_IMAGE
        self._before_transaction = EMPTY_IMAGE

    def on_committed(self, header: Any, view: memoryview) -> None:
        """Replay a committed batch. Called once per batch, in order."""
        batch = CommittedBatch(
            header.base_offset,
            header.last_offset,
            header.partition_leader_epoch,
            header.max_timestamp,
        )
        self.batches.append(batch)
        if header.is_control:
            return
        records = [
            (record.offset, decode_metadata_record(record.value or b"")[0])
            for record in decode_records(view)
        ]
        marks = tuple(self._marks(message for _, message in records))
        for mark in marks:
            if mark.occasion is CauseKind.FENCED:
                known = self.fencings.setdefault((batch.epoch, mark.broker_id), [])
                known.append(batch.base_offset)
        for offset, message in records:
            self._replay(offset, message, batch, marks)

    # ---- lookups

    def image_at(self, offset: int) -> ClusterImage:
        """Return the image after the record at `offset`."""
        place = bisect_right(self._offsets, offset)
        return self._images[place - 1] if place else EMPTY_IMAGE

    def batch_at(self, offset: int) -> CommittedBatch | None:
        """Return the batch with `offset`; None if it is not committed."""
        place = bisect_right(self.batches, offset, key=lambda batch: batch.base_offset)
        found = self.batches[place - 1] if place else None
        return found if found is not None and offset <= found.last_offset else None

    def elections_of(self, broker_id: int) -> list[Change]:
        """Return the leader changes from or to a broker, in log order."""
        found = [
            change
            for changes in self.changes.values()
            for change in changes
            if change.leaders[0] != change.leaders[1] and broker_id in change.leaders
        ]
        return sorted(found, key=lambda change: (change.offset, change.where[1]))

    # ---- replay

    def _replay(
        self, offset: int, message: Any, batch: CommittedBatch, marks: tuple[Mark, ...]
    ) -> None:
        before = self._image
        if isinstance(message, BeginTransactionRecord):
            self._before_transaction = before
        if isinstance(message, AbortTransactionRecord):
            self._image = self._before_transaction
        else:
            self._image = apply(before, message)
        if self._image is before:
            return
        self._offsets.append(offset)
        self._images.append(self._image)
        if isinstance(
            message, RegisterBrokerRecord | UnregisterBrokerRecord | BrokerRegistrationChangeRecord
        ):
            self.notes.setdefault(message.broker_id, []).extend(
                BrokerNote(offset, batch.at_ms, message.broker_epoch, what)
                for what in _words(before, message)
            )
        if before.topics_by_id is not self._image.topics_by_id:
            self._note_changes(offset, before, batch, marks)

    def _note_changes(
        self, offset: int, before: ClusterImage, batch: CommittedBatch, marks: tuple[Mark, ...]
    ) -> None:
        after = self._image
        for topic_id in sorted({*before.topics_by_id, *after.topics_by_id}):
            old = before.topics_by_id.get(topic_id)
            new = after.topics_by_id.get(topic_id)
            if old is new:
                continue
            topic = new or old
            assert topic is not None
            indexes = {*(old.partitions if old else ()), *(new.partitions if new else ())}
            for index in sorted(indexes):
                where = (topic_id, index)
                was, now = before.partition(*where), after.partition(*where)
                if was == now:
                    continue
                made = Change(offset, batch, topic.name, where, was, now, before, marks)
                self.changes.setdefault(where, []).append(made)
                self.facts.setdefault(where, []).append(Fact(offset, now))

    def _marks(self, messages: Iterable[Any]) -> Iterable[Mark]:
        brokers = self._image.brokers
        for message in messages:
            match message:
                case RegisterBrokerRecord():
                    known = brokers.get(message.broker_id)
                    if known is None or known.incarnation_id != message.incarnation_id:
                        yield Mark(message.broker_id, CauseKind.RESTARTED)
                case UnregisterBrokerRecord():
                    yield Mark(message.broker_id, CauseKind.UNREGISTERED)
                case BrokerRegistrationChangeRecord():
                    for holds, occasion in (
                        (message.fenced > 0, CauseKind.FENCED),
                        (message.fenced < 0, CauseKind.RETURNED),
                        (message.in_controlled_shutdown, CauseKind.SHUTDOWN),
                        (message.log_dirs, CauseKind.DIRECTORY_OFFLINE),
                    ):
                        if holds:
                            yield Mark(message.broker_id, occasion)
                case _:
                    pass


def _words(before: ClusterImage, message: Any) -> Iterable[str]:
    known = before.brokers.get(message.broker_id)
    match message:
        case UnregisterBrokerRecord():
            yield "unregistered"
        case RegisterBrokerRecord() if known is None:
            yield "registered"
        case RegisterBrokerRecord():
            same = known is not None and known.incarnation_id == message.incarnation_id
            yield "registration amended" if same else "registered again"
        case _:
            yield from _words_of_change(before, message)


def _words_of_change(before: ClusterImage, message: Any) -> Iterable[str]:
    if message.fenced:
        yield "fenced" if message.fenced > 0 else "unfenced"
    if message.in_controlled_shutdown:
        yield "began its controlled shutdown"
    if message.log_dirs:
        left = before.brokers[message.broker_id].directories
        names = ", ".join(str(each) for each in left if each not in message.log_dirs)
        yield f"log directory {names} went offline"
    if message.cordoned_log_dirs is not None:
        yield f"{len(message.cordoned_log_dirs)} log directories cordoned"
