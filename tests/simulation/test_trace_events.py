"""The trace as data: it describes the same run, and every message in it has a fate."""

import io
import json
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from sparkraft.simulation.scenarios.campaign import run
from sparkraft.simulation.scenarios.core_scenarios import Settings
from tests.mutants.mutant import planted
from tests.mutants.mutant_seeds import settings_for
from tests.mutants.registry import CASES

KINDS = {
    "starts", "stops", "pauses", "resumes", "becomes", "log", "sends", "arrives", "lost", "cuts",
    "does", "fault", "violation", "note", "end",
}  # fmt: skip


def recorded(settings: Settings) -> tuple[Any, list[dict[str, Any]]]:
    text = io.StringIO()
    result = run(settings, events=text, command="again")
    return result, [json.loads(line) for line in text.getvalue().splitlines()]


@pytest.mark.parametrize("tier", ["cores", "nodes"])
def test_events_describe_the_run_and_change_nothing(tier: str) -> None:
    settings = Settings(seed=7, tier=tier, scenario="chaos", seconds=5)
    result, (about, *events, end) = recorded(settings)
    assert result.digest == run(settings).digest
    assert about == {
        "format": 1, "tier": tier, "scenario": "chaos", "seed": 7,
        "nodes": ["n1", "n2", "n3", "n4"], "command": "again",
    }  # fmt: skip
    assert end == {"t": result.simulated_ms, "kind": "end", "invariant": None, "text": ""}
    counts = Counter(event["kind"] for event in events)
    assert set(counts) <= KINDS
    assert min(counts[kind] for kind in ("starts", "becomes", "log", "sends", "arrives")) > 0
    if tier == "cores":  # the draws of whole nodes move with the product
        assert min(counts[kind] for kind in ("stops", "fault", "lost", "cuts")) > 0
    times = [event["t"] for event in events]
    assert times == sorted(times)
    won = sum(event["kind"] == "becomes" and event["state"] == "leader" for event in events)
    assert won >= result.counts["elections won"] > 0


@pytest.mark.parametrize("tier", ["cores", "nodes"])
def test_a_message_arrives_or_is_lost_after_it_was_sent(tier: str) -> None:
    _, (_, *events) = recorded(Settings(seed=7, tier=tier, scenario="chaos", seconds=5))
    sent = {event["id"]: event for event in events if event["kind"] == "sends"}
    ends = [event for event in events if event["kind"] in {"arrives", "lost"}]
    assert all(sent[end["id"]]["t"] <= end["t"] for end in ends)
    arrived = {end["id"] for end in ends}
    # Those of the last moments are under way.
    assert all(sent[each]["t"] > events[-1]["t"] - 2_000 for each in sent.keys() - arrived)
    names = {event["message"] for event in sent.values()}
    assert {"Fetch request", "Fetch response", "Vote request", "Vote response"} <= names


def test_cut_links_are_named_as_they_change() -> None:
    settings = Settings(seed=7, tier="cores", scenario="chaos", seconds=5)
    _, (_, *events) = recorded(settings)
    cuts = [event["links"] for event in events if event["kind"] == "cuts"]
    assert cuts[0]
    assert all(one != other for one, other in pairwise(cuts))
    assert all({"n1", "n2", "n3", "n4"} >= {*link} for links in cuts for link in links)


def test_a_violation_is_an_event_and_the_result() -> None:
    case = next(one for one in CASES if (one.name, one.tier) == ("vote-not-persisted", "cores"))
    with planted(case.mutant):
        result, (_, *events) = recorded(settings_for(case, 1))
    assert result.violation == "Q2"
    assert events[-1]["invariant"] == "Q2"
    assert events[-1]["text"] == result.text
    assert [event["invariant"] for event in events if event["kind"] == "violation"] == ["Q2"]


def test_a_closed_connection_reaches_the_other_node() -> None:
    _, (_, *events) = recorded(Settings(seed=9, tier="cores", scenario="chaos", seconds=5))
    closed = {event["id"] for event in events if event.get("message") == "connection closed"}
    assert closed
    assert closed <= {event["id"] for event in events if event["kind"] in {"arrives", "lost"}}
