"""leader-election, reassign-partitions and cluster print what Kafka's tools print, and do it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkraft.base.errors import KafkaError
from sparkraft.cli import main as cli
from sparkraft.client.admin import Admin
from sparkraft.client.values import ConfigSource, ResourceType
from tests.cluster.conftest import STEADY
from tests.cluster.test_log_dirs import (
    RATE,
    TwoDirsCluster,
    directory,
    other,
    places,
    slow_down,
)
from tests.support.clusters import Cluster, Member
from tests.support.kafka_tools import run_kafka_tool
from tests.support.ports import wait_until
from tests.support.replicas import create_assigned, partition_of

pytestmark = pytest.mark.real_clients

TOOLS = {
    "reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "cluster": "org.apache.kafka.tools.ClusterTool",
}
THROTTLED = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One for all tests of this file; each leaves three nodes running."""
    where = tmp_path_factory.mktemp("commands")
    members = [Member(n) for n in (1, 2, 3)]
    with TwoDirsCluster(where, members, overrides=STEADY) as cluster:
        yield cluster


@pytest.fixture
def ours(cluster, capsys):
    """Runs our command: its output, or with `code` what it said on standard error."""

    def run(command: str, *argv: str, code: int = 0) -> str:
        capsys.readouterr()
        found = cli.main([command, *argv, "--bootstrap-server", cluster.bootstrap])
        said = capsys.readouterr()
        assert found == code, said.out + said.err
        return said.err if code else said.out

    return run


@pytest.fixture
def theirs(cluster, kafka_jars):
    """Runs Kafka's tool of the same name: its output."""

    def run(command: str, *argv: str, code: int = 0) -> str:
        told = run_kafka_tool(
            kafka_jars, TOOLS[command], *argv, "--bootstrap-server", cluster.bootstrap
        )
        assert told.returncode == code, told.stdout + told.stderr
        return told.stdout

    return run


def write(tmp_path: Path, data: Any) -> str:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(data))
    return str(path)


def plan(tmp_path: Path, name: str, *replicas: list[int]) -> str:
    partitions = [
        {"topic": name, "partition": index, "replicas": brokers}
        for index, brokers in enumerate(replicas)
    ]
    return write(tmp_path, {"version": 1, "partitions": partitions})


def until_on(cluster: Cluster, name: str, index: int, replicas: tuple[int, ...]) -> None:
    """Return once every broker says so: the tools ask any of them."""
    for broker in cluster.serving:
        wait_until(
            lambda b=broker: partition_of(cluster, name, index, of=b).replicas == replicas,
            f"broker {broker} says that {name}-{index} is on {replicas}",
            90,
        )


@pytest.mark.java
def test_a_move_from_its_plan_to_its_end(cluster, ours, theirs, tmp_path):
    for name, run in (("moved-ours", ours), ("moved-theirs", theirs)):
        create_assigned(cluster, name, [[1], [2]])
        asked = plan(tmp_path, name, [2, 3], [3, 2])
        said = run("reassign-partitions", "--execute", "--reassignment-json-file", asked)
        assert f"started partition reassignments for {name}-0,{name}-1" in said
        until_on(cluster, name, 0, (2, 3))
        until_on(cluster, name, 1, (3, 2))
        outputs = [
            [
                tool("reassign-partitions", *argv)
                for argv in (
                    ["--verify", "--reassignment-json-file", asked],
                    ["--verify", "--preserve-throttles", "--reassignment-json-file", asked],
                    ["--cancel", "--reassignment-json-file", asked],
                    ["--list"],
                )
            ]
            for tool in (ours, theirs)
        ]
        assert outputs[0] == outputs[1]
        assert "is completed." in outputs[0][0]
        assert "Clearing broker-level throttles on brokers 1,2,3" in outputs[0][0]


@pytest.mark.java
def test_what_was_there_before_is_told_the_same(cluster, ours, theirs, tmp_path):
    create_assigned(cluster, "rolled", [[1, 2]])
    there = plan(tmp_path, "rolled", [1, 2])
    argv = ["reassign-partitions", "--execute", "--reassignment-json-file", there]
    said = ours(*argv)
    assert said == theirs(*argv)
    assert '"log_dirs":["/' in said
    other = plan(tmp_path, "rolled", [2, 1, 3])
    argv = ["reassign-partitions", "--verify", "--reassignment-json-file", other]
    said = ours(*argv)
    assert said == theirs(*argv)
    assert "but replica set is 1,2 rather than 2,1,3." in said


@pytest.mark.java
def test_a_move_to_a_broker_that_is_away_is_listed_and_cancelled(cluster, ours, theirs, tmp_path):
    create_assigned(cluster, "stuck", [[1, 2]])
    asked = plan(tmp_path, "stuck", [2, 3])
    cluster.stop(3)
    try:
        ours("reassign-partitions", "--execute", "--reassignment-json-file", asked, code=1)
        # Brokers that are away can be named by the protocol, not by the tools.
        reassign(cluster, "stuck", [2, 3])
        for argv in (["--list"], ["--verify", "--reassignment-json-file", asked]):
            said = ours("reassign-partitions", *argv)
            assert said == theirs("reassign-partitions", *argv)
        assert "Reassignment of partition stuck-0 is still in progress.\n" in said
        listed = json.loads(ours("reassign-partitions", "--list", "--output", "json"))
        assert listed == [
            {"topic": "stuck", "partition": 0, "replicas": [2, 3, 1], "adding": [3],
             "removing": [1]}
        ]  # fmt: skip
        said = ours("reassign-partitions", "--execute", "--reassignment-json-file",
                    plan(tmp_path, "stuck", [2]), code=1)  # fmt: skip
        assert "there is an existing partition assignment" in said
        asked = plan(tmp_path, "stuck", [2, 3])
        preserve = ["--preserve-throttles", "--reassignment-json-file", asked]
        said = ours("reassign-partitions", "--cancel", *preserve)
        reassign(cluster, "stuck", [2, 3])
        assert said == theirs("reassign-partitions", "--cancel", *preserve)
        assert said.startswith("Successfully cancelled partition reassignment for: stuck-0\n")
        wait_until(lambda: sorted(partition_of(cluster, "stuck").replicas) == [1, 2], "it is back")
    finally:
        cluster.start([3])


def reassign(cluster: Cluster, name: str, replicas: list[int]) -> None:
    from sparkraft.client.leadership import LeadershipAdmin

    async def work(admin: Admin) -> None:
        outcome = await LeadershipAdmin(admin.cluster).reassign({(name, 0): replicas})
        assert outcome == {(name, 0): None}

    cluster.ask(work)


@pytest.mark.java
def test_throttles_are_set_and_taken_away(cluster, ours, theirs, tmp_path):
    for name, run in (("slow-ours", ours), ("slow-theirs", theirs)):
        create_assigned(cluster, name, [[1]])
        asked = plan(tmp_path, name, [2])
        said = run(
            "reassign-partitions", "--execute", "--reassignment-json-file", asked,
            "--throttle", "1000000", "--additional",
        )  # fmt: skip
        assert "Warning: You must run --verify periodically" in said
        assert "The inter-broker throttle limit was set to 1000000 B/s\n" in said
        wait_until(
            lambda n=name: [cluster.config(n, key, of=1) for key in THROTTLED] == ["0:1", "0:2"],
            "the throttles are set",
        )
        until_on(cluster, name, 0, (2,))
        run("reassign-partitions", "--verify", "--reassignment-json-file", asked)
        wait_until(
            lambda n=name: cluster.config(n, THROTTLED[0], of=1) == "", "the throttles are gone"
        )


def rate_of(cluster: Cluster, node: int) -> str | None:
    """What copies between the directories of this one broker are held to."""

    async def work(admin: Admin) -> str | None:
        resource = (ResourceType.BROKER, str(node))
        entries = (await admin.describe_configs([resource]))[resource]
        assert not isinstance(entries, KafkaError), entries
        source = ConfigSource.DYNAMIC_BROKER_CONFIG
        own = [entry.value for entry in entries if (entry.name, entry.source) == (RATE, source)]
        return own[0] if own else None

    return cluster.ask(work, of=node)


@pytest.mark.java
def test_a_plan_that_names_directories_is_begun_watched_and_taken_back(
    cluster, ours, theirs, tmp_path
):
    create_assigned(cluster, "placed", [[1, 2]])
    ours("producer-perf-test", "--topic", "placed", "--num-records", "60",
         "--record-size", "100000", "--throughput", "-1")  # fmt: skip
    ((before, _),) = places(cluster, 1, "placed", 0)
    after = other(before)
    target = directory(cluster, 1, after)
    place = {"topic": "placed", "partition": 0, "replicas": [1, 2], "log_dirs": [target, "any"]}
    asked = ["--reassignment-json-file", write(tmp_path, {"version": 1, "partitions": [place]})]
    execute = ["--execute", *asked, "--replica-alter-log-dirs-throttle", "2000"]
    # Of all brokers: a copy may begin before its broker has heard of the throttle of its own.
    slow_down(cluster, 1000)
    try:
        said = []
        for run in (ours, theirs):
            begun = run("reassign-partitions", *execute)
            wait_until(lambda: rate_of(cluster, 1) == "2000", "the throttle is set")
            assert rate_of(cluster, 2) is None, "nothing moves there"
            assert places(cluster, 1, "placed", 0) == sorted([(before, False), (after, True)])
            under_way = run("reassign-partitions", "--verify", *asked)
            assert rate_of(cluster, 1) == "2000", "as long as something moves"
            ended = run("reassign-partitions", "--cancel", *asked)
            assert places(cluster, 1, "placed", 0) == [(before, False)]
            wait_until(lambda: rate_of(cluster, 1) is None, "the throttle is gone")
            said.append((begun, under_way, ended, run("reassign-partitions", "--verify", *asked)))
        assert said[0] == said[1]
        begun, under_way, ended, taken_back = said[0]
        assert f"started moving log directory to {target} for replica placed-0 with" in begun
        assert "The replica-alter-dir throttle limit was set to 2000 B/s\n" in begun
        assert "Reassignment of replica placed-0-1 is still in progress.\n" in under_way
        assert f"log directory to {directory(cluster, 1, before)} for replica placed-0" in ended
        assert "Partition placed-0 on broker 1 is not being moved from log dir" in taken_back
        execute[-1] = str(1 << 30)
        ours("reassign-partitions", *execute)
        wait_until(lambda: places(cluster, 1, "placed", 0) == [(after, False)], "it moved", 90)
        ended = ours("reassign-partitions", "--verify", *asked)
        assert "Reassignment of replica placed-0-1 completed successfully.\n" in ended
        assert ended == theirs("reassign-partitions", "--verify", *asked)
        wait_until(lambda: rate_of(cluster, 1) is None, "the throttle is gone")
    finally:
        slow_down(cluster, None)


@pytest.mark.java
def test_a_proposal_has_every_partition_on_the_named_brokers(cluster, ours, theirs, tmp_path):
    create_assigned(cluster, "proposed", [[1, 2], [2, 1], [1, 2]])
    topics = write(tmp_path, {"topics": [{"topic": "proposed"}]})
    argv = ["--generate", "--topics-to-move-json-file", topics, "--broker-list", "2,3"]
    said, kafka = ours("reassign-partitions", *argv), theirs("reassign-partitions", *argv)
    lines, kafka_lines = said.splitlines(), kafka.splitlines()
    assert len(lines) == len(kafka_lines) == 5
    assert lines[:4] == kafka_lines[:4]  # the proposal itself is random
    for line in (lines[4], kafka_lines[4]):
        proposed = json.loads(line)["partitions"]
        assert [p["partition"] for p in proposed] == [0, 1, 2]
        assert all(sorted(p["replicas"]) == [2, 3] for p in proposed)
        assert all(p["log_dirs"] == ["any", "any"] for p in proposed)
    ours("reassign-partitions", *argv[:-1], "2,2", code=1)


@pytest.mark.java
def test_elections_and_what_they_say(cluster, ours, theirs, tmp_path):
    create_assigned(cluster, "elected", [[3, 1], [3, 2]])
    kinds = ["--election-type", "preferred"]
    for run in (ours, theirs):
        cluster.stop(3)
        cluster.start([3])
        for index in (0, 1):
            wait_until(
                lambda i=index: 3 in partition_of(cluster, "elected", i).isr, "3 is in sync again"
            )
        wait_until(lambda: partition_of(cluster, "elected").leader == 1, "1 leads partition 0")
        one = [*kinds, "--topic", "elected", "--partition", "0"]
        said = run("leader-election", *one)
        assert said == (
            "Successfully completed leader election (PREFERRED) for partitions elected-0\n"
        )
        assert run("leader-election", *one) == (
            "Valid replica already elected for partitions elected-0\n"
        )
        wait_until(lambda: partition_of(cluster, "elected").leader == 3, "3 leads partition 0")
        assert "elected-1" in run("leader-election", *kinds, "--all-topic-partitions")
        wait_until(lambda: partition_of(cluster, "elected", 1).leader == 3, "3 leads partition 1")
    unclean = ["--election-type", "unclean", "--topic", "elected", "--partition", "0"]
    assert ours("leader-election", *unclean) == theirs("leader-election", *unclean)
    file = write(tmp_path, {"partitions": [{"topic": "elected", "partition": 9}]})
    argv = ["--election-type", "PREFERRED", "--path-to-json-file", file]
    kafka = theirs("leader-election", *argv, code=1)
    said = ours("leader-election", *argv, code=1)
    assert said == "sparkraft leader-election: 1 replica(s) could not be elected\n"
    assert "UnknownTopicOrPartitionException: No such partition as elected-9" in kafka


@pytest.mark.java
def test_cluster_tells_the_same(cluster, ours, theirs):
    for command in (
        ["cluster-id"],
        ["list-endpoints"],
        ["list-endpoints", "--include-fenced-brokers"],
    ):
        said = ours("cluster", *command)
        assert said == theirs("cluster", *command)
    assert json.loads(ours("cluster", "cluster-id", "--output", "json")) == {
        "clusterId": ours("cluster", "cluster-id").split()[-1]
    }


def test_controllers_may_be_asked_instead(cluster, capsys):
    controllers = ["--bootstrap-controller", cluster.controller_bootstrap]
    assert cli.main(["cluster", "list-endpoints", *controllers]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert "STATE" not in header
    assert [row.split()[0] for row in rows] == ["1", "2", "3"]
    assert cli.main(["reassign-partitions", "--list", *controllers]) == 0
    assert capsys.readouterr().out == "No partition reassignments found.\n"


def test_a_broker_that_is_gone_for_good_is_unregistered(tmp_path, capsys):
    members = [Member(1), Member(2, roles="broker")]
    with Cluster(tmp_path, members, overrides=STEADY) as cluster:
        create_assigned(cluster, "left", [[1, 2]])
        cluster.stop(2)
        argv = ["cluster", "unregister", "--bootstrap-server", cluster.bootstrap, "--id", "2"]
        assert cli.main(argv) == 0
        assert capsys.readouterr().out == "Broker 2 is no longer registered.\n"
        wait_until(lambda: partition_of(cluster, "left").isr == (1,), "2 left the ISR")
        assert cli.main(argv) == 1
        assert "Broker ID 2 is not currently registered" in capsys.readouterr().err
