"""The files and throttles of `reassign-partitions`, without a cluster."""

import json

import pytest

from sparkraft.cli import main as cli
from sparkraft.cli.errors import CommandError
from sparkraft.cli.reassignment_plans import (
    Move,
    Plan,
    as_plan_json,
    check_plan,
    moves_of,
    moving_brokers,
    one_line,
    read_plan,
    read_topics,
    throttled_replicas,
)
from sparkraft.client.values import Reassignment


@pytest.fixture
def file(tmp_path):
    def write(data) -> str:
        path = tmp_path / "plan.json"
        path.write_text(data if isinstance(data, str) else json.dumps(data))
        return str(path)

    return write


def entry(topic="t", partition=0, replicas=(1, 2), **more):
    return {"topic": topic, "partition": partition, "replicas": list(replicas), **more}


def test_a_plan_comes_back_as_it_was_written(file):
    plan = read_plan(file({"version": 1, "partitions": [entry(log_dirs=["any", "/data"])]}))
    assert plan == Plan({("t", 0): [1, 2]}, {(("t", 0), 2): "/data"})
    check_plan(plan)
    line = one_line(as_plan_json(plan.replicas, plan.directories))
    assert line == (
        '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2],'
        '"log_dirs":["any","/data"]}]}'
    )
    assert read_plan(file(line)) == plan


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
def test_files_that_are_refused(file, data, said):
    with pytest.raises(CommandError, match=said):
        read_plan(file(data))


@pytest.mark.parametrize(
    ("partitions", "said"),
    [
        ([], "list cannot be empty"),
        ([entry(replicas=[])], "replica list cannot be empty"),
        ([entry(replicas=[1, 2, 1])], "t-0 contains multiple entries for 1"),
    ],
)
def test_plans_that_nobody_may_execute(file, partitions, said):
    with pytest.raises(CommandError, match=said):
        check_plan(read_plan(file({"partitions": partitions})))


def test_topics_to_move(file):
    assert read_topics(file({"topics": [{"topic": "a"}, {"topic": "b"}]})) == ["a", "b"]
    with pytest.raises(CommandError, match="duplicate entries"):
        read_topics(file({"topics": [{"topic": "a"}, {"topic": "a"}]}))
    with pytest.raises(CommandError, match="does not hold"):
        read_topics(file({"topics": ["a"]}))


def test_sources_and_destinations_are_throttled():
    ongoing = {("a", 1): Reassignment(replicas=(1, 2, 3), adding=(3,), removing=(1,))}
    moves = moves_of(ongoing, {("a", 0): [3, 4], ("a", 1): [2, 5]}, {("a", 0): [1, 3]})
    assert moves == {
        ("a", 0): Move(frozenset({1, 3}), frozenset({4})),
        ("a", 1): Move(frozenset({1, 2}), frozenset({5})),
    }
    assert throttled_replicas(moves) == {"a": ("0:1,0:3,1:1,1:2", "0:4,1:5")}
    assert moving_brokers(moves) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "argv",
    [
        ["reassign-partitions", "--bootstrap-server", "x:1"],
        ["reassign-partitions", "--bootstrap-server", "x:1", "--list", "--verify"],
        ["reassign-partitions", "--bootstrap-server", "x:1", "--execute"],
        ["reassign-partitions", "--bootstrap-server", "x:1", "--generate", "--broker-list", "1"],
        ["reassign-partitions", "--bootstrap-server", "x:1", "--list", "--throttle", "5"],
        ["reassign-partitions", "--bootstrap-controller", "x:1", "--verify",
         "--reassignment-json-file", "f"],
        ["leader-election", "--bootstrap-server", "x:1", "--all-topic-partitions"],
        ["leader-election", "--bootstrap-server", "x:1", "--election-type", "preferred"],
        ["leader-election", "--bootstrap-server", "x:1", "--election-type", "preferred",
         "--topic", "t"],
        ["leader-election", "--bootstrap-server", "x:1", "--election-type", "random",
         "--all-topic-partitions"],
        ["cluster", "unregister", "--bootstrap-server", "x:1"],
        ["cluster", "cluster-id", "--bootstrap-server", "x:1", "--id", "3"],
        ["cluster", "list-endpoints", "--bootstrap-controller", "x:1",
         "--include-fenced-brokers"],
    ],
)  # fmt: skip
def test_command_lines_that_make_no_sense(argv, capsys):
    assert cli.main(argv) == 2
    assert f"sparkraft {argv[0]}: " in capsys.readouterr().err
