"""Brokers of a cluster get new software or versions, one by one, under load.

Kafka's upgrade notes, from 2.6 to 3.9: first each broker gets its new software and keeps
inter.broker.protocol.version; here a broker of Kafka 3.9.2 becomes one of ours, on its logs. Then
the brokers get the new version.

Another cluster is replaced as a whole: all brokers of Kafka become ours, and then Kafka's again.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from sparkraft.zookeeper.requests import GetData
from tests.support.nodes import NodeProcess
from tests.support.ports import wait_until
from tests.support.zookeeper import Ensemble, controller_of, submit
from tests.support.zookeeper_brokers import KafkaBroker, OurBroker
from tests.zookeeper.broker.coordinator_logs import OFFSETS, TRANSACTIONS
from tests.zookeeper.broker.test_mixed_cluster import states
from tests.zookeeper.load import GroupLoad, Load, TransactionLoad, read_all

pytestmark = [pytest.mark.java, pytest.mark.real_clients, pytest.mark.long]

VERSION = "inter.broker.protocol.version"
KAFKA, SWAPPED, OURS = BROKERS = (1, 2, 3)
SETTINGS = {
    VERSION: "2.6",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "sparkraft.controllership.enable": "true",
}

Nodes = dict[int, NodeProcess]


@contextmanager
def cluster(
    jars: Path,
    folder: Path,
    settings: Mapping[str, str] = SETTINGS,
    *,
    ours: Collection[int] = (OURS,),
) -> Iterator[tuple[Nodes, str]]:
    """Brokers of Kafka, the first one is the controller; and those that are `ours`."""
    with Ensemble(jars, folder) as ensemble:
        connect = ensemble.connect
        nodes: Nodes = {
            each: OurBroker(folder / str(each), each, connect, settings)
            if each in ours
            else KafkaBroker(folder / str(each), each, connect, jars, settings)
            for each in BROKERS
        }
        try:
            for node in nodes.values():
                node.start()
                wait_until(lambda: controller_of(connect)[0] == KAFKA, "elected", 30)
            yield nodes, connect
        finally:
            for node in nodes.values():
                if node.process is not None:
                    node.kill()


def create(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wait_until(lambda: len(admin.list_topics(timeout=10).brokers) == len(BROKERS), "live", 30)
    for made in admin.create_topics([NewTopic("t", 2, 3), NewTopic("x", 2, 3)]).values():
        made.result(20)


def wait_until_whole(nodes: Nodes) -> None:
    """Return when each broker tells clients that all replicas are in sync."""
    for topic in ("t", "x", OFFSETS, TRANSACTIONS):
        for node in nodes.values():
            wait_until(
                lambda name=topic, at=node.bootstrap: all(
                    isr == list(BROKERS) for _, isr in states(at, name).values()
                ),
                f"{topic} is in sync at {node.port}",
                60,
            )


def swap(nodes: Nodes, connect: str, broker: int = SWAPPED, jars: Path | None = None) -> None:
    """Replace Kafka's software of a broker by ours; its logs, port, id and configs stay.

    With `jars` it is the reverse.
    """
    old = nodes[broker]
    assert old.stop() in {0, 143}
    new: NodeProcess
    if jars is None:
        new = OurBroker(old.directory, broker, connect, old.overrides)
    else:
        new = KafkaBroker(old.directory, broker, connect, jars, old.overrides)
    new.port = old.port
    new.write_properties()
    new.start()
    nodes[broker] = new


def raise_version(node: NodeProcess) -> None:
    assert node.stop() in {0, 143}
    node.overrides[VERSION] = "3.9"
    node.write_properties()
    node.start()


def znode(connect: str, path: str) -> dict:
    data, _ = submit(connect, GetData(path=path))
    return dict(json.loads(data))


def check_topic_ids(nodes: Nodes, connect: str) -> None:
    """Each topic has one, which all brokers have stored with its logs."""
    for topic in ("t", "x", OFFSETS, TRANSACTIONS):
        topic_id = znode(connect, f"/brokers/topics/{topic}")["topic_id"]
        for node in nodes.values():
            stored = node.log_dir / f"{topic}-0" / "partition.metadata"
            wait_until(stored.exists, f"{stored} exists", 20)
            assert topic_id in stored.read_text()


@pytest.mark.parametrize(
    "order",
    [
        pytest.param((SWAPPED, OURS, KAFKA), id="the-controller-last"),
        pytest.param((KAFKA, OURS, SWAPPED), id="the-controller-first"),
    ],
)
def test_brokers_are_raised_one_by_one_under_load(
    zookeeper_jars: Path, tmp_path: Path, order: tuple[int, ...]
) -> None:
    with cluster(zookeeper_jars, tmp_path) as (nodes, connect):
        bootstrap = ",".join(node.bootstrap for node in nodes.values())
        create(bootstrap)
        load, transactions = Load(bootstrap, 2), TransactionLoad(bootstrap)
        group = GroupLoad(bootstrap)
        wait_until(lambda: transactions.committed and group.found, "the loads have begun", 60)
        wait_until_whole(nodes)
        swap(nodes, connect)
        wait_until_whole(nodes)
        for broker in order:
            before = len(load.acknowledged), len(transactions.committed)
            raise_version(nodes[broker])
            wait_until_whole(nodes)
            wait_until(
                lambda before=before: (
                    len(load.acknowledged) > before[0] and len(transactions.committed) > before[1]
                ),
                "the loads continue",
                60,
            )
        acknowledged = load.end()
        transactions.end()
        group.end(acknowledged)
        found = read_all(bootstrap, len(acknowledged))
        assert acknowledged <= set(found)
        assert len(found) == len(set(found)), "no record is written twice"
        transactions.check()
        check_topic_ids(nodes, connect)
        assert znode(connect, "/feature") == {"features": {}, "version": 2, "status": 1}
        assert {znode(connect, f"/brokers/ids/{each}")["version"] for each in BROKERS} == {5}


def test_all_brokers_are_replaced_by_ours_and_back_under_load(
    zookeeper_jars: Path, tmp_path: Path
) -> None:
    settings = {**SETTINGS, VERSION: "3.9"}
    with cluster(zookeeper_jars, tmp_path, settings, ours=()) as (nodes, connect):
        bootstrap = ",".join(node.bootstrap for node in nodes.values())
        create(bootstrap)
        load, transactions = Load(bootstrap, 2), TransactionLoad(bootstrap)
        group = GroupLoad(bootstrap)
        wait_until(lambda: transactions.committed and group.found, "the loads have begun", 60)
        wait_until_whole(nodes)
        epochs = [controller_of(connect)[1]]
        for jars in (None, zookeeper_jars):
            for broker in BROKERS:
                before = len(load.acknowledged), len(transactions.committed)
                swap(nodes, connect, broker, jars)
                wait_until_whole(nodes)
                wait_until(
                    lambda before=before: (
                        len(load.acknowledged) > before[0]
                        and len(transactions.committed) > before[1]
                    ),
                    "the loads continue",
                    60,
                )
            kind = OurBroker if jars is None else KafkaBroker
            assert {type(node) for node in nodes.values()} == {kind}
            epochs.append(controller_of(connect)[1])
        assert epochs == sorted(set(epochs)), "the controllership has moved each time"
        acknowledged = load.end()
        transactions.end()
        group.end(acknowledged)
        found = read_all(bootstrap, len(acknowledged))
        assert acknowledged <= set(found)
        assert len(found) == len(set(found)), "no record is written twice"
        transactions.check()
        check_topic_ids(nodes, connect)
