"""Holds what is told of a partition's past against what really happened, for the simulator.

What happened is given as `Fact`s by whoever watched, a state of the partition each time it changed;
what is told comes from a `History`. Each disagreement is a sentence; none means that they agree.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sparkraft.controller.leader_election import ChosenBy, Reason
from sparkraft.controller.past_events import PartitionEvent
from sparkraft.metadata.partition_state import NO_LEADER, PartitionState


class Fact(NamedTuple):
    """A partition's state from an offset of the metadata log on; None where it was deleted."""

    offset: int
    partition: PartitionState | None


def disagreements(events: Sequence[PartitionEvent], facts: Sequence[Fact]) -> list[str]:
    """What is wrong with the account that `events` give, both oldest first.

    The events may begin later than the facts, since what is kept of the past is bounded, but from
    their first on nothing may be missing, invented, changed, or explained by what was not so.
    """
    if not events:
        return ["nothing is told of a partition that was seen"] if facts else []
    begin = events[0].offset
    seen = {fact.offset: fact for fact in facts if fact.offset >= begin}
    told = {event.offset: event for event in events}
    wrong = [f"offset {offset}: a change is not told" for offset in seen if offset not in told]
    previous = _state_before(facts, begin)
    for event in events:
        fact = seen.get(event.offset)
        if fact is None:
            wrong.append(f"offset {event.offset}: a change is told that nobody saw")
            continue
        if event.before != previous:
            wrong.append(f"offset {event.offset}: it was {previous}, told is {event.before}")
        if event.after != fact.partition:
            wrong.append(f"offset {event.offset}: it is {fact.partition}, told is {event.after}")
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
    """Whether the reasons for the leader are reasons for this leader."""
    if not event.cause.text:
        yield "no cause is told"
    if not event.leader_changed or event.before is None or event.after is None:
        return
    if event.election is None:
        yield "a leader changed without an election"
        return
    if not event.derived:
        yield f"the reasons don't lead to leader {event.after.leader}: {event.election}"
    yield from wrong_reason(event.election, event.after)


def wrong_reason(reason: Reason, after: PartitionState) -> Iterator[str]:
    """What contradicts itself in an election that made the partition what it is `after`."""
    leader = after.leader
    ruled_out = [replica for replica, _ in reason.ruled_out]
    if reason.candidates != after.replicas:
        yield f"the candidates {reason.candidates} are not the replicas {after.replicas}"
    if (leader == NO_LEADER) != (reason.chosen_by is ChosenBy.NOBODY):
        yield f"leader {leader} was chosen as {reason.chosen_by.value}"
    if leader == NO_LEADER:
        if sorted(ruled_out) != sorted(reason.candidates):
            yield f"nobody leads, but only {ruled_out} of {reason.candidates} are ruled out"
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
        yield f"leader {leader} had everything, yet its election counts as unclean"
    earlier = reason.candidates[: reason.candidates.index(leader)]
    passed_over = [r for r in earlier if r not in ruled_out]
    if reason.chosen_by is ChosenBy.IN_SYNC_REPLICA and passed_over:
        yield f"{passed_over} come before leader {leader} and are not ruled out"
