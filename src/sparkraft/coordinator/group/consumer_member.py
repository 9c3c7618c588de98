"""One member of a consumer group (KIP-848): its subscription and its current assignment.

    STABLE ──target moved on──► UNREVOKED ──client confirmed──► UNRELEASED or STABLE
                │                                                   ▲ │
                └──nothing to revoke────────────────────────────────┘ └──others released──► STABLE

Values: a member never changes, it is replaced by the replay of a record.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum

from sparkraft.base.ids import Uuid
from sparkraft.coordinator.steps import Steps, fast, pieces

Partitions = Mapping[Uuid, frozenset[int]]
"""Topic id → partitions; no topic without partitions."""

AssignedPartitions = Mapping[Uuid, Mapping[int, int]]
"""Topic id → partition → the member epoch in which it was assigned (KIP-1251)."""

LEAVE_EPOCH = -1
"""Member epoch of a heartbeat that leaves the group."""

LEAVE_STATIC_EPOCH = -2
"""Member epoch of a static member that left for a while and keeps its assignment."""

JOIN_EPOCH = 0
"""Member epoch of a heartbeat that joins or rejoins."""


class MemberState(IntEnum):
    """State of a member; the value is the one in its record."""

    STABLE = 0
    """Has all that its target allowed at its epoch. Ends: the target moves on."""
    UNREVOKED = 1
    """Was asked to revoke partitions. Ends: it confirms, or the rebalance timeout passes."""
    UNRELEASED = 2
    """Waits for partitions that other members have not released. Ends: they do."""
    UNKNOWN = 127
    """Written by a newer version. Ends: the member revokes everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMetadata:
    """The JoinGroup of a member that uses the classic protocol.

    Attributes:
        protocols: (name, metadata), in its order of preference.
    """

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    """A member of a consumer group.

    Attributes:
        subscribed_regex: RE2 pattern of topic names; empty for none.
        server_assignor: the assignor it prefers; None for no preference.
        classic: set if it uses the classic protocol.
        member_epoch: the target assignment it has converged to; -2 after a static leave.
        previous_member_epoch: before that. Use: a client whose response was lost sends it.
        assigned: the partitions it may read.
        pending_revocation: partitions to give up before its next epoch. Invariant: disjoint from
            `assigned`; empty unless UNREVOKED.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    subscribed_topics: frozenset[str] = frozenset()
    subscribed_regex: str = ""
    server_assignor: str | None = None
    classic: ClassicMetadata | None = None
    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: AssignedPartitions = field(default_factory=dict)
    pending_revocation: AssignedPartitions = field(default_factory=dict)

    @property
    def uses_classic_protocol(self) -> bool:
        return self.classic is not None

    @property
    def bytes(self) -> int:
        """Memory of what its client sent: a subscription, and metadata of the classic protocol."""
        metadata = () if self.classic is None else self.classic.protocols
        return subscription_bytes(self.subscribed_topics, self.subscribed_regex) + sum(
            len(content) for _, content in metadata
        )

    def is_reconciled_to(self, target_epoch: int) -> bool:
        """Whether it has everything that the target assignment of `target_epoch` gives it."""
        return self.state is MemberState.STABLE and self.member_epoch == target_epoch

    def has_subscription_of(self, other: "ConsumerMember") -> bool:
        """Whether both name the same topics and regular expression; compares no large sets."""
        return (
            self.subscribed_topics is other.subscribed_topics
            and self.subscribed_regex == other.subscribed_regex
        )

    def same_subscription_record(self, other: "ConsumerMember") -> bool:
        """Whether both have the same member record (type 5)."""
        return self.with_assignment_of(other) == other

    def with_assignment_of(self, other: "ConsumerMember") -> "ConsumerMember":
        """This member's subscription with the epochs and partitions of `other`."""
        return replace(
            self,
            member_epoch=other.member_epoch,
            previous_member_epoch=other.previous_member_epoch,
            state=other.state,
            assigned=other.assigned,
            pending_revocation=other.pending_revocation,
        )

    def at_epoch(
        self,
        epoch: int,
        state: MemberState,
        assigned: AssignedPartitions,
        pending_revocation: AssignedPartitions,
    ) -> "ConsumerMember":
        """The member in `epoch`; its present one becomes the previous."""
        return replace(
            self,
            member_epoch=epoch,
            previous_member_epoch=self.member_epoch,
            state=state,
            assigned=assigned,
            pending_revocation=pending_revocation,
        )


TOPIC_BYTES = 160
"""Memory of a subscribed topic besides the characters of its name: an object, and its places in the
set of the member and in the counts of the group."""


def subscription_bytes(topics: Collection[str] | None, regex: str | None) -> int:
    """Memory of a subscription."""
    names = topics or ()
    return sum(map(len, names)) + len(names) * TOPIC_BYTES + len(regex or "")


def is_held(partitions: AssignedPartitions, topic_id: Uuid, partition: int) -> bool:
    """Whether `partitions` contains the partition."""
    return partition in partitions.get(topic_id, {})


def as_partitions(assigned: AssignedPartitions) -> Steps[Partitions]:
    """The partitions without their epochs."""
    found: dict[Uuid, frozenset[int]] = {}
    for piece in pieces(assigned.items()):
        found.update((topic_id, frozenset(epochs)) for topic_id, epochs in piece)
        yield len(piece) >> 2
    return found


def union(left: AssignedPartitions, right: AssignedPartitions) -> Steps[AssignedPartitions]:
    """The partitions of both."""
    if not right:
        return left
    if not left:
        return right
    joined: dict[Uuid, Mapping[int, int]] = dict(left)
    yield fast(len(left))
    for piece in pieces(right.items()):
        for topic_id, epochs in piece:
            joined[topic_id] = {**joined.get(topic_id, {}), **epochs}
        yield len(piece) >> 2
    return joined
