"""Election of a partition's leader, with the reason for the result (KIP-966).

`choose_leader` is the only code that chooses a leader. Its result includes the reasoning: the kind
of election, the candidates in assignment order, the ISR, the live replicas, and why each of the
other candidates was ruled out. See docs/decisions/0008-decisions-carry-reasons.md.

Order of preference; the first that applies wins:
    1. *preferred* only: the first assigned replica, if it may lead.
    2. The current leader, if it may still lead.
    3. The first assigned replica that may lead. A replica may lead if it is live and in the ISR, or
       in the ELR if the ISR is empty.
    4. With ELR enabled, and ISR and ELR empty: the last known leader, if live (unclean).
    5. *unclean* only: the first live assigned replica (unclean).

Not here: how a new leader changes ISR and ELR (`partition_rules`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from sparkraft.base.ids import Uuid
from sparkraft.metadata.partition_state import NO_LEADER


class ElectionKind(Enum):
    """The rules an election follows."""

    ONLINE = "online"
    """Elect a replica that has all committed records."""
    PREFERRED = "preferred"
    """As ONLINE, but prefer the first assigned replica to the current leader."""
    UNCLEAN = "unclean"
    """As ONLINE, but if that fails elect any live replica; committed records may be lost."""


class ChosenBy(Enum):
    """The rule that found the leader."""

    PREFERRED_REPLICA = "preferred replica"
    CURRENT_LEADER = "current leader"
    IN_SYNC_REPLICA = "in-sync replica"
    ELIGIBLE_LEADER_REPLICA = "eligible leader replica"
    LAST_KNOWN_LEADER = "last known leader"
    ANY_LIVE_REPLICA = "any live replica"
    NOBODY = "nobody"


class CauseKind(Enum):
    """The kinds of events that change a partition."""

    CREATED = "created"
    """The partition was created with its first leader."""
    DELETED = "deleted"
    ELR_CLEARED = "ELR cleared"
    """min.insync.replicas changed."""
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
    """Requested, or by the periodic check for preferred leaders."""
    UNCLEAN = "unclean election"
    """Requested, or by the periodic check for partitions without a leader."""


class Cause(NamedTuple):
    """Why a partition changed: the kind of event, and this one in words."""

    kind: CauseKind
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidacy:
    """The facts that an election depends on.

    Attributes:
        kind: the rules.
        replicas: assigned replicas, the preferred leader first.
        isr: in-sync replicas after the change that causes the election.
        elr: eligible leader replicas after that change.
        current_leader: broker id of the leader before the election, or -1.
        last_known_leader: last leader of a partition without a leader; None if unknown.
        elr_enabled: whether the last known leader may be elected.
        why_not: gives the reason that a replica is not live; None for a live one.
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
"""Names of elections by the rule that found the leader; they take precedence."""

_NAMES_BY_CAUSE = {
    CauseKind.SHUTDOWN: "controlled shutdown",
    CauseKind.REASSIGNED: "reassignment",
    CauseKind.ISR_CHANGED: "reassignment",
    CauseKind.PREFERRED: "preferred",
}
"""Names of elections by their cause. An ISR change by the leader elects another leader only if it
completes a reassignment."""


_NO_CAUSE = Cause(CauseKind.CREATED, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """The reasons for the result of an election.

    Attributes:
        kind: the rules that applied.
        chosen_by: the rule that found the leader.
        candidates: assigned replicas, the preferred leader first.
        isr: in-sync replicas.
        elr: eligible leader replicas.
        live: candidates that were live.
        ruled_out: candidates that could not lead, in order, each with the reason.
        cause: the event that caused the election, such as "broker 3 asked to be fenced".
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
        """The common name of this kind of election: offline, preferred, unclean and so on."""
        return _NAMES_BY_RULE.get(self.chosen_by) or _NAMES_BY_CAUSE.get(self.cause.kind, "offline")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The result of an election; `leader` is -1 if no replica may lead."""

    leader: int
    unclean: bool
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Election:
    """A change of leader for the journal; `leader` and `previous` are -1 for none."""

    topic: str
    topic_id: Uuid
    partition: int
    previous: int
    leader: int
    leader_epoch: int
    reason: Reason


def choose_leader(facts: Candidacy) -> Choice:
    """Elect a leader by the rules of the module docstring."""
    not_live = {replica: facts.why_not(replica) for replica in facts.replicas}

    def may_lead(replica: int) -> bool:
        eligible = replica in facts.isr or (not facts.isr and replica in facts.elr)
        # A leader that is no longer assigned can't stay.
        return eligible and replica in not_live and not_live[replica] is None

    leader, chosen_by = _search(facts, not_live, may_lead)
    unclean = chosen_by in {ChosenBy.LAST_KNOWN_LEADER, ChosenBy.ANY_LIVE_REPLICA}
    ruled_out = tuple(
        (replica, not_live[replica] or _not_eligible(facts))
        for replica in facts.replicas
        if replica != leader and not may_lead(replica)
    )
    reason = Reason(
        kind=facts.kind,
        chosen_by=chosen_by,
        candidates=tuple(facts.replicas),
        isr=tuple(facts.isr),
        elr=tuple(facts.elr),
        live=tuple(replica for replica in facts.replicas if not_live[replica] is None),
        ruled_out=ruled_out,
    )
    return Choice(leader=leader, unclean=unclean, reason=reason)


def _search(
    facts: Candidacy, not_live: dict[int, str | None], may_lead: Callable[[int], bool]
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
    if no_candidates and last is not None and last in not_live and not_live[last] is None:
        return last, ChosenBy.LAST_KNOWN_LEADER
    if facts.kind is ElectionKind.UNCLEAN:
        for replica in facts.replicas:
            if not_live[replica] is None:
                return replica, ChosenBy.ANY_LIVE_REPLICA
    return NO_LEADER, ChosenBy.NOBODY


def _not_eligible(facts: Candidacy) -> str:
    return "not in the ISR" if facts.isr else "neither in the ISR nor in the ELR"
