"""Wall clocks of real nodes jump hours ahead and back: nobody is fenced, nothing is lost.

Time that passes is measured by another clock, so a jump ends no session and starts no election.
What Kafka judges by the wall clock each broker judges by its own: how old a record is, and whether
it comes from the future.
"""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from sparkraft.cli import main as cli
from sparkraft.client.admin import Admin
from sparkraft.client.leadership import PREFERRED, LeadershipAdmin
from sparkraft.simulation.workload.history import Anomaly, History, check
from tests.cluster.conftest import STEADY
from tests.support import groups, moved_clock
from tests.support.clusters import Cluster, Member, SparkraftMember
from tests.support.ports import wait_until
from tests.support.record_clients import (
    GROUP,
    GroupReader,
    LibrdkafkaProducer,
    Meter,
    TailReader,
    read_everything,
)
from tests.support.replicas import (
    create_assigned,
    partition_of,
    read_partition,
    until_equal,
    until_in_sync,
)

pytestmark = pytest.mark.real_clients

SESSION_MS = 30_000
"""Shorter than any jump, and longer than any voter or member is silent on a busy machine."""

SETTINGS = {
    **STEADY,
    "controller.quorum.fetch.timeout.ms": str(SESSION_MS),
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "log.retention.check.interval.ms": "300",
}
IDS = (1, 2, 3)
EVERYWHERE = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
TOPIC, STAMPED = "orders", "stamped"

HOUR_MS = 3_600_000
AHEAD, BEHIND = 1.0, -2.0
"""Hours: Kafka's default takes no record that is over an hour ahead of its broker."""

RECORDS_BETWEEN = 300
"""So many are acknowledged after each jump."""


class ClockedMember(SparkraftMember):
    """Our node with a wall clock of its own."""

    @property
    def clock(self) -> Path:
        return self.directory / "clock"

    def start_command(self) -> list[str]:
        if not self.clock.exists():
            moved_clock.set_ahead(self.clock, 0)
        arguments = super().start_command()[3:]
        return [sys.executable, str(moved_clock.__file__), str(self.clock), *arguments]


class ClockedCluster(Cluster):
    """Nodes whose clocks can be set."""

    kinds: ClassVar = {**Cluster.kinds, "sparkraft": ClockedMember}

    def set_clocks(self, hours: float, *ids: int) -> None:
        for node_id in ids:
            moved_clock.set_ahead(self.nodes[node_id].directory / "clock", hours)

    def clock_of(self, node: int) -> float:
        """How many hours a broker is ahead, by the time it stamps on a record."""
        (sent,) = send(self, STAMPED, node - 1, "now")
        kind, stamp = sent.timestamp()
        assert kind == TIMESTAMP_LOG_APPEND_TIME
        return round((stamp - time.time() * 1000) / HOUR_MS, 1)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClockedCluster]:
    directory = tmp_path_factory.mktemp("clocks")
    with ClockedCluster(directory, [Member(n) for n in IDS], overrides=SETTINGS) as cluster:
        stamps = {"message.timestamp.type": "LogAppendTime"}
        create_assigned(cluster, STAMPED, EVERYWHERE, **stamps)
        until_in_sync(cluster, STAMPED, len(IDS), len(IDS))
        yield cluster


def send(cluster: Cluster, topic: str, partition: int, *values: str, age_ms: int = 0) -> list[Any]:
    """Produce records, one by one: each as it was acknowledged, or its error's code."""
    found: list[Any] = []

    def delivered(error: KafkaError | None, message: Any) -> None:
        found.append(message if error is None else error.code())

    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    for value in values:
        at_ms = int(time.time() * 1000) - age_ms
        producer.produce(topic, value, partition=partition, timestamp=at_ms, on_delivery=delivered)
        assert producer.flush(60) == 0
    return found


class World:
    """Clients at work on a cluster, and what must stay as it is."""

    def __init__(self, cluster: ClockedCluster, capsys: pytest.CaptureFixture[str]) -> None:
        """Make their topic; node `n` leads partition `n - 1`."""
        self.cluster = cluster
        self._capsys = capsys
        bootstrap = cluster.bootstrap
        # Clients' clocks stay: to brokers that are behind, their records come from the future.
        takes_all = {"message.timestamp.after.max.ms": str(2**63 - 1)}
        create_assigned(cluster, TOPIC, EVERYWHERE, **takes_all)
        until_in_sync(cluster, TOPIC, len(IDS), len(IDS))
        self.producers = [
            LibrdkafkaProducer(f"c{n}", bootstrap, TOPIC, partitions=len(IDS), rate=200)
            for n in (1, 2)
        ]
        self.meter = Meter(list(self.producers))
        self.tail = TailReader("tail", bootstrap, TOPIC, partitions=len(IDS))
        self.committed: dict[int, int] = {}
        self.members = [
            GroupReader(f"m{n}", bootstrap, TOPIC, self.committed, session_ms=SESSION_MS)
            for n in (1, 2)
        ]
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._asks = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "log_level": 0})

    # ---- clients

    @contextmanager
    def clients_at_work(self) -> Iterator[None]:
        with ExitStack() as clients:
            for client in (*self.producers, self.tail, *self.members):
                clients.enter_context(client)  # type: ignore[arg-type]
            wait_until(lambda: all(m.commits for m in self.members), "both members consume")
            wait_until(lambda: self.group()[0] == "STABLE", "all partitions are given out")
            yield
            self.go_on()
        self._asks.close()

    def go_on(self) -> None:
        """Records are acknowledged and read by the group as before; none of its commits is lost."""
        commits = sum(member.commits for member in self.members)
        self.meter.watch(RECORDS_BETWEEN, f"are acknowledged\n{self.cluster.tails()}")
        wait_until(
            lambda: sum(member.commits for member in self.members) > commits, "the group commits"
        )
        confirmed = dict(self.committed)
        told = groups.committed(self._asks, [TopicPartition(TOPIC, p) for p in confirmed])
        assert all(told[p] >= offset for p, offset in confirmed.items()), (confirmed, told)

    def elect_preferred(self) -> None:
        """Have each partition led by the first of its replicas."""

        async def work(admin: Admin) -> None:
            await LeadershipAdmin(admin.cluster).elect_leaders(PREFERRED, None)

        self.cluster.ask(work)

    # ---- what brokers tell

    def quorum(self) -> tuple[int, int]:
        """Its leader and epoch."""
        found = self.cluster.describe_quorum()
        return found.leader_id, found.leader_epoch

    def leaderships(self) -> list[tuple[int, int, tuple[int, ...]]]:
        """Leader, epoch and replicas in sync of each partition that is written to."""
        found = [partition_of(self.cluster, TOPIC, n) for n in range(len(IDS))]
        return [(each.leader, each.leader_epoch, tuple(sorted(each.isr))) for each in found]

    def group(self) -> tuple[str, list[tuple[str, list[int]]]]:
        """Its state, and which member has which partitions; who was turned out gets another id."""
        told = self._admin.describe_consumer_groups([GROUP], request_timeout=30)[GROUP].result()
        members = [
            (member.member_id, sorted(p.partition for p in member.assignment.topic_partitions))
            for member in told.members
        ]
        return told.state.name, sorted(members)

    def past_of(self, node: int) -> list[str]:
        """What happened to a broker: registered, fenced, unfenced."""
        argv = ["explain", "broker", str(node), "--output", "json", "--last", "1000"]
        self._capsys.readouterr()
        assert cli.main([*argv, "--bootstrap-server", self.cluster.bootstrap]) == 0
        changes = json.loads(self._capsys.readouterr().out)["changes"]
        return [change["what"] for change in reversed(changes)]

    def known(self) -> dict[str, Any]:
        """All that no jump may change."""
        return {
            "quorum": self.quorum(),
            "leaderships": self.leaderships(),
            "group": self.group(),
            "pasts": {node: self.past_of(node) for node in IDS},
            "processes": [node.process and node.process.poll() for node in self._nodes],
        }

    @property
    def _nodes(self) -> list[Any]:
        return list(self.cluster.nodes.values())

    # ---- the end

    def verdict(self) -> None:
        """Every acknowledged record is there, once and in order, and no commit went back."""
        history = History()
        final = read_everything(self.cluster.bootstrap, TOPIC, len(IDS))
        for teller in (self.tail, final, *self.members, *self.producers):
            teller.tell(history)  # type: ignore[attr-defined]
        assert [str(found) for found in check(history) if not self._sent_anew(found)] == []
        assert [told for producer in self.producers for told in producer.failures] == []
        assert [told for member in self.members for told in member.went_back] == []
        assert all("Traceback" not in node.output_path.read_text() for node in self._nodes)

    def _sent_anew(self, found: Anomaly) -> bool:
        """Whether its producer sent it again in a new epoch, when a leader went (`NewEpochs`)."""
        senders = [p for p in self.producers if f"'{p.name}." in found.detail]
        return found.name == "duplicate" and any(p.new_epochs.are_its_own for p in senders)


def test_clocks_jump_and_nothing_is_lost_nor_anybody_fenced(
    cluster: ClockedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World(cluster, capsys)
    controller, epoch = world.quorum()
    another, third = (n for n in IDS if n != controller)
    with world.clients_at_work():
        world.go_on()
        before = world.known()
        for hours, nodes in (
            (AHEAD, [controller]),
            (BEHIND, [controller]),
            (AHEAD, IDS),
            (BEHIND, [another]),
            (BEHIND, IDS),
            (AHEAD, [controller, third]),
        ):
            cluster.set_clocks(hours, *nodes)
            world.go_on()
            assert [cluster.clock_of(node) for node in nodes] == [hours] * len(nodes)
            assert world.known() == before
        # It comes back three hours behind the others, and leads again.
        cluster.kill(another)
        world.go_on()
        cluster.start([another])
        for topic in (TOPIC, STAMPED):
            until_in_sync(cluster, topic, len(IDS), len(IDS))
        world.elect_preferred()
        wait_until(lambda: [each[0] for each in world.leaderships()] == list(IDS), "it leads again")
        world.go_on()
        assert cluster.clock_of(another) == BEHIND
        cluster.set_clocks(0, *IDS)
        world.go_on()
        assert world.quorum() == (controller, epoch)
        for node in (controller, third):
            assert world.past_of(node) == before["pasts"][node]
    world.verdict()


def first_offsets(cluster: Cluster, topic: str) -> list[int]:
    async def work(admin: Admin) -> list[int]:
        found = await admin.list_offsets({(topic, n): -2 for n in range(3)})
        return [found[topic, n].offset for n in range(3)]  # type: ignore[union-attr]

    return cluster.ask(work)


def test_a_broker_lets_go_and_refuses_by_its_own_clock_and_nothing_more(
    cluster: ClockedCluster,
) -> None:
    # One node leads them all, so that one round of its retention looks at each of them.
    create_assigned(cluster, "kept", [[1, 2, 3]] * 3)
    create_assigned(cluster, "brief", [[1, 2, 3]] * 3, **{"retention.ms": str(HOUR_MS // 2)})
    for topic in ("kept", "brief"):
        until_in_sync(cluster, topic, 3, 3)
    nearly_7_days = 7 * 24 * HOUR_MS - 2 * HOUR_MS
    send(cluster, "kept", 0, "nearly too old", age_ms=nearly_7_days)
    send(cluster, "kept", 1, "of now")
    send(cluster, "kept", 2, "of the future", age_ms=-HOUR_MS + 60_000)

    send(cluster, "brief", 0, "of now")
    cluster.set_clocks(AHEAD, *IDS)
    wait_until(lambda: first_offsets(cluster, "brief") == [1, 0, 0], "an hour is too old")
    assert first_offsets(cluster, "kept") == [0, 0, 0]

    cluster.set_clocks(BEHIND, *IDS)
    assert send(cluster, "kept", 1, "refused", "too") == [KafkaError.INVALID_TIMESTAMP] * 2
    send(cluster, "brief", 1, "10 minutes old", age_ms=2 * HOUR_MS + HOUR_MS // 6)
    send(cluster, "brief", 2, "45 minutes old", age_ms=2 * HOUR_MS + HOUR_MS * 3 // 4)
    wait_until(lambda: first_offsets(cluster, "brief") == [1, 0, 1], "45 minutes are too old")
    assert first_offsets(cluster, "kept") == [0, 0, 0]

    cluster.set_clocks(0, *IDS)
    assert send(cluster, "kept", 1, "of now again")[0].offset() == 1
    for partition, values in enumerate(
        (["nearly too old"], ["of now", "of now again"], ["of the future"])
    ):
        assert read_partition(cluster.bootstrap, "kept", partition) == values
        until_equal(cluster, "kept", partition, list(IDS))
