"""One classic group: members, generation, leader, protocol; the only code that assigns its state.

Invariants:
    * `leader_id` names a member, or is None where there is none.
    * A static instance id belongs to one member at most (G7).
    * `generation_id` never goes back.

Not here: timers and what requests lead to (`classic.py`), offsets (`offsets.py`).
"""

import struct
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from sparkraft.base.errors import ErrorCode, InvariantBroken, KafkaError
from sparkraft.base.ids import Millis
from sparkraft.coordinator.group import election
from sparkraft.coordinator.group.election import Choice
from sparkraft.coordinator.group.member import Member, Protocols
from sparkraft.coordinator.group.outcome import ReplyTo
from sparkraft.coordinator.group.states import NEXT_STATES, GroupState

CONSUMER_PROTOCOL_TYPE = "consumer"
"""The protocol type of consumers, whose subscriptions the coordinator can read."""


class InitialDelay(NamedTuple):
    """The wait for the first members of an empty group: this part of it, and what may follow."""

    delay_ms: int
    remaining_ms: int


class ClassicGroup:
    """A group of the classic protocol, with or without members."""

    def __init__(self, group_id: str, *, now_ms: Millis | None) -> None:
        """Make an empty group at wall-clock time `now_ms`; None where that is not known."""
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.previous_state = GroupState.DEAD
        self.state_since_ms: Millis | None = now_ms
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
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
        """Enter `state`, which must be one that may follow."""
        if state not in NEXT_STATES[self.state]:
            raise InvariantBroken(f"group {self.group_id}: {self.state.name} to {state.name}")
        self.previous_state = self.state
        self.state = state
        self.state_since_ms = now_ms

    def is_in(self, *states: GroupState) -> bool:
        """Whether the group is in one of `states`."""
        return self.state in states

    @property
    def can_rebalance(self) -> bool:
        """Whether a rebalance may start from here."""
        return GroupState.PREPARING_REBALANCE in NEXT_STATES[self.state]

    # Members

    def __len__(self) -> int:
        """Number of members; pending ones don't count."""
        return len(self._members)

    def __contains__(self, member_id: str) -> bool:
        """Whether `member_id` is a member."""
        return member_id in self._members

    def member(self, member_id: str) -> Member:
        """The member of that id, which must exist."""
        return self._members[member_id]

    def members(self) -> Iterator[Member]:
        """Longest-standing first."""
        return iter(self._members.values())

    def static_member_id(self, instance_id: str | None) -> str | None:
        """Who holds `instance_id` now."""
        return None if instance_id is None else self._static_members.get(instance_id)

    @property
    def awaiting_join_count(self) -> int:
        """How many members wait for the answer to a JoinGroup."""
        return self._awaiting_join

    @property
    def is_simple(self) -> bool:
        """Whether it never had members: somebody only keeps offsets under its name."""
        return self.protocol_type is None and self.state is GroupState.EMPTY

    @property
    def has_all_members_joined(self) -> bool:
        """Whether nobody is missing, not even those who were only given an id."""
        return len(self._members) == self._awaiting_join and not self.pending_join

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest any member asks for."""
        return max((one.rebalance_timeout_ms for one in self._members.values()), default=0)

    def add(self, member: Member) -> Choice | None:
        """Add a member; where it becomes the leader, the reason is returned."""
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
        """Remove a member, pending or not; where it led, the next leader and why."""
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
        choice = election.after_removal(member_id, list(self._members))
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
        """Take in what a member's new JoinGroup says."""
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms
        self._awaiting_join += (awaiting_join is not None) - (member.awaiting_join is not None)
        member.awaiting_join = awaiting_join

    def replace_static(self, instance_id: str, new_member_id: str) -> tuple[Member, Choice | None]:
        """Give the place of a static member to `new_member_id`; it keeps its seniority.

        The old member's parked requests must have been answered.
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
        self._members = {
            one.member_id: one
            for one in (new if one is old else one for one in self._members.values())
        }
        self._static_members[instance_id] = new_member_id
        if self.leader_id != old_member_id:
            return new, None
        self.leader_id = new_member_id
        return new, election.after_replacement(old_member_id, new_member_id, instance_id)

    def take_awaiting_join(self, member: Member) -> ReplyTo | None:
        """Take the parked JoinGroup away to answer it."""
        parked, member.awaiting_join = member.awaiting_join, None
        self._awaiting_join -= parked is not None
        return parked

    # Elections

    def replace_missing_leader(self) -> Choice | None:
        """Where the leader has not rejoined, choose one who has; None: the leader is there.

        A choice of nobody leaves the old leader in place: nobody has rejoined.
        """
        if self.leader_id is None or self._members[self.leader_id].awaiting_join is not None:
            return None
        choice = election.after_missed_join(
            self.leader_id,
            [(one.member_id, one.awaiting_join is not None) for one in self._members.values()],
        )
        if choice.chosen is not None:
            self.leader_id = choice.chosen
        return choice

    def vote(self) -> Choice:
        """The protocol the members would use now; there must be members."""
        return election.vote(
            [(one.member_id, one.protocol_names()) for one in self._members.values()]
        )

    def start_next_generation(self, now_ms: Millis) -> Choice | None:
        """Count on and fix the protocol, or become empty; the vote where there was one."""
        self.generation_id += 1
        self.pending_sync.clear()
        choice = self.vote() if self._members else None
        self.protocol_name = choice.chosen if choice else None
        self.subscribed_topics = self.read_subscribed_topics()
        self.transition_to(GroupState.COMPLETING_REBALANCE if choice else GroupState.EMPTY, now_ms)
        return choice

    # Protocols and subscriptions

    def supports(self, protocol_type: str, names: Collection[str]) -> bool:
        """Whether a member with these protocols may be in the group."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(names)
        if self.protocol_type != protocol_type:
            return False
        return any(self._supporters.get(name, 0) == len(self._members) for name in names)

    @property
    def uses_consumer_protocol(self) -> bool:
        """Whether its members are consumers."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member may own partitions of `topic`; a guess of yes where it can't be read."""
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    def read_subscribed_topics(self) -> frozenset[str] | None:
        """All topics its consumers subscribe to; None where that can't be known."""
        if not self.uses_consumer_protocol:
            return None
        if not self._members:
            return frozenset()
        if self.protocol_name is None:
            return None
        topics: set[str] = set()
        for member in self._members.values():
            subscribed = subscription_topics(member.metadata(self.protocol_name))
            if subscribed is None:
                return None
            topics.update(subscribed)
        return frozenset(topics)

    # Checks

    def check_member(self, member_id: str, instance_id: str | None) -> None:
        """Refuse who is no member, or holds an instance id that another has taken over."""
        if instance_id is not None:
            holder = self._static_members.get(instance_id)
            if holder is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if holder != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        if member_id not in self._members:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

    def check_commit(self, member_id: str, instance_id: str | None, generation_id: int) -> None:
        """Refuse a commit that does not come from the current generation (G5)."""
        if self.state is GroupState.DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if generation_id < 0 and self.state is GroupState.EMPTY:
            return  # From a tool, or a consumer that manages its partitions itself.
        if generation_id >= 0 or member_id or instance_id is not None:
            self.check_member(member_id, instance_id)
            if generation_id != self.generation_id:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        elif self.state is not GroupState.EMPTY:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if self.state is GroupState.COMPLETING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    def _count_protocols(self, member: Member, by: int) -> None:
        for name, _ in member.protocols:
            self._supporters[name] = self._supporters.get(name, 0) + by
            if not self._supporters[name]:
                del self._supporters[name]


def subscription_topics(metadata: bytes) -> Sequence[str] | None:
    """The topics of a ConsumerProtocolSubscription of any version; None where it is not one.

    Bytes: version int16, count int32, then each name as int16 length and UTF-8. All versions
    begin like this, so that this reader need not know them.
    """
    topics: list[str] = []
    try:
        version, count = struct.unpack_from(">hi", metadata)
        at = 6
        if version < 0 or not 0 <= count <= len(metadata):
            return None
        for _ in range(count):
            (length,) = struct.unpack_from(">h", metadata, at)
            at += 2
            if length < 0 or at + length > len(metadata):
                return None
            topics.append(metadata[at : at + length].decode())
            at += length
    except (struct.error, UnicodeDecodeError):
        return None
    return topics
