"""`up` with several nodes, and `node` on one of them."""

import json
from pathlib import Path

import pytest

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
    code = cli.main(["up", "--dir", str(home), "--port", str(port), "--detach", *options])
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
    run("node", "kill", "1", "--dir", str(home))
    run("topics", *bootstrap, "--create", "--topic", "b")
    run("node", "start", "1", "--dir", str(home))
    capsys.readouterr()
    run("topics", "--bootstrap-server", cluster["bootstrap"].split(",")[0], "--list")
    assert capsys.readouterr().out == "a\nb\n"


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
