"""Groups as the records of `__consumer_offsets` describe them, replayed from bytes.

Not here: the invariants (`group_checks`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sparkraft.protocol.framing import decode_record_key, decode_versioned
from sparkraft.protocol.messages import classic_group_records as classic
from sparkraft.protocol.messages import consumer_group_records as wire
from sparkraft.protocol.messages.consumer_protocol import ConsumerProtocolAssignment
from sparkraft.protocol.messages.group_records import GROUP_RECORDS
from sparkraft.records.record import decode_records
from sparkraft.simulation.checks.stored_log import StoredBatch

STABLE = 0
"""State of a member that has its target."""

FIRST_EPOCH = 1
"""Target epoch of a group without a target assignment (KAFKA-20268)."""

Owned = tuple[bytes, int]
"""Topic id and partition."""


class GroupEvent(NamedTuple):
    """A record; `value` is None for a tombstone."""

    offset: int
    key: Any
    value: Any


@dataclass(slots=True)
class MemberView:
    """A member of a consumer group.

    Attributes:
        assigned: partition → the epoch in which it was assigned.
        has_current: whether it has a record of its current assignment.
        began_in_epoch_0: whether it joined without one, in a group in epoch 0.
    """

    topics: frozenset[str] = frozenset()
    regex: str = ""
    instance_id: str | None = None
    is_classic: bool = False
    assignor: str | None = None
    has_subscription: bool = False
    has_current: bool = False
    began_in_epoch_0: bool = False
    epoch: int = 0
    previous_epoch: int = -1
    state: int = STABLE
    assigned: dict[Owned, int] = field(default_factory=dict)
    pending: dict[Owned, int] = field(default_factory=dict)

    @property
    def held(self) -> set[Owned]:
        """Assigned partitions and those that it has yet to revoke."""
        return {*self.assigned, *self.pending}


@dataclass(slots=True)
class GroupView:
    """A group of either type.

    Attributes:
        epoch: the group epoch; None without a consumer group.
        generation: of the classic group; None without one.
        classic_members: member id → its assignment by topic name.
        classic_instances: member id → its instance id.
        earlier_assignments: those of the generation before.
        offsets: (topic, partition) → the last committed offset outside of transactions.
    """

    epoch: int | None = None
    metadata_hash: int = 0
    target_epoch: int = FIRST_EPOCH
    members: dict[str, MemberView] = field(default_factory=dict)
    targets: dict[str, frozenset[Owned]] = field(default_factory=dict)
    regexes: dict[str, frozenset[str]] = field(default_factory=dict)
    generation: int | None = None
    classic_members: dict[str, frozenset[tuple[str, int]]] = field(default_factory=dict)
    classic_instances: dict[str, str] = field(default_factory=dict)
    earlier_assignments: set[frozenset[tuple[str, int]]] = field(default_factory=set)
    offsets: dict[tuple[str, int], int] = field(default_factory=dict)

    def topics_of(self, member: MemberView) -> frozenset[str]:
        """The topics that a member subscribes to."""
        return member.topics | self.regexes.get(member.regex, frozenset())

    def apply(self, event: GroupEvent) -> None:
        """Apply a record of the group."""
        key, value = event.key, event.value
        match key:
            case wire.ConsumerGroupMetadataKey():
                self._apply_epoch(value)
            case wire.ConsumerGroupTargetAssignmentMetadataKey():
                self.target_epoch = value.assignment_epoch if value else FIRST_EPOCH
            case wire.ConsumerGroupTargetAssignmentMemberKey():
                self._apply_target(key.member_id, value)
            case wire.ConsumerGroupMemberMetadataKey():
                self._apply_subscription(key.member_id, value)
            case wire.ConsumerGroupCurrentMemberAssignmentKey():
                self._apply_current(key.member_id, value)
            case wire.ConsumerGroupRegularExpressionKey():
                self._apply_regex(key.regular_expression, value)
            case classic.GroupMetadataKey():
                self._apply_classic(value)
            case classic.OffsetCommitKey():
                self._apply_offset((key.topic, key.partition), value)
            case _:
                pass

    def _apply_epoch(self, value: Any) -> None:
        self.epoch = None if value is None else value.epoch
        self.metadata_hash = 0 if value is None else value.metadata_hash

    def _apply_regex(self, pattern: str, value: Any) -> None:
        self.regexes.pop(pattern, None)
        if value is not None:
            self.regexes[pattern] = frozenset(value.topics)

    def _apply_offset(self, partition: tuple[str, int], value: Any) -> None:
        self.offsets.pop(partition, None)
        if value is not None:
            self.offsets[partition] = value.offset

    def _apply_target(self, member_id: str, value: Any) -> None:
        self.targets.pop(member_id, None)
        if value is not None:
            self.targets[member_id] = frozenset(
                (bytes(topic.topic_id), one)
                for topic in value.topic_partitions
                for one in topic.partitions
            )

    def _apply_subscription(self, member_id: str, value: Any) -> None:
        if value is None:
            self.members.pop(member_id, None)
            return
        member = self.members.setdefault(member_id, MemberView())
        member.has_subscription = True
        member.topics = frozenset(value.subscribed_topic_names)
        member.regex = value.subscribed_topic_regex or ""
        member.instance_id = value.instance_id
        member.assignor = value.server_assignor
        member.is_classic = value.classic_member_metadata is not None

    def _apply_current(self, member_id: str, value: Any) -> None:
        if value is None:
            known = self.members.get(member_id)
            if known is not None:
                known.assigned, known.pending, known.has_current = {}, {}, False
            return
        member = self.members.setdefault(member_id, MemberView())
        member.has_current = True
        member.epoch = value.member_epoch
        member.previous_epoch = value.previous_member_epoch
        member.state = value.state
        member.assigned = _owned(value.assigned_partitions, value.member_epoch)
        member.pending = _owned(value.partitions_pending_revocation, value.member_epoch)

    def _apply_classic(self, value: Any) -> None:
        generation = None if value is None else value.generation
        if generation != self.generation:
            self.earlier_assignments = set(self.classic_members.values())
        self.generation = generation
        self.classic_members, self.classic_instances = {}, {}
        for member in () if value is None else value.members:
            if member.group_instance_id is not None:
                self.classic_instances[member.member_id] = member.group_instance_id
            is_consumer = value.protocol_type == "consumer"
            assignment = assigned_in(member.assignment if is_consumer else b"")
            self.classic_members[member.member_id] = assignment


def assigned_in(assignment: bytes) -> frozenset[tuple[str, int]]:
    """The partitions of a classic member's assignment; none if it is empty."""
    if not assignment:
        return frozenset()
    read = decode_versioned(ConsumerProtocolAssignment, assignment)
    return frozenset(
        (topic.topic, one) for topic in read.assigned_partitions for one in topic.partitions
    )


def _owned(topics: Any, epoch: int) -> dict[Owned, int]:
    found: dict[Owned, int] = {}
    for topic in topics:
        epochs = topic.assignment_epochs or [epoch] * len(topic.partitions)
        for partition, since in zip(topic.partitions, epochs, strict=True):
            found[bytes(topic.topic_id), partition] = since
    return found


def group_events(batch: StoredBatch) -> Iterator[tuple[str, GroupEvent]]:
    """Yield (group id, record) for each record of a data batch outside of transactions."""
    if batch.header.is_control or batch.header.is_transactional:
        return
    for record in decode_records(batch.data):
        found = decode_record_key(GROUP_RECORDS, record.key or b"")
        if found is None:
            continue
        key, value_class = found
        value = None if record.value is None else decode_versioned(value_class, record.value)
        yield _group_id(key), GroupEvent(record.offset, key, value)


def _group_id(key: Any) -> str:
    named = isinstance(key, classic.OffsetCommitKey | classic.GroupMetadataKey)
    found: str = key.group if named else key.group_id
    return found
