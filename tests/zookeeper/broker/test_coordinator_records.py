"""Records of coordinators in ZooKeeper mode: brokers of Kafka 3.9.2 and ours load each other's.

The versions are those of Kafka 3.9.2's `GroupMetadataManager.offsetCommitValue` and
`groupMetadataValue` with an inter.broker.protocol.version from 2.3 on, and of
`TransactionLog.valueToBytes` without transaction.version.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from sparkraft.client.consumer import Consumer as OurConsumer
from sparkraft.client.consumer import ConsumerSettings
from sparkraft.client.producer import ProducerSettings
from sparkraft.client.subscription import GroupSettings
from sparkraft.client.transactional_producer import TransactionalProducer
from sparkraft.zookeeper.requests import Create, GetChildren, GetData
from sparkraft.zookeeper.znodes.changes import encode_reassignments
from tests.server.harness import run, until
from tests.support.nodes import NodeProcess
from tests.support.ports import wait_until
from tests.support.zookeeper import Ensemble, controller_of, submit
from tests.support.zookeeper_brokers import KafkaBroker, OurBroker
from tests.zookeeper.broker.coordinator_logs import (
    OFFSETS,
    TRANSACTIONS,
    Entry,
    entries_of,
    is_compacted,
    versions_of,
)
from tests.zookeeper.broker.nodes import nodes_in
from tests.zookeeper.broker.test_mixed_cluster import states

OFFSET_COMMIT, GROUP, TRANSACTION = 1, 2, 0
"""Types of keys."""

OFFSETS_VERSIONS = {OFFSET_COMMIT: {3}, GROUP: {3}}
TRANSACTIONS_VERSIONS = {TRANSACTION: {0}}


@pytest.mark.real_time
def test_records_have_the_versions_of_kafka_3_9(tmp_path: Path) -> None:
    """Version 4 of a committed offset, which is KRaft mode's, is unknown to Kafka 2.8."""

    async def test() -> None:
        async with nodes_in(tmp_path) as nodes:
            await nodes.start(1, offsets_topic_replication_factor="1",
                              offsets_topic_num_partitions="1",
                              transaction_state_log_replication_factor="1",
                              transaction_state_log_num_partitions="1",
                              transaction_state_log_min_isr="1",
                              group_initial_rebalance_delay_ms="0",
                              zookeeper_session_timeout_ms="60000")  # fmt: skip
            await until(lambda: list(nodes[1].broker.image.brokers) == [1])
            async with nodes.admin() as admin:
                await nodes.create(admin, "t", {0: [1]})
                group = ConsumerSettings(group=GroupSettings(group_id="g"))
                async with OurConsumer(admin.cluster, group) as consumer:
                    consumer.subscribe(["t"])
                    while not consumer.assignment:
                        await consumer.poll(100)
                    await consumer.commit({("t", 0): 1})
                    settings = ProducerSettings(transactional_id="x")
                    async with TransactionalProducer(admin.cluster, settings) as producer:
                        await producer.init_transactions()
                        async with producer.transaction():
                            await producer.send("t", b"v", partition=0)
                            await producer.send_offsets_to_transaction(
                                {("t", 0): 2}, consumer.group_metadata
                            )
            offsets = entries_of(tmp_path / "1", OFFSETS)
            commits = [each for each in offsets if each.key[:2] == b"\0\1" and each.value]
            assert len(commits) == 2, "OffsetCommit and TxnOffsetCommit"
            assert versions_of(offsets) == OFFSETS_VERSIONS
            assert versions_of(entries_of(tmp_path / "1", TRANSACTIONS)) == TRANSACTIONS_VERSIONS

    run(test())


KAFKA, OURS = 1, 2
ROUNDS = 20
"""Commits of each kind in one pass of `Clients.write`."""

WRITTEN = 200
"""Offsets of each internal topic before it counts as compacted."""

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.cleaner.backoff.ms": "200",
    "zookeeper.session.timeout.ms": "10000",
}
COMPACTING = {
    "cleanup.policy": "compact",
    "segment.ms": "500",
    "min.cleanable.dirty.ratio": "0.01",
}
"""Tombstones stay for a day: a new replica must read a log to its end in that time."""


@contextmanager
def cluster(
    jars: Path, folder: Path, version: str, *, controller: int
) -> Iterator[tuple[KafkaBroker, OurBroker, str]]:
    """Both brokers; ours coordinates all groups and transactions."""
    settings = SETTINGS | {"inter.broker.protocol.version": version}
    own = {"sparkraft.controllership.enable": str(controller == OURS).lower()}
    with Ensemble(jars, folder) as ensemble:
        kafka = KafkaBroker(folder / "kafka", KAFKA, ensemble.connect, jars, settings)
        ours = OurBroker(folder / "ours", OURS, ensemble.connect, settings | own)
        first, second = (ours, kafka) if controller == OURS else (kafka, ours)
        with first, second:
            wait_until(lambda: controller_of(ensemble.connect)[0] == controller, "elected", 20)
            admin = AdminClient({"bootstrap.servers": first.bootstrap})
            wait_until(lambda: len(admin.list_topics(timeout=10).brokers) == 2, "both live", 20)
            topics = [
                NewTopic(OFFSETS, 1, replica_assignment=[[OURS]], config=COMPACTING),
                NewTopic(TRANSACTIONS, 1, replica_assignment=[[OURS]], config=COMPACTING),
                NewTopic("t", 2, replica_assignment=[[KAFKA], [OURS]]),
            ]
            for made in admin.create_topics(topics).values():
                made.result(20)
            for broker in (kafka, ours):
                for topic, leaders in (
                    (OFFSETS, [OURS]),
                    (TRANSACTIONS, [OURS]),
                    ("t", [KAFKA, OURS]),
                ):
                    wait_until(
                        lambda at=broker.bootstrap, topic=topic, leaders=leaders: (
                            [leader for leader, _ in states(at, topic).values()] == leaders
                        ),
                        f"{broker.broker_id} knows {topic}",
                        20,
                    )
            yield kafka, ours, ensemble.connect


def children(ensemble: str, path: str) -> list[str]:
    names, _ = submit(ensemble, GetChildren(path=path))
    return [f"{path}/{name}" for name in names]


def move(ensemble: str, target: int) -> None:
    """Reassign both internal topics to another broker, which then loads them."""
    topics = (OFFSETS, TRANSACTIONS)
    path = "/admin/reassign_partitions"
    data = encode_reassignments({(topic, 0): (target,) for topic in topics})
    submit(ensemble, Create(path=path, data=data))
    wait_until(lambda: path not in children(ensemble, "/admin"), "reassigned", 30)
    for topic in topics:
        data, _ = submit(ensemble, GetData(path=f"/brokers/topics/{topic}/partitions/0/state"))
        assert f'"leader":{target}' in data.decode().replace(" ", "")


class Clients:
    """Members, committers and producers that outlive their coordinator.

    Attributes:
        number: the last offset that was committed in each group.
        committed: the number of committed transactions.
    """

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self.number = 0
        self.committed = 0
        self._aborted = 0
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._simple = self._consumer("simple")
        self._in_transactions = self._consumer("in-transactions")
        self._pending = self._consumer("pending")
        self._many = self._producer("many")
        self._old = self._producer("replaced")
        self._assignments = 0
        self._member = self._consumer("members", **{"group.instance.id": "static"})
        self._member.subscribe(["t"], on_assign=self._on_assign)
        wait_until(lambda: self._poll() and self._assignments == 1, "the member is assigned", 30)
        self._member_id = self._member.memberid()
        self._open: Producer | None = None

    def _on_assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        assert len(partitions) == 2
        self._assignments += 1

    def _poll(self) -> bool:
        message: Message | None = self._member.poll(0.2)
        assert message is None or message.error() is None, message.error()
        return True

    def _consumer(self, group: str, **more: str) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "latest",
                **more,
            }
        )

    def _producer(self, transactional_id: str) -> Producer:
        producer = Producer(
            {"bootstrap.servers": self._bootstrap, "transactional.id": transactional_id}
        )
        producer.init_transactions(30)
        return producer

    def write(self) -> None:
        """Write the same keys again and again, and a group that is deleted."""
        metadata = self._in_transactions.consumer_group_metadata()
        for _ in range(ROUNDS):
            self.number += 1
            for partition in (0, 1):
                at = TopicPartition("t", partition, self.number)
                self._simple.commit(offsets=[at], asynchronous=False)
            self._transact(TopicPartition("t", 0, self.number), metadata)
        gone = self._consumer("gone")
        gone.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
        gone.close()
        self._admin.delete_consumer_groups(["gone"])["gone"].result(20)
        # A member that joins and leaves: each generation of its group is a record.
        restless = self._consumer("restless")
        restless.subscribe(["t"])
        wait_until(lambda: restless.poll(0.1) is None and restless.assignment(), "joined", 30)
        restless.close()

    def _transact(self, at: TopicPartition, metadata: object) -> None:
        """One that commits, then one that aborts."""
        for commits in (True, False):
            self._many.begin_transaction()
            self._many.produce("t", str(commits), partition=1)
            offset = at if commits else TopicPartition(at.topic, at.partition, 10**6)
            self._many.send_offsets_to_transaction([offset], metadata, 30)
            if commits:
                self._many.commit_transaction(30)
                self.committed += 1
            else:
                self._many.abort_transaction(30)

    def open_a_transaction(self) -> None:
        """Leave one open whose offsets are pending."""
        self._open = self._producer("open")
        self._open.begin_transaction()
        self._open.produce("t", "True", partition=1)
        at = TopicPartition("t", 0, self.number)
        self._open.send_offsets_to_transaction([at], self._pending.consumer_group_metadata(), 30)
        assert self._open.flush(30) == 0

    def offsets(self, group: str) -> list[int]:
        """The committed offset of each partition that has one."""
        asked = [ConsumerGroupTopicPartitions(group)]
        found = self._admin.list_consumer_group_offsets(asked)[group].result(20)
        partitions = sorted(found.topic_partitions, key=lambda each: each.partition)
        return [each.offset for each in partitions if each.offset >= 0]

    def check(self) -> None:
        """Another broker coordinates all groups and transactions now, and knows all of them."""
        # librdkafka's admin client keeps the coordinator of a group that it has deleted.
        self._admin = AdminClient({"bootstrap.servers": self._bootstrap})
        wait_until(self._is_loaded, "the coordinator has loaded", 30)
        assert self.offsets("simple") == [self.number, self.number]
        assert self.offsets("in-transactions") == [self.number]
        groups = self._admin.list_consumer_groups().result(20)
        names = {each.group_id for each in groups.valid}
        assert names >= {"simple", "in-transactions", "members", "restless"}
        assert "gone" not in names
        self._check_member()
        self._end_the_open_transaction()
        self._check_fencing()
        assert self._visible() == ["True"] * self.committed

    def _is_loaded(self) -> bool:
        try:
            return bool(self.offsets("simple"))
        except KafkaException:
            return False

    def _check_member(self) -> None:
        """It is still the only member, in the same generation: nothing was rebalanced."""
        for _ in range(5):
            self._poll()
        at = TopicPartition("t", 0, self.number)
        self._member.commit(offsets=[at], asynchronous=False)
        assert self.offsets("members") == [self.number]
        described = self._admin.describe_consumer_groups(["members"])["members"].result(20)
        assert described.state == ConsumerGroupState.STABLE
        (member,) = described.members
        assert (member.member_id, member.group_instance_id) == (self._member_id, "static")
        assert len(member.assignment.topic_partitions) == 2
        assert self._assignments == 1

    def _end_the_open_transaction(self) -> None:
        """The new coordinators have its partitions, and its pending offsets."""
        assert self._open is not None
        self._open.commit_transaction(30)
        self._open = None
        self.committed += 1
        # Kafka 3.9 publishes them after its response (`scheduleHandleTxnCompletion`).
        wait_until(lambda: self.offsets("pending") == [self.number], "its offsets are visible", 20)

    def _check_fencing(self) -> None:
        """The producer epoch continues: a new producer fences the one of before."""
        producer = self._producer("replaced")
        producer.begin_transaction()
        producer.produce("t", "True", partition=1)
        producer.commit_transaction(30)
        self.committed += 1
        self._old.begin_transaction()
        self._old.produce("t", "False", partition=1)
        with pytest.raises(KafkaException) as fenced:
            self._old.commit_transaction(30)
        assert fenced.value.args[0].fatal()
        self._old = producer

    def _visible(self) -> list[str]:
        """All records of t-1 that readers of committed ones see."""
        reader = self._consumer(
            "unused", **{"isolation.level": "read_committed", "enable.partition.eof": "true"}
        )
        reader.assign([TopicPartition("t", 1, 0)])
        found: list[str] = []
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            message = reader.poll(0.5)
            error = None if message is None else message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                break
            if message is not None and error is None:
                found.append(message.value().decode())
        reader.close()
        return found

    def close(self) -> None:
        for each in (self._simple, self._in_transactions, self._pending, self._member):
            each.close()


def compact(clients: Clients, coordinator: NodeProcess) -> dict[str, list[Entry]]:
    """Write until most records are removed from both logs; what they have then."""
    found: dict[str, list[Entry]] = {}
    since = {topic: _end(coordinator, topic) for topic in (OFFSETS, TRANSACTIONS)}

    def done() -> bool:
        clients.write()
        for topic in since:
            found[topic] = entries_of(coordinator.log_dir, topic)
        return all(is_compacted(found[topic], since[topic] + WRITTEN) for topic in since)

    wait_until(done, "both logs are compacted", 90, pause=0.6)  # the age of a segment
    return found


def _end(broker: NodeProcess, topic: str) -> int:
    found = entries_of(broker.log_dir, topic)
    return found[-1].offset + 1 if found else 0


@pytest.mark.java
@pytest.mark.real_clients
@pytest.mark.long
@pytest.mark.parametrize(("version", "controller"), [("2.6", OURS), ("3.9", KAFKA)])
def test_each_kind_loads_what_the_other_has_written_and_compacted(
    zookeeper_jars: Path, tmp_path: Path, version: str, controller: int
) -> None:
    """Both topics move to a broker of the other kind, which fetches and loads them; and back."""
    brokers = cluster(zookeeper_jars, tmp_path, version, controller=controller)
    with brokers as (kafka, ours, ensemble):
        clients = Clients(f"{kafka.bootstrap},{ours.bootstrap}")
        nodes = {KAFKA: kafka, OURS: ours}
        for coordinator, target in ((OURS, KAFKA), (KAFKA, OURS)):
            since = {each: _end(nodes[coordinator], each) for each in (OFFSETS, TRANSACTIONS)}
            written = compact(clients, nodes[coordinator])
            assert versions_of(written[OFFSETS], since=since[OFFSETS]) == OFFSETS_VERSIONS
            found = versions_of(written[TRANSACTIONS], since=since[TRANSACTIONS])
            assert found == TRANSACTIONS_VERSIONS
            clients.open_a_transaction()
            move(ensemble, target)
            clients.check()
        clients.close()
