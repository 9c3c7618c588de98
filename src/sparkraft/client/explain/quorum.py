"""The elections of controllers: what nodes saw of each epoch (DescribeElections), as one account.

What nodes claim of a winner is checked against the LeaderChange records of the metadata log, which
every node notes as it replicates them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sparkraft.client.explain.times import clock_text, time_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sparkraft.client.quorum_admin import Witness


@dataclass(slots=True)
class Epoch:
    """What is known of one epoch; times are wall-clock ms, by the clock of whoever says it."""

    epoch: int
    claimed: dict[int, set[int]] = field(default_factory=dict)
    """Leader → the nodes that say so of what they saw themselves."""
    logged: set[tuple[int, tuple[int, ...]]] = field(default_factory=set)
    """(leader, granting voters) as the log's LeaderChange records have it."""
    asked: list[dict[str, Any]] = field(default_factory=list)
    votes: list[dict[str, Any]] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)

    @property
    def last_at(self) -> int:
        """When the last thing happened in it."""
        return max((one["at"] for one in (*self.steps, *self.votes, *self.asked)), default=-1)

    @property
    def leader(self) -> int | None:
        """Who won; None where nobody did, or where nobody knows."""
        for leader, _ in self.logged:
            return leader
        return next(iter(self.claimed), None)

    @property
    def verdict(self) -> str:
        """Whether what the nodes say fits what the log says."""
        leaders = {leader for leader, _ in self.logged} | set(self.claimed)
        if not leaders:
            return "nobody won"
        if len(leaders) > 1 or len(self.logged) > 1:
            return "CONTRADICTION"
        won = [set(step["granted"]) for step in self.steps if step["state"] == "leader"]
        for _, granting in self.logged:
            if won and set(granting) not in won:
                return "CONTRADICTION"
        return "confirmed by the log" if self.logged else "not confirmed: no node has the record"

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        return {
            "epoch": self.epoch,
            "leader": self.leader,
            "verdict": self.verdict,
            "log": [{"leader": n, "grantingVoters": list(v)} for n, v in sorted(self.logged)],
            "steps": self.steps,
            "preVotes": self.asked,
            "votes": self.votes,
        }

    def as_text(self) -> Iterator[str]:
        """For people."""
        first = min((s["at"] for s in self.steps), default=None)
        who = "no leader" if self.leader is None else f"leader {self.leader}"
        when = "" if first is None else f"   {time_text(first)}"
        yield f"epoch {self.epoch}: {who} ({self.verdict}){when}"
        for _, granting in sorted(self.logged):
            yield f"    log       granted by {_ids(granting)}"
        lines = [(step["at"], _step_text(step)) for step in self.steps]
        for kind, ballots in (("pre-vote", self.asked), ("vote", self.votes)):
            lines += [(ballot["at"], _ballot_text(ballot, kind)) for ballot in ballots]
        for at, text in sorted(lines):
            yield f"    {clock_text(at)}  {text}"


def _step_text(step: dict[str, Any]) -> str:
    lasted = "" if step["lastedMs"] < 0 else f", after {step['lastedMs']} ms"
    refused = f" (refused by {_ids(step['refused'])})" if step["refused"] else ""
    return f"{step['node']} became {step['state']}: {step['reason']}{refused}{lasted}"


def _ballot_text(ballot: dict[str, Any], kind: str) -> str:
    answer = "granted" if ballot["granted"] else f"refused: {ballot['reason']}"
    return f"{ballot['node']} was asked by {ballot['candidate']} for its {kind}: {answer}"


def epochs_of(seen: Iterable[Witness]) -> list[Epoch]:
    """What the nodes saw, by epoch, in the order of time within each."""
    epochs: dict[int, Epoch] = {}
    for witness in seen:
        for entry in witness.entries:
            _tell(epochs.setdefault(entry.epoch, Epoch(entry.epoch)), witness.node_id, entry)
    for epoch in epochs.values():
        for told in (epoch.asked, epoch.votes, epoch.steps):
            told.sort(key=lambda one: (one["at"], one["node"]))
    return [epochs[number] for number in sorted(epochs)]


def _tell(epoch: Epoch, node: int, entry: Any) -> None:
    granted = [ballot.voter_id for ballot in entry.ballots if ballot.is_granted]
    match entry.kind:
        case "log":
            epoch.logged.add((entry.leader_id, tuple(sorted(granted))))
        case "vote" | "pre-vote":
            told = epoch.votes if entry.kind == "vote" else epoch.asked
            told.append(
                {
                    "at": entry.at_ms,
                    "node": node,
                    "candidate": entry.candidate_id,
                    "granted": bool(granted),
                    "reason": "".join(ballot.reason for ballot in entry.ballots),
                }
            )
        case state:
            if state in {"leader", "follower"} and entry.leader_id >= 0:
                epoch.claimed.setdefault(entry.leader_id, set()).add(node)
            refused = [b.voter_id for b in entry.ballots if not b.is_granted]
            epoch.steps.append(
                {
                    "at": entry.at_ms,
                    "node": node,
                    "state": state,
                    "reason": entry.reason,
                    "lastedMs": entry.lasted_ms,
                    "granted": sorted(granted),
                    "refused": sorted(refused),
                }
            )


def witness_json(witness: Witness) -> dict[str, Any]:
    return {
        "id": witness.node_id,
        "isVoter": witness.is_voter,
        "state": witness.state,
        "epoch": witness.epoch,
        "leader": witness.leader_id if witness.leader_id >= 0 else None,
        "highWatermark": witness.high_watermark,
        "dropped": witness.dropped,
    }


def _ids(ids: Iterable[int]) -> str:
    return ", ".join(map(str, ids)) or "nobody"
