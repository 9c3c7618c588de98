"""Check a partition's reported history against the committed records, for the simulator.

The checker records a `Fact`, the state of the partition, for each change; the reported events come
from a `History`. Each disagreement is one message; no message means that they agree.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sparkraft.controller.leader_election import ChosenBy, Reason
from sparkraft.controller.past_events import PartitionEvent
from sparkraft.metadata.partition_state import NO_LEADER, PartitionState


class Fact(NamedTuple):
    """A partition's state from a metadata log offset on; None once it is deleted."""

    offset: int
    partition: PartitionState | None


def disagreements(events: Sequence[PartitionEvent], facts: Sequence[Fact]) -> list[str]:
    """Return the disagreements between `events` and `facts`, both oldest first.

    The retained history is bounded, so the events may begin later than the facts. From the first
    event on, none may be missing, invented, altered or explained by a wrong reason.
    """
    if not events:
        return ["a partition in the log has no events"] if facts else []
    begin = events[0].offset
    seen = {fact.offset: fact for fact in facts if fact.offset >= begin}
    reported = {event.offset: event for event in events}
    wrong = [f"offset {offset}: a change is missing" for offset in seen if offset not in reported]
    previous = _state_before(facts, begin)
    for event in events:
        fact = seen.get(event.offset)
        if fact is None:
            wrong.append(f"offset {event.offset}: a reported change is not in the log")
            continue
        if event.before != previous:
            wrong.append(
                f"offset {event.offset}: `before` is {event.before}, in the log {previous}"
            )
        if event.after != fact.partition:
            wrong.append(
                f"offset {event.offset}: `after` is {event.after}, in the log {fact.partition}"
            )
        wrong += [f"offset {event.offset}: {what}" for what in _wrong_reasons(event)]
        previous = fact.partition
    return wrong


def _state_before(facts: Sequence[Fact], offset: int) -> PartitionState | None:
    found = None
    for fact in facts:
        if fact.offset >= offset:
            break
        found = fact.partition
    return found


def _wrong_reasons(event: PartitionEvent) -> Iterator[str]:
    """Yield contradictions between the reported reasons and the elected leader."""
    if not event.cause.text:
        yield "no cause is given"
    if not event.leader_changed or event.before is None or event.after is None:
        return
    if event.election is None:
        yield "a leader changed without an election"
        return
    if not event.derived:
        yield f"the reasons do not imply leader {event.after.leader}: {event.election}"
    yield from wrong_reason(event.election, event.after)


def wrong_reason(reason: Reason, after: PartitionState) -> Iterator[str]:
    """Yield contradictions in the reasons of an election whose result is `after`."""
    leader = after.leader
    ruled_out = [replica for replica, _ in reason.ruled_out]
    if reason.candidates != after.replicas:
        yield f"the candidates {reason.candidates} are not the replicas {after.replicas}"
    if (leader == NO_LEADER) != (reason.chosen_by is ChosenBy.NOBODY):
        yield f"leader {leader} was chosen as {reason.chosen_by.value}"
    if leader == NO_LEADER:
        if sorted(ruled_out) != sorted(reason.candidates):
            yield f"no leader, but only {ruled_out} of {reason.candidates} are ruled out"
        return
    if leader not in reason.live:
        yield f"leader {leader} is not among the live {reason.live}"
    if leader in ruled_out:
        yield f"leader {leader} is ruled out"
    needed = {
        ChosenBy.IN_SYNC_REPLICA: reason.isr,
        ChosenBy.PREFERRED_REPLICA: after.replicas[:1],
        ChosenBy.ELIGIBLE_LEADER_REPLICA: reason.elr,
    }.get(reason.chosen_by)
    if needed is not None and leader not in needed:
        yield f"leader {leader} was chosen as {reason.chosen_by.value} of {needed}"
    unclean = {ChosenBy.LAST_KNOWN_LEADER, ChosenBy.ANY_LIVE_REPLICA}
    if reason.chosen_by in unclean and leader in {*reason.isr, *reason.elr}:
        yield f"leader {leader} had all committed records, yet its election counts as unclean"
    earlier = reason.candidates[: reason.candidates.index(leader)]
    passed_over = [r for r in earlier if r not in ruled_out]
    if reason.chosen_by is ChosenBy.IN_SYNC_REPLICA and passed_over:
        yield f"{passed_over} precede leader {leader} and are not ruled out"
