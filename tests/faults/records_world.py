"""Replicated partitions on real processes under faults: whatever was acknowledged stays.

    round = calm (records go on, measured) → strike → (records go on) → heal → recovery without help

Producers by librdkafka and by Java, idempotent, never stop, nor do the simulator's own clients
(`shared_workload`); replicas are moved and preferred leaders elected throughout. In the end
the whole history is checked by Jepsen's names (`sparkraft.simulation.workload.history`).
A run is void if a producer has fewer than `RECORDS_MIN` acknowledged records, if a fault did not
strike, or if no replica was moved or no leader elected.
"""

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from sparkraft.base.errors import KafkaError
from sparkraft.client.admin import Admin
from sparkraft.client.cluster import Cluster as Client
from sparkraft.client.cluster import PartitionInfo
from sparkraft.client.leadership import PREFERRED, LeadershipAdmin
from sparkraft.records.batch import iter_batches
from sparkraft.records.record import decode_records
from sparkraft.simulation.workload.history import Anomaly, History, acknowledged, check
from tests.cluster.conftest import QUICK
from tests.faults.quorum_world import PROGRESS_SECONDS_MAX, TRY_MS, Creations, World
from tests.faults.quorum_world import Fault as QuorumFault
from tests.support.broken_networks import ProxiedCluster
from tests.support.clusters import Member
from tests.support.ports import wait_until
from tests.support.record_clients import (
    GroupReader,
    JavaProducer,
    LibrdkafkaProducer,
    Meter,
    RecordingProducer,
    TailReader,
    read_everything,
)
from tests.support.shared_workload import SharedWorkload

TOPIC = "orders"
PARTITIONS = 6
REPLICAS = 3
RECORDS_MIN = 500
"""Acknowledged to a producer; with fewer a run proves nothing. A slow machine takes longer."""

RATE = 200
"""Of each producer."""

IN_SYNC_SECONDS_MAX = 90
"""Restarts, sessions, and the moves of partitions that go on all the while."""

CALM_RECORDS = 600

SETTINGS = {
    **QUICK,
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "replica.lag.time.max.ms": "5000",
    "controller.quorum.auto.join.enable": "true",
    # As the simulator's workload has it: members that fall silent, topics that are cleaned soon.
    "group.min.session.timeout.ms": "1000",
    "log.cleaner.backoff.ms": "1000",
    "log.retention.check.interval.ms": "1500",
}


@dataclass
class Move:
    """Of a replica: a partition loses one, then gets one that has to copy everything."""

    partition: int
    kept: list[int]
    target: list[int]
    shrunk: bool = False

    @property
    def new(self) -> int:
        (broker,) = set(self.target) - set(self.kept)
        return broker


class Churn:
    """Moves replicas and elects preferred leaders all along; counts what was completed.

    The new replica is on another broker where there is one, else on one that had to give it up
    first. Meanwhile the partition has two.
    """

    def __init__(self, cluster: ProxiedCluster, dice: random.Random) -> None:
        self.done: Counter[str] = Counter()
        self._cluster = cluster
        self._dice = dice
        self._stop, self._rest = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._move: Move | None = None

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """No replica moves while the block lasts, so that every partition has all its replicas."""
        self._rest.set()
        try:
            wait_until(
                lambda: self._move is None, "the last replica has moved", IN_SYNC_SECONDS_MAX
            )
            yield
        finally:
            self._rest.clear()

    @property
    def _goes_on(self) -> bool:
        return not self._stop.is_set() or self._move is not None

    async def _run(self) -> None:
        while self._goes_on:
            try:
                async with Client(
                    self._cluster.bootstrap, client_id="churn", api_timeout_ms=TRY_MS
                ) as client:
                    while self._goes_on:
                        await self._one(LeadershipAdmin(client))
                        await asyncio.sleep(1)
            except KafkaError:
                await asyncio.sleep(0.2)

    async def _one(self, admin: LeadershipAdmin) -> None:
        if self._move is not None:
            await self._go_on(admin, self._move)
        elif not self._rest.is_set() and self._dice.random() < 0.5:
            self._move = await self._next(admin)
        if not self._stop.is_set() and self._dice.random() < 0.5:
            refused = await admin.elect_leaders(PREFERRED, None)
            self.done["preferred elections"] += sum(e is None for e in refused.values())

    async def _next(self, admin: LeadershipAdmin) -> Move | None:
        partition = self._dice.randrange(PARTITIONS)
        now = await _told(admin, partition)
        if len(now.isr) < REPLICAS:
            return None  # two of its replicas might not be enough
        kept = self._dice.sample(now.replicas, REPLICAS - 1)
        new = self._dice.choice(sorted(set(self._cluster.nodes) - set(kept)))
        return Move(partition, kept, self._dice.sample([*kept, new], REPLICAS))

    async def _go_on(self, admin: LeadershipAdmin, move: Move) -> None:
        """One step: each may get lost on its way, and is taken again then."""
        place = (TOPIC, move.partition)
        if await admin.reassignments([place]):
            return
        now = await _told(admin, move.partition)
        move.shrunk = move.shrunk or list(now.replicas) == move.kept
        if not move.shrunk:
            await admin.reassign({place: move.kept})
        elif list(now.replicas) != move.target:
            await admin.reassign({place: move.target})
        elif move.new in now.isr:
            self.done["replicas moved"] += 1
            self._move = None

    def __enter__(self) -> "Churn":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(IN_SYNC_SECONDS_MAX)
        assert not self._thread.is_alive(), f"not done with {self._move}"


async def _told(admin: Admin, partition: int) -> PartitionInfo:
    info = (await admin.describe_topics([TOPIC]))[TOPIC]
    if isinstance(info, KafkaError):
        raise info
    return info.partitions[partition]


@dataclass
class RecordsWorld(World):
    """A `World` whose leader is the one of a partition, with records on their way all the time."""

    producers: list[RecordingProducer] = field(default_factory=list)
    meter: Meter = field(default_factory=lambda: Meter([]))
    churn: Churn | None = None
    tail: TailReader | None = None
    members: list[GroupReader] = field(default_factory=list)
    shared: SharedWorkload | None = None
    struck: Counter[str] = field(default_factory=Counter)
    history: History = field(default_factory=History)
    """Of the whole run, once it is over."""
    shared_account: str = ""

    def partitions(self) -> dict[int, PartitionInfo]:
        async def work(admin: Admin) -> dict[int, PartitionInfo]:
            info = (await admin.describe_topics([TOPIC]))[TOPIC]
            if isinstance(info, KafkaError):
                raise info
            return dict(info.partitions)

        return self.cluster.ask(work, timeout_ms=TRY_MS)

    def leader(self) -> int:
        """Of one of the partitions, by dice; the quorum's leader is as likely to be struck."""
        found: list[int] = []

        def led() -> bool:
            try:
                found[:] = sorted({p.leader for p in self.partitions().values()} - {-1})
            except KafkaError:
                return False
            return bool(found)

        wait_until(led, "some partition is led", PROGRESS_SECONDS_MAX)
        return self.dice.choice(found)

    def leads_nothing(self, node: int) -> bool:
        try:
            leaders = {p.leader for p in self.partitions().values()}
        except KafkaError:
            return False
        return leaders.isdisjoint({node, -1})

    def in_sync(self) -> bool:
        try:
            found = self.partitions().values()
        except KafkaError:
            return False
        return all(p.leader >= 0 and len(p.isr) >= REPLICAS for p in found)

    def must_be_in_sync(self) -> None:
        wait_until(
            self.in_sync,
            f"all replicas are in sync\n{self._tell()}",
            IN_SYNC_SECONDS_MAX,
        )

    def _tell(self) -> str:
        return self.cluster.tails()

    def records_go_on(self, count: int = 200) -> None:
        """While the fault lasts, or in the end."""
        first = self.meter.total()
        wait_until(
            lambda: self.meter.total() >= first + count,
            f"{count} records more are acknowledged\n{self._tell()}",
            IN_SYNC_SECONDS_MAX,
        )

    def strike(self, name: str, fault: "Fault") -> None:
        """One round of a fault, known by `name`."""
        self.meter.watch(CALM_RECORDS, f"are acknowledged before {name}", IN_SYNC_SECONDS_MAX)
        self.round(cast("QuorumFault", fault))
        self.must_be_in_sync()
        self.struck[name] += 1

    # ---- the end

    def verdict(self) -> History:
        """Stop everything and check the whole history."""
        assert self.tail is not None
        assert self.shared is not None
        self.shared_account = self.shared.verdict()
        final = read_everything(self.cluster.bootstrap, TOPIC, PARTITIONS)
        history = History()
        for partition, polls in final.polls.items():
            for _, value in (record for poll in polls for record in poll.records):
                for producer in self.producers:
                    if isinstance(producer, JavaProducer):
                        producer.claim(partition, str(value))
        readers: list[TailReader | GroupReader] = [self.tail, final, *self.members]
        for reader in readers:
            reader.tell(history)
        for producer in self.producers:
            producer.tell(history)
        anomalies = [str(found) for found in check(history) if not self._sent_anew(found)]
        # No fault lasts as long as a delivery may take: each send can be tried until it works.
        failures = [f"{p.name}: {told}" for p in self.producers for told in p.failures]
        epochs = [f"{p.name}: {told}" for p in self.producers for told in p.new_epochs.told]
        assert not anomalies, "\n".join([*anomalies[:20], *failures[:5], *epochs[:20]])
        assert not failures, "\n".join(failures[:5])
        errors = [told for reader in (self.tail, *self.members) for told in reader.errors]
        assert not errors, "\n".join(errors)
        went_back = [told for member in self.members for told in member.went_back]
        assert not went_back, f"committed offsets went back: {went_back}"
        return history

    def _sent_anew(self, found: Anomaly) -> bool:
        """Whether a record is there twice because its producer gave itself a new epoch.

        Only where it said so, and why, and each copy has an epoch of its own (`NewEpochs`).
        """
        if found.name != "duplicate":
            return False
        value = found.detail.split("'")[1]
        producer = next((p for p in self.producers if value.startswith(f"{p.name}.")), None)
        if producer is None or not producer.new_epochs.are_its_own:
            return False
        epochs = self._epochs_of(found.partition, value.encode())
        anew = len(epochs) > 1 and len(epochs) == len(set(epochs))
        producer.new_epochs.twice += anew
        return anew

    def _epochs_of(self, partition: object, value: bytes) -> list[int]:
        """The producer epochs with which a value is in the log, one for each of its copies."""
        found = []
        leader = self.partitions()[cast("int", partition)].leader
        directory = self.cluster.nodes[leader].log_dir / f"{TOPIC}-{partition}"
        for segment in sorted(directory.glob("*.log")):
            for header, batch in iter_batches(segment.read_bytes()):
                if not header.is_control:
                    values = [record.value for record in decode_records(batch)]
                    found += [header.producer_epoch] * values.count(value)
        return found

    def assert_it_counts(self, faults: list[str]) -> None:
        """Whether the run proves anything."""
        assert self.churn is not None
        assert not [name for name in faults if not self.struck[name]], "void: a fault never struck"
        assert self.churn.done["replicas moved"], "void: no replica was moved"
        assert self.churn.done["preferred elections"], "void: no preferred leader was elected"
        assert all(member.commits for member in self.members), "void: a member committed nothing"
        for producer in self.producers:
            found = producer.acknowledged
            assert found >= RECORDS_MIN, f"void: {producer.name} has {found} records acknowledged"

    def account(self, history: History) -> str:
        """A line for people."""
        assert self.churn is not None
        return (
            f"{len(self.ids)} nodes: {acknowledged(history)} records acknowledged, "
            f"{self.meter.per_second:.0f}/s outside faults; {dict(self.struck)}; "
            f"{dict(self.churn.done)}; recovered in {max(self.recovery_seconds):.1f} s at most; "
            f"{sum(p.new_epochs.begun for p in self.producers)} new epochs of producers, "
            f"{sum(p.new_epochs.twice for p in self.producers)} records twice for it; "
            f"{self.shared_account}"
        )


Fault = Callable[[RecordsWorld], AbstractContextManager[list[int] | None]]


@contextmanager
def records_world(
    directory: Path, nodes: int, *, jars: Path | None, seed: int = 1
) -> Iterator[RecordsWorld]:
    """A cluster that runs, with producers, a reader, moves and elections; all stop at the end.

    Without `jars` all producers are librdkafka's.
    """
    members = [Member(n) for n in range(1, nodes + 1)]
    with ExitStack() as stack:
        cluster = stack.enter_context(ProxiedCluster(directory, members, overrides=SETTINGS))
        creations = stack.enter_context(Creations(cluster))
        world = RecordsWorld(cluster, creations, random.Random(seed))
        world.must_recover()
        cluster.create_topic(TOPIC, partitions=PARTITIONS, replicas=REPLICAS)
        bootstrap = cluster.bootstrap
        world.producers = [
            LibrdkafkaProducer(f"c{n}", bootstrap, TOPIC, partitions=PARTITIONS, rate=RATE)
            for n in (1, 2)
        ]
        if jars is not None:
            world.producers.append(
                JavaProducer("7", bootstrap, TOPIC, jars=jars, folder=directory, rate=RATE)
            )
        world.meter = Meter(world.producers)
        world.tail = TailReader("tail", bootstrap, TOPIC, partitions=PARTITIONS)
        committed: dict[int, int] = {}
        world.members = [GroupReader(f"m{n}", bootstrap, TOPIC, committed) for n in (1, 2)]
        with ExitStack() as clients:
            world.churn = clients.enter_context(Churn(cluster, world.dice))
            ports = {node_id: cluster.ports[node_id][0] for node_id in cluster.brokers}
            world.shared = clients.enter_context(SharedWorkload(ports, world.dice))
            for client in (*world.producers, world.tail, *world.members):
                clients.enter_context(client)  # type: ignore[arg-type]
            yield world
            world.records_go_on()
        world.must_be_in_sync()
        world.history = world.verdict()
