"""One classic group: members, generation, leader, protocol; the only code that assigns its state.

Invariants:
    * `leader_id` is a member, or None if there is none.
    * A static instance id belongs to at most one member.
    * `generation_id` never decreases.

Not here: timers and request handling (`classic.py`), offsets (`offsets.py`).
"""

import struct
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from sparkraft.base.errors import ErrorCode, InvariantBroken, KafkaError
from sparkraft.base.ids import Millis
from sparkraft.base.loop_work import LoopBound
from sparkraft.coordinator.group import election
from sparkraft.coordinator.group.election import Choice
from sparkraft.coordinator.group.group import EXPIRE_FROM_COMMIT, MEMBER_EPOCH_IN_COMMIT_FROM
from sparkraft.coordinator.group.member import Member, Protocols
from sparkraft.coordinator.group.records import GroupRecord
from sparkraft.coordinator.group.states import NEXT_STATES, GroupState
from sparkraft.coordinator.runtime import Instant, ReplyTo
from sparkraft.coordinator.steps import Steps, fast, in_pieces, pieces
from sparkraft.protocol.messages.classic_group_records import GroupMetadataKey
from sparkraft.protocol.messages.k15_describe_groups import DescribedGroup, DescribedGroupMember
from sparkraft.protocol.messages.k16_list_groups import ListedGroup

CONSUMER_PROTOCOL_TYPE = "consumer"
"""The protocol type of consumers, whose subscriptions the coordinator can parse."""


TOPICS_AT_ONCE: LoopBound = 1_024
"""Names of a subscription that are read at once: a member may subscribe to any number."""


class InitialDelay(NamedTuple):
    """The initial rebalance delay: the current wait, and how much longer it may be extended."""

    delay_ms: int
    remaining_ms: int


class ClassicGroup:
    """A group of the classic protocol, with or without members.

    Attributes:
        state: assigned by `transition_to` alone. Invariant: follows `NEXT_STATES`.
        previous_state: Use: an initial rebalance, entered from EMPTY, waits for more members.
        state_since_ms: wall clock; None if unknown. Use: offset retention of an empty group.
        protocol_type: None for a simple group, which never had members.
        protocol_name: the assignor. Invariant: every member supports it, or it is None.
        leader_id: Invariant: a member, or None if there are no members.
        rebalancing_since_ms: start of the latest rebalance, wall clock. Use: its duration.
        subscribed_topics: of all members; None if unknown. Use: which offsets must not expire.
        new_member_added: Use: whether to extend the initial delay. Valid while it is set.
        initial_delay: Invariant: None except in PREPARING_REBALANCE entered from EMPTY.
        pending_join: dynamic members that were given an id and have not joined with it yet.
            Invariant: disjoint from the members.
        pending_sync: members that have not sent SyncGroup in this generation.
    """

    def __init__(self, group_id: str, *, now_ms: Millis | None) -> None:
        """Make an empty group at wall-clock time `now_ms`; None if unknown."""
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.previous_state = GroupState.DEAD
        self.state_since_ms: Millis | None = now_ms
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.rebalancing_since_ms: Millis | None = None
        self.subscribed_topics: frozenset[str] | None = None
        self.new_member_added = False
        self.initial_delay: InitialDelay | None = None
        self.pending_join: dict[str, None] = {}
        self.pending_sync: dict[str, None] = {}
        self._members: dict[str, Member] = {}
        self._static_members: dict[str, str] = {}
        self._supporters: dict[str, int] = {}
        self._awaiting_join = 0

    # State

    def transition_to(self, state: GroupState, now_ms: Millis) -> None:
        """Enter `state`, which `NEXT_STATES` must allow."""
        if state not in NEXT_STATES[self.state]:
            raise InvariantBroken(f"group {self.group_id}: {self.state.name} to {state.name}")
        self.previous_state = self.state
        self.state = state
        self.state_since_ms = now_ms

    def is_in(self, *states: GroupState) -> bool:
        return self.state in states

    @property
    def can_rebalance(self) -> bool:
        """Whether a rebalance may start in the current state."""
        return GroupState.PREPARING_REBALANCE in NEXT_STATES[self.state]

    # Members

    def __len__(self) -> int:
        """Number of members, without pending ones."""
        return len(self._members)

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._members

    def member(self, member_id: str) -> Member:
        """The member with that id, which must exist."""
        return self._members[member_id]

    def members(self) -> Iterator[Member]:
        """Longest-standing first."""
        return iter(self._members.values())

    def assignments(self) -> Steps[dict[str, bytes]]:
        """The assignment of each member."""
        items = yield from in_pieces(
            self._members.values(), lambda one: (one.member_id, one.assignment)
        )
        return dict(items)

    def static_member_id(self, instance_id: str | None) -> str | None:
        """The member that holds `instance_id` now."""
        return None if instance_id is None else self._static_members.get(instance_id)

    @property
    def awaiting_join_count(self) -> int:
        """Number of members with a parked JoinGroup."""
        return self._awaiting_join

    @property
    def is_simple(self) -> bool:
        """Whether it never had members and exists for its committed offsets only."""
        return self.protocol_type is None and self.state is GroupState.EMPTY

    @property
    def has_all_members_joined(self) -> bool:
        """Whether every member has rejoined and no pending member is left."""
        return len(self._members) == self._awaiting_join and not self.pending_join

    def rebalance_timeout_ms(self) -> Steps[int]:
        """The longest timeout requested by any member."""
        longest = 0
        for piece in pieces(self._members.values()):
            longest = max(longest, *(one.rebalance_timeout_ms for one in piece))
            yield fast(len(piece))
        return longest

    def add(self, member: Member) -> Choice | None:
        """Add a member; returns the choice if it becomes the leader."""
        assert self.supports(member.protocol_type, member.protocol_names())
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self._static_members
            self._static_members[member.group_instance_id] = member.member_id
        if not self._members:
            self.protocol_type = member.protocol_type
        self._members[member.member_id] = member
        self._count_protocols(member, 1)
        self._awaiting_join += member.awaiting_join is not None
        self.pending_join.pop(member.member_id, None)
        if self.leader_id is not None:
            return None
        self.leader_id = member.member_id
        return election.first_to_join(member.member_id)

    def remove(self, member_id: str) -> Choice | None:
        """Remove a member, pending or not; returns the choice of a new leader if it led."""
        self.pending_join.pop(member_id, None)
        self.pending_sync.pop(member_id, None)
        member = self._members.pop(member_id, None)
        if member is None:
            return None
        self._count_protocols(member, -1)
        self._awaiting_join -= member.awaiting_join is not None
        if member.group_instance_id is not None:
            self._static_members.pop(member.group_instance_id, None)
        if self.leader_id != member_id:
            return None
        choice = election.after_removal(member_id, list(islice(self._members, election.LISTED_MAX)))
        self.leader_id = choice.chosen
        return choice

    def update(
        self,
        member: Member,
        protocols: Protocols,
        *,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        awaiting_join: ReplyTo | None,
    ) -> None:
        """Apply a member's new JoinGroup."""
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms
        self._awaiting_join += (awaiting_join is not None) - (member.awaiting_join is not None)
        member.awaiting_join = awaiting_join

    def replace_static(
        self, instance_id: str, new_member_id: str
    ) -> Steps[tuple[Member, Choice | None]]:
        """Replace the static member by `new_member_id`, which keeps its seniority.

        The old member's parked requests must have been completed.
        """
        old_member_id = self._static_members[instance_id]
        old = self._members[old_member_id]
        assert old.awaiting_join is None
        assert old.awaiting_sync is None
        self.pending_sync.pop(old_member_id, None)
        new = Member(
            member_id=new_member_id,
            group_instance_id=instance_id,
            client_id=old.client_id,
            client_host=old.client_host,
            rebalance_timeout_ms=old.rebalance_timeout_ms,
            session_timeout_ms=old.session_timeout_ms,
            protocol_type=old.protocol_type,
            protocols=old.protocols,
            assignment=old.assignment,
        )
        members: dict[str, Member] = {}
        for piece in pieces(self._members.values()):
            for one in piece:
                kept = new if one is old else one
                members[kept.member_id] = kept
            yield fast(len(piece))
        self._members = members
        self._static_members[instance_id] = new_member_id
        if self.leader_id != old_member_id:
            return new, None
        self.leader_id = new_member_id
        return new, election.after_replacement(old_member_id, new_member_id, instance_id)

    def take_awaiting_join(self, member: Member) -> ReplyTo | None:
        """Remove and return the parked JoinGroup, in order to complete it."""
        parked, member.awaiting_join = member.awaiting_join, None
        self._awaiting_join -= parked is not None
        return parked

    # Elections

    def replace_missing_leader(self) -> Steps[Choice | None]:
        """Choose a new leader if the current one has not rejoined; None if it has.

        The old leader stays if no member has rejoined (`chosen` is None).
        """
        if self.leader_id is None or self._members[self.leader_id].awaiting_join is not None:
            return None
        choice = yield from election.after_missed_join(
            self.leader_id,
            ((one.member_id, one.awaiting_join is not None) for one in self._members.values()),
        )
        if choice.chosen is not None:
            self.leader_id = choice.chosen
        return choice

    def vote(self) -> Steps[Choice]:
        """The protocol the members would use now; requires a member."""
        return election.vote(
            ((one.member_id, one.protocol_names()) for one in self._members.values()),
            self._supporters,
            len(self._members),
        )

    def start_next_generation(self, now_ms: Millis) -> Steps[Choice | None]:
        """Increment the generation and fix its protocol, or become empty (returns None)."""
        self.generation_id += 1
        self.pending_sync.clear()
        choice = (yield from self.vote()) if self._members else None
        self.protocol_name = choice.chosen if choice else None
        self.subscribed_topics = yield from self.read_subscribed_topics()
        self.transition_to(GroupState.COMPLETING_REBALANCE if choice else GroupState.EMPTY, now_ms)
        return choice

    # Protocols and subscriptions

    def supports(self, protocol_type: str, names: Collection[str]) -> bool:
        """Whether a member with these protocols may join."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(names)
        if self.protocol_type != protocol_type:
            return False
        return any(self._supporters.get(name, 0) == len(self._members) for name in names)

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def is_subscribed_to(self, topic: str) -> bool:
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    def read_subscribed_topics(self) -> Steps[frozenset[str] | None]:
        """All topics its consumers subscribe to; None if that cannot be determined."""
        if not self.uses_consumer_protocol:
            return None
        if not self._members:
            return frozenset()
        if self.protocol_name is None:
            return None
        topics: set[str] = set()
        for member in self._members.values():
            subscribed = yield from subscription_topics(member.metadata(self.protocol_name))
            if subscribed is None:
                return None
            for at in range(0, len(subscribed), TOPICS_AT_ONCE):
                topics.update(subscribed[at : at + TOPICS_AT_ONCE])
                yield 1 + fast(min(len(subscribed) - at, TOPICS_AT_ONCE))
        yield fast(len(topics))
        return frozenset(topics)

    # Checks

    def check_member(self, member_id: str, instance_id: str | None) -> None:
        """Raise KafkaError for an unknown member, or one that lost its instance id."""
        if instance_id is not None:
            holder = self._static_members.get(instance_id)
            if holder is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if holder != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        if member_id not in self._members:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation_id: int,
        now: Instant,
        *,
        version: int = MEMBER_EPOCH_IN_COMMIT_FROM,
    ) -> None:
        """Raise KafkaError unless the commit comes from the current generation."""
        del now, version
        if self.state is GroupState.DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if generation_id < 0 and self.state is GroupState.EMPTY:
            return  # A tool, or a consumer that assigns its partitions itself.
        if generation_id >= 0 or member_id or instance_id is not None:
            self.check_member(member_id, instance_id)
            if generation_id != self.generation_id:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        elif self.state is not GroupState.EMPTY:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if self.state is GroupState.COMPLETING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    def check_offset_delete(self) -> None:
        if self.state is GroupState.DEAD:
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.group_id} is in dead state."
            )
        if self.state is not GroupState.EMPTY and not self.uses_consumer_protocol:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def check_delete(self, now: Instant) -> None:
        del now
        if self.state is GroupState.DEAD:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        if self.state is not GroupState.EMPTY:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    # Group

    def is_empty(self, now: Instant) -> bool:
        del now
        return self.state is GroupState.EMPTY

    def is_convertible_to_classic(self, now: Instant) -> bool:
        del now
        return False

    def committing_member(self, member_id: str) -> Member | None:
        if self.is_in(GroupState.STABLE, GroupState.PREPARING_REBALANCE):
            return self._members[member_id]
        return None

    def offset_expiry_base(self, now: Instant) -> int | None:
        """Retention starts when the group becomes empty; see `commits.py`."""
        del now
        if self.protocol_type is None:
            return EXPIRE_FROM_COMMIT
        if self.state is GroupState.EMPTY:
            return self.state_since_ms or EXPIRE_FROM_COMMIT
        readable = self.uses_consumer_protocol and self.subscribed_topics is not None
        return EXPIRE_FROM_COMMIT if readable and self.state is GroupState.STABLE else None

    def tombstones(self) -> Sequence[GroupRecord]:
        return [GroupRecord(key=GroupMetadataKey(group=self.group_id))]

    def described(self, version: int) -> Steps[DescribedGroup]:
        """With its members; metadata and assignor only if the group is stable."""
        del version
        stable = self.state is GroupState.STABLE
        members = yield from in_pieces(
            self._members.values(),
            lambda one: DescribedGroupMember(
                member_id=one.member_id,
                group_instance_id=one.group_instance_id,
                client_id=one.client_id,
                client_host=one.client_host,
                member_metadata=one.metadata(self.protocol_name) if stable else b"",
                member_assignment=one.assignment,
            ),
        )
        return DescribedGroup(
            group_id=self.group_id,
            group_state=self.state.value,
            protocol_type=self.protocol_type or "",
            protocol_data=(self.protocol_name or "") if stable else "",
            members=members,
        )

    def listed(self, now: Instant) -> ListedGroup:
        del now
        return ListedGroup(
            group_id=self.group_id,
            protocol_type=self.protocol_type or "",
            group_state=self.state.value,
            group_type="classic",
        )

    @property
    def bytes(self) -> int:
        """Bytes of its members' metadata and assignments."""
        return sum(member.bytes for member in self._members.values())

    def _count_protocols(self, member: Member, by: int) -> None:
        for name, _ in member.protocols:
            self._supporters[name] = self._supporters.get(name, 0) + by
            if not self._supporters[name]:
                del self._supporters[name]


def subscription_topics(metadata: bytes) -> Steps[Sequence[str] | None]:
    """The topics of a ConsumerProtocolSubscription of any version; None if it is malformed.

    Bytes: version int16, count int32, then each name as int16 length and UTF-8. All versions
    start like this, so this reader does not depend on them.
    """
    topics: list[str] = []
    try:
        version, count = struct.unpack_from(">hi", metadata)
        at = 6
        if version < 0 or not 0 <= count <= len(metadata):
            return None
        while len(topics) < count:
            if topics:
                yield fast(TOPICS_AT_ONCE)
            for _ in range(min(count - len(topics), TOPICS_AT_ONCE)):
                (length,) = struct.unpack_from(">h", metadata, at)
                at += 2
                if length < 0 or at + length > len(metadata):
                    return None
                topics.append(metadata[at : at + length].decode())
                at += length
    except (struct.error, UnicodeDecodeError):
        return None
    return topics
