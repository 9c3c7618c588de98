"""One consumer group (KIP-848): hard state, changed by the replay of its records alone.

Epochs:
    group epoch    counts causes of a new assignment: a member, a subscription or a topic changed
    target epoch   the group epoch for which the target assignment was computed
    member epoch   the target epoch a member has converged to

Invariants:
    * group epoch >= target epoch >= epoch of every member.
    * A partition has at most one holder: the member that it is assigned to, or that has yet to
      revoke it.

Replay accepts any order that compaction leaves: a record for a missing member creates it, and the
removal of a partition that another member holds is ignored (KAFKA-16147, KAFKA-19862).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.coordinator.group import consumer_records as records
from sparkraft.coordinator.group.consumer_member import (
    TOPIC_BYTES,
    AssignedPartitions,
    ConsumerMember,
    Partitions,
)
from sparkraft.coordinator.group.consumer_records import ResolvedRegex
from sparkraft.coordinator.group.describe import describe_as_dead
from sparkraft.coordinator.group.group import EXPIRE_FROM_COMMIT, MEMBER_EPOCH_IN_COMMIT_FROM
from sparkraft.coordinator.group.member import Member
from sparkraft.coordinator.group.records import GroupRecord
from sparkraft.coordinator.runtime import Instant
from sparkraft.coordinator.steps import PIECE_UNITS, Steps, fast, pieces
from sparkraft.protocol.messages.k15_describe_groups import DescribedGroup
from sparkraft.protocol.messages.k16_list_groups import ListedGroup

CONSUMER_TYPE = "consumer"
FIRST_EPOCH = 1
"""Of a new group; its first member raises it (KAFKA-20268)."""


class ConsumerGroupState(Enum):
    """Derived from the epochs, never stored; the value is its name on the wire."""

    EMPTY = "Empty"
    """No members."""
    ASSIGNING = "Assigning"
    """The target assignment is older than the group epoch."""
    RECONCILING = "Reconciling"
    """A member has not converged to the target assignment."""
    STABLE = "Stable"
    """Every member has its target assignment."""


class ConsumerGroup:
    """Members, target assignment and epochs.

    Attributes:
        metadata_hash: of the subscribed topics, unsigned; 0 if there are none.
        target_at_ms: when the target assignment was computed, wall clock; 0 if unknown.
        targets: by member.
        regexes: the topics of each resolved regular expression.
        member_bytes: memory of what the members' clients have sent.
        has_legacy_metadata: whether a record of type 4 exists.
        refresh_epoch: a group epoch below it, or None, means that the hash of the topics must be
            compared again. Soft state.
    """

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.group_epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.target_epoch = FIRST_EPOCH
        self.target_at_ms = 0
        self.targets: dict[str, Partitions] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        self.member_bytes = 0
        self.has_legacy_metadata = False
        self.refresh_epoch: int | None = None
        self._members: dict[str, ConsumerMember] = {}
        self._static: dict[str, str] = {}
        self._holders: dict[Uuid, dict[int, str]] = {}
        """Topic → partition → member. Invariant: the union of assigned and pending revocation."""
        self._subscribers: dict[str, int] = {}
        """Topic name → members that name it. Regular expressions are not counted."""
        self._regex_subscribers: dict[str, int] = {}

    # Members

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._members

    def get(self, member_id: str) -> ConsumerMember | None:
        return self._members.get(member_id)

    def member(self, member_id: str) -> ConsumerMember:
        """The member; KafkaError (UNKNOWN_MEMBER_ID) if there is none."""
        found = self._members.get(member_id)
        if found is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member_id} is not a member of group {self.group_id}.",
            )
        return found

    def members(self) -> Iterator[ConsumerMember]:
        """By member id."""
        for member_id in sorted(self._members):
            yield self._members[member_id]

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """The holder of an instance id."""
        if instance_id is None:
            return None
        member_id = self._static.get(instance_id)
        return None if member_id is None else self._members.get(member_id)

    def is_free(self, topic_id: Uuid, partition: int) -> bool:
        """Whether no member holds the partition."""
        return partition not in self._holders.get(topic_id, {})

    def holder(self, topic_id: Uuid, partition: int) -> str | None:
        """The member that holds a partition."""
        return self._holders.get(topic_id, {}).get(partition)

    def target_of(self, member: ConsumerMember) -> Partitions:
        """A member's target; a static member takes over that of its predecessor."""
        found = self.targets.get(member.member_id)
        if found is None and member.instance_id is not None:
            found = self.targets.get(self._static.get(member.instance_id, ""))
        return found or {}

    @property
    def needs_refresh(self) -> bool:
        """Whether the subscribed topics may have changed since they were hashed."""
        return self.refresh_epoch is None or self.group_epoch < self.refresh_epoch

    @property
    def state(self) -> ConsumerGroupState:
        if not self._members:
            return ConsumerGroupState.EMPTY
        if self.group_epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(one.is_reconciled_to(self.target_epoch) for one in self._members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    @property
    def bytes(self) -> int:
        """Memory of what its members have sent, and of the topics of their regular expressions."""
        topics = sum(len(resolved.topics) for resolved in self.regexes.values())
        return self.member_bytes + topics * TOPIC_BYTES

    # Subscriptions

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """The topics a member subscribes to, by name or by a resolved regular expression."""
        resolved = self.regexes.get(member.subscribed_regex) if member.subscribed_regex else None
        if resolved is None:
            return member.subscribed_topics
        return member.subscribed_topics | resolved.topics

    def subscribed_topics(
        self,
        changed: ConsumerMember | None = None,
        removed: Iterable[str] = (),
        regexes: Mapping[str, ResolvedRegex] | None = None,
    ) -> Steps[set[str]]:
        """Every subscribed topic, as if `changed` were replayed and `removed` were gone."""
        leaving = [self._members.get(member_id) for member_id in removed]
        named: frozenset[str] = frozenset()
        patterns = dict(self._regex_subscribers)
        if changed is not None:
            leaving.append(self._predecessor(changed))
            named = changed.subscribed_topics
            _count_pattern(changed, 1, patterns)
        lost: dict[str, int] = {}
        for member in leaving:
            if member is not None:
                _count_pattern(member, -1, patterns)
                for piece in pieces(member.subscribed_topics - named):
                    for topic in piece:
                        lost[topic] = lost.get(topic, 0) + 1
                    yield len(piece) >> 2
        topics = self._subscribers.keys() | named
        yield fast(len(topics))
        for piece in pieces(lost):
            topics -= {topic for topic in piece if lost[topic] == self._subscribers[topic]}
            yield len(piece) >> 2
        known = self.regexes if regexes is None else regexes
        for pattern in patterns:
            if pattern in known:
                topics |= known[pattern].topics
                yield fast(len(known[pattern].topics))
        return topics

    def _predecessor(self, member: ConsumerMember) -> ConsumerMember | None:
        """The member that a record of `member` replaces."""
        return self._members.get(member.member_id) or self.static_member(member.instance_id)

    def regex_subscribers(self, pattern: str) -> int:
        """Number of members with this regular expression."""
        return self._regex_subscribers.get(pattern, 0)

    def patterns(self) -> list[str]:
        """The regular expressions of all members, sorted."""
        return sorted(self._regex_subscribers)

    # Replay

    def replay_group_epoch(self, epoch: int, metadata_hash: int) -> None:
        """A record of type 3; `metadata_hash` is signed."""
        self.group_epoch = epoch
        self.metadata_hash = metadata_hash & 0xFFFFFFFFFFFFFFFF

    def replay_subscription(self, subscription: ConsumerMember) -> Steps[None]:
        """A record of type 5: keeps the assignment.

        The holders of partitions stay as well. If compaction has removed the record in which the
        member gave up a partition, its next holder may be known already.
        """
        known = self._members.get(subscription.member_id)
        if known is None:
            yield from self._put(subscription)
        else:
            yield from self._put(subscription.with_assignment_of(known), has_assignment=False)

    def replay_current(self, member: ConsumerMember) -> Steps[None]:
        """A record of type 8: keeps the subscription."""
        yield from self._put(member)

    def replay_current_removed(self, member_id: str) -> Steps[None]:
        """A tombstone of type 8."""
        known = self._members.get(member_id)
        if known is not None:
            left = replace(known, assigned={}, pending_revocation={}, member_epoch=LEFT_EPOCH)
            yield from self._put(left)

    def replay_removed(self, member_id: str) -> Steps[None]:
        """A tombstone of type 5."""
        known = self._members.pop(member_id, None)
        if known is None:
            return
        yield from self._release(known)
        self.member_bytes -= known.bytes
        yield from self._count(known, -1)
        if known.instance_id is not None and self._static.get(known.instance_id) == member_id:
            del self._static[known.instance_id]

    def _put(self, member: ConsumerMember, *, has_assignment: bool = True) -> Steps[None]:
        """Replace a member; with `has_assignment`, also what it holds."""
        known = self._members.get(member.member_id)
        if known is not None:
            if has_assignment:
                yield from self._release(known)
            self.member_bytes -= known.bytes
        if known is None or not known.has_subscription_of(member):
            if known is not None:
                yield from self._count(known, -1)
            yield from self._count(member, 1)
        self._members[member.member_id] = member
        self.member_bytes += member.bytes
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id
        if has_assignment:
            yield from self._hold(member)

    def _hold(self, member: ConsumerMember) -> Steps[None]:
        units = 0
        for partitions in (member.assigned, member.pending_revocation):
            for topic_id, epochs in partitions.items():
                self._holders.setdefault(topic_id, {}).update(
                    dict.fromkeys(epochs, member.member_id)
                )
                units += len(epochs)
                if units >= PIECE_UNITS:
                    yield units
                    units = 0
        yield units

    def _release(self, member: ConsumerMember) -> Steps[None]:
        yield from self._release_each(member.member_id, member.assigned)
        yield from self._release_each(member.member_id, member.pending_revocation)

    def _release_each(self, member_id: str, partitions: AssignedPartitions) -> Steps[None]:
        units = 0
        for topic_id, epochs in partitions.items():
            held = self._holders.get(topic_id, {})
            for partition in epochs:
                if held.get(partition) == member_id:
                    del held[partition]
            if not held:
                self._holders.pop(topic_id, None)
            units += len(epochs)
            if units >= PIECE_UNITS:
                yield units
                units = 0
        yield units

    def _count(self, member: ConsumerMember, by: int) -> Steps[None]:
        """Count the subscription of a member; `by` -1: no longer."""
        counts = self._subscribers
        for piece in pieces(member.subscribed_topics):
            for topic in piece:
                counts[topic] = counts.get(topic, 0) + by
                if not counts[topic]:
                    del counts[topic]
            yield len(piece) >> 2
        _count_pattern(member, by, self._regex_subscribers)

    # Group

    def is_empty(self, now: Instant) -> bool:
        del now
        return not self._members

    def is_subscribed_to(self, topic: str) -> bool:
        if topic in self._subscribers:
            return True
        return any(
            topic in self.regexes[pattern].topics
            for pattern in self._regex_subscribers
            if pattern in self.regexes
        )

    def is_subscribed_to_any(self, topics: frozenset[str]) -> Steps[bool]:
        """Whether one of the topics is subscribed to, by name or by a regular expression."""
        yield fast(min(len(topics), len(self._subscribers)))
        if not topics.isdisjoint(self._subscribers.keys()):
            return True
        for pattern in self._regex_subscribers:
            resolved = self.regexes.get(pattern)
            if resolved is not None:
                yield fast(min(len(topics), len(resolved.topics)))
                if not topics.isdisjoint(resolved.topics):
                    return True
        return False

    def is_convertible_to_classic(self, now: Instant) -> bool:
        """An empty group is replaced by the first classic member."""
        return self.is_empty(now)

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation_id: int,
        now: Instant,
        *,
        version: int = MEMBER_EPOCH_IN_COMMIT_FROM,
    ) -> None:
        """Raise KafkaError unless a member may commit in this epoch (`check_partition` follows)."""
        del instance_id, now
        if generation_id < 0 and not self._members:
            return  # A tool, or a consumer that assigns its partitions itself.
        member = self.member(member_id)
        if not member.uses_classic_protocol and version < MEMBER_EPOCH_IN_COMMIT_FROM:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                "OffsetCommit version 9 or above must be used by members using the modern "
                "group protocol",
            )
        if generation_id > member.member_epoch:
            raise KafkaError(_old_epoch(member))

    def check_partition(
        self, member_id: str, generation_id: int, topic_id: Uuid, partition: int
    ) -> None:
        """Raise KafkaError unless the member held the partition in that epoch (KIP-1251).

        An older epoch is accepted for a partition that was assigned in it or before: the member
        has not learned of its new epoch.
        """
        member = self._members.get(member_id)
        if member is None or generation_id >= member.member_epoch:
            return
        since = member.assigned.get(topic_id, {}).get(partition)
        if since is None:
            since = member.pending_revocation.get(topic_id, {}).get(partition)
        if since is None or generation_id < since:
            raise KafkaError(
                _old_epoch(member),
                f"The member epoch {generation_id} is older than the assignment of the partition.",
            )

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Raise KafkaError unless OffsetFetch comes from a current member, or from no member."""
        if member_id is None and member_epoch < 0:
            return
        member = self.member(member_id or "")
        if member_epoch != member.member_epoch:
            raise KafkaError(_old_epoch(member))

    def check_offset_delete(self) -> None:
        """Allowed: offsets of subscribed topics are refused one by one."""

    def check_delete(self, now: Instant) -> None:
        if not self.is_empty(now):
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def committing_member(self, member_id: str) -> Member | None:
        """None: a commit renews no session of this protocol."""
        del member_id
        return None

    def offset_expiry_base(self, now: Instant) -> int | None:
        """Each offset expires by its own time; those of subscribed topics never do."""
        del now
        return EXPIRE_FROM_COMMIT

    def tombstones(self) -> Sequence[GroupRecord]:
        """Members first, the group itself last, so that no prefix leaves an orphan.

        As in Kafka's ConsumerGroup.createGroupTombstoneRecords, that of type 4 is always there.
        """
        group_id = self.group_id
        ids = sorted({*self._members, *self.targets})
        found = [records.current_tombstone(group_id, one) for one in ids]
        found += [records.target_tombstone(group_id, one) for one in ids]
        found.append(records.target_epoch_tombstone(group_id))
        found += [records.member_tombstone(group_id, one) for one in ids]
        found += [records.regex_tombstone(group_id, one) for one in sorted(self.regexes)]
        found.append(records.legacy_metadata_tombstone(group_id))
        found.append(records.group_epoch_tombstone(group_id))
        return found

    def described(self, version: int) -> Steps[DescribedGroup]:
        yield 1
        problem = f"Group {self.group_id} is not a classic group."
        return describe_as_dead(self.group_id, problem, version)

    def listed(self, now: Instant) -> ListedGroup:
        del now
        return ListedGroup(
            group_id=self.group_id,
            protocol_type=CONSUMER_TYPE,
            group_state=self.state.value,
            group_type=CONSUMER_TYPE,
        )


LEFT_EPOCH = -1
"""Epoch of a member whose assignment was removed, between two tombstones."""


def _count_pattern(member: ConsumerMember, by: int, patterns: dict[str, int]) -> None:
    pattern = member.subscribed_regex
    if pattern:
        patterns[pattern] = patterns.get(pattern, 0) + by
        if not patterns[pattern]:
            del patterns[pattern]


def _old_epoch(member: ConsumerMember) -> ErrorCode:
    """The error for a commit in an epoch that the member has not or no longer."""
    if member.uses_classic_protocol:
        return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.STALE_MEMBER_EPOCH
