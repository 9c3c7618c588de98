"""Controller elections, merged per epoch from what each node recorded (DescribeElections).

A leader that nodes report is checked against the LeaderChange records of the metadata log, which
every node records as it replicates them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sparkraft.client.explain.times import clock_text, time_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from sparkraft.client.quorum_admin import Witness


@dataclass(slots=True)
class Epoch:
    """One epoch as the nodes recorded it; times are wall-clock ms of the reporting node."""

    epoch: int
    claimed: dict[int, set[int]] = field(default_factory=dict)
    """Leader → nodes that saw it lead."""
    logged: set[tuple[int, tuple[int, ...]]] = field(default_factory=set)
    """(leader, granting voters) of the LeaderChange records in the log."""
    asked: list[dict[str, Any]] = field(default_factory=list)
    votes: list[dict[str, Any]] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)

    @property
    def last_at(self) -> int:
        """Time of the last event in this epoch; -1 without events."""
        return max((one["at"] for one in (*self.steps, *self.votes, *self.asked)), default=-1)

    @property
    def leader(self) -> int | None:
        """The elected leader; None if there was none or no node recorded it."""
        for leader, _ in self.logged:
            return leader
        return next(iter(self.claimed), None)

    @property
    def verdict(self) -> str:
        """Whether the nodes' records agree with the log."""
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
        """Return the epoch as a JSON document."""
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
        """Yield the lines of the text output."""
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
    """Group the nodes' entries by epoch, each sorted by time."""
    epochs: dict[int, Epoch] = {}
    for witness in seen:
        for entry in witness.entries:
            _add_entry(epochs.setdefault(entry.epoch, Epoch(entry.epoch)), witness.node_id, entry)
    for epoch in epochs.values():
        for reported in (epoch.asked, epoch.votes, epoch.steps):
            reported.sort(key=lambda one: (one["at"], one["node"]))
    return [epochs[number] for number in sorted(epochs)]


def _add_entry(epoch: Epoch, node: int, entry: Any) -> None:
    granted = [ballot.voter_id for ballot in entry.ballots if ballot.is_granted]
    match entry.kind:
        case "log":
            epoch.logged.add((entry.leader_id, tuple(sorted(granted))))
        case "vote" | "pre-vote":
            reported = epoch.votes if entry.kind == "vote" else epoch.asked
            reported.append(
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


def quorum_document(
    seen: Iterable[Witness], silent: Mapping[str, str], *, since_ms: int = -1
) -> dict[str, Any]:
    """Return the nodes' states and the epochs with an event at `since_ms` or later.

    Epochs are complete: a part of one would show no winner.
    """
    witnesses = list(seen)
    return {
        "nodes": [_witness_json(witness) for witness in witnesses],
        "silent": [{"node": name, "reason": why} for name, why in silent.items()],
        "epochs": [e.as_json() for e in epochs_of(witnesses) if e.last_at >= since_ms],
    }


def _witness_json(witness: Witness) -> dict[str, Any]:
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
