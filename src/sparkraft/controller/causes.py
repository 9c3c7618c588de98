"""Derives why a partition changed, from the records around the change and the image before it.

The records of one decision are adjacent. A *mark* is a record among them that stops or returns a
broker; it explains the changes of that broker's partitions. Elections are repeated by
`choose_leader` on the image of their time, which gives their reasons; `derived` is whether the
result is the leader that was written.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from sparkraft.controller.decision_context import OFFLINE_DIRECTORY, why_not_leader
from sparkraft.controller.leader_election import (
    Candidacy,
    Cause,
    CauseKind,
    ElectionKind,
    Reason,
    choose_leader,
)
from sparkraft.controller.past_events import PartitionEvent
from sparkraft.metadata import features
from sparkraft.metadata.image import ClusterImage, ResourceType
from sparkraft.metadata.partition_state import NO_LEADER, RECOVERING, PartitionState
from sparkraft.protocol.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)

UNCLEAN_KEY = "unclean.leader.election.enable"


class Mark(NamedTuple):
    """A broker that stops or returns, according to a record of the batch."""

    broker_id: int
    kind: CauseKind
    why: str
    """The reason that its replicas may not lead; empty if the broker returns."""
    unclean: bool = False


class Seen(NamedTuple):
    """An event whose cause is unknown so far, and the image just before its record."""

    event: PartitionEvent
    image: ClusterImage


BROKER_RECORDS = (RegisterBrokerRecord, UnregisterBrokerRecord, BrokerRegistrationChangeRecord)


def broker_change(before: ClusterImage, record: Any) -> tuple[list[str], list[Mark]]:
    """Describe a broker record in words, and as marks."""
    broker_id = record.broker_id
    if isinstance(record, UnregisterBrokerRecord):
        mark = Mark(broker_id, CauseKind.UNREGISTERED, "unregistered", unclean=True)
        return ["unregistered"], [mark]
    if isinstance(record, RegisterBrokerRecord):
        known = before.brokers.get(broker_id)
        if known is not None and known.incarnation_id == record.incarnation_id:
            return ["registration amended"], []
        again = "registered" if known is None else "registered again"
        return [again], [Mark(broker_id, CauseKind.RESTARTED, "restarted", unclean=True)]
    descriptions: list[str] = []
    marks: list[Mark] = []
    if record.fenced > 0:
        descriptions.append("fenced")
        marks.append(Mark(broker_id, CauseKind.FENCED, "fenced"))
    if record.fenced < 0:
        descriptions.append("unfenced")
        marks.append(Mark(broker_id, CauseKind.RETURNED, ""))
    if record.in_controlled_shutdown:
        descriptions.append("began its controlled shutdown")
        marks.append(Mark(broker_id, CauseKind.SHUTDOWN, "shutting down"))
    if record.log_dirs:
        offline = [d for d in before.brokers[broker_id].directories if d not in record.log_dirs]
        descriptions.append(f"log directory {', '.join(map(str, offline))} went offline")
        marks.append(Mark(broker_id, CauseKind.DIRECTORY_OFFLINE, OFFLINE_DIRECTORY))
    if record.cordoned_log_dirs is not None:
        descriptions.append(f"{len(record.cordoned_log_dirs)} log directories cordoned")
    return descriptions, marks


_TEXTS = {
    CauseKind.FENCED: "broker {} was fenced",
    CauseKind.SHUTDOWN: "controlled shutdown of broker {}",
    CauseKind.RESTARTED: "broker {} registered again",
    CauseKind.UNREGISTERED: "broker {} was unregistered",
    CauseKind.RETURNED: "broker {} was unfenced",
    CauseKind.DIRECTORY_OFFLINE: "a log directory of broker {} went offline",
}


def explain_by(seen: Seen, marks: Iterable[Mark]) -> bool:
    """Set an event's cause and election; return whether one of `marks` explains it."""
    event = seen.event
    before, after = event.before, event.after
    assert before is not None
    assert after is not None
    mark = _mark_of(before, after, marks) or _lost_directory(seen)
    event.cause = (
        _own_cause(seen)
        if mark is None
        else Cause(mark.kind, _TEXTS[mark.kind].format(mark.broker_id))
    )
    if event.leader_changed:
        event.election, event.derived = _reason(seen, mark)
    return mark is not None


def _mark_of(before: PartitionState, after: PartitionState, marks: Iterable[Mark]) -> Mark | None:
    departed = (set(before.isr) - set(after.isr)) | (set(before.elr) - {*after.elr, *after.isr})
    if after.leader != before.leader:
        departed.add(before.leader)
    for mark in marks:
        if mark.why and mark.broker_id in departed and after.leader != mark.broker_id:
            return mark
    if before.leader == NO_LEADER and after.leader != NO_LEADER:
        for mark in marks:
            if not mark.why:
                return mark
    return None


def _lost_directory(seen: Seen) -> Mark | None:
    """A replica that left because its broker assigned it to an offline log directory."""
    before, after = seen.event.before, seen.event.after
    assert before is not None
    assert after is not None
    why_not = why_not_leader(seen.image, before, {})
    for replica in before.isr:
        # Without ELR the last ISR member stays in the ISR and only loses its leadership.
        deposed = replica == before.leader != after.leader
        if (deposed or replica not in after.isr) and why_not(replica) == OFFLINE_DIRECTORY:
            return Mark(replica, CauseKind.DIRECTORY_OFFLINE, OFFLINE_DIRECTORY)
    return None


def _own_cause(seen: Seen) -> Cause:
    """The cause of a change that no mark explains."""
    before, after = seen.event.before, seen.event.after
    assert before is not None
    assert after is not None
    if _assignment(before) != _assignment(after):
        return _reassignment_cause(before, after)
    if after.leader != before.leader:
        if before.leader == NO_LEADER:
            return Cause(CauseKind.UNCLEAN, "an election for a partition without a leader")
        return Cause(CauseKind.PREFERRED, "a preferred election, requested or periodic")
    if after.isr != before.isr or after.leader_recovery_state != before.leader_recovery_state:
        return Cause(CauseKind.ISR_CHANGED, f"leader {before.leader} changed the ISR")
    if after.directories != before.directories:
        return Cause(CauseKind.DIRECTORY_ASSIGNED, "a directory was assigned")
    return seen.event.cause


def _assignment(partition: PartitionState) -> tuple[tuple[int, ...], ...]:
    return partition.replicas, partition.adding_replicas, partition.removing_replicas


def _reassignment_cause(before: PartitionState, after: PartitionState) -> Cause:
    """Distinguish completed from cancelled and replaced reassignments, by new ISR members.

    The remaining replicas do not distinguish them: a cancelled reassignment may leave the same
    replicas as a completed one.
    """
    ended = before.is_reassigning and not after.is_reassigning
    if ended and not set(after.isr) <= set(before.isr):
        if before.leader == NO_LEADER:
            return Cause(CauseKind.UNCLEAN, "an election for a partition without a leader")
        text = f"leader {before.leader} changed the ISR, which completed the reassignment"
        return Cause(CauseKind.ISR_CHANGED, text)
    before_it = tuple(r for r in before.replicas if r not in before.adding_replicas)
    cancelled = ended and after.replicas == before_it
    return Cause(CauseKind.REASSIGNED, _CANCELLED if cancelled else "the partition is reassigned")


_CANCELLED = "the reassignment was cancelled"


def _reason(seen: Seen, mark: Mark | None) -> tuple[Reason, bool]:
    """Repeat an election on the image of its time; return also whether the result is the same."""
    event, image = seen.event, seen.image
    before, after = event.before, event.after
    assert before is not None
    assert after is not None
    departed = {} if mark is None or not mark.why else {mark.broker_id: mark.why}
    isr = _target_isr(before, after, departed)
    elr_enabled = features.elr_enabled(image.features)
    last = before.last_known_elr
    choice = choose_leader(
        Candidacy(
            kind=_kind(seen),
            replicas=after.replicas,
            isr=isr,
            elr=_target_elr(seen, isr, mark) if elr_enabled else before.elr,
            current_leader=before.leader,
            last_known_leader=last[0] if len(last) == 1 else None,
            elr_enabled=elr_enabled,
            why_not=why_not_leader(image, before, departed),
        )
    )
    reason = choice.reason
    explained = Reason(
        kind=reason.kind,
        chosen_by=reason.chosen_by,
        candidates=reason.candidates,
        isr=reason.isr,
        elr=reason.elr,
        live=reason.live,
        ruled_out=reason.ruled_out,
        cause=event.cause,
    )
    return explained, choice.leader == after.leader


def _kind(seen: Seen) -> ElectionKind:
    """The rules of an election: by its cause, or by the topic's config."""
    event = seen.event
    kind = event.cause.kind
    if kind is CauseKind.PREFERRED:
        return ElectionKind.PREFERRED
    if kind is CauseKind.UNCLEAN:
        return ElectionKind.UNCLEAN
    if kind is CauseKind.REASSIGNED and event.cause.text != _CANCELLED:
        return ElectionKind.ONLINE
    image = seen.image
    text = image.config(ResourceType.TOPIC, event.topic).get(UNCLEAN_KEY)
    if text is None:
        text = image.config(ResourceType.BROKER, "").get(UNCLEAN_KEY, "false")
    return ElectionKind.UNCLEAN if text.lower() == "true" else ElectionKind.ONLINE


def _target_isr(
    before: PartitionState, after: PartitionState, departed: dict[int, str]
) -> tuple[int, ...]:
    """The ISR during the election: after the change that caused it, before its result."""
    if _is_unclean(before, after) or after.leader in before.elr or after.leader == NO_LEADER:
        completed = before.is_reassigning and not after.is_reassigning
        removed = before.removing_replicas if completed else ()
        return tuple(r for r in before.isr if r not in departed and r not in removed)
    return after.isr


def _target_elr(seen: Seen, isr: tuple[int, ...], mark: Mark | None) -> tuple[int, ...]:
    before, after = seen.event.before, seen.event.after
    assert before is not None
    assert after is not None
    if not _is_unclean(before, after):
        joined = (after.leader,) if after.leader in before.elr else ()
        return tuple(sorted({*after.elr, *joined}))
    lost = {mark.broker_id} if mark is not None and mark.unclean else set()
    known = {*before.elr, *before.isr} - set(isr) - lost
    return tuple(sorted(known & set(after.replicas)))


def _is_unclean(before: PartitionState, after: PartitionState) -> bool:
    """Whether the elected leader may lack committed records."""
    alone = after.isr == (after.leader,) and after.leader_recovery_state == RECOVERING
    return alone and after.leader not in before.isr and after.leader not in before.elr
