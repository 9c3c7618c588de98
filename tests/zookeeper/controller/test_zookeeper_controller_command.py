"""`sparkraft zookeeper-controller` on a real ensemble, with a candidate that waits for its turn."""

import asyncio
import json
import threading

import pytest
from kazoo.client import KazooClient

from sparkraft.cli.errors import CommandError
from sparkraft.cli.zookeeper_controller import main
from tests.support.zookeeper import Ensemble
from tests.zookeeper.controller.test_election_on_ensembles import PATHS, Candidate

pytestmark = [pytest.mark.java, pytest.mark.real_time]

CONTROLLER = '{"version":2,"brokerid":%d,"timestamp":"1","kraftControllerEpoch":%d}'


@pytest.fixture
def cluster(ensemble: Ensemble, request):
    """A chroot with an epoch and one broker; yields it and a client."""
    chroot = f"/{request.node.name}"
    client = KazooClient(ensemble.connect)
    client.start(30)
    for path in PATHS:
        client.ensure_path(chroot + path)
    client.create(f"{chroot}/controller_epoch", b"4")
    broker = b'{"version":5,"endpoints":["PLAINTEXT://127.0.0.1:2"],"features":{},"jmx_port":-1}'
    client.create(f"{chroot}/brokers/ids/1", broker)
    client.chroot = chroot
    yield f"{ensemble.connect}{chroot}", client
    client.stop()
    client.close()


def run(action: str, servers: str, *more: str) -> int:
    return main([action, "--zookeeper", servers, *more])


def test_it_describes_the_controller(cluster, capsys):
    servers, client = cluster
    client.create("/controller", (CONTROLLER % (1, -1)).encode(), ephemeral=True)
    assert run("describe", servers) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["Controller:", "1"]
    assert lines[2:] == ["ControllerEpoch: 4", "LiveBrokers:     1"]
    run("describe", servers, "--output", "json")
    document = json.loads(capsys.readouterr().out)
    assert document["since"].startswith("20")
    assert document["live_brokers"][0]["broker_epoch"] > 0


def test_it_describes_a_cluster_without_a_controller(cluster, capsys):
    run("describe", cluster[0])
    assert capsys.readouterr().out.splitlines()[0].split() == ["Controller:", "none"]


def test_a_move_lets_the_nodes_compete(cluster, capsys):
    servers, client = cluster
    client.create("/controller", (CONTROLLER % (1, -1)).encode(), ephemeral=True)
    ended = threading.Event()

    async def candidate() -> None:
        node = Candidate(servers, 2)
        await node.client.start(30_000)
        while not await node.compete():  # noqa: ASYNC110 (it reads the znode again)
            await asyncio.sleep(0.02)
        await asyncio.to_thread(ended.wait, 60)
        await node.client.close()

    thread = threading.Thread(target=lambda: asyncio.run(candidate()))
    thread.start()
    try:
        assert run("move", servers) == 0
        assert capsys.readouterr().out == "Controller moved from broker 1 to broker 2\n"
        assert client.get("/controller_epoch")[0] == b"5"
    finally:
        ended.set()
        thread.join(60)


def test_there_is_nothing_to_move_without_a_controller(cluster):
    with pytest.raises(CommandError, match="has no controller"):
        run("move", cluster[0])


def test_a_kraft_controller_is_not_moved(cluster):
    servers, client = cluster
    client.create("/controller", (CONTROLLER % (3000, 2)).encode())
    with pytest.raises(CommandError, match="3000 is a KRaft controller"):
        run("move", servers)
    assert client.exists("/controller")
