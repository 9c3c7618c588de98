"""Two brokers of Kafka 3.9.2 and two of ours; controllers pause, fail and stop under load."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.ports import wait_until
from tests.support.zookeeper import Ensemble, controller_of
from tests.support.zookeeper_brokers import KafkaBroker, OurBroker
from tests.zookeeper.broker.test_mixed_cluster import states
from tests.zookeeper.load import Load, read_all

pytestmark = [pytest.mark.java, pytest.mark.real_clients, pytest.mark.long]

SETTINGS = {"sparkraft.controllership.enable": "true", "zookeeper.session.timeout.ms": "4000"}
PARTITIONS = 4
Brokers = dict[int, KafkaBroker | OurBroker]


@pytest.fixture
def cluster(zookeeper_jars: Path, tmp_path: Path) -> Iterator[tuple[Brokers, str]]:
    """Brokers 1 and 2 are ours, 3 and 4 are Kafka's; 1 is the controller."""
    with Ensemble(zookeeper_jars, tmp_path) as ensemble:
        connect = ensemble.connect
        brokers: Brokers = {
            1: OurBroker(tmp_path / "1", 1, connect, SETTINGS),
            2: OurBroker(tmp_path / "2", 2, connect, SETTINGS),
            3: KafkaBroker(tmp_path / "3", 3, connect, zookeeper_jars, SETTINGS),
            4: KafkaBroker(tmp_path / "4", 4, connect, zookeeper_jars, SETTINGS),
        }
        try:
            for broker in brokers.values():
                broker.start()
            yield brokers, connect
        finally:
            for broker in brokers.values():
                broker.kill()


class Turns:
    """Ends one controller after another; each broker returns before the next one ends.

    Attributes:
        epochs: of the controllers, in order.
    """

    def __init__(self, brokers: Brokers, ensemble: str, bootstrap: str) -> None:
        self.brokers, self.ensemble, self.bootstrap = brokers, ensemble, bootstrap
        self.controller, epoch = controller_of(ensemble)
        self.epochs = [epoch]

    def wait_until_whole(self) -> None:
        def whole() -> bool:
            seen = states(self.bootstrap, "t")
            return all(len(isr) == 3 and leader > 0 for leader, isr in seen.values())

        wait_until(whole, "all replicas are in sync", 60)

    def end(self, how: str, back: str) -> None:
        """End the controller, wait for the next one, and bring the broker back."""
        ended = self.controller
        getattr(self.brokers[ended], how)()
        wait_until(
            lambda: controller_of(self.ensemble)[0] not in {ended, -1}, "another controller", 40
        )
        getattr(self.brokers[ended], back)()
        self.wait_until_whole()
        self.controller, epoch = controller_of(self.ensemble)
        self.epochs.append(epoch)


def test_no_record_is_lost_while_controllers_are_paused_killed_and_stopped(cluster):
    brokers, ensemble = cluster
    bootstrap = ",".join(each.bootstrap for each in brokers.values())
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wait_until(lambda: len(admin.list_topics(timeout=10).brokers) == 4, "all are live", 30)
    replicas = [[1, 2, 3], [2, 3, 4], [3, 4, 1], [4, 1, 2]]
    settings = {"min.insync.replicas": "2"}
    topic = NewTopic("t", PARTITIONS, replica_assignment=replicas, config=settings)
    admin.create_topics([topic])["t"].result(30)
    turns = Turns(brokers, ensemble, bootstrap)
    assert turns.controller == 1
    turns.wait_until_whole()
    load = Load(bootstrap, PARTITIONS)
    try:
        # The session of a paused controller expires; it must not write when it continues.
        turns.end("pause", "resume")
        for _ in range(3):
            turns.end("kill", "start")
        turns.end("stop", "start")
    finally:
        acknowledged = load.end()
    assert turns.epochs == sorted(set(turns.epochs)), "each controller has a greater epoch"
    assert len(acknowledged) > 100
    found = read_all(bootstrap, len(acknowledged))
    assert acknowledged <= set(found), f"lost: {sorted(acknowledged - set(found))[:10]}"
    assert len(found) == len(set(found)), "idempotent producers write no record twice"
