"""Replicated partitions on three real nodes: what is acknowledged stays, whoever dies."""

from collections import defaultdict
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka import KafkaError as KafkaErrorOfLibrdkafka

from sparkraft.base.errors import KafkaError
from sparkraft.client.admin import Admin
from sparkraft.client.cluster import PartitionInfo
from tests.cluster.conftest import QUICK
from tests.support.clusters import Cluster, Member
from tests.support.ports import wait_until

pytestmark = pytest.mark.real_clients

IDS = (1, 2, 3)
PARTITIONS = 3
LAGGING_MS = 4_000
SESSION_MS = 30_000
"""So long that nobody is fenced for sleeping: leaders alone let followers go."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One for all tests of this file; each leaves three nodes running."""
    directory = tmp_path_factory.mktemp("replicated")
    overrides = {
        **QUICK,
        "broker.session.timeout.ms": str(SESSION_MS),
        "default.replication.factor": "3",
        "min.insync.replicas": "2",
        "offsets.topic.replication.factor": "3",
        "replica.lag.time.max.ms": str(LAGGING_MS),
    }
    with Cluster(directory, [Member(n) for n in IDS], overrides=overrides) as cluster:
        yield cluster


def partitions_of(
    cluster: Cluster, topic: str, *, of: int | None = None
) -> dict[int, PartitionInfo]:
    """What any broker or this one says of a topic; raises its error, as where it is unknown."""

    async def work(admin: Admin) -> dict[int, PartitionInfo]:
        info = (await admin.describe_topics([topic]))[topic]
        if isinstance(info, KafkaError):
            raise info
        return dict(info.partitions)

    return cluster.ask(work, of=of)


def in_sync(cluster: Cluster, topic: str, replicas: set[int]) -> bool:
    """Whether every running broker says that the ISR of every partition is `replicas`.

    One that was not told of a topic yet says that there is none, and one may be too busy to say:
    brokers follow the metadata log each at its own pace, and whoever asks next may ask any.
    """
    for broker in cluster.running:
        try:
            found = partitions_of(cluster, topic, of=broker)
        except KafkaError:
            return False
        if any(set(p.isr) != replicas for p in found.values()):
            return False
    return True


def until_in_sync(cluster: Cluster, topic: str, replicas: set[int]) -> None:
    """Wait until every running broker says that the ISR of every partition is `replicas`."""
    wait_until(lambda: in_sync(cluster, topic, replicas), f"{topic}'s ISRs are {replicas}", 90)


class Numbers:
    """An idempotent producer of rising numbers; remembers which were acknowledged."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.topic = topic
        self.sent = 0
        self.acknowledged: dict[int, list[int]] = defaultdict(list)
        self.failed: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 1,
                "delivery.timeout.ms": 120_000,
            }
        )

    def send(self, count: int) -> None:
        """Send `count` numbers, spread over the partitions."""
        for _ in range(count):
            number = self.sent
            self.sent += 1
            self._producer.produce(
                self.topic,
                value=str(number),
                partition=number % PARTITIONS,
                on_delivery=lambda error, message, number=number: self._done(
                    number, error, message
                ),
            )
        self._producer.poll(0.01)

    def _done(self, number: int, error: object, message: Message) -> None:
        if error:
            self.failed.append(f"{number}: {error}")
        else:
            self.acknowledged[number % PARTITIONS].append(number)

    @property
    def count(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    def send_until(self, condition: Callable[[], bool], what: str, seconds: float = 90) -> None:
        """Keep sending until `condition` holds."""

        def sent() -> bool:
            self.send(20)
            return condition()

        wait_until(sent, what, seconds)

    def send_more(self, count: int) -> None:
        """Keep sending until `count` more are acknowledged."""
        enough = self.count + count
        self.send_until(lambda: self.count >= enough, f"{count} more acknowledged")

    def finish(self) -> None:
        assert self._producer.flush(150) == 0
        assert not self.failed, self.failed[:5]
        assert self.count == self.sent


def read_all(cluster: Cluster, topic: str, wanted: int) -> dict[int, list[int]]:
    """The numbers of each partition in the order of their offsets; `wanted` in all."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": f"read-{topic}"})
    found: dict[int, list[int]] = defaultdict(list)
    try:
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(PARTITIONS)])

        def enough() -> bool:
            for message in consumer.consume(500, timeout=0.5):
                if message.error() is None:
                    found[message.partition()].append(int(message.value() or b""))
            return sum(map(len, found.values())) >= wanted

        wait_until(enough, f"{wanted} records", 90)
    finally:
        consumer.close()
    return found


def kill_a_leader(cluster: Cluster, topic: str, numbers: Numbers) -> int:
    """kill -9 of the leader of partition 0, and wait until others lead; who it was."""
    dead = partitions_of(cluster, topic)[0].leader
    cluster.kill(dead)

    def others_lead() -> bool:
        leaders = {p.leader for p in partitions_of(cluster, topic).values()}
        return leaders.isdisjoint({-1, dead})

    numbers.send_until(others_lead, f"{dead} leads nothing")
    return dead


def test_leaders_are_killed_one_after_another_and_every_acknowledged_record_is_read_once(
    cluster: Cluster,
) -> None:
    cluster.create_topic("killed", partitions=PARTITIONS, replicas=3)
    until_in_sync(cluster, "killed", set(IDS))
    numbers = Numbers(cluster, "killed")
    for _ in range(3):
        numbers.send_more(200)
        dead = kill_a_leader(cluster, "killed", numbers)
        numbers.send_more(200)
        cluster.start([dead])
        numbers.send_until(
            lambda: in_sync(cluster, "killed", set(IDS)), "the killed node is in sync again"
        )
    numbers.finish()
    assert read_all(cluster, "killed", numbers.count) == numbers.acknowledged


def produce_once(cluster: Cluster, topic: str, acks: str) -> KafkaErrorOfLibrdkafka | None:
    """One record, one try; the error it ended with."""
    errors: list[KafkaErrorOfLibrdkafka | None] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": acks, "retries": 0})
    producer.produce(topic, b"x", partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(90) == 0
    return errors[0]


def test_below_min_insync_replicas_acks_all_is_refused_and_acks_1_goes_on(
    cluster: Cluster,
) -> None:
    cluster.create_topic("all-three", replicas=3, min_insync_replicas="3")
    until_in_sync(cluster, "all-three", set(IDS))
    dead = next(n for n in IDS if n != partitions_of(cluster, "all-three")[0].leader)
    cluster.kill(dead)
    until_in_sync(cluster, "all-three", set(IDS) - {dead})
    refused = produce_once(cluster, "all-three", "all")
    assert refused is not None
    assert refused.code() == KafkaErrorOfLibrdkafka.NOT_ENOUGH_REPLICAS
    assert produce_once(cluster, "all-three", "1") is None
    cluster.start([dead])
    # A follower that stands still for a moment leaves the ISR once more, and comes back.
    wait_until(
        lambda: produce_once(cluster, "all-three", "all") is None, "acks=all is taken again", 90
    )


def test_a_paused_follower_leaves_the_isr_and_comes_back_when_it_has_caught_up(
    cluster: Cluster,
) -> None:
    cluster.create_topic("paused", partitions=PARTITIONS, replicas=3)
    until_in_sync(cluster, "paused", set(IDS))
    asleep = next(n for n in IDS if n != cluster.leader())
    numbers = Numbers(cluster, "paused")
    cluster.nodes[asleep].pause()
    try:
        numbers.send_until(
            lambda: all(
                asleep not in p.isr
                for p in partitions_of(cluster, "paused").values()
                if p.leader != asleep
            ),
            "the sleeper has left the ISRs",
        )
    finally:
        cluster.nodes[asleep].resume()
    numbers.send_until(lambda: in_sync(cluster, "paused", set(IDS)), "it is back")
    numbers.finish()
    assert read_all(cluster, "paused", numbers.count) == numbers.acknowledged


def test_groups_go_on_through_leader_kills_and_committed_offsets_never_go_back(
    cluster: Cluster,
) -> None:
    cluster.create_topic("grouped", partitions=PARTITIONS, replicas=3)
    until_in_sync(cluster, "grouped", set(IDS))
    numbers = Numbers(cluster, "grouped")
    numbers.send_more(100)
    follower = Follower(cluster, "grouped")
    try:
        follower.read_until(numbers, 100)
        until_in_sync(cluster, "__consumer_offsets", set(IDS))
        for _ in range(2):
            dead = cluster.ask(
                lambda admin: admin.cluster.retrying(
                    lambda: admin.cluster.coordinator(follower.group)
                )
            )
            cluster.kill(dead)
            follower.read_until(numbers, numbers.count + 200)
            cluster.start([dead])
            until_in_sync(cluster, "__consumer_offsets", set(IDS))
        numbers.finish()
        follower.read_until(numbers, numbers.count)
    finally:
        follower.close()
    assert follower.found == {n for each in numbers.acknowledged.values() for n in each}


class Follower:
    """A member of a group that commits what it reads, and asks what is committed each time."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.group = f"follows-{topic}"
        self.found: set[int] = set()
        self._committed = dict.fromkeys(range(PARTITIONS), -1)
        self._topic = topic
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": self.group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 30_000,
            }
        )
        self._consumer.subscribe([topic])

    def read_until(self, numbers: Numbers, wanted: int) -> None:
        """Read on, while numbers are sent, until there are `wanted` in all."""

        def read() -> bool:
            if numbers.count < wanted:
                numbers.send(20)
            for message in self._consumer.consume(500, timeout=0.2):
                if message.error() is None:
                    self.found.add(int(message.value() or b""))
            self._commit()
            return len(self.found) >= wanted

        wait_until(read, f"{wanted} numbers read", 120)

    def _commit(self) -> None:
        try:
            self._consumer.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() not in _NOTHING_COMMITTED:
                raise
        try:
            asked = [TopicPartition(self._topic, p) for p in range(PARTITIONS)]
            told = self._consumer.committed(asked, 10)
        except KafkaException:
            return  # nobody coordinates just now: nothing was told
        for place in told:
            if place.error is None:
                offset = max(place.offset, -1)
                assert offset >= self._committed[place.partition], told
                self._committed[place.partition] = offset

    def close(self) -> None:
        self._consumer.close()


_NOTHING_COMMITTED = {
    KafkaErrorOfLibrdkafka._NO_OFFSET,
    KafkaErrorOfLibrdkafka._TIMED_OUT,
    KafkaErrorOfLibrdkafka._WAIT_COORD,
    KafkaErrorOfLibrdkafka.NOT_COORDINATOR,
    KafkaErrorOfLibrdkafka.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaErrorOfLibrdkafka.COORDINATOR_NOT_AVAILABLE,
    KafkaErrorOfLibrdkafka.REQUEST_TIMED_OUT,
    KafkaErrorOfLibrdkafka.REBALANCE_IN_PROGRESS,
    KafkaErrorOfLibrdkafka.ILLEGAL_GENERATION,
    KafkaErrorOfLibrdkafka.UNKNOWN_MEMBER_ID,
    KafkaErrorOfLibrdkafka._TRANSPORT,
}
