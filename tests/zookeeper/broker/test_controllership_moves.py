"""The controllership moves between Kafka 3.9.2 and ours, both ways and for each cause, under load.

    kill        the session of the controller expires after its process has ended
    expiry      the session expires while the process is paused; it returns as a former controller
    deletion    an operator deletes /controller; the former controller is paused, so that it loses
    stop        a controlled shutdown ends the session at once

With one broker of each kind the other one must be elected.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from sparkraft.zookeeper.requests import Delete, GetChildren, GetData
from tests.support.ports import wait_until
from tests.support.zookeeper import Ensemble, controller_of, submit
from tests.support.zookeeper_brokers import KafkaBroker, OurBroker
from tests.zookeeper.broker.test_mixed_cluster import states
from tests.zookeeper.load import Load, read_all

pytestmark = [pytest.mark.java, pytest.mark.real_clients]

SETTINGS = {"sparkraft.controllership.enable": "true", "zookeeper.session.timeout.ms": "3000"}
KAFKA, OURS = BROKERS = (1, 2)
CAUSES = ("kill", "expiry", "deletion", "stop")
PARTITIONS = 2


class Moves:
    """Moves the controllership of a cluster to the other broker.

    Attributes:
        nodes: the brokers by id.
        connect: of the ensemble.
    """

    def __init__(self, nodes: dict[int, KafkaBroker | OurBroker], connect: str) -> None:
        self.nodes, self.connect = nodes, connect
        self.bootstrap = ",".join(each.bootstrap for each in nodes.values())

    def registration_epoch(self, broker: int) -> int:
        _, stat = submit(self.connect, GetData(path=f"/brokers/ids/{broker}"))
        return int(stat.czxid)

    def wait_until_whole(self) -> None:
        for node in self.nodes.values():
            wait_until(
                lambda at=node.bootstrap: all(
                    leader > 0 and isr == list(BROKERS) for leader, isr in states(at, "t").values()
                ),
                f"all replicas are in sync at {node.port}",
                60,
            )

    def move(self, cause: str) -> None:
        """End the present controllership; return when the other broker has it, and all is well."""
        holder, epoch = controller_of(self.connect)
        other = KAFKA + OURS - holder
        node = self.nodes[holder]
        before = self.registration_epoch(holder)
        match cause:
            case "kill":
                node.kill()
            case "stop":
                node.stop()
            case "expiry" | "deletion":
                node.pause()
        if cause == "deletion":
            submit(self.connect, Delete(path="/controller"))
        wait_until(lambda: controller_of(self.connect)[0] == other, f"{cause}: {other} has it", 40)
        assert controller_of(self.connect)[1] > epoch
        if cause == "deletion":
            assert self.registration_epoch(holder) == before, "its session has not expired"
        if cause in {"expiry", "deletion"}:
            node.resume()
        else:
            node.start()
        if cause != "deletion":
            wait_until(lambda: self.is_registered_after(holder, before), "it has returned", 40)
        self.wait_until_whole()
        assert controller_of(self.connect)[0] == other

    def is_registered_after(self, broker: int, epoch: int) -> bool:
        """Whether a broker has registered again."""
        names, _ = submit(self.connect, GetChildren(path="/brokers/ids"))
        return str(broker) in names and self.registration_epoch(broker) > epoch


@pytest.fixture
def moves(zookeeper_jars: Path, tmp_path: Path) -> Iterator[Moves]:
    """Ours is the controller; the topic t has a replica on each broker."""
    with Ensemble(zookeeper_jars, tmp_path) as ensemble:
        connect = ensemble.connect
        with (
            OurBroker(tmp_path / "ours", OURS, connect, SETTINGS) as ours,
            KafkaBroker(tmp_path / "kafka", KAFKA, connect, zookeeper_jars, SETTINGS) as kafka,
        ):
            found = Moves({KAFKA: kafka, OURS: ours}, connect)
            admin = AdminClient({"bootstrap.servers": found.bootstrap})
            wait_until(lambda: len(admin.list_topics(timeout=10).brokers) == 2, "both are live", 30)
            admin.create_topics([NewTopic("t", PARTITIONS, 2)])["t"].result(20)
            found.wait_until_whole()
            yield found


@pytest.mark.parametrize(
    "times", [pytest.param(1, id="once"), pytest.param(3, id="three-times", marks=pytest.mark.long)]
)
def test_each_cause_moves_it_both_ways_and_no_record_is_lost(moves: Moves, times: int) -> None:
    assert controller_of(moves.connect)[0] == OURS
    load = Load(moves.bootstrap, PARTITIONS)
    try:
        for cause in CAUSES * times:
            for holder in (OURS, KAFKA):
                assert controller_of(moves.connect)[0] == holder
                acknowledged = len(load.acknowledged)
                moves.move(cause)
                wait_until(
                    lambda before=acknowledged: len(load.acknowledged) > before,
                    f"{cause}: clients continue",
                    60,
                )
    finally:
        acknowledged_in_all = load.end()
    found = read_all(moves.bootstrap, len(acknowledged_in_all))
    lost = acknowledged_in_all - set(found)
    assert not lost, f"lost: {sorted(lost)[:10]}"
    assert len(found) == len(set(found)), "no record is written twice"
