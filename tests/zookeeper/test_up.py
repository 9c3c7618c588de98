"""`up --zookeeper`: brokers in ZooKeeper mode beside a real ensemble, in one command."""

import json
import re
import socket
from pathlib import Path
from typing import Any

import pytest

from sparkraft.cli import main as cli
from tests.support.ports import cluster_port, wait_until
from tests.support.zookeeper import Ensemble

pytestmark = pytest.mark.real_clients


@pytest.fixture
def home(tmp_path: Path):
    directory = tmp_path / "cluster"
    yield directory
    if (directory / "cluster.json").exists():
        cli.main(["down", "--dir", str(directory)])


def controller_in(connect: str, capsys: pytest.CaptureFixture[str]) -> int:
    capsys.readouterr()
    command = ["zookeeper-controller", "describe", "--zookeeper", connect, "--output", "json"]
    assert cli.main(command) == 0
    return int(json.loads(capsys.readouterr().out)["controller"])


def test_two_brokers_serve_and_one_replaces_the_controller(home, ensemble: Ensemble, capsys):
    connect = f"{ensemble.connect}/up"
    start = ["up", "--dir", str(home), "--zookeeper", connect, "--brokers", "2", "--detach"]
    start += ["--override", "zookeeper.session.timeout.ms=3000"]
    port = cluster_port()
    assert cli.main([*start, "--port", str(port), "--no-console"]) == 0, capsys.readouterr().err
    cluster = json.loads((home / "cluster.json").read_text())
    assert cluster["zookeeper"] == connect
    assert cluster["cluster_id"]
    topics = ["topics", "--bootstrap-server", cluster["bootstrap"]]
    assert cli.main([*topics, "--create", "--topic", "t", "--partitions", "2"]) == 0
    killed = controller_in(connect, capsys)
    assert cli.main(["node", "kill", str(killed), "--dir", str(home)]) == 0
    topics[2] = cluster["bootstrap"].split(",")[2 - killed]

    def is_created() -> bool:
        more = ["--create", "--if-not-exists", "--topic", "u", "--replication-factor", "1"]
        return cli.main([*topics, *more]) == 0

    wait_until(is_created, "the other broker is the controller", 60)
    assert controller_in(connect, capsys) == 3 - killed
    explain = ["explain", "controller", "--bootstrap-server", topics[2]]
    capsys.readouterr()
    assert cli.main([*explain, "--output", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["controller"], found["epoch"]) == (3 - killed, 2)
    texts = [step["text"] for step in found["failover"]]
    assert "read 1 brokers, 1 topics, 2 partitions" in texts
    check_elections(explained(topics[2], capsys, "topic", "t"), killed)
    assert explained(topics[2], capsys, "broker", str(3 - killed))["leads"] == 3
    # Until its session has expired the broker is still registered.
    start_killed = ["node", "start", str(killed), "--dir", str(home)]
    wait_until(lambda: cli.main(start_killed) == 0, "it starts again", 60)
    assert cli.main(["down", "--dir", str(home)]) == 0
    assert cli.main([*start, "--no-console"]) == 0
    topics[2] = cluster["bootstrap"]

    def are_listed() -> bool:
        capsys.readouterr()
        assert cli.main([*topics, "--list"]) == 0
        return capsys.readouterr().out.split() == ["t", "u"]

    wait_until(are_listed, "the controller has sent the topics", 60)
    # Of both controllers, from their files: neither process is that of then.
    check_first_leaders(explained(cluster["bootstrap"], capsys, "topic", "t"), killed)
    explain[3] = cluster["bootstrap"]
    assert cli.main([*explain, "--last", "200"]) == 0
    check_that_the_journal_was_kept(capsys.readouterr().out, 3 - killed)


def explained(bootstrap: str, capsys: pytest.CaptureFixture[str], *what: str) -> dict[str, Any]:
    capsys.readouterr()
    options = ["--bootstrap-server", bootstrap, "--output", "json", "--last", "100"]
    assert cli.main(["explain", *what, *options]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def check_elections(topic: dict[str, Any], killed: int) -> None:
    """The second controller gave the one partition that the killed broker led another leader.

    It may elect others later: the killed broker returns, and brokers stop.
    """
    elections = [each for partition in topic["partitions"] for each in partition["elections"]]
    cause = "a new controller found no online leader"
    (won,) = [each for each in elections if each["cause"] == cause and each["leader"]]
    assert won["controllerEpoch"] == 2
    assert (won["leader"], won["chosenBy"]) == (3 - killed, "in-sync replica")
    assert won["ruledOut"] == [{"replica": killed, "why": "broker not registered"}]


def check_first_leaders(topic: dict[str, Any], killed: int) -> None:
    """As `check_elections`; the first leaders are those of the killed controller."""
    check_elections(topic, killed)
    for partition in topic["partitions"]:
        made = partition["elections"][-1]
        assert (made["kind"], made["controllerEpoch"]) == ("made", 1)


def check_that_the_journal_was_kept(text: str, second: int) -> None:
    assert f"broker {second}  attempt: won epoch 2" in text
    found = re.match(r"controller  broker [12], epoch (\d+), since", text)
    assert found, text
    assert int(found[1]) > 2


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--nodes", "3"], "leave out --nodes"),
        (["--brokers", "0"], "--brokers is between"),
        (["--secure", "--brokers", "1"], "without ZooKeeper"),
    ],
)
def test_a_layout_that_makes_no_sense_is_refused(home, capsys, options, error):
    command = ["up", "--dir", str(home), "--zookeeper", "127.0.0.1:2181", *options]
    assert cli.main(command) != 0
    assert error in capsys.readouterr().err
    assert not home.exists()


def test_no_ensemble_is_named_at_once(home, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    command = ["up", "--dir", str(home), "--port", str(cluster_port()), "--detach"]
    assert cli.main([*command, "--zookeeper", f"127.0.0.1:{port}"]) == 1
    assert f"no ZooKeeper server can be reached: 127.0.0.1:{port}" in capsys.readouterr().err
    assert cli.main([*command, "--zookeeper", "127.0.0.1:x"]) != 0
    assert "127.0.0.1:x' is not HOST:PORT" in capsys.readouterr().err
