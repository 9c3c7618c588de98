"""The controller of a cluster in ZooKeeper mode, by the journals of all brokers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client.cluster import check
from sparkraft.client.explain.controller_epochs import (
    controller_epochs,
    epoch_lines,
    epoch_won,
)
from sparkraft.client.explain.times import clock_text, duration_text, time_text
from sparkraft.client.quorum_admin import NO_JOURNAL, has_quorum
from sparkraft.protocol.messages.k10007_describe_controller_decisions import (
    DescribeControllerDecisionsRequest,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sparkraft.client.cluster import Cluster
    from sparkraft.client.explain.controller_epochs import Decision

PAGES_MAX = 100
"""Of one broker: more than its journal can hold."""

DECISIONS_MAX = 1_000
"""Of one broker, as many as it keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerJournal:
    """The journal of one broker.

    Attributes:
        controller: the controller that it knows; -1 without one.
        epoch: of the controller's requests; -1 before the first.
        stands: whether the broker may become the controller.
        is_kraft: whether the controller is one of KRaft, which migrates the cluster.
        decisions: oldest first.
    """

    broker: int
    controller: int
    epoch: int
    stands: bool
    is_kraft: bool = False
    decisions: list[Decision] = field(default_factory=list)


async def controller_document(cluster: Cluster) -> dict[str, Any]:
    """Return who is the controller, how it was elected, its failover, and all that was noted.

    Raises:
        KafkaError: the cluster is in KRaft mode.
    """
    if await has_quorum(cluster):
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "no broker is in ZooKeeper mode; `explain quorum` shows controllers in KRaft mode",
        )
    journals, silent = await controller_journals(cluster)
    return document_of(journals, silent, controller=cluster.view.controller_id)


async def controller_journals(
    cluster: Cluster,
    *,
    known: Mapping[int, ControllerJournal] | None = None,
    skipped: Mapping[int, str] | None = None,
) -> tuple[list[ControllerJournal], dict[int, str]]:
    """Return the journals of all brokers, and the errors of the others.

    Args:
        cluster: its view is refreshed.
        known: earlier journals: only what is new is transferred.
        skipped: brokers that get no request, and the errors to return for them.
    """
    known, skipped = known or {}, skipped or {}
    view = await cluster.refresh()
    ids = sorted(one for one in view.nodes if one not in skipped)
    found = await asyncio.gather(*(_journal_of(cluster, one, known.get(one)) for one in ids))
    silent = {one: why for one, why in skipped.items() if one in view.nodes}
    silent |= {one: why for one, why in zip(ids, found, strict=True) if isinstance(why, str)}
    return [one for one in found if not isinstance(one, str)], dict(sorted(silent.items()))


async def _journal_of(
    cluster: Cluster, broker: int, known: ControllerJournal | None
) -> ControllerJournal | str:
    """Return the journal, or why there is none."""
    try:
        if known is not None and known.decisions:
            last = known.decisions[-1]
            newer = await _read(cluster, broker, last["number"])
            if newer.decisions[:1] == [last]:
                return _joined(known, newer)
            # It was restarted, and numbers its entries again.
        return await _read(cluster, broker, 0)
    except KafkaError as error:
        if error.code is ErrorCode.NETWORK_EXCEPTION:
            return NO_JOURNAL
        return error.detail or error.code.name


async def _read(cluster: Cluster, broker: int, first: int) -> ControllerJournal:
    found: list[Decision] = []
    response: Any = None
    for _ in range(PAGES_MAX):
        request = DescribeControllerDecisionsRequest(first=first)
        response = await cluster.ask_node(broker, request)
        check(response.error_code, response.error_message)
        found += [
            {"broker": broker, "number": one.number, "atMs": one.at_ms, "kind": one.kind,
             "text": one.text}
            for one in response.decisions
        ]  # fmt: skip
        first = response.next
        if first < 0:
            break
    return ControllerJournal(
        broker=broker,
        controller=response.controller_id,
        epoch=response.epoch,
        stands=response.stands,
        is_kraft=response.is_kraft,
        decisions=found,
    )


def _joined(known: ControllerJournal, newer: ControllerJournal) -> ControllerJournal:
    """`newer`, which begins with the last decision of `known`, after what is known."""
    return ControllerJournal(
        broker=newer.broker,
        controller=newer.controller,
        epoch=newer.epoch,
        stands=newer.stands,
        is_kraft=newer.is_kraft,
        decisions=[*known.decisions[:-1], *newer.decisions][-DECISIONS_MAX:],
    )


def document_of(
    journals: Sequence[ControllerJournal], silent: Mapping[int, str], *, controller: int
) -> dict[str, Any]:
    """The document of `controller_document`.

    Args:
        journals: of the brokers that responded.
        silent: the other brokers, each with the reason.
        controller: the broker that Metadata names, if no journal knows it; -1 without one.
    """
    decisions = [each for journal in journals for each in journal.decisions]
    decisions.sort(key=lambda one: (one["atMs"], one["broker"], one["number"]))
    newest = max(journals, key=lambda one: one.epoch, default=None)
    present = controller if newest is None else newest.controller
    epoch = -1 if newest is None else newest.epoch
    in_order = [each for journal in journals for each in journal.decisions]
    return {
        "controller": present,
        "isKraft": newest is not None and newest.is_kraft,
        "epoch": epoch,
        **_election(decisions, present, epoch),
        "epochs": controller_epochs(in_order, present, epoch),
        "brokers": [{"broker": one.broker, "stands": one.stands} for one in journals],
        "decisions": decisions,
        "silent": [{"broker": broker, "reason": why} for broker, why in silent.items()],
    }


def _election(decisions: Sequence[Decision], controller: int, epoch: int) -> dict[str, Any]:
    """Return the time of its election, the losers, the resignation before, and the failover."""
    own = [one for one in decisions if one["broker"] == controller]
    begun = next((at for at, one in enumerate(own) if epoch_won(one) == epoch), None)
    if begun is None:
        return {"sinceMs": None, "lost": [], "before": None, "failover": []}
    since = own[begun]["atMs"]
    steps = []
    for one in own[begun + 1 :]:
        if one["kind"] in {"attempt", "resignation"}:
            break
        if one["kind"] == "failover":
            steps.append({"afterMs": one["atMs"] - since, "text": one["text"]})
    ended = [one for one in decisions if one["kind"] == "resignation" and one["atMs"] <= since]
    before = max((one["atMs"] for one in ended), default=0)
    lost = [
        {"broker": one["broker"], "atMs": one["atMs"], "reason": one["text"].removeprefix("lost: ")}
        for one in decisions
        if one["kind"] == "attempt" and epoch_won(one) is None and one["atMs"] > before
        and one["broker"] != controller
    ]  # fmt: skip
    return {
        "sinceMs": since,
        "lost": lost,
        "before": ended[-1] if ended else None,
        "failover": steps,
    }


def controller_lines(document: dict[str, Any], last: int, epochs: int = 0) -> Iterator[str]:
    """Return the document as text, with the `last` decisions and the newest `epochs`."""
    yield _present_line(document)
    before = document["before"]
    if before is not None:
        at = time_text(before["atMs"])
        yield f"before      broker {before['broker']} resigned at {at}: {before['text']}"
    for one in document["lost"]:
        yield f"lost        broker {one['broker']} at {clock_text(one['atMs'])}: {one['reason']}"
    if document["failover"]:
        took = document["failover"][-1]["afterMs"]
        yield f"failover    took {duration_text(took)}"
        for step in document["failover"]:
            yield f"    +{duration_text(step['afterMs'])}  {step['text']}"
    for one in document["epochs"][-epochs:] if epochs else []:
        yield from epoch_lines(one)
    yield from _decision_lines(document["decisions"][-last:] if last else [])
    for one in document["silent"]:
        yield f"broker {one['broker']}: not available, {one['reason']}"


def _present_line(document: dict[str, Any]) -> str:
    controller, epoch, since = document["controller"], document["epoch"], document["sinceMs"]
    if controller < 0:
        return "controller  none"
    number = "an unknown epoch" if epoch < 0 else f"epoch {epoch}"
    if document["isKraft"]:
        return f"controller  KRaft controller {controller}, {number}: it migrates the cluster"
    known = "; its election is in no journal" if since is None else f", since {time_text(since)}"
    return f"controller  broker {controller}, {number}{known}"


def _decision_lines(decisions: Sequence[Decision]) -> Iterator[str]:
    if decisions:
        yield "decisions"
    for one in decisions:
        at = time_text(one["atMs"])
        yield f"    {at}  broker {one['broker']}  {one['kind']}: {one['text']}"
