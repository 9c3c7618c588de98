"""Who leads a partition, and why (DESIGN D8, KIP-966).

`choose_leader` is the one place where a partition's leader is chosen. Its answer carries the whole
reasoning: the kind of election, the candidates in the order of the assigned replicas, who was in
sync, who was alive, and what ruled each of the others out.

The order of preference, the first that fits wins:
    1. *preferred* only: the first assigned replica, if it may lead.
    2. the present leader, if it still may.
    3. the first assigned replica that may lead. "May lead": alive, and in the ISR, or in the ELR
       where the ISR is empty.
    4. with ELR on and both ISR and ELR empty: the last known leader, if alive (unclean).
    5. *unclean* only: the first assigned replica that is alive (unclean).

Not here: what a new leader does to ISR and ELR (`partition_change`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from sparkraft.base.ids import Uuid
from sparkraft.metadata.partition_state import NO_LEADER


class ElectionKind(Enum):
    """Which rules an election follows."""

    ONLINE = "online"
    """Keep the partition led by a replica that has everything."""
    PREFERRED = "preferred"
    """The same, and back to the first assigned replica where possible."""
    UNCLEAN = "unclean"
    """Keep it led even by a replica that may lack data."""


class ChosenBy(Enum):
    """Which rule found the leader."""

    PREFERRED_REPLICA = "preferred replica"
    CURRENT_LEADER = "current leader"
    IN_SYNC_REPLICA = "in-sync replica"
    ELIGIBLE_LEADER_REPLICA = "eligible leader replica"
    LAST_KNOWN_LEADER = "last known leader"
    ANY_LIVE_REPLICA = "any live replica"
    NOBODY = "nobody"


class CauseKind(Enum):
    """What made the controller look at a partition."""

    CREATED = "created"
    """The topic or the partition was made; nobody was elected before."""
    DELETED = "deleted"
    ELR_CLEARED = "ELR cleared"
    """By another min.insync.replicas."""
    FENCED = "broker fenced"
    SHUTDOWN = "controlled shutdown"
    RESTARTED = "broker registered again"
    UNREGISTERED = "broker unregistered"
    RETURNED = "broker unfenced"
    DIRECTORY_OFFLINE = "log directory offline"
    DIRECTORY_ASSIGNED = "log directory assigned"
    ISR_CHANGED = "the leader changed the ISR"
    REASSIGNED = "reassignment"
    PREFERRED = "preferred election"
    """Asked for, or by the periodic balance."""
    UNCLEAN = "unclean election"
    """Asked for, or by the periodic check for leaderless partitions."""


class Cause(NamedTuple):
    """An occasion, and a sentence about this one."""

    kind: CauseKind
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidacy:
    """The facts an election is decided on.

    Attributes:
        kind: the rules.
        replicas: assigned replicas in their order of preference.
        isr: replicas in sync, after the change that causes the election.
        elr: eligible leader replicas, after it.
        current_leader: who leads before; -1 for nobody.
        last_known_leader: who led last where the partition lost its leader; None where unknown.
        elr_enabled: whether the last known leader may be used.
        why_not: what keeps a replica from leading at all; None for one that is alive.
    """

    kind: ElectionKind
    replicas: Sequence[int]
    isr: Sequence[int]
    elr: Sequence[int]
    current_leader: int
    last_known_leader: int | None
    elr_enabled: bool
    why_not: Callable[[int], str | None]


_NAMES_BY_RULE = {
    ChosenBy.ELIGIBLE_LEADER_REPLICA: "eligible leader replica",
    ChosenBy.LAST_KNOWN_LEADER: "last known leader (unclean)",
    ChosenBy.ANY_LIVE_REPLICA: "unclean",
}
"""Rules that say more than what caused the election."""

_NAMES_BY_CAUSE = {
    CauseKind.SHUTDOWN: "controlled shutdown",
    CauseKind.REASSIGNED: "reassignment",
    CauseKind.ISR_CHANGED: "reassignment",
    CauseKind.PREFERRED: "preferred",
}
"""A leader's own ISR change elects another only where it completes a reassignment."""


_NO_CAUSE = Cause(CauseKind.CREATED, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why an election ended as it did.

    Attributes:
        kind: the rules it followed.
        chosen_by: the rule that found the leader.
        candidates: assigned replicas in order.
        isr: who was in sync.
        elr: who was eligible besides.
        live: candidates that were alive.
        ruled_out: for each candidate that could not lead, in order, what kept it from it.
        occasion: what caused the election.
        trigger: the same as a sentence, such as "broker 3 asked to be fenced".
    """

    kind: ElectionKind
    chosen_by: ChosenBy
    candidates: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    live: tuple[int, ...]
    ruled_out: tuple[tuple[int, str], ...]
    cause: Cause = _NO_CAUSE

    @property
    def name(self) -> str:
        """The kind of election as people speak of it: offline, preferred, unclean and so on."""
        return _NAMES_BY_RULE.get(self.chosen_by) or _NAMES_BY_CAUSE.get(self.cause.kind, "offline")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """An election's result; `leader` is -1 where nobody may lead."""

    leader: int
    unclean: bool
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Election:
    """A change of leadership for the journal; `leader` and `previous` are -1 for nobody."""

    topic: str
    topic_id: Uuid
    partition: int
    previous: int
    leader: int
    leader_epoch: int
    reason: Reason


def choose_leader(facts: Candidacy) -> Choice:
    """The leader by the rules of the module's docstring."""
    dead = {replica: facts.why_not(replica) for replica in facts.replicas}

    def may_lead(replica: int) -> bool:
        eligible = replica in facts.isr or (not facts.isr and replica in facts.elr)
        # A leader that is no longer assigned can't stay.
        return eligible and replica in dead and dead[replica] is None

    leader, chosen_by = _search(facts, dead, may_lead)
    unclean = chosen_by in {ChosenBy.LAST_KNOWN_LEADER, ChosenBy.ANY_LIVE_REPLICA}
    ruled_out = tuple(
        (replica, dead[replica] or _not_eligible(facts))
        for replica in facts.replicas
        if replica != leader and not may_lead(replica)
    )
    reason = Reason(
        kind=facts.kind,
        chosen_by=chosen_by,
        candidates=tuple(facts.replicas),
        isr=tuple(facts.isr),
        elr=tuple(facts.elr),
        live=tuple(replica for replica in facts.replicas if dead[replica] is None),
        ruled_out=ruled_out,
    )
    return Choice(leader=leader, unclean=unclean, reason=reason)


def _search(
    facts: Candidacy, dead: dict[int, str | None], may_lead: Callable[[int], bool]
) -> tuple[int, ChosenBy]:
    if facts.kind is ElectionKind.PREFERRED and may_lead(facts.replicas[0]):
        return facts.replicas[0], ChosenBy.PREFERRED_REPLICA
    if may_lead(facts.current_leader):
        return facts.current_leader, ChosenBy.CURRENT_LEADER
    for replica in facts.replicas:
        if may_lead(replica):
            by = ChosenBy.IN_SYNC_REPLICA if facts.isr else ChosenBy.ELIGIBLE_LEADER_REPLICA
            return replica, by
    last = facts.last_known_leader
    no_candidates = facts.elr_enabled and not facts.isr and not facts.elr
    if no_candidates and last is not None and last in dead and dead[last] is None:
        return last, ChosenBy.LAST_KNOWN_LEADER
    if facts.kind is ElectionKind.UNCLEAN:
        for replica in facts.replicas:
            if dead[replica] is None:
                return replica, ChosenBy.ANY_LIVE_REPLICA
    return NO_LEADER, ChosenBy.NOBODY


def _not_eligible(facts: Candidacy) -> str:
    return "not in the ISR" if facts.isr else "neither in the ISR nor in the ELR"
