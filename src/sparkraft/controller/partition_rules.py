"""The rules of a partition's next state: ISR, ELR, leader, epochs and reassignment.

    PartitionState + Target ──▶ next_state ──▶ Transition: PartitionState', choice of its leader

`next_state` applies the rules in this order (KIP-966 for the ELR, KIP-455 for reassignments):
    1. Complete the reassignment if all added replicas are in sync.
    2. Recompute the ELR.
    3. Elect a leader.
    4. Bump the leader epoch if a replica was removed.
    5. Clear the ELR if it is not in use; keep the last ISR member if there is no ELR to keep it.
    6. Bump the leader epoch if the ISR shrank (metadata versions before KAFKA-15021 only).
    7. Remember or clear the last known leader.
    8. Assign log directories to new replicas.

Invariants of the state they lead to:
    * The leader is in the ISR, or there is no leader.
    * ELR and ISR are disjoint; the ELR is empty if the ISR has min.insync.replicas members.
    * An unclean leader is alone in the ISR and RECOVERING.
    * `partition_epoch` grows by one with each change, `leader_epoch` when a leader is written.

Not here: metadata records and the cluster image. A controller states the facts about its cluster as
`ClusterFacts` and stores the state in its own form (`partition_change` does it for KRaft).
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from sparkraft.base.ids import Uuid
from sparkraft.controller.leader_election import (
    Candidacy,
    Cause,
    Choice,
    ElectionKind,
    choose_leader,
)
from sparkraft.metadata.partition_state import NO_LEADER, RECOVERING, PartitionState

Ids = tuple[int, ...]


@dataclass(slots=True, kw_only=True)
class Target:
    """The requested change of a partition; fields that are None stay as they are.

    Attributes:
        isr: in-sync replicas.
        replicas: assigned replicas, preferred leader first.
        adding: replicas that a reassignment adds.
        removing: replicas that a reassignment removes.
        recovery_state: RECOVERED or RECOVERING.
        directories: log directories that change, by replica.
        kind: rules of the election, if one is needed.
        unclean_shutdowns: replicas that may have lost records and so leave the ELR.
        why_not: gives the reason that a replica is not live; None: decide by the cluster's state.
        cause: why the partition changes, for the journal.
    """

    isr: Ids | None = None
    replicas: Ids | None = None
    adding: Ids | None = None
    removing: Ids | None = None
    recovery_state: int | None = None
    directories: dict[int, Uuid] = field(default_factory=dict)
    kind: ElectionKind = ElectionKind.ONLINE
    unclean_shutdowns: Ids = ()
    why_not: Callable[[int], str | None] | None = None
    cause: Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """Facts about the cluster that the rules depend on.

    Attributes:
        why_not: gives the reason that a replica is not live; None for a live one.
        min_isr: the ELR is empty once the ISR has this many members.
        elr_enabled: whether eligible leader replicas are kept.
        elr_stored: whether the controller can store an ELR.
        shrink_bumps_leader_epoch: whether a smaller ISR needs a new leader epoch.
        directory_of_new: log directory of a replica that is assigned now.
    """

    why_not: Callable[[int], str | None]
    directory_of_new: Callable[[int], Uuid]
    min_isr: int = 1
    elr_enabled: bool = False
    elr_stored: bool = False
    shrink_bumps_leader_epoch: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """A partition's state before and after a change; equal if nothing changed."""

    before: PartitionState
    after: PartitionState
    choice: Choice

    @property
    def changed(self) -> bool:
        """Whether there is anything to store."""
        return self.after != self.before

    @property
    def elected_uncleanly(self) -> bool:
        """Whether the leader changed to a replica that may lack committed records."""
        return self.choice.unclean and self.after.leader != self.before.leader


def next_state(before: PartitionState, target: Target, facts: ClusterFacts) -> Transition:
    """Apply the rules of the module docstring to `target`."""
    state = _complete_reassignment(_requested(before, target))
    state = _recompute_elr(before, state, target, facts)
    choice = _elect(before, state, target, facts)
    state = _set_leader(before, state, choice)
    state = _bump_epoch_if_replicas_left(before, state)
    state = _keep_elr_or_last_member(before, state, facts)
    if facts.shrink_bumps_leader_epoch:
        state = _bump_epoch_if_isr_shrank(before, state)
    if facts.elr_enabled:
        state = _set_last_known_leader(before, state)
    state = _assign_directories(before, state, target, facts)
    if target.recovery_state not in {None, before.leader_recovery_state}:
        state = state._replace(leader_recovery_state=target.recovery_state)
    if state != before:
        state = state._replace(partition_epoch=before.partition_epoch + 1)
    return Transition(before=before, after=state, choice=choice)


def _requested(before: PartitionState, target: Target) -> PartitionState:
    state = before
    if target.isr is not None:
        state = state._replace(isr=target.isr)
    if target.replicas is not None:
        state = state._replace(replicas=target.replicas)
    if target.adding is not None:
        state = state._replace(adding_replicas=target.adding)
    if target.removing is not None:
        state = state._replace(removing_replicas=target.removing)
    return state


def _complete_reassignment(state: PartitionState) -> PartitionState:
    adding, removing = state.adding_replicas, state.removing_replicas
    if not adding and not removing:
        return state
    isr = tuple(r for r in state.isr if r not in removing)
    replicas = tuple(r for r in state.replicas if r not in removing)
    if not isr or not replicas or any(r not in isr for r in adding):
        return state
    # Remaining replicas may lag, unless more are removed than added; then all must be in sync.
    if len(adding) < len(removing) and any(r not in isr for r in replicas):
        return state
    return state._replace(isr=isr, replicas=replicas, adding_replicas=(), removing_replicas=())


def _recompute_elr(
    before: PartitionState, state: PartitionState, target: Target, facts: ClusterFacts
) -> PartitionState:
    if not facts.elr_enabled:
        return state
    if len(state.isr) >= facts.min_isr:
        return state._replace(elr=()) if state.elr else state
    excluded = {*state.isr, *target.unclean_shutdowns}
    candidates = sorted({*state.elr, *before.isr} - excluded)
    return state._replace(elr=tuple(r for r in candidates if r in state.replicas))


def _elect(
    before: PartitionState, state: PartitionState, target: Target, facts: ClusterFacts
) -> Choice:
    last = before.last_known_elr
    return choose_leader(
        Candidacy(
            kind=target.kind,
            replicas=state.replicas,
            isr=state.isr,
            elr=state.elr,
            current_leader=before.leader,
            last_known_leader=last[0] if len(last) == 1 else None,
            elr_enabled=facts.elr_enabled,
            why_not=facts.why_not,
        )
    )


def _set_leader(before: PartitionState, state: PartitionState, choice: Choice) -> PartitionState:
    leader = choice.leader
    if leader == before.leader:
        return state
    if leader in state.elr:
        state = state._replace(isr=(leader,), elr=tuple(r for r in state.elr if r != leader))
    state = state._replace(leader=leader, leader_epoch=before.leader_epoch + 1)
    if choice.unclean:
        state = state._replace(isr=(leader,), elr=(), leader_recovery_state=RECOVERING)
    return state


def _is_leader_written(before: PartitionState, state: PartitionState) -> bool:
    return state.leader_epoch != before.leader_epoch


def _bump_epoch_if_replicas_left(before: PartitionState, state: PartitionState) -> PartitionState:
    if all(r in state.replicas for r in before.replicas):
        return state
    return state._replace(leader_epoch=before.leader_epoch + 1)


def _keep_elr_or_last_member(
    before: PartitionState, state: PartitionState, facts: ClusterFacts
) -> PartitionState:
    elr = state.elr if facts.elr_enabled else ()
    elr = elr if facts.elr_stored else before.elr
    if elr != state.elr:
        state = state._replace(elr=elr)
    # Without ELR the last member stays in the ISR, which records that it has all data.
    if not state.isr and not facts.elr_enabled:
        state = state._replace(isr=before.isr)
    return state


def _bump_epoch_if_isr_shrank(before: PartitionState, state: PartitionState) -> PartitionState:
    if all(r in state.isr for r in before.isr):
        return state
    return state._replace(leader_epoch=before.leader_epoch + 1)


def _set_last_known_leader(before: PartitionState, state: PartitionState) -> PartitionState:
    """Remember the leader when a partition loses it; forget it when there is a new one.

    A partition that lost its leader before ELR was enabled kept its last member in the ISR. When
    that one leaves, it is remembered. Kafka would not remember it, and the partition would stay
    without a leader until an unclean election.
    """
    written = _is_leader_written(before, state)
    known = before.last_known_elr
    if written and state.leader == NO_LEADER and not known:
        return state._replace(last_known_elr=(before.leader,))
    if not known and not written and before.leader == NO_LEADER:
        last_member_left = not state.isr and len(before.isr) == 1
        return state._replace(last_known_elr=before.isr) if last_member_left else state
    if written and state.leader != NO_LEADER and known:
        return state._replace(last_known_elr=())
    return state


def _assign_directories(
    before: PartitionState, state: PartitionState, target: Target, facts: ClusterFacts
) -> PartitionState:
    if not state.replicas:
        return state._replace(replicas=before.replicas)
    if state.replicas == before.replicas and not target.directories:
        return state
    known = dict(zip(before.replicas, before.directories, strict=True))
    known.update(target.directories)
    directories = tuple(
        known[r] if r in known else facts.directory_of_new(r) for r in state.replicas
    )
    return state._replace(directories=directories)
