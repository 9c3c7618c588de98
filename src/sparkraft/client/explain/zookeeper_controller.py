"""The controller of a cluster in ZooKeeper mode, by the journals of all brokers."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client.cluster import check
from sparkraft.client.explain.times import clock_text, duration_text, time_text
from sparkraft.protocol.messages.k10007_describe_controller_decisions import (
    DescribeControllerDecisionsRequest,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sparkraft.client.cluster import Cluster

PAGES_MAX = 100
"""Of one broker: more than its journal can hold."""

Decision = dict[str, Any]
"""An entry as JSON: broker, number, atMs, kind, text."""

_WON = re.compile(r"won epoch (\d+)")


async def controller_document(cluster: Cluster) -> dict[str, Any]:
    """Return who is the controller, how it was elected, its failover, and all that was noted.

    Raises:
        KafkaError: no broker has such a journal, as in KRaft mode.
    """
    view = await cluster.refresh()
    ids = sorted(view.nodes)
    pages = await asyncio.gather(*(_of_broker(cluster, one) for one in ids))
    silent = {
        broker: found for broker, found in zip(ids, pages, strict=True) if isinstance(found, str)
    }
    answers = [found for found in pages if not isinstance(found, str)]
    if not answers:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "no broker is in ZooKeeper mode; `explain quorum` shows controllers in KRaft mode",
        )
    decisions = [each for _, of_broker in answers for each in of_broker]
    decisions.sort(key=lambda one: (one["atMs"], one["broker"], one["number"]))
    newest = max((known for known, _ in answers), key=lambda known: known.epoch)
    return {
        "controller": newest.controller_id,
        "epoch": newest.epoch,
        **_election(decisions, newest.controller_id, newest.epoch),
        "decisions": decisions,
        "silent": [{"broker": broker, "reason": why} for broker, why in silent.items()],
    }


async def _of_broker(cluster: Cluster, broker: int) -> tuple[Any, list[Decision]] | str:
    """Return the last response and all decisions, or why there are none."""
    found: list[Decision] = []
    response: Any = None
    try:
        for _ in range(PAGES_MAX):
            first = 0 if response is None else response.next
            request = DescribeControllerDecisionsRequest(first=first)
            response = await cluster.ask_node(broker, request)
            check(response.error_code, response.error_message)
            found += [
                {"broker": broker, "number": one.number, "atMs": one.at_ms, "kind": one.kind,
                 "text": one.text}
                for one in response.decisions
            ]  # fmt: skip
            if response.next < 0:
                break
    except KafkaError as error:
        if error.code is ErrorCode.NETWORK_EXCEPTION:
            return "it closed the connection: only sparkraft's brokers keep such a journal"
        return error.detail or error.code.name
    return response, found


def _election(decisions: Sequence[Decision], controller: int, epoch: int) -> dict[str, Any]:
    """Return the time of its election, the losers, the resignation before, and the failover."""
    own = [one for one in decisions if one["broker"] == controller]
    begun = next((at for at, one in enumerate(own) if _epoch_won(one) == epoch), None)
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
        if one["kind"] == "attempt" and _epoch_won(one) is None and one["atMs"] > before
        and one["broker"] != controller
    ]  # fmt: skip
    return {
        "sinceMs": since,
        "lost": lost,
        "before": ended[-1] if ended else None,
        "failover": steps,
    }


def _epoch_won(decision: Decision) -> int | None:
    found = _WON.match(decision["text"]) if decision["kind"] == "attempt" else None
    return int(found[1]) if found else None


def controller_lines(document: dict[str, Any], last: int) -> Iterator[str]:
    """Return the document as text, with the `last` decisions."""
    controller, epoch, since = document["controller"], document["epoch"], document["sinceMs"]
    if controller < 0:
        yield "controller  none"
    elif since is None:
        yield f"controller  broker {controller}, epoch {epoch}; its election is in no journal"
    else:
        yield f"controller  broker {controller}, epoch {epoch}, since {time_text(since)}"
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
    shown = document["decisions"][-last:] if last else []
    if shown:
        yield "decisions"
    for one in shown:
        at = time_text(one["atMs"])
        yield f"    {at}  broker {one['broker']}  {one['kind']}: {one['text']}"
    for one in document["silent"]:
        yield f"broker {one['broker']}: not available, {one['reason']}"
