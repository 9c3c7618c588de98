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
from sparkraft.coordinator.steps import PIECE_UNITS, Steps, fast, pieces


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
    subscribed: Callable[[], Steps[Set[Uuid]]]
    is_free: Callable[[Uuid, int], bool]


def reconcile(
    member: ConsumerMember,
    target: Target,
    *,
    owned: Partitions | None,
    subscription_changed: bool,
) -> Steps[ConsumerMember]:
    """The member after one heartbeat; the same object if nothing changes.

    Args:
        member: before the heartbeat, with its new subscription.
        target: its target.
        owned: the partitions that the client reports; None if it reports no change.
        subscription_changed: whether this heartbeat changed its subscription.

    Raises:
        KafkaError: FENCED_MEMBER_EPOCH, if a newer version wrote its state.
    """
    moves_on = True
    match member.state:
        case MemberState.STABLE:
            moves_on = member.member_epoch != target.epoch
        case MemberState.UNREVOKED:
            moves_on = not (yield from _still_owns(owned, member.pending_revocation))
        case MemberState.UNRELEASED:
            pass
        case MemberState.UNKNOWN:
            if owned is None or owned:
                raise KafkaError(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    "The coordinator does not know the state of the member. "
                    "The member must abandon all its partitions and rejoin.",
                )
    if moves_on:
        return (yield from _next_assignment(member, target, owned))
    if subscription_changed:
        return (yield from _shrunk(member, target, owned))
    return member


def _shrunk(
    member: ConsumerMember, target: Target, owned: Partitions | None
) -> Steps[ConsumerMember]:
    """Take away the topics that it no longer subscribes to, at the same epoch."""
    subscribed = yield from target.subscribed()
    dropped = {
        topic_id: partitions
        for topic_id, partitions in member.assigned.items()
        if topic_id not in subscribed
    }
    yield fast(len(member.assigned))
    if not dropped:
        return member
    kept = {
        topic_id: partitions
        for topic_id, partitions in member.assigned.items()
        if topic_id not in dropped
    }
    yield fast(len(member.assigned))
    pending = yield from union(member.pending_revocation, dropped)
    if (yield from _still_owns(owned, pending)):
        return member.at_epoch(member.member_epoch, MemberState.UNREVOKED, kept, pending)
    return member.at_epoch(member.member_epoch, member.state, kept, {})


def _next_assignment(
    member: ConsumerMember, target: Target, owned: Partitions | None
) -> Steps[ConsumerMember]:
    subscribed = yield from target.subscribed()
    wanted = {
        topic_id: partitions
        for topic_id, partitions in target.partitions.items()
        if topic_id in subscribed
    }
    yield fast(len(wanted))
    kept, revoked = yield from _divided(member.assigned, wanted)
    if revoked and (yield from _still_owns(owned, revoked)):
        return member.at_epoch(member.member_epoch, MemberState.UNREVOKED, kept, revoked)
    added: dict[Uuid, dict[int, int]] = {}
    unreleased = False
    units = 0
    for topic_id, partitions in wanted.items():
        missing = partitions - kept.get(topic_id, {}).keys()
        free = {one for one in missing if _may_take(member, target, topic_id, one)}
        unreleased = unreleased or len(free) < len(missing)
        if free:
            added[topic_id] = dict.fromkeys(sorted(free), target.epoch)
        units += 1 + len(missing)
        if units >= PIECE_UNITS:
            yield units
            units = 0
    yield units
    state = MemberState.UNRELEASED if unreleased else MemberState.STABLE
    return member.at_epoch(target.epoch, state, (yield from union(kept, added)), {})


def _may_take(member: ConsumerMember, target: Target, topic_id: Uuid, partition: int) -> bool:
    """A partition that the member itself has just revoked is free for it."""
    return target.is_free(topic_id, partition) or is_held(
        member.pending_revocation, topic_id, partition
    )


def _divided(
    assigned: AssignedPartitions, wanted: Partitions
) -> Steps[tuple[dict[Uuid, Mapping[int, int]], dict[Uuid, Mapping[int, int]]]]:
    """The assigned partitions that are wanted, and the others."""
    kept: dict[Uuid, Mapping[int, int]] = {}
    revoked: dict[Uuid, Mapping[int, int]] = {}
    units = 0
    for topic_id, epochs in assigned.items():
        wanted_here = wanted.get(topic_id, frozenset())
        stay = {one: epoch for one, epoch in epochs.items() if one in wanted_here}
        leave = {one: epoch for one, epoch in epochs.items() if one not in wanted_here}
        if stay:
            kept[topic_id] = stay
        if leave:
            revoked[topic_id] = leave
        units += len(epochs)
        if units >= PIECE_UNITS:
            yield units
            units = 0
    yield units
    return kept, revoked


def _still_owns(owned: Partitions | None, partitions: AssignedPartitions) -> Steps[bool]:
    """Whether the client may still read one of `partitions`; yes if it reports nothing."""
    if owned is None:
        return True
    for piece in pieces(partitions.items()):
        for topic_id, epochs in piece:
            if not epochs.keys().isdisjoint(owned.get(topic_id, frozenset())):
                return True
        yield len(piece) >> 2
    return False
