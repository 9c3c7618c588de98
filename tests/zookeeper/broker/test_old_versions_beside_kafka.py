"""A broker of Kafka 3.9.2 and two of ours with an old inter.broker.protocol.version.

They are on a real ensemble. 2.6 differs most: topics have no id, leaders write
their ISRs to ZooKeeper, followers compare logs by OffsetForLeaderEpoch, and each broker allocates
producer ids. The controller is a broker of Kafka first, then one of ours.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, ElectionType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from sparkraft.zookeeper.controller.protocol_version import parse_protocol_version
from sparkraft.zookeeper.requests import GetData
from tests.support.kafka_jars import kafka_2_6_jars_or_reason
from tests.support.outside_tools import Missing
from tests.support.ports import wait_until
from tests.support.zookeeper import Ensemble, controller_of, submit
from tests.support.zookeeper_brokers import KafkaBroker, OurBroker
from tests.zookeeper.broker.coordinator_logs import OFFSETS, TRANSACTIONS
from tests.zookeeper.broker.test_mixed_cluster import RECORDS, consume, produce, states

if TYPE_CHECKING:
    from tests.support.nodes import NodeProcess

pytestmark = [pytest.mark.java, pytest.mark.real_clients]

KAFKA, OURS, THIRD = 1, 2, 3
"""The third one is of ours, leads nothing, and never stands for the controller."""

LED_BY_EACH = [[KAFKA, OURS, THIRD], [OURS, KAFKA, THIRD]]
COORDINATED_BY_EACH = [[KAFKA, OURS], [OURS, KAFKA]]

TRANSACTIONAL_IDS = ("x0", "x1")
"""Of partitions 0 and 1 of __transaction_state; `in-x0` and `in-x1` of __consumer_offsets."""

GROUPS = ("g1", "g0")
"""Of partitions 0 and 1 of __consumer_offsets."""

VERSIONS = (
    *("2.6", "2.7", "2.8"),
    *("3.0", "3.1", "3.2", "3.3", "3.4", "3.5", "3.6", "3.7", "3.8", "3.9"),
)
"""Every release from the oldest that is accepted to the newest that Kafka 3.9 knows."""

SETTINGS = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "replica.lag.time.max.ms": "2000",
    "zookeeper.session.timeout.ms": "30000",
}
"""A paused follower leaves the ISR before its session expires."""


class Cluster:
    """The brokers; Kafka's started first, and is the controller."""

    def __init__(
        self, kafka: KafkaBroker, ours: OurBroker, third: OurBroker, ensemble: str, version: str
    ) -> None:
        self.brokers: dict[int, NodeProcess] = {KAFKA: kafka, OURS: ours, THIRD: third}
        self.ensemble = ensemble
        self.protocol = parse_protocol_version(version)
        self.bootstrap = ",".join(each.bootstrap for each in self.brokers.values())
        self._read = 0
        self._transactions = 0

    def admin(self) -> AdminClient:
        """A new one: it knows the present controller."""
        return AdminClient({"bootstrap.servers": self.bootstrap})

    def znode(self, path: str) -> dict:
        data, _ = submit(self.ensemble, GetData(path=path))
        return dict(json.loads(data))

    def state(self, topic: str, partition: int) -> dict:
        return self.znode(f"/brokers/topics/{topic}/partitions/{partition}/state")

    def controller(self) -> int:
        return controller_of(self.ensemble)[0]

    def create(self, **topics: list[list[int]]) -> None:
        """Create topics with these replicas; return when the first one leads each partition."""
        compacted = {"cleanup.policy": "compact"}
        admin = self.admin()
        made = admin.create_topics(
            [
                NewTopic(name, len(replicas), replica_assignment=replicas,
                         config=compacted if name.startswith("__") else {})
                for name, replicas in topics.items()
            ]
        )  # fmt: skip
        for each in made.values():
            each.result(20)
        for name, replicas in topics.items():
            self.wait_until_in_sync(name, replicas)

    def create_all_topics(self) -> None:
        """Create `t`, `x`, and the topics of the coordinators."""
        internal = {OFFSETS: COORDINATED_BY_EACH, TRANSACTIONS: COORDINATED_BY_EACH}
        self.create(t=LED_BY_EACH, x=LED_BY_EACH, **internal)

    def wait_until_in_sync(self, topic: str, replicas: list[list[int]]) -> None:
        """Return when all running brokers tell clients so; the first replica leads."""
        wanted = {at: (each[0], sorted(each)) for at, each in enumerate(replicas)}
        for broker in self.brokers.values():
            wait_until(
                lambda at=broker.bootstrap: states(at, topic) == wanted, f"{topic} in sync", 40
            )

    def use(self) -> None:
        """Produce, commit transactions and read in groups, through both coordinators of each."""
        produce(self.bootstrap, self._read)
        expected = list(range(self._read, self._read + RECORDS))
        for group in GROUPS:
            found = consume(self.bootstrap, RECORDS, group)
            assert found == expected, f"{group} continues from its committed offsets"
        self._read += RECORDS
        for each, other in zip(TRANSACTIONAL_IDS, reversed(TRANSACTIONAL_IDS), strict=True):
            self._transact(each, f"in-{other}")
        assert self._committed() == 2 * self._transactions

    def _transact(self, transactional_id: str, group: str) -> None:
        """Records in both partitions of `x`, and an offset; then one that is aborted.

        The coordinator of the group is of the other kind than that of the transaction.
        """
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "transactional.id": transactional_id}
        )
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        producer.init_transactions(30)
        for commits in (True, False):
            producer.begin_transaction()
            for partition in (0, 1):
                producer.produce("x", transactional_id, partition=partition)
            at = TopicPartition("x", 0, self._transactions if commits else 10**6)
            metadata = consumer.consumer_group_metadata()
            producer.send_offsets_to_transaction([at], metadata, 30)
            if commits:
                producer.commit_transaction(30)
            else:
                producer.abort_transaction(30)
        (found,) = consumer.committed([TopicPartition("x", 0)], timeout=20)
        assert found.offset == self._transactions
        consumer.close()
        self._transactions += 1

    def _committed(self) -> int:
        """How many committed records `x` shows."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "unused"})
        consumer.assign([TopicPartition("x", partition, 0) for partition in (0, 1)])
        found, deadline = 0, time.monotonic() + 20
        while found < 2 * self._transactions and time.monotonic() < deadline:
            message = consumer.poll(0.5)
            found += message is not None and message.error() is None
        found += consumer.poll(0.5) is not None  # an aborted one
        consumer.close()
        return found

    def shrink_and_expand(self) -> None:
        """Leaders of both kinds take a follower that stands still out of their ISRs, and back."""
        before = {at: self.state("t", at) for at in (0, 1)}
        assert {at: each["leader"] for at, each in before.items()} == {0: KAFKA, 1: OURS}
        third = self.brokers[THIRD]
        third.pause()
        try:
            # With acks=all: the records are committed when the ISRs have shrunk.
            produce(f"{self.brokers[KAFKA].bootstrap},{self.brokers[OURS].bootstrap}", self._read)
            for at in (0, 1):
                assert THIRD not in self.state("t", at)["isr"]
        finally:
            third.resume()
        assert consume(self.bootstrap, RECORDS, GROUPS[0])[-1] == self._read + RECORDS - 1
        assert consume(self.bootstrap, RECORDS, GROUPS[1])[-1] == self._read + RECORDS - 1
        self._read += RECORDS
        self.wait_until_in_sync("t", LED_BY_EACH)
        for at in (0, 1):
            after = self.state("t", at)
            assert after["leader_epoch"] == before[at]["leader_epoch"], "no election"
            assert sorted(after["isr"]) == [KAFKA, OURS, THIRD]

    def leave(self, broker: int) -> None:
        """Stop a broker; the other one leads and coordinates everything."""
        other = OURS if broker == KAFKA else KAFKA
        assert self.brokers[broker].stop() in {0, 143}
        for topic in ("t", "x", OFFSETS, TRANSACTIONS):
            for at in (0, 1):
                wait_until(
                    lambda topic=topic, at=at: self.state(topic, at)["leader"] == other,
                    f"{topic}-{at} is led by {other}",
                    20,
                )

    def come_back(self, broker: int) -> None:
        """Start it, and give it back what it led."""
        self.brokers[broker].start()
        for topic, replicas in (
            ("t", LED_BY_EACH),
            ("x", LED_BY_EACH),
            (OFFSETS, COORDINATED_BY_EACH),
            (TRANSACTIONS, COORDINATED_BY_EACH),
        ):
            for at, each in enumerate(replicas):
                wait_until(
                    lambda topic=topic, at=at, each=each: (
                        sorted(self.state(topic, at)["isr"]) == sorted(each)
                    ),
                    f"{topic}-{at} is in sync",
                    40,
                )
        admin = self.admin()
        admin.elect_leaders(ElectionType.PREFERRED).result(30)
        self.wait_until_in_sync("t", LED_BY_EACH)
        self.wait_until_in_sync(OFFSETS, COORDINATED_BY_EACH)
        self.wait_until_in_sync(TRANSACTIONS, COORDINATED_BY_EACH)

    def check_znodes(self) -> None:
        """What the version writes to ZooKeeper, and to the folders of logs."""
        protocol = self.protocol
        for broker in self.brokers:
            assert self.znode(f"/brokers/ids/{broker}")["version"] == protocol.registration
        status = int(protocol.has_features)
        feature = {"features": {}, "version": protocol.features, "status": status}
        assert self.znode("/feature") == feature
        has_ids = "topic_id" in self.znode("/brokers/topics/t")
        assert has_ids == protocol.has_topic_ids
        for broker in self.brokers.values():
            stored = (broker.log_dir / "t-0" / "partition.metadata").exists()
            assert stored == (protocol >= (2, 8, 1)), "brokers learn ids from LeaderAndIsr v5"

    def check_logs(self) -> None:
        """All replicas of `t` have the same bytes."""
        for partition in (0, 1):
            wait_until(lambda at=partition: len({*self._logs(at)}) == 1, "equal logs", 20)

    def _logs(self, partition: int) -> list[bytes]:
        path = Path(f"t-{partition}") / "00000000000000000000.log"
        return [(broker.log_dir / path).read_bytes() for broker in self.brokers.values()]


@contextmanager
def cluster(
    jars: Path, folder: Path, version: str, *, kafka_jars: Path | None = None
) -> Iterator[Cluster]:
    """All brokers run; `kafka_jars` are of another Kafka than the ensemble's."""
    settings = SETTINGS | {"inter.broker.protocol.version": version}
    own = settings | {"sparkraft.controllership.enable": "true"}
    with Ensemble(jars, folder, more=["maxSessionTimeout=60000"]) as ensemble:
        connect = ensemble.connect
        kafka = KafkaBroker(folder / "kafka", KAFKA, connect, kafka_jars or jars, settings)
        ours = OurBroker(folder / "ours", OURS, connect, own)
        third = OurBroker(folder / "third", THIRD, connect, settings)
        with third, kafka:  # ours creates the znodes that all brokers need
            wait_until(lambda: controller_of(connect) == (KAFKA, 1), "Kafka is elected", 30)
            with ours:
                started = Cluster(kafka, ours, third, connect, version)
                wait_until(
                    lambda: len(started.admin().list_topics(timeout=10).brokers) == 3, "live", 20
                )
                yield started


def create_all(brokers: Cluster) -> None:
    brokers.create_all_topics()
    brokers.check_znodes()


def run_under_both_controllers(brokers: Cluster) -> None:
    """Each kind leads, follows, coordinates, leaves and returns; Kafka is the controller first."""
    brokers.use()
    brokers.shrink_and_expand()
    brokers.leave(OURS)
    brokers.use()
    brokers.come_back(OURS)
    brokers.use()
    # Kafka leaves: ours is the controller, until the end.
    brokers.leave(KAFKA)
    wait_until(lambda: brokers.controller() == OURS, "ours took over", 20)
    brokers.use()
    brokers.come_back(KAFKA)
    brokers.create(u=LED_BY_EACH)
    brokers.use()
    brokers.shrink_and_expand()
    assert controller_of(brokers.ensemble) == (OURS, 2)
    brokers.check_logs()


def test_each_kind_loads_what_the_other_has_coordinated(zookeeper_jars, tmp_path):
    with cluster(zookeeper_jars, tmp_path, "2.6") as brokers:
        create_all(brokers)
        brokers.use()
        brokers.leave(OURS)
        brokers.use()
        brokers.come_back(OURS)
        brokers.use()
        brokers.check_logs()


@pytest.mark.long  # the test above stays; this one has all versions, and both kinds as controller
@pytest.mark.parametrize("version", VERSIONS)
def test_both_kinds_lead_follow_coordinate_and_control(zookeeper_jars, tmp_path, version):
    with cluster(zookeeper_jars, tmp_path, version) as brokers:
        create_all(brokers)
        run_under_both_controllers(brokers)
        brokers.check_znodes()


@pytest.mark.long  # 2.6 is the protocol version of these brokers, which read nothing newer
def test_ours_run_beside_a_broker_of_kafka_2_6(zookeeper_jars, tmp_path):
    found = kafka_2_6_jars_or_reason()
    if isinstance(found, Missing):
        pytest.skip(found.reason)
    with cluster(zookeeper_jars, tmp_path, "2.6", kafka_jars=found) as brokers:
        brokers.create_all_topics()
        run_under_both_controllers(brokers)
