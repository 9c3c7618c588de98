"""Move a member's current assignment towards its target assignment, one step per heartbeat.

A partition is assigned to its next owner only after the previous one has confirmed its revocation
(KIP-848, "Member Reconciliation"):

    1. Partitions outside the target are pending until the member no longer reports them. Its epoch
       stays: offsets committed with it are accepted.
    2. Then it gets the epoch of the target, and those of its partitions that have no holder.
    3. The others follow as their holders release them.

Pure: depends on its arguments alone.
"""

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.coordinator.group.consumer_member import (
    AssignedPartitions,
    ConsumerMember,
    MemberState,
    Partitions,
    is_held,
    union,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The assignment that a member should converge to.

    Attributes:
        epoch: of the target assignment.
        partitions: of the member.
        subscribed: ids of the existing topics it subscribes to; others are never assigned.
        is_free: whether a partition has no holder, and none that has yet to revoke it.
    """

    epoch: int
    partitions: Partitions
    subscribed: Set[Uuid]
    is_free: Callable[[Uuid, int], bool]


def reconcile(
    member: ConsumerMember,
    target: Target,
    *,
    owned: Partitions | None,
    subscription_changed: bool,
) -> ConsumerMember:
    """The member after one heartbeat; the same object if nothing changes.

    Args:
        member: before the heartbeat, with its new subscription.
        target: its target.
        owned: the partitions that the client reports; None if it reports no change.
        subscription_changed: whether this heartbeat changed its subscription.

    Raises:
        KafkaError: FENCED_MEMBER_EPOCH, if a newer version wrote its state.
    """
    match member.state:
        case MemberState.STABLE:
            if member.member_epoch != target.epoch:
                return _next_assignment(member, target, owned)
            return _shrunk(member, target, owned) if subscription_changed else member
        case MemberState.UNREVOKED:
            if not _still_owns(owned, member.pending_revocation):
                return _next_assignment(member, target, owned)
            return _shrunk(member, target, owned) if subscription_changed else member
        case MemberState.UNRELEASED:
            return _next_assignment(member, target, owned)
        case MemberState.UNKNOWN:
            if owned is None or owned:
                raise KafkaError(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    "The coordinator does not know the state of the member. "
                    "The member must abandon all its partitions and rejoin.",
                )
            return _next_assignment(member, target, owned)


def _shrunk(member: ConsumerMember, target: Target, owned: Partitions | None) -> ConsumerMember:
    """Take away the topics that it no longer subscribes to, at the same epoch."""
    dropped = {
        topic_id: partitions
        for topic_id, partitions in member.assigned.items()
        if topic_id not in target.subscribed
    }
    if not dropped:
        return member
    kept = {
        topic_id: partitions
        for topic_id, partitions in member.assigned.items()
        if topic_id not in dropped
    }
    pending = union(member.pending_revocation, dropped)
    if _still_owns(owned, pending):
        return member.at_epoch(member.member_epoch, MemberState.UNREVOKED, kept, pending)
    return member.at_epoch(member.member_epoch, member.state, kept, {})


def _next_assignment(
    member: ConsumerMember, target: Target, owned: Partitions | None
) -> ConsumerMember:
    wanted = {
        topic_id: partitions
        for topic_id, partitions in target.partitions.items()
        if topic_id in target.subscribed
    }
    kept, revoked = _divided(member.assigned, wanted)
    if revoked and _still_owns(owned, revoked):
        return member.at_epoch(member.member_epoch, MemberState.UNREVOKED, kept, revoked)
    added: dict[Uuid, dict[int, int]] = {}
    unreleased = False
    for topic_id, partitions in wanted.items():
        missing = partitions - kept.get(topic_id, {}).keys()
        free = {one for one in missing if _may_take(member, target, topic_id, one)}
        unreleased = unreleased or len(free) < len(missing)
        if free:
            added[topic_id] = dict.fromkeys(sorted(free), target.epoch)
    state = MemberState.UNRELEASED if unreleased else MemberState.STABLE
    return member.at_epoch(target.epoch, state, union(kept, added), {})


def _may_take(member: ConsumerMember, target: Target, topic_id: Uuid, partition: int) -> bool:
    """A partition that the member itself has just revoked is free for it."""
    return target.is_free(topic_id, partition) or is_held(
        member.pending_revocation, topic_id, partition
    )


def _divided(
    assigned: AssignedPartitions, wanted: Partitions
) -> tuple[dict[Uuid, Mapping[int, int]], dict[Uuid, Mapping[int, int]]]:
    """The assigned partitions that are wanted, and the others."""
    kept: dict[Uuid, Mapping[int, int]] = {}
    revoked: dict[Uuid, Mapping[int, int]] = {}
    for topic_id, epochs in assigned.items():
        wanted_here = wanted.get(topic_id, frozenset())
        stay = {one: epoch for one, epoch in epochs.items() if one in wanted_here}
        leave = {one: epoch for one, epoch in epochs.items() if one not in wanted_here}
        if stay:
            kept[topic_id] = stay
        if leave:
            revoked[topic_id] = leave
    return kept, revoked


def _still_owns(owned: Partitions | None, partitions: AssignedPartitions) -> bool:
    """Whether the client may still read one of `partitions`; yes if it reports nothing."""
    if owned is None:
        return True
    return any(
        not epochs.keys().isdisjoint(owned.get(topic_id, frozenset()))
        for topic_id, epochs in partitions.items()
    )
