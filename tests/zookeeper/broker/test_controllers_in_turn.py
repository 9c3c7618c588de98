"""A broker of Kafka 3.9.2 and ours on a real ensemble take the controllership from each other."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from sparkraft.zookeeper.requests import Delete, GetChildren
from tests.support.ports import wait_until
from tests.support.zookeeper import Ensemble, controller_of, submit
from tests.support.zookeeper_brokers import KafkaBroker, OurBroker
from tests.zookeeper.broker.test_mixed_cluster import RECORDS, consume, produce, states

pytestmark = [pytest.mark.java, pytest.mark.real_clients]

SETTINGS = {"sparkraft.controllership.enable": "true", "zookeeper.session.timeout.ms": "3000"}
KAFKA, OURS = 1, 2


@pytest.fixture(scope="module")
def cluster(
    zookeeper_jars: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[KafkaBroker, OurBroker, str]]:
    """Ours starts first, and is the controller."""
    folder = tmp_path_factory.mktemp("turns")
    with (
        Ensemble(zookeeper_jars, folder) as ensemble,
        OurBroker(folder / "ours", OURS, ensemble.connect, SETTINGS) as ours,
        KafkaBroker(folder / "kafka", KAFKA, ensemble.connect, zookeeper_jars, SETTINGS) as kafka,
    ):
        yield kafka, ours, ensemble.connect


def create(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wait_until(lambda: sorted(admin.list_topics(timeout=10).brokers) == [1, 2], "both are live", 20)
    admin.create_topics([NewTopic("t", 2, 2)])["t"].result(20)
    leaders = {1, 2}
    wait_until(
        lambda: {leader for leader, _ in states(bootstrap, "t").values()} == leaders, "led", 20
    )


def deletions(ensemble: str) -> list[str]:
    """Topics whose deletion has not ended."""
    names, _ = submit(ensemble, GetChildren(path="/admin/delete_topics"))
    return list(names)


def in_sync(bootstrap: str) -> bool:
    return all(isr == [1, 2] for _, isr in states(bootstrap, "t").values())


def test_both_are_the_controller_in_turn_and_no_record_is_lost(cluster):
    kafka, ours, ensemble = cluster
    assert controller_of(ensemble) == (OURS, 1)
    create(kafka.bootstrap)
    produce(kafka.bootstrap, 0)
    # Topics deleted and created again under ours.
    admin = AdminClient({"bootstrap.servers": ours.bootstrap})
    admin.delete_topics(["t"])["t"].result(20)
    wait_until(lambda: deletions(ensemble) == [], "both have deleted their logs", 20)
    assert not (kafka.log_dir / "t-0").exists()
    create(ours.bootstrap)
    produce(ours.bootstrap, 0)
    # Ours stops: Kafka is the controller. The leaders were moved before.
    assert ours.stop() == 0
    wait_until(lambda: controller_of(ensemble) == (KAFKA, 2), "Kafka took over", 20)
    wait_until(
        lambda: {leader for leader, _ in states(kafka.bootstrap, "t").values()} == {1}, "led", 20
    )
    produce(kafka.bootstrap, RECORDS)
    ours.start()
    wait_until(lambda: in_sync(kafka.bootstrap), "ours is in sync", 30)
    # Kafka is killed: ours is the controller once its session has expired.
    kafka.kill()
    wait_until(lambda: controller_of(ensemble) == (OURS, 3), "ours took over", 30)
    wait_until(
        lambda: {leader for leader, _ in states(ours.bootstrap, "t").values()} == {2}, "led", 20
    )
    produce(ours.bootstrap, 2 * RECORDS)
    kafka.start()
    wait_until(lambda: in_sync(ours.bootstrap), "Kafka is in sync", 30)
    # An operator deletes /controller: either may win.
    submit(ensemble, Delete(path="/controller"))
    wait_until(lambda: controller_of(ensemble)[1] == 4, "another epoch", 20)
    produce(ours.bootstrap, 3 * RECORDS)
    assert consume(kafka.bootstrap, 4 * RECORDS, "g") == list(range(4 * RECORDS))
    wait_until(lambda: in_sync(ours.bootstrap), "both are in sync", 30)
