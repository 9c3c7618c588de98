"""A ZooKeeper controller beside that of Kafka 3.9: elections, failures of brokers, memory.

One real ensemble for both kinds; their brokers run one kind after the other. Brokers that host
partitions are stand-ins (`zookeeper_standins`), the same for both kinds, so only the controller is
measured. Its processor time stands beside the time.

    topic      kill -9 of the controller; from the end of its session to the first topic created
    failover   the same with many partitions, until all brokers have UpdateMetadata of all
    death      the session of a broker that leads half of them ends, until all have leaders
    shutdown   that broker asks for a controlled shutdown, until it is answered
    memory     of a controller with all partitions

Each part takes one to two minutes. Figures are medians.
"""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from benchmarks import suite
from benchmarks.measure import cpu_seconds, rss_mib
from benchmarks.report import Row
from benchmarks.zookeeper_standins import StandIn, new_client
from sparkraft.base.errors import KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.client.connection import Connection
from sparkraft.protocol.messages import k07_controlled_shutdown as k07
from sparkraft.protocol.messages import k19_create_topics as k19
from sparkraft.zookeeper.client import ZooKeeperClient
from sparkraft.zookeeper.controller import znodes
from sparkraft.zookeeper.controller.values import LeaderAndIsr, Leadership, ReplicaAssignment
from sparkraft.zookeeper.errors import NoNodeError
from sparkraft.zookeeper.requests import Create, GetData, Request, SetData
from sparkraft.zookeeper.znodes.topics import encode_configs
from tests.support.kafka_jars import kafka_3_9_jars_or_reason
from tests.support.nodes import NodeProcess
from tests.support.zookeeper import Ensemble
from tests.support.zookeeper_brokers import KafkaBroker, OurBroker

KINDS = ("sparkraft", "kafka")
STAND_INS = (101, 102, 103)
CANDIDATES = (1, 2)
"""Real brokers without partitions: one is the controller, the other one its successor."""

TOPIC_PARTITIONS = 1_000
QUIET_SECONDS = 1.5
"""Without a request for so long, the controller has finished."""

WAIT_SECONDS = 120
PAUSE_SECONDS = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much is measured."""

    rounds: int
    partitions: int


class Figure(NamedTuple):
    """One measurement."""

    seconds: float
    cpu_seconds: float


@dataclass(slots=True)
class Bench:
    """One kind on the ensemble, below a chroot of its own."""

    kind: str
    folder: Path
    jars: Path
    connect: str
    client: ZooKeeperClient
    brokers: dict[int, NodeProcess] = field(default_factory=dict)
    stand_ins: list[StandIn] = field(default_factory=list)

    async def start(self, broker_id: int) -> NodeProcess:
        """Start a real broker, for the first time or again."""
        if broker_id not in self.brokers:
            directory = self.folder / self.kind / str(broker_id)
            directory.mkdir(parents=True)
            options = {
                "sparkraft.controllership.enable": "true",
                "zookeeper.session.timeout.ms": "2000",
                "inter.broker.protocol.version": "3.9",
            }
            self.brokers[broker_id] = (
                OurBroker(directory, broker_id, self.connect, options)
                if self.kind == "sparkraft"
                else KafkaBroker(directory, broker_id, self.connect, self.jars, options)
            )
        broker = self.brokers[broker_id]
        await asyncio.to_thread(broker.start)
        await asyncio.to_thread(broker.wait_until_ready)
        return broker

    async def read_controller(self) -> int:
        """The id in /controller; -1 without one."""
        try:
            data, stat = await self.client.submit_until_connected(GetData(path="/controller"))
        except NoNodeError:
            return -1
        return znodes.decode_controller(data, stat).broker

    async def until_controller(self, broker_id: int) -> None:
        await until(lambda: self._is_controller(broker_id))

    async def _is_controller(self, broker_id: int) -> bool:
        return await self.read_controller() == broker_id

    async def kill_controller(self) -> float:
        """Kill broker 1, the controller; return when its session had ended."""
        self.brokers[1].kill()
        await until(self._is_free)
        return time.monotonic()

    async def _is_free(self) -> bool:
        return await self.read_controller() != 1

    async def until_quiet(self) -> None:
        """Return when the stand-ins have received something, and nothing more for a while."""
        await until(self._is_quiet)

    async def _is_quiet(self) -> bool:
        arrived = [each.arrived[-1].seconds for each in self.stand_ins if each.arrived]
        return bool(arrived) and time.monotonic() - max(arrived) > QUIET_SECONDS

    async def until_covered(self, wanted: int, since: float, *, without: int = -1) -> float:
        """Return when the last stand-in had UpdateMetadata of `wanted` partitions.

        Frames are decoded while nothing arrives; a controller may pause in the middle.
        """
        receivers = [each for each in self.stand_ins if each.id != without]
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                await self.until_quiet()
                known = sum(len(each.arrived) for each in receivers)
                ends = [each.covered(wanted, since, not_led_by=without) for each in receivers]
                found = [end for end in ends if end is not None]
                if len(found) == len(ends):
                    return max(found)
                while sum(len(each.arrived) for each in receivers) == known:  # noqa: ASYNC110
                    await asyncio.sleep(PAUSE_SECONDS)

    def forget(self) -> None:
        """Drop what has arrived so far."""
        for each in self.stand_ins:
            each.arrived.clear()

    async def fill(self, partitions: int) -> None:
        """Create topics, or reset them; broker 101 leads half of the partitions."""
        topics = -(-partitions // TOPIC_PARTITIONS)
        for topic in range(topics):
            count = min(TOPIC_PARTITIONS, partitions - topic * TOPIC_PARTITIONS)
            await self._fill_topic(f"many-{topic}", count)

    async def _fill_topic(self, name: str, count: int) -> None:
        replicas = {at: _replicas_of(at) for at in range(count)}
        assignments = {at: ReplicaAssignment(each) for at, each in replicas.items()}
        topic_id = Uuid(name.encode().ljust(16, b"."))
        topic = znodes.Topic(id=topic_id, assignments=assignments)
        stages: list[list[Request]] = [
            [Create(path=znodes.topic_config_path(name), data=encode_configs({}))],
            [Create(path=znodes.topic_path(name), data=znodes.encode_topic(topic))],
            [Create(path=znodes.partitions_path(name))],
            [Create(path=znodes.partition_path(name, at)) for at in range(count)],
        ]
        for stage in stages:
            await self.client.submit_all(stage)
        states = {
            znodes.state_path(name, at): znodes.encode_state(
                Leadership(LeaderAndIsr(each[0], each), 0)
            )
            for at, each in replicas.items()
        }
        await self.client.submit_all([Create(path=p, data=d) for p, d in states.items()])
        await self.client.submit_all([SetData(path=p, data=d) for p, d in states.items()])


def _replicas_of(partition: int) -> tuple[int, ...]:
    first = 0 if partition % 2 == 0 else 1 + partition // 2 % 2
    return (*STAND_INS[first:], *STAND_INS[:first])


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Poll `condition` until it holds."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not await condition():  # noqa: ASYNC110 (of another process)
            await asyncio.sleep(PAUSE_SECONDS)


def pid_of(broker: NodeProcess) -> int:
    """Its process id; it runs."""
    assert broker.process is not None
    return broker.process.pid


@asynccontextmanager
async def bench_of(kind: str, folder: Path, jars: Path, ensemble: Ensemble) -> AsyncIterator[Bench]:
    """No broker runs yet."""
    root = new_client(ensemble.connect)
    await root.start()
    await root.create_recursive(f"/{kind}")
    await root.close()
    connect = f"{ensemble.connect}/{kind}"
    client = new_client(connect)
    await client.start()
    bench = Bench(kind, folder, jars, connect, client)
    try:
        yield bench
    finally:
        for stand_in in bench.stand_ins:
            await stand_in.stop()
        for broker in bench.brokers.values():
            if broker.process is not None:
                broker.kill()
        await client.close()


# ---- parts


async def create_topic(bench: Bench, sizes: Sizes) -> list[Figure]:
    """Kill the controller `rounds` times; create a topic at the other broker each time."""
    figures = []
    for number in range(sizes.rounds):
        await bench.start(1)
        await bench.until_controller(1)
        successor = await bench.start(2)
        before = cpu_seconds(pid_of(successor))
        begun = await bench.kill_controller()
        await _create(successor, f"topic-{number}")
        seconds = time.monotonic() - begun
        figures.append(Figure(seconds, cpu_seconds(pid_of(successor)) - before))
        successor.kill()
        await until(lambda: _is_controller_free(bench))
    return figures


async def _is_controller_free(bench: Bench) -> bool:
    return await bench.read_controller() < 0


async def _create(broker: NodeProcess, name: str) -> None:
    """Create a topic with one replica on this broker; again until it works."""
    assignment = k19.CreatableReplicaAssignment(partition_index=0, broker_ids=[2])
    topic = k19.CreatableTopic(
        name=name, num_partitions=-1, replication_factor=-1, assignments=[assignment]
    )
    request = k19.CreateTopicsRequest(topics=[topic], timeout_ms=30_000)

    async def is_created() -> bool:
        try:
            connection = await Connection.open(
                "127.0.0.1", broker.port, client_id="bench", timeout_ms=30_000
            )
            try:
                answer = await connection.send(request, timeout_ms=30_000)
            finally:
                await connection.close()
        except KafkaError:
            return False
        return not answer.topics[0].error_code

    await until(is_created)


async def _with_partitions(bench: Bench, sizes: Sizes) -> None:
    """Start the stand-ins and create the partitions, before any controller."""
    for path in ("/brokers/ids", "/brokers/topics", "/config/topics"):
        await bench.client.create_recursive(path)
    await bench.fill(sizes.partitions)
    bench.stand_ins = [StandIn(each, bench.connect) for each in STAND_INS]
    for stand_in in bench.stand_ins:
        await stand_in.start()


async def fail_over(bench: Bench, sizes: Sizes) -> list[Figure]:
    """Kill the controller `rounds` times; its successor informs all stand-ins."""
    await _with_partitions(bench, sizes)
    figures = []
    for _ in range(sizes.rounds):
        since = time.monotonic()
        await bench.start(1)
        await bench.until_controller(1)
        successor = await bench.start(2)
        await bench.until_covered(sizes.partitions, since)
        bench.forget()
        before = cpu_seconds(pid_of(successor))
        begun = await bench.kill_controller()
        ended = await bench.until_covered(sizes.partitions, begun)
        figures.append(Figure(ended - begun, cpu_seconds(pid_of(successor)) - before))
        successor.kill()
        await until(lambda: _is_controller_free(bench))
    return figures


async def _rounds_of_one_controller(
    bench: Bench, sizes: Sizes, measure: Callable[[NodeProcess], Awaitable[Figure]]
) -> list[Figure]:
    """Measure with a controller that has read the partitions as they were at first."""
    await _with_partitions(bench, sizes)
    figures = []
    for number in range(sizes.rounds):
        if number:
            await bench.fill(sizes.partitions)
            await bench.stand_ins[0].start()
        bench.forget()
        since = time.monotonic()
        controller = await bench.start(1)
        await bench.until_covered(sizes.partitions, since)
        bench.forget()
        figures.append(await measure(controller))
        controller.kill()
        await until(lambda: _is_controller_free(bench))
    return figures


async def end_broker(bench: Bench, sizes: Sizes) -> list[Figure]:
    """End the session of the broker that leads half of the partitions."""

    async def measure(controller: NodeProcess) -> Figure:
        before = cpu_seconds(pid_of(controller))
        begun = time.monotonic()
        await bench.stand_ins[0].stop()
        led = len(range(0, sizes.partitions, 2))
        ended = await bench.until_covered(led, begun, without=STAND_INS[0])
        return Figure(ended - begun, cpu_seconds(pid_of(controller)) - before)

    return await _rounds_of_one_controller(bench, sizes, measure)


async def shut_down_broker(bench: Bench, sizes: Sizes) -> list[Figure]:
    """Let that broker ask for a controlled shutdown."""

    async def measure(controller: NodeProcess) -> Figure:
        leaving = bench.stand_ins[0]
        connection = await Connection.open(
            "127.0.0.1", controller.port, client_id=str(leaving.id), timeout_ms=60_000
        )
        before = cpu_seconds(pid_of(controller))
        begun = time.monotonic()
        request = k07.ControlledShutdownRequest(broker_id=leaving.id, broker_epoch=leaving.epoch)
        answer = await connection.send(request, timeout_ms=60_000)
        seconds = time.monotonic() - begun
        used = cpu_seconds(pid_of(controller)) - before
        await connection.close()
        if answer.error_code or answer.remaining_partitions:
            raise AssertionError(f"{bench.kind} answered {answer}")
        await bench.until_quiet()
        await leaving.stop()
        return Figure(seconds, used)

    return await _rounds_of_one_controller(bench, sizes, measure)


async def measure_memory(bench: Bench, sizes: Sizes) -> float:
    """Resident MiB of a controller that has read all partitions and informed all brokers."""
    await _with_partitions(bench, sizes)
    since = time.monotonic()
    controller = await bench.start(1)
    await bench.until_covered(sizes.partitions, since)
    return rss_mib(pid_of(controller))


# ---- rows


def _measure(
    folder: Path, part: Callable[[Bench, Sizes], Awaitable[object]], sizes: Sizes
) -> dict[str, object]:
    """Return the result of `part` for each kind, on one ensemble."""
    jars = kafka_3_9_jars_or_reason()
    if not isinstance(jars, Path):
        raise SystemExit(f"not measured: {jars.reason}")

    async def run_kind(kind: str, ensemble: Ensemble) -> object:
        async with bench_of(kind, folder, jars, ensemble) as bench:
            return await part(bench, sizes)

    with Ensemble(jars, folder / "ensemble") as ensemble:
        return {kind: asyncio.run(run_kind(kind, ensemble)) for kind in KINDS}


def _timed(
    what: str, part: Callable[[Bench, Sizes], Awaitable[list[Figure]]], at_most: float
) -> Callable[[Path, Path, Sizes], list[Row]]:
    """A part of times, as a row."""

    def rows(folder: Path, _: Path, sizes: Sizes) -> list[Row]:
        found = _measure(folder, part, sizes)
        medians, shown = {}, {}
        for kind, figures in found.items():
            assert isinstance(figures, list)
            medians[kind] = statistics.median(each.seconds for each in figures)
            used = statistics.median(each.cpu_seconds for each in figures)
            shown[kind] = f"{medians[kind]:.2f} s, {used:.2f} s CPU"
        ours, kafkas = (medians[kind] for kind in KINDS)
        name = what.format(all=f"{sizes.partitions:,}", half=f"{sizes.partitions // 2:,}")
        return [Row(name, shown["sparkraft"], shown["kafka"], ours / kafkas, at_most=at_most)]

    return rows


def _memory(folder: Path, _: Path, sizes: Sizes) -> list[Row]:
    found = _measure(folder, measure_memory, sizes)
    ours, kafkas = (float(str(found[kind])) for kind in KINDS)
    what = f"memory of a controller with {sizes.partitions:,} partitions"
    return [Row(what, f"{ours:.0f} MiB", f"{kafkas:.0f} MiB", ours / kafkas, at_most=0.2)]


PARTS: dict[str, suite.Part[Sizes]] = {
    "topic": _timed("session of a killed controller ends → a topic is created", create_topic, 0.5),
    "failover": _timed(
        "failover with {all} partitions → all brokers have UpdateMetadata", fail_over, 0.5
    ),
    "death": _timed("a broker that leads {half} partitions dies → all are led", end_broker, 1.0),
    "shutdown": _timed("controlled shutdown of that broker", shut_down_broker, 1.0),
    "memory": _memory,
}


def main() -> int:
    """Measure; see the module docstring."""
    parser = suite.parser_for(__doc__, PARTS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=10_000)
    chosen = parser.parse_args()
    sizes = Sizes(rounds=chosen.rounds, partitions=chosen.partitions)
    return suite.run("zookeeper", "A ZooKeeper controller beside Kafka 3.9's", PARTS, chosen, sizes)


if __name__ == "__main__":
    raise SystemExit(main())
