"""Choose the leader of a classic group and the assignor of its members, each with a reason.

Pure: a choice depends on its arguments alone. Kafka chooses a leader and resolves a tied vote in
hash-map order; here the longest-standing member comes first, so the choice can be explained.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field


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
    """Choose the longest-standing remaining member after the leader was removed."""
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


def after_missed_join(leader_id: str, members: Sequence[tuple[str, bool]]) -> Choice:
    """Choose a member that rejoined; the leader stays a member but did not rejoin in time.

    Args:
        leader_id: the leader so far.
        members: (member id, has rejoined), longest-standing first.
    """
    ruled_out = {
        member_id: "did not rejoin within the rebalance timeout"
        for member_id, joined in members
        if not joined
    }
    chosen = next((member_id for member_id, joined in members if joined), None)
    if chosen is None:
        reason = f"leader {leader_id} did not rejoin in time, and no other member did"
    else:
        reason = f"leader {leader_id} did not rejoin in time; longest-standing member that did"
    return Choice(
        chosen=chosen,
        candidates=tuple(member_id for member_id, _ in members),
        reason=reason,
        ruled_out=ruled_out,
    )


def after_replacement(old_member_id: str, new_member_id: str, instance_id: str) -> Choice:
    """A static leader rejoined under a new member id and keeps leading."""
    return Choice(
        chosen=new_member_id,
        candidates=(new_member_id,),
        reason=f"static member {instance_id} led as {old_member_id} and rejoined",
        ruled_out={old_member_id: f"fenced: instance {instance_id} has a new member id"},
    )


def vote(preferences: Sequence[tuple[str, Sequence[str]]]) -> Choice:
    """Choose the protocol: each member votes for its first one that all members support.

    Most votes win; a tie goes to the protocol voted for by the longest-standing member.

    Args:
        preferences: (member id, its protocols in order of preference), longest-standing first;
            at least one member, and at least one protocol that all of them support.
    """
    assert preferences
    supporters: dict[str, list[str]] = {}
    for member_id, protocols in preferences:
        for protocol in dict.fromkeys(protocols):
            supporters.setdefault(protocol, []).append(member_id)
    ruled_out = {
        protocol: f"supported by {len(members)} of {len(preferences)} members only"
        for protocol, members in supporters.items()
        if len(members) < len(preferences)
    }
    votes = {
        member_id: next(protocol for protocol in protocols if protocol not in ruled_out)
        for member_id, protocols in preferences
    }
    counts: dict[str, int] = {}
    for protocol in votes.values():
        counts[protocol] = counts.get(protocol, 0) + 1
    most = max(counts.values())
    winners = [protocol for protocol, count in counts.items() if count == most]
    tie = f"; tied with {', '.join(winners[1:])}, longest-standing voter decides"
    return Choice(
        chosen=winners[0],
        candidates=tuple(protocol for protocol in supporters if protocol not in ruled_out),
        reason=f"{most} of {len(votes)} votes{tie if len(winners) > 1 else ''}",
        votes=votes,
        ruled_out=ruled_out,
    )
