"""`up` with several nodes, and `node` on one of them."""

import json
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sparkraft.cli import main as cli
from tests.support.ports import accepts, cluster_port, wait_until

pytestmark = pytest.mark.real_clients


@pytest.fixture
def home(tmp_path: Path):
    directory = tmp_path / "cluster"
    yield directory
    if (directory / "cluster.json").exists():
        cli.main(["down", "--dir", str(directory)])


def up(home: Path, *options: str) -> dict:
    port = cluster_port()
    code = cli.main(
        ["up", "--dir", str(home), "--port", str(port), "--detach", "--no-console", *options]
    )
    assert code == 0
    return json.loads((home / "cluster.json").read_text())


def run(*arguments: str) -> None:
    assert cli.main(list(arguments)) == 0


STEADY = [
    "--override=broker.session.timeout.ms=20000",
    "--override=broker.heartbeat.interval.ms=500",
]


def test_three_nodes_go_on_without_the_one_that_is_killed(home, capsys):
    cluster = up(home, "--nodes", "3", *STEADY)
    assert [node["id"] for node in cluster["nodes"]] == [1, 2, 3]
    assert cluster["bootstrap"].count(",") == 2
    bootstrap = ["--bootstrap-server", cluster["bootstrap"]]
    run("topics", *bootstrap, "--create", "--topic", "a", "--partitions", "3")
    describe = ["topics", *bootstrap, "--describe", "--topic", "a"]
    # The broker that is asked may hear of it a moment after the controller has made it.
    wait_until(lambda: capsys.readouterr() and cli.main(describe) == 0, "the topic is known")
    head = capsys.readouterr().out.splitlines()[0]
    assert "ReplicationFactor: 3" in head
    assert "min.insync.replicas=2" in head
    properties = Path(cluster["nodes"][0]["properties"]).read_text().splitlines()
    for key in ("transaction.state.log", "share.coordinator.state.topic"):
        assert {f"{key}.replication.factor=3", f"{key}.min.isr=2"} <= set(properties)
    capsys.readouterr()
    assert cli.main(["consumer-groups", *bootstrap, "--describe", "--group", "g"]) == 1
    assert "not found" in capsys.readouterr().err  # but its coordinator was, which makes the topic
    offsets = ["topics", *bootstrap, "--describe", "--topic", "__consumer_offsets"]
    wait_until(lambda: capsys.readouterr() and cli.main(offsets) == 0, "its topic is known")
    assert "ReplicationFactor: 3" in capsys.readouterr().out.splitlines()[0]
    run("node", "kill", "1", "--dir", str(home))
    run("topics", *bootstrap, "--create", "--topic", "b")
    run("node", "start", "1", "--dir", str(home))
    capsys.readouterr()
    run("topics", "--bootstrap-server", cluster["bootstrap"].split(",")[0], "--list")
    assert capsys.readouterr().out == "__consumer_offsets\na\nb\n"


def test_five_nodes_go_on_without_two_and_tell_how_their_quorum_is(home, capsys):
    cluster = up(home, "--nodes", "5", *STEADY)
    assert [node["id"] for node in cluster["nodes"]] == [1, 2, 3, 4, 5]
    bootstrap = ["--bootstrap-server", cluster["bootstrap"]]

    def status() -> dict:
        capsys.readouterr()
        run("metadata-quorum", *bootstrap, "describe", "--status", "--output", "json")
        return json.loads(capsys.readouterr().out)

    first = status()
    assert sorted(voter["id"] for voter in first["currentVoters"]) == [1, 2, 3, 4, 5]
    run("features", *bootstrap, "describe", "--output", "json")
    rows = json.loads(capsys.readouterr().out)
    (kraft,) = (row for row in rows if row["feature"] == "kraft.version")
    assert kraft["finalizedVersionLevel"] == "1", "voters can come and go"
    until_metrics_tell_of_voters(cluster, first["leaderId"], {1, 2, 3, 4, 5} - {first["leaderId"]})
    other = next(n for n in range(1, 6) if n != first["leaderId"])
    for node in (first["leaderId"], other):
        run("node", "kill", str(node), "--dir", str(home))
    run("topics", *bootstrap, "--create", "--topic", "a", "--partitions", "5")
    second = status()
    assert second["leaderId"] not in {first["leaderId"], other}
    assert second["leaderEpoch"] > first["leaderEpoch"]
    elected = metrics_of(cluster, second["leaderId"])
    assert elected["sparkraft_raft_elections_total"] >= 1
    took = elected["sparkraft_raft_election_ms_last"]
    assert 0 < took <= elected["sparkraft_raft_election_ms_max"]
    assert elected["sparkraft_raft_election_ms_total"] >= took
    assert elected["sparkraft_raft_leaderless_ms"] == 0


def metrics_of(cluster: dict, node: int) -> dict[str, float]:
    """Name with labels → value, as one node tells it."""
    (port,) = (each["http_port"] for each in cluster["nodes"] if each["id"] == node)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    samples = [each for family in text_string_to_metric_families(text) for each in family.samples]
    return {
        " ".join([s.name, *(f"{k}={v}" for k, v in s.labels.items())]): s.value for s in samples
    }


def until_metrics_tell_of_voters(cluster: dict, leader: int, followers: set[int]) -> None:
    """The leader knows its followers' lag, and nobody else tells of any."""

    def caught_up() -> bool:
        told = metrics_of(cluster, leader)
        lags = {n: told[f"sparkraft_raft_follower_lag node_id={n} role=voter"] for n in followers}
        since = {
            n: told[f"sparkraft_raft_follower_caught_up_ms node_id={n} role=voter"]
            for n in followers
        }
        return set(lags.values()) == {0} and min(since.values()) > A_DAY_IN_2020_MS

    wait_until(caught_up, "every follower has all")
    assert metrics_of(cluster, leader)["sparkraft_raft_state state=leader"] == 1
    for node in followers:
        told = metrics_of(cluster, node)
        states = {name: value for name, value in told.items() if " state=" in name}
        raft = {n for n, v in states.items() if n.startswith("sparkraft_raft_state") and v}
        assert raft == {"sparkraft_raft_state state=follower"}
        assert not [name for name in told if name.startswith("sparkraft_raft_follower_")]
        assert told["sparkraft_raft_leader_id"] == leader


A_DAY_IN_2020_MS = 1_600_000_000_000


def test_another_number_of_nodes_is_refused_with_the_remedy(home, capsys):
    up(home, "--nodes", "1")
    run("down", "--dir", str(home))
    assert cli.main(["up", "--dir", str(home), "--nodes", "3", "--detach"]) == 1
    said = capsys.readouterr().err
    assert "start it with --nodes 1, or choose another --dir" in said


def test_a_node_without_a_majority_is_started_and_says_so(home, capsys):
    cluster = up(home, "--nodes", "3", *STEADY)
    run("down", "--dir", str(home))
    run("node", "start", "1", "--dir", str(home))
    assert "once a majority of the controllers runs" in capsys.readouterr().err
    run("node", "start", "2", "--dir", str(home))
    assert accepts(cluster["nodes"][1]["port"])


def test_controllers_apart_from_brokers(home, capsys):
    cluster = up(home, "--controllers", "3", "--brokers", "2", *STEADY)
    roles = {node["id"]: node["roles"] for node in cluster["nodes"]}
    assert roles == {1: "broker", 2: "broker"} | dict.fromkeys((101, 102, 103), "controller")
    bootstrap = ["--bootstrap-server", cluster["bootstrap"]]
    run("node", "pause", "101", "--dir", str(home))
    run("topics", *bootstrap, "--create", "--topic", "a", "--partitions", "2")
    run("node", "resume", "101", "--dir", str(home))

    def observers() -> dict[int, str]:
        capsys.readouterr()
        run("metadata-quorum", *bootstrap, "describe", "--replication", "--output", "json")
        rows = json.loads(capsys.readouterr().out)
        return {row["nodeId"]: row["status"] for row in rows if row["nodeId"] < 100}

    # Where 101 led, a new leader knows of those who have fetched from it since.
    wanted = {1: "Observer", 2: "Observer"}
    wait_until(lambda: observers() == wanted, "both brokers observe the leader")
