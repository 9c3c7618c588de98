"""Choose the leader of a classic group and the assignor of its members, each with a reason.

Pure: a choice depends on its arguments alone. Kafka chooses a leader and resolves a tied vote in
hash-map order; here the longest-standing member comes first, so the choice can be explained.
A choice lists the first `LISTED_MAX` candidates, votes, and candidates that are ruled out.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from sparkraft.coordinator.steps import Steps, pieces

LISTED_MAX = 100
"""As many as the journal lists: a group may have any number of members."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A choice and its reason; see `journal.JournalEntry` for the fields."""

    chosen: str | None
    candidates: tuple[str, ...]
    reason: str
    votes: dict[str, str] = field(default_factory=dict)
    ruled_out: dict[str, str] = field(default_factory=dict)


def first_to_join(member_id: str) -> Choice:
    """Choose the first member that joins a group without a leader."""
    return Choice(
        chosen=member_id,
        candidates=(member_id,),
        reason="first member to join a group that had no leader",
    )


def after_removal(leader_id: str, remaining: Sequence[str]) -> Choice:
    """Choose the longest-standing remaining member after the leader was removed.

    `remaining` are the first members, longest-standing first.
    """
    if not remaining:
        return Choice(
            chosen=None,
            candidates=(),
            reason=f"leader {leader_id} was removed and no member remains",
        )
    return Choice(
        chosen=remaining[0],
        candidates=tuple(remaining),
        reason=f"leader {leader_id} was removed; longest-standing remaining member",
        ruled_out={leader_id: "removed from the group"},
    )


def after_missed_join(leader_id: str, members: Iterable[tuple[str, bool]]) -> Steps[Choice]:
    """Choose a member that rejoined; the leader stays a member but did not rejoin in time.

    Args:
        leader_id: the leader so far.
        members: (member id, has rejoined), longest-standing first.
    """
    candidates: list[str] = []
    ruled_out: dict[str, str] = {}
    chosen: str | None = None
    for piece in pieces(members):
        for member_id, joined in piece:
            if joined and chosen is None:
                chosen = member_id
            if len(candidates) < LISTED_MAX:
                candidates.append(member_id)
            if not joined and len(ruled_out) < LISTED_MAX:
                ruled_out[member_id] = "did not rejoin within the rebalance timeout"
        yield len(piece)
    if chosen is None:
        reason = f"leader {leader_id} did not rejoin in time, and no other member did"
    else:
        reason = f"leader {leader_id} did not rejoin in time; longest-standing member that did"
    return Choice(chosen=chosen, candidates=tuple(candidates), reason=reason, ruled_out=ruled_out)


def after_replacement(old_member_id: str, new_member_id: str, instance_id: str) -> Choice:
    """A static leader rejoined under a new member id and keeps leading."""
    return Choice(
        chosen=new_member_id,
        candidates=(new_member_id,),
        reason=f"static member {instance_id} led as {old_member_id} and rejoined",
        ruled_out={old_member_id: f"fenced: instance {instance_id} has a new member id"},
    )


def vote(
    preferences: Iterable[tuple[str, Sequence[str]]], supporters: Mapping[str, int], count: int
) -> Steps[Choice]:
    """Choose the protocol: each member votes for its first one that all members support.

    Most votes win; a tie goes to the protocol voted for by the longest-standing member.

    Args:
        preferences: (member id, its protocols in order of preference), longest-standing first;
            at least one member, and at least one protocol that all of them support.
        supporters: protocol → how many members support it.
        count: of the members.
    """
    shared: dict[str, None] = {}
    votes: dict[str, str] = {}
    counts: dict[str, int] = {}
    for piece in pieces(preferences):
        if not counts:
            _, protocols = piece[0]
            shared = dict.fromkeys(each for each in protocols if supporters[each] == count)
        for member_id, protocols in piece:
            protocol = next(each for each in protocols if each in shared)
            counts[protocol] = counts.get(protocol, 0) + 1
            if len(votes) < LISTED_MAX:
                votes[member_id] = protocol
        yield len(piece)
    most = max(counts.values())
    winners = [protocol for protocol, found in counts.items() if found == most]
    tie = f"; tied with {', '.join(winners[1:])}, longest-standing voter decides"
    unshared = (
        (protocol, f"supported by {found} of {count} members only")
        for protocol, found in supporters.items()
        if found < count
    )
    return Choice(
        chosen=winners[0],
        candidates=tuple(islice(shared, LISTED_MAX)),
        reason=f"{most} of {count} votes{tie if len(winners) > 1 else ''}",
        votes=votes,
        ruled_out=dict(islice(unshared, LISTED_MAX)),
    )
