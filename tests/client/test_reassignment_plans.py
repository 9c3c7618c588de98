"""Plans of reassignments as JSON, and their throttles, without a cluster."""

import json

import pytest

from sparkraft.client.errors import PlanError
from sparkraft.client.reassignment_plans import (
    Move,
    Plan,
    as_plan_json,
    check_plan,
    moves_of,
    moving_brokers,
    one_line,
    parse_plan,
    parse_topics,
    throttled_replicas,
)
from sparkraft.client.values import Reassignment


def file(data) -> dict:
    """The arguments that parse a file with this text, or this JSON."""
    text = data if isinstance(data, str) else json.dumps(data)
    return {"raw": text.encode(), "source": "plan.json"}


def entry(topic="t", partition=0, replicas=(1, 2), **more):
    return {"topic": topic, "partition": partition, "replicas": list(replicas), **more}


def test_a_plan_comes_back_as_it_was_written():
    plan = parse_plan(**file({"version": 1, "partitions": [entry(log_dirs=["any", "/data"])]}))
    assert plan == Plan({("t", 0): [1, 2]}, {(("t", 0), 2): "/data"})
    check_plan(plan)
    line = one_line(as_plan_json(plan.replicas, plan.directories))
    assert line == (
        '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2],'
        '"log_dirs":["any","/data"]}]}'
    )
    assert parse_plan(**file(line)) == plan


def test_partitions_stand_in_the_order_of_their_numbers():
    plan = as_plan_json({("b", 2): [1], ("b", 10): [1], ("a", 3): [1]}, {})
    assert [(p["topic"], p["partition"]) for p in plan["partitions"]] == [
        ("a", 3), ("b", 2), ("b", 10),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("{", "is not JSON"),
        ("[]", "no JSON object"),
        ({"version": 2}, "Not supported version"),
        ({"partitions": [{"topic": "t"}]}, "not understood"),
        ({"partitions": [entry(replicas=["x"])]}, "not understood"),
        ({"partitions": [entry(), entry()]}, "duplicate topic partitions: t-0"),
        ({"partitions": [entry(log_dirs=["any"])]}, "different from size of log dirs"),
    ],
)
def test_files_that_are_refused(data, said):
    with pytest.raises(PlanError, match=said):
        parse_plan(**file(data))


@pytest.mark.parametrize(
    ("partitions", "said"),
    [
        ([], "list cannot be empty"),
        ([entry(replicas=[])], "replica list cannot be empty"),
        ([entry(replicas=[1, 2, 1])], "t-0 contains multiple entries for 1"),
    ],
)
def test_plans_that_nobody_may_execute(partitions, said):
    with pytest.raises(PlanError, match=said):
        check_plan(parse_plan(**file({"partitions": partitions})))


def test_topics_to_move():
    assert parse_topics(**file({"topics": [{"topic": "a"}, {"topic": "b"}]})) == ["a", "b"]
    with pytest.raises(PlanError, match="duplicate entries"):
        parse_topics(**file({"topics": [{"topic": "a"}, {"topic": "a"}]}))
    with pytest.raises(PlanError, match="does not hold"):
        parse_topics(**file({"topics": ["a"]}))


def test_sources_and_destinations_are_throttled():
    ongoing = {("a", 1): Reassignment(replicas=(1, 2, 3), adding=(3,), removing=(1,))}
    moves = moves_of(ongoing, {("a", 0): [3, 4], ("a", 1): [2, 5]}, {("a", 0): [1, 3]})
    assert moves == {
        ("a", 0): Move(frozenset({1, 3}), frozenset({4})),
        ("a", 1): Move(frozenset({1, 2}), frozenset({5})),
    }
    assert throttled_replicas(moves) == {"a": ("0:1,0:3,1:1,1:2", "0:4,1:5")}
    assert moving_brokers(moves) == [1, 2, 3, 4, 5]
