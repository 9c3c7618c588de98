"""The ISR shrinks below min.insync.replicas behind a record that waits: what its producer hears.

Since KIP-966 the high watermark stands still there: the record is neither acknowledged nor refused,
its producer waits for the followers or hears REQUEST_TIMED_OUT, and NOT_ENOUGH_REPLICAS meets only
what comes later. NOT_ENOUGH_REPLICAS_AFTER_APPEND is left for a record that is committed just when
another thread shrinks the ISR (Kafka's `Partition.checkEnoughReplicasReachOffset`); here there is
no other thread. Apache Kafka's leader, in the same cluster, says the same.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client.admin import Admin
from sparkraft.client.connection import Connection
from sparkraft.client.values import NewTopic
from tests.cluster.conftest import STEADY
from tests.server.harness import append, batch, produce
from tests.support.clusters import Cluster, Kind, Member
from tests.support.ports import wait_until
from tests.support.replicas import partition_of, read_partition, until_in_sync

pytestmark = [pytest.mark.real_clients, pytest.mark.java]

BROKERS: dict[Kind, int] = {"sparkraft": 1, "kafka": 2}
IDS = (1, 2, 3)
SHORT_MS = 8_000
"""Longer than the followers need to fall behind."""
LONG_MS = 240_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, kafka_jars: Path) -> Iterator[Cluster]:
    """Two brokers of ours and one of Kafka's, under a controller of its own."""
    members = [
        Member(9, roles="controller"),
        Member(1, roles="broker"),
        Member(2, "kafka", "broker"),
        Member(3, roles="broker"),
    ]
    settings = {**STEADY, "replica.lag.time.max.ms": "3000"}
    directory = tmp_path_factory.mktemp("shrinks")
    with Cluster(directory, members, overrides=settings, jars=kafka_jars) as made:
        yield made


def created(cluster: Cluster, name: str, leader: int) -> object:
    """A topic of one partition with three replicas, of which two must be in sync; its id."""
    others = [n for n in IDS if n != leader]

    async def work(admin: Admin) -> object:
        new = NewTopic(
            name=name,
            assignment={0: [leader, *others]},
            # The timestamps of the records are old.
            configs={"min.insync.replicas": "2", "retention.ms": "-1"},
        )
        outcome = (await admin.create_topics([new]))[name]
        if isinstance(outcome, KafkaError):
            raise outcome
        return outcome.id

    topic_id = cluster.ask(work)
    cluster.until_known(name)
    until_in_sync(cluster, name, 1, 3)
    assert partition_of(cluster, name).leader == leader
    return topic_id


@pytest.mark.parametrize("kind", BROKERS)
def test_a_record_that_waits_is_not_acknowledged_and_not_refused(
    cluster: Cluster, kind: Kind
) -> None:
    leader = BROKERS[kind]
    topic = f"led-by-{kind}"
    topic_id = created(cluster, topic, leader)
    others = [n for n in IDS if n != leader]

    def isr() -> tuple[int, ...]:
        return tuple(partition_of(cluster, topic, of=leader).isr)

    async def test() -> None:
        port = cluster.ports[leader][0]
        patient, hasty, late = [
            await Connection.open("127.0.0.1", port, client_id=name)
            for name in ("patient", "hasty", "late")
        ]
        assert (await append(patient, topic_id, batch(b"before"))).error_code == 0
        for node in others:
            cluster.nodes[node].pause()
        try:
            short, long = (produce(topic_id, batch(value)) for value in (b"hasty", b"patient"))
            short.timeout_ms, long.timeout_ms = SHORT_MS, LONG_MS
            hears = hasty.send_nowait(short)
            waits = patient.send_nowait(long)
            await asyncio.to_thread(wait_until, lambda: isr() == (leader,), "it is alone", 90)
            refused = await append(late, topic_id, batch(b"late"))
            assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
            answer = (await hears).responses[0].partition_responses[0]
            assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
            assert not waits.done(), "nobody else has it"
        finally:
            for node in others:
                cluster.nodes[node].resume()
        answer = (await waits).responses[0].partition_responses[0]
        assert answer.error_code == 0
        for connection in (patient, hasty, late):
            await connection.close()

    asyncio.run(test())
    until_in_sync(cluster, topic, 1, 3)
    first, *rest = read_partition(cluster.bootstrap, topic, 0)
    assert (first, sorted(rest)) == ("before", ["hasty", "patient"])
