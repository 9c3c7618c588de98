"""The history of a group, by the journals of all brokers that coordinated it."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client.cluster import check
from sparkraft.client.explain.times import clock_text, duration_text, time_text
from sparkraft.client.quorum_admin import NO_JOURNAL
from sparkraft.protocol.messages.k10004_describe_group_decisions import (
    DescribeGroupDecisionsRequest,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sparkraft.base.ids import TopicPartition
    from sparkraft.client.cluster import Cluster

PAGES_MAX = 100
"""Of one broker: more than its journal can hold."""

MEMBERS_SHOWN = 10
"""Members in a line about the partitions that they own."""

MOVES_SHOWN = 10
"""Partitions named in one line of text; JSON has all that the journal kept."""


async def group_decisions(
    cluster: Cluster, group_id: str
) -> tuple[list[dict[str, Any]], dict[int, str]]:
    """Decisions of all brokers by time, and the brokers that did not answer, with the reason."""
    view = await cluster.refresh()
    ids = sorted(view.nodes)
    pages = await asyncio.gather(*(_of_broker(cluster, one, group_id) for one in ids))
    silent = {
        node_id: found for node_id, found in zip(ids, pages, strict=True) if isinstance(found, str)
    }
    entries = [one for found in pages if not isinstance(found, str) for one in found]
    entries.sort(key=lambda one: (one["atMs"], one["coordinator"], one["number"]))
    add_ownership(entries)
    return entries, silent


async def _of_broker(cluster: Cluster, node_id: int, group_id: str) -> list[dict[str, Any]] | str:
    found: list[dict[str, Any]] = []
    first = 0
    try:
        for _ in range(PAGES_MAX):
            request = DescribeGroupDecisionsRequest(group_id=group_id, first=first)
            answer = await cluster.ask_node(node_id, request)
            check(answer.error_code, answer.error_message)
            found += [decision_json(node_id, one) for one in answer.decisions]
            first = answer.next
            if first < 0:
                break
    except KafkaError as error:
        if error.code is ErrorCode.NETWORK_EXCEPTION:
            return NO_JOURNAL
        return error.detail or error.code.name
    return found


def decision_json(node_id: int, one: Any) -> dict[str, Any]:
    """A decision in the response of broker `node_id`."""
    return {
        "number": one.number,
        "coordinator": node_id,
        "atMs": one.at_ms,
        "epoch": one.epoch,
        "kind": one.kind,
        "member": one.member_id,
        "chosen": one.chosen,
        "reason": one.reason,
        "candidates": list(one.candidates),
        "votes": {vote.member_id: vote.protocol for vote in one.votes},
        "ruledOut": {out.candidate: out.reason for out in one.ruled_out},
        "moves": [
            {
                "topic": move.topic,
                "partition": move.partition,
                "from": move.from_member or None,
                "to": move.to_member or None,
                "tookMs": move.took_ms,
            }
            for move in one.moves
        ],
        "moveCount": one.move_count,
        "tookMs": one.took_ms,
    }


def add_ownership(entries: Iterable[dict[str, Any]]) -> None:
    """Add to each decision how many partitions the members own whose number it changed.

    `owned` has the new numbers by member, and at the first decision all. `ownedIsExact` is False
    once a decision had more moves than the journal kept. Partitions that have not moved since the
    first decision are not counted.
    """
    entries = list(entries)
    owners = _Owners(entries)
    for one in entries:
        one["owned"] = owners.after(one)
        one["ownedIsExact"] = owners.is_exact


class _Owners:
    """The owners of the partitions that moved, decision by decision."""

    def __init__(self, entries: Iterable[dict[str, Any]]) -> None:
        """Start with the members that the first move of each partition names as its owners."""
        self._owners: dict[TopicPartition, str] = {}
        self._owned: defaultdict[str, set[TopicPartition]] = defaultdict(set)
        self._unlisted: Counter[str] = Counter()
        """Partitions that a member took over, and the journal did not keep."""
        self._known: dict[str, int] = {}
        """The numbers after the last decision."""
        self._changed: set[str] = set()
        self.is_exact = True
        first: dict[TopicPartition, str | None] = {}
        for one in entries:
            for tp, source, _ in _moves(one):
                first.setdefault(tp, source)
        for tp, member in first.items():
            self._set(tp, member)

    def after(self, one: dict[str, Any]) -> dict[str, int]:
        """Apply a decision; return the changed numbers."""
        member = one["member"]
        if one["kind"] in _TAKES_OVER:
            for tp, _, to in _moves(one):
                self._set(tp, to)
            unlisted = one["moveCount"] - len(one["moves"])
            self.is_exact = self.is_exact and not unlisted
            if unlisted and member:
                self._unlisted[member] += unlisted
                self._changed.add(member)
        elif one["kind"] == "target":
            for tp, source, to in _moves(one):
                if to is None and self._owners.get(tp) == source:
                    self._set(tp, None)
        elif one["kind"] in _LEAVES:
            for tp in list(self._owned[member]):
                self._set(tp, None)
            self._unlisted[member] = 0
            self._changed.add(member)
        return self._news()

    def _news(self) -> dict[str, int]:
        news = {}
        for member in sorted(self._changed):
            count = len(self._owned[member]) + self._unlisted[member]
            if count != self._known.get(member, 0):
                self._known[member] = news[member] = count
        self._changed.clear()
        return news

    def _set(self, tp: TopicPartition, member: str | None) -> None:
        before = self._owners.pop(tp, None)
        if before is not None:
            self._owned[before].discard(tp)
            self._changed.add(before)
        if member is not None:
            self._owners[tp] = member
            self._owned[member].add(tp)
            self._changed.add(member)


def _moves(one: dict[str, Any]) -> Iterator[tuple[TopicPartition, str | None, str | None]]:
    for move in one["moves"]:
        yield (move["topic"], move["partition"]), move["from"], move["to"]


_TAKES_OVER = frozenset({"moved", "generation"})
"""Decisions after which the partitions have their new owners; a `target` only plans moves."""

_LEAVES = frozenset({"left", "fenced"})


def group_lines(entries: Iterable[dict[str, Any]]) -> Iterator[str]:
    """A line for each decision, and one for each pair of members between which partitions move."""
    day = ""
    for one in entries:
        today = time_text(one["atMs"])[:10]
        if today != day:
            day = today
            yield f"{day} (UTC)"
        yield f"{clock_text(one['atMs'])}  epoch {one['epoch']}  {_sentence(one)}"
        yield from _move_lines(one)
        yield from _owned_lines(one)
        for candidate, reason in one["ruledOut"].items():
            yield f"    not {candidate}: {reason}"


_SENTENCES = {
    "joined": "{member} joined: {reason}",
    "left": "{member} left {reason}",
    "fenced": "{member} was fenced: {reason}",
    "epoch": "{reason}",
    "target": "new target assignment: {reason}",
    "moved": "{member} took over {moveCount} partitions{took}",
    "generation": "rebalance completed{took}: {reason}",
    "leader": "leader {chosen}: {reason}",
    "assignor": "assignor {chosen}: {reason}",
    "converted": "converted {reason}",
}


def _sentence(one: dict[str, Any]) -> str:
    took = f" in {duration_text(one['tookMs'])}" if one["tookMs"] >= 0 else ""
    known = {**one, "chosen": one["chosen"] or "none", "took": took}
    return _SENTENCES.get(one["kind"], "{kind}: {reason}").format(**known)


def _move_lines(one: dict[str, Any]) -> Iterator[str]:
    pairs: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for move in one["moves"]:
        pairs.setdefault((move["from"] or "no member", move["to"] or "no member"), []).append(move)
    for (source, to), moves in pairs.items():
        names = [f"{move['topic']}-{move['partition']}" for move in moves[:MOVES_SHOWN]]
        more = len(moves) - len(names)
        rest = f" and {more} more" if more else ""
        took = max(move["tookMs"] for move in moves)
        duration = f" in {duration_text(took)}" if took >= 0 else ""
        yield f"    {source} -> {to}{duration}: {', '.join(names)}{rest}"


def _owned_lines(one: dict[str, Any]) -> Iterator[str]:
    owned = one.get("owned")
    if not owned:
        return
    about = "" if one["ownedIsExact"] else "about "
    shown = [f"{member} {about}{count}" for member, count in list(owned.items())[:MEMBERS_SHOWN]]
    more = len(owned) - len(shown)
    yield f"    partitions owned now: {', '.join(shown)}{f' and {more} more' if more else ''}"
