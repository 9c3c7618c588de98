"""Nodes are upgraded and go back one by one while transactions are written: docs/UPGRADE.md."""

import random
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from tests.cluster.upgraded_cluster import Earlier, UpgradedCluster
from tests.support import transaction_load
from tests.support.ports import wait_until
from tests.support.record_clients import TailReader, read_everything
from tests.support.replicas import partition_of
from tests.support.transaction_clients import TransactionalWriter
from tests.support.transaction_history import FINAL, Observed, anomalies, outcomes
from tests.support.transaction_load import PARTITIONS, SOURCE, TransactionLoad

pytestmark = pytest.mark.real_clients

IDLE_KEY = "log.initial.task.delay.ms"
EARLIER = Earlier("c96a013fc5139b3b43b2cfce307c5c9d5256b1f4", release="4.2", logs=IDLE_KEY)
"""It coordinates transactions, and logs that this key has no effect."""

WITHOUT_COORDINATOR = Earlier(
    "26b93b9aecc0aac7f8553c5a5977fd3c20852ec7",
    release="4.1",
    logs="These keys are Kafka's, and have no effect here yet",
)
STATE_TOPIC, OFFSETS_TOPIC = "__transaction_state", "__consumer_offsets"
STATE_PARTITIONS = int(transaction_load.SETTINGS["transaction.state.log.num.partitions"])


@pytest.mark.long
def test_transactions_continue_while_nodes_are_upgraded_and_go_back(tmp_path: Path) -> None:
    topics = (*transaction_load.TOPICS, STATE_TOPIC, OFFSETS_TOPIC)
    overrides = {**transaction_load.SETTINGS, IDLE_KEY: "30000"}
    with UpgradedCluster(tmp_path, EARLIER, topics=topics, overrides=overrides) as cluster:
        for node in cluster.nodes:
            cluster.assert_runs(node)
        for topic in transaction_load.TOPICS:
            cluster.create_topic(topic, partitions=PARTITIONS, replicas=3)
        load = TransactionLoad(cluster, random.Random(1))
        with load:
            load.continues()
            leader = cluster.leader()
            first, last = (node for node in cluster.nodes if node != leader)
            for node in (first, leader, last):
                cluster.upgrade(node)
                load.continues()
            # All go back, the active controller first.
            leader = cluster.leader()
            for node in (leader, *(other for other in cluster.nodes if other != leader)):
                cluster.downgrade(node)
                load.continues()
        print(load.verdict())  # noqa: T201 (the run's account)
        load.assert_it_counts()


@pytest.mark.long
def test_only_upgraded_nodes_coordinate_transactions_beside_nodes_that_cannot(
    tmp_path: Path,
) -> None:
    overrides = dict(transaction_load.SETTINGS)
    with UpgradedCluster(
        tmp_path, WITHOUT_COORDINATOR, topics=(SOURCE,), overrides=overrides
    ) as cluster:
        cluster.create_topic(SOURCE, partitions=PARTITIONS, replicas=3)
        assert_not_coordinated(cluster)
        cluster.upgrade(1)
        writers = [
            TransactionalWriter(
                name, cluster.bootstrap, SOURCE, partitions=PARTITIONS, dice=random.Random(1)
            )
            for name in ("w1", "w2")
        ]
        tail = TailReader("tail", cluster.bootstrap, SOURCE, partitions=PARTITIONS)
        with tail, writers[0], writers[1]:
            until_written(writers)
            cluster.until_in_sync()
            for change, node, upgraded in (
                (cluster.upgrade, 2, {1, 2}),
                (cluster.upgrade, 3, {1, 2, 3}),
                (cluster.downgrade, 2, {1, 3}),
                (cluster.downgrade, 3, {1}),
            ):
                change(node)
                until_coordinated_by(cluster, upgraded)
                until_written(writers)
        check(cluster, writers, tail)
        cluster.downgrade(1)
        assert_not_coordinated(cluster)


def until_written(writers: list[TransactionalWriter]) -> None:
    """Return once each writer has committed more."""
    before = [writer.acknowledged for writer in writers]
    wait_until(
        lambda: all(
            writer.acknowledged > count + 20 for writer, count in zip(writers, before, strict=True)
        ),
        "the writers continue",
        90,
    )


def until_coordinated_by(cluster: UpgradedCluster, nodes: set[int]) -> None:
    """Return once only these nodes lead partitions of the coordinator's topic."""

    def leaders() -> set[int]:
        return {partition_of(cluster, STATE_TOPIC, n).leader for n in range(STATE_PARTITIONS)}

    wait_until(lambda: leaders() <= nodes, f"only {nodes} coordinate transactions", 30)


def assert_not_coordinated(cluster: UpgradedCluster) -> None:
    """No node coordinates transactions, and each says so at once."""
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "transactional.id": "early", "log_level": 0}
    )
    with pytest.raises(KafkaException, match=r"(?i)authorization") as refused:
        producer.init_transactions(30)
    assert not refused.value.args[0].retriable()


def check(cluster: UpgradedCluster, writers: list[TransactionalWriter], tail: TailReader) -> None:
    def final(isolation: str) -> TailReader:
        return read_everything(cluster.bootstrap, SOURCE, PARTITIONS, isolation=isolation)

    transactions = [one for writer in writers for one in writer.transactions]
    observed = Observed(
        transactions,
        {FINAL: final("read_committed").polls, tail.name: tail.polls},
        {FINAL: final("read_uncommitted").polls},
    )
    assert not anomalies(observed), anomalies(observed)[:20]
    assert not [failure for writer in writers for failure in writer.failures]
    found = outcomes(transactions)
    assert found["committed"] > 0, found
    assert found["aborted"] > 0, found
