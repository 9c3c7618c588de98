"""Consumer groups on one node of ours and one of Apache Kafka: hand-overs, deaths and their cost.

Members are our client's memberships without fetches, all in this process, so that what is measured
is the coordinator. The two nodes are measured one after the other.

    ./bench groups --only handover      one part: handover, death, topics, commits, three
    ./bench groups --members 10         fewer members (default 10 and 100)
    ./bench groups --rounds 9           joins, leaves and deaths in each group (default 4)

The members of a group learn of a change from their next heartbeats. When that is depends on the
phase of the change between two of their heartbeats: up to an interval, by chance. So the rounds
place joins, leaves and deaths evenly in the interval, on both nodes alike, and a row is the median
of its rounds. A coordinator notices a death when the session ends, so a dying member sends its last
heartbeat right before. The goal of a death allows for the resolution (decision 0017).

The part `three` measures three nodes of each kind. They share the cores with the members, so its
rows have no goal.
"""

import asyncio
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.bench_beside_kafka import BenchKafka
from benchmarks.measure import cpu_seconds, rss_mib
from benchmarks.quorums import progress
from benchmarks.replicated import EMPTY, pids_of, starved, three_nodes
from benchmarks.report import Row
from benchmarks.suite import parser_for, run
from sparkraft.base.errors import KafkaError
from sparkraft.client.admin import Admin
from sparkraft.client.cluster import Cluster
from sparkraft.client.consumer_membership import ConsumerMembership
from sparkraft.client.groups import Groups
from sparkraft.client.membership import Membership
from sparkraft.client.subscription import CLASSIC, CONSUMER, GroupSettings, Subscription
from sparkraft.client.values import Committed, NewTopic
from sparkraft.protocol.messages import k12_heartbeat as k12
from tests.support.clusters import Kind
from tests.support.nodes import NodeProcess, SparkraftNode

TOPIC = "shared"
PARTITIONS = 900
GROUPS = 300
COMMIT_SECONDS = 10
POLL_SECONDS = 0.02
SETTLE_SECONDS_MAX = 300
SESSION_MS = 6_000
"""Of both protocols where a member dies: the least that Kafka allows classic members by default."""

HEARTBEAT_MS = 1_000
ROUNDS = 4
PROTOCOLS = (CLASSIC, CONSUMER)
STAGGER_SECONDS = 4.0
"""Between the rounds of two groups: the members of one die while those of the other wait."""

THREE_MEMBERS = 10
"""In the groups of three nodes."""

MANY_TOPICS = 1_000
JOINS = 20
MEMORY_GOAL = 1 / 8
KINDS: tuple[Kind, Kind] = ("sparkraft", "kafka")


@dataclass(frozen=True)
class Options:
    """What the command line said."""

    members: Sequence[int]
    rounds: int


@dataclass(frozen=True)
class Servers:
    """The nodes of a kind that run."""

    bootstrap: str
    pids: Sequence[int]

    @classmethod
    def of(cls, node: NodeProcess) -> "Servers":
        """One node."""
        assert node.process is not None
        return cls(node.bootstrap, [node.process.pid])

    def cpu(self) -> float:
        """CPU seconds that they have used together."""
        return sum(map(cpu_seconds, self.pids))


@dataclass(frozen=True)
class Handover:
    """Seconds until all partitions are owned again, and the servers' CPU seconds meanwhile."""

    join: float
    leave: float
    cpu: float


@dataclass(frozen=True)
class Handovers:
    """Those of all rounds."""

    rounds: Sequence[Handover]

    @property
    def join(self) -> float:
        """The median."""
        return statistics.median(one.join for one in self.rounds)

    @property
    def leave(self) -> float:
        """The median."""
        return statistics.median(one.leave for one in self.rounds)

    @property
    def cpu(self) -> float:
        """The mean, since a clock tick is a large part of one."""
        return statistics.mean(one.cpu for one in self.rounds)


@dataclass(frozen=True)
class Deaths:
    """Seconds from each death until the others own all partitions, in order, by protocol."""

    seconds: Mapping[str, Sequence[float]]
    cpu: float
    """CPU seconds a second, of the groups of both protocols together."""


class Member:
    """A member of either protocol, with a connection of its own."""

    def __init__(self, bootstrap: str, group_id: str, protocol: str) -> None:
        self.cluster = Cluster(bootstrap)
        settings = GroupSettings(
            group_id=group_id,
            protocol=protocol,
            assignors=("range",),
            heartbeat_interval_ms=HEARTBEAT_MS,
            session_timeout_ms=SESSION_MS,
        )
        subscription = Subscription(topics=frozenset({TOPIC}))
        self.membership: Membership | ConsumerMembership = (
            ConsumerMembership(self.cluster, settings, lambda: subscription, lambda: None)
            if protocol == CONSUMER
            else Membership(self.cluster, settings, lambda: subscription.topics)
        )

    async def poll_forever(self) -> None:
        """Follow the group."""
        while True:
            if isinstance(self.membership, ConsumerMembership):
                wanted = await self.membership.ensure_active()
                if wanted is not None:
                    self.membership.acknowledge(wanted)
            else:
                await self.membership.ensure_active()
            await asyncio.sleep(POLL_SECONDS)

    async def die(self) -> None:
        """Send a last heartbeat and close without leaving, as a process that is killed."""
        membership = self.membership
        if isinstance(membership, ConsumerMembership):
            await membership._stop()  # noqa: SLF001 (`leave` is a request to the group)
            await membership._beat()  # noqa: SLF001
        else:
            await membership._stop_heartbeats()  # noqa: SLF001
            request = k12.HeartbeatRequest(
                group_id=membership.settings.group_id,
                generation_id=membership.generation,
                member_id=membership.member_id,
            )
            answer = await self.cluster.ask_coordinator(membership.settings.group_id, request)
            assert answer.error_code == 0, answer
        await self.cluster.close()

    async def leave(self) -> None:
        """Leave the group and close."""
        await self.membership.leave()
        await self.cluster.close()


class Crowd:
    """Members of one group that poll side by side."""

    def __init__(self, bootstrap: str, group_id: str, protocol: str) -> None:
        self._bootstrap = bootstrap
        self._group_id = group_id
        self._protocol = protocol
        self._members: list[tuple[Member, asyncio.Task[None]]] = []

    def add(self) -> None:
        """Start one more."""
        member = Member(self._bootstrap, self._group_id, self._protocol)
        task = asyncio.get_running_loop().create_task(member.poll_forever())
        self._members.append((member, task))

    async def remove(self) -> None:
        """Let the last one leave."""
        member, task = self._members.pop()
        task.cancel()
        await member.leave()

    async def remove_all(self) -> None:
        """Let all leave."""
        while self._members:
            await self.remove()

    async def kill(self) -> None:
        """Let the last one die."""
        member, task = self._members.pop()
        task.cancel()
        await member.die()

    async def settle(self) -> float:
        """Seconds until the members own each partition once."""
        begun = time.perf_counter()
        async with asyncio.timeout(SETTLE_SECONDS_MAX):
            while True:
                for _, task in self._members:
                    if task.done():
                        task.result()
                owned = [m.membership.assignment for m, _ in self._members]
                if all(owned) and sum(map(len, owned)) == PARTITIONS:
                    return time.perf_counter() - begun
                await asyncio.sleep(POLL_SECONDS)


async def _handovers(servers: Servers, members: int, protocol: str, rounds: int) -> Handovers:
    crowd = Crowd(servers.bootstrap, f"crowd-{members}-{protocol}", protocol)
    for _ in range(members - 1):
        crowd.add()
    await crowd.settle()
    found = []
    for number in range(rounds):
        await asyncio.sleep(_phase(number, rounds))
        before, begun = servers.cpu(), time.perf_counter()
        crowd.add()
        await crowd.settle()
        join, cpu = time.perf_counter() - begun, servers.cpu() - before
        await asyncio.sleep(_phase(number, rounds))
        before, begun = servers.cpu(), time.perf_counter()
        await crowd.remove()
        await crowd.settle()
        leave = time.perf_counter() - begun
        found.append(Handover(join=join, leave=leave, cpu=cpu + servers.cpu() - before))
    await crowd.remove_all()
    return Handovers(found)


def _phase(number: int, rounds: int) -> float:
    """Seconds after a heartbeat of the others at which a round's change happens."""
    return (number + 0.5) / rounds * HEARTBEAT_MS / 1000


async def _deaths(servers: Servers, members: int, rounds: int) -> Deaths:
    crowds = {
        protocol: Crowd(servers.bootstrap, f"mortal-{members}-{protocol}", protocol)
        for protocol in PROTOCOLS
    }
    for crowd in crowds.values():
        for _ in range(members - 1):
            crowd.add()
        await crowd.settle()
    before, begun = servers.cpu(), time.perf_counter()
    async with asyncio.TaskGroup() as group:
        tasks = {
            protocol: group.create_task(_die(crowd, rounds, after=STAGGER_SECONDS * number))
            for number, (protocol, crowd) in enumerate(crowds.items())
        }
    cpu = (servers.cpu() - before) / (time.perf_counter() - begun)
    for crowd in crowds.values():
        await crowd.remove_all()
    return Deaths({protocol: task.result() for protocol, task in tasks.items()}, cpu)


async def _die(crowd: Crowd, rounds: int, *, after: float) -> list[float]:
    """Seconds from the death of one more member until the others own all partitions, in order."""
    await asyncio.sleep(after)
    took = []
    for number in range(rounds):
        crowd.add()
        await crowd.settle()
        await asyncio.sleep(HEARTBEAT_MS / 1000 + _phase(number, rounds))
        await crowd.kill()
        took.append(await crowd.settle())
    return sorted(took)


async def _join_times(node: NodeProcess) -> list[float]:
    """Milliseconds from the first heartbeat of a member with many topics to its assignment."""
    names = [f"many-{number:04d}" for number in range(MANY_TOPICS)]
    async with Cluster(node.bootstrap) as cluster:
        for first in range(0, MANY_TOPICS, 100):
            topics = [NewTopic(name=name, partitions=1) for name in names[first : first + 100]]
            await Admin(cluster).create_topics(topics)
        await Groups(cluster).commit("group-0", {(TOPIC, 0): Committed(offset=0)})
    subscription = Subscription(topics=frozenset(names))
    return [await _join_time(node, f"many-{number}", subscription) for number in range(JOINS)]


async def _join_time(node: NodeProcess, group_id: str, subscription: Subscription) -> float:
    async with Cluster(node.bootstrap) as cluster:
        settings = GroupSettings(group_id=group_id, protocol=CONSUMER)
        membership = ConsumerMembership(cluster, settings, lambda: subscription, lambda: None)
        await cluster.refresh()
        begun = time.perf_counter()
        while True:
            if len(await membership.ensure_active() or ()) == MANY_TOPICS:
                took = (time.perf_counter() - begun) * 1000
                await membership.leave()
                return took
            await asyncio.sleep(POLL_SECONDS / 10)


@contextmanager
def node_of(
    kind: str, folder: Path, jars: Path, more: Mapping[str, str] = EMPTY
) -> Iterator[NodeProcess]:
    """A running node with the shared topic."""
    overrides = {"offsets.topic.num.partitions": "50", **more}
    node: NodeProcess = (
        BenchKafka(folder / kind, overrides=overrides, jars=jars)
        if kind == "kafka"
        else SparkraftNode(folder / kind, overrides=overrides)
    )
    with node:
        asyncio.run(_make_topic(node.bootstrap))
        yield node


async def _make_topic(bootstrap: str) -> None:
    async with Cluster(bootstrap) as cluster:
        outcome = await Admin(cluster).create_topics([NewTopic(name=TOPIC, partitions=PARTITIONS)])
        assert not isinstance(outcome[TOPIC], KafkaError), outcome


QUICK_HEARTBEATS = {
    "group.consumer.min.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
}
"""The coordinator's for KIP-848 members, by default five seconds; classic ones choose their own."""

SHORT_SESSIONS = {
    "group.consumer.min.session.timeout.ms": str(SESSION_MS),
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    **QUICK_HEARTBEATS,
}


def handover(folder: Path, jars: Path, options: Options) -> list[Row]:
    """A member joins, then leaves, in groups of both protocols."""
    cells = [(members, protocol) for members in options.members for protocol in PROTOCOLS]
    found: dict[str, list[Handovers]] = {}
    memory: dict[str, float] = {}
    for kind in KINDS:
        with node_of(kind, folder, jars, QUICK_HEARTBEATS) as node:
            servers, found[kind] = Servers.of(node), []
            for members, protocol in cells:
                progress(f"{kind}: {members} members, {protocol}")
                measured = _handovers(servers, members, protocol, options.rounds)
                found[kind].append(asyncio.run(measured))
            memory[kind] = rss_mib(servers.pids[0])
    rows: list[Row] = []
    for (members, protocol), ours, kafka in zip(cells, *found.values(), strict=True):
        where = f"{members} members, {PARTITIONS} partitions, {protocol}"
        rows += _handover_rows(where, ours, kafka, has_goal=True)
    rows.append(
        Row("memory after that", f"{memory['sparkraft']:.0f} MiB", f"{memory['kafka']:.0f} MiB",
            memory["sparkraft"] / memory["kafka"], at_most=MEMORY_GOAL)
    )  # fmt: skip
    return rows


def _handover_rows(
    where: str, ours: Handovers, kafka: Handovers, *, has_goal: bool
) -> Iterator[Row]:
    median = f"median of {len(ours.rounds)}"
    for what, one, other in (
        ("joins", ours.join, kafka.join),
        ("leaves", ours.leave, kafka.leave),
    ):
        goal = 1 if has_goal else None
        name = f"a member {what}: {where}: {median}"
        yield Row(name, f"{one:.2f} s", f"{other:.2f} s", one / other, at_most=goal)
    yield Row(
        f"  server CPU of both: {where}: mean of {len(ours.rounds)}",
        f"{ours.cpu:.3f} s", f"{kafka.cpu:.3f} s", ours.cpu / max(kafka.cpu, 0.01),
    )  # fmt: skip


def death(folder: Path, jars: Path, options: Options) -> list[Row]:
    """A member dies, in groups of both protocols at once."""
    found: dict[str, list[Deaths]] = {}
    for kind in KINDS:
        with node_of(kind, folder, jars, SHORT_SESSIONS) as node:
            found[kind] = []
            for members in options.members:
                progress(f"{kind}: deaths among {members} members")
                measured = _deaths(Servers.of(node), members, options.rounds)
                found[kind].append(asyncio.run(measured))
    rows: list[Row] = []
    for members, ours, kafka in zip(options.members, *found.values(), strict=True):
        for protocol in PROTOCOLS:
            where = f"{members} members, {PARTITIONS} partitions, {protocol}"
            rows += _death_rows(where, ours.seconds[protocol], kafka.seconds[protocol])
        what = f"  server CPU while they die: two groups of {members} members, both protocols"
        rows.append(Row(what, f"{ours.cpu:.1%}", f"{kafka.cpu:.1%}", ours.cpu / kafka.cpu))
    return rows


def _death_rows(where: str, ours: Sequence[float], kafka: Sequence[float]) -> Iterator[Row]:
    session = SESSION_MS / 1000
    middle, theirs = statistics.median(ours), statistics.median(kafka)
    step = HEARTBEAT_MS / 1000 / len(kafka)
    yield Row(
        f"a member dies, its session lasts {session:g} s: {where}: median of {len(ours)}",
        f"{middle:.2f} s", f"{theirs:.2f} s", middle / theirs, at_most=round(1 + step / theirs, 3),
    )  # fmt: skip
    yield Row(
        f"  of it after the end of the session: {where}", f"{middle - session:.2f} s",
        f"{theirs - session:.2f} s", (middle - session) / max(theirs - session, POLL_SECONDS),
    )  # fmt: skip
    yield Row(
        "  shortest and longest", f"{ours[0]:.2f} to {ours[-1]:.2f} s",
        f"{kafka[0]:.2f} to {kafka[-1]:.2f} s", None,
    )  # fmt: skip


def topics(folder: Path, jars: Path, _: Options) -> list[Row]:
    """A KIP-848 member joins with many topics."""
    found: dict[str, list[float]] = {}
    for kind in KINDS:
        with node_of(kind, folder, jars) as node:
            progress(f"{kind}: joins with {MANY_TOPICS} topics")
            found[kind] = sorted(asyncio.run(_join_times(node)))
    ours, kafka = (found[kind][JOINS // 2] for kind in ("sparkraft", "kafka"))
    what = f"a KIP-848 member joins with {MANY_TOPICS} topics, until it has its assignment"
    return [
        Row(f"{what}: median of {JOINS}", f"{ours:.0f} ms", f"{kafka:.0f} ms", ours / kafka),
        Row(f"{what}: longest", f"{found['sparkraft'][-1]:.0f} ms", f"{found['kafka'][-1]:.0f} ms",
            None),
    ]  # fmt: skip


async def _commit_each_second(node: NodeProcess) -> tuple[float, float]:
    """Mean time of a commit in ms, and the node's CPU seconds a second."""
    assert node.process is not None
    times: list[float] = []
    async with Cluster(node.bootstrap) as cluster:
        groups = Groups(cluster)

        async def commit(number: int, offset: int) -> None:
            begun = time.perf_counter()
            offsets = {(TOPIC, index): Committed(offset=offset) for index in range(3)}
            outcome = await groups.commit(f"committing-{number}", offsets)
            assert not any(outcome.values()), outcome
            times.append((time.perf_counter() - begun) * 1000)

        for number in range(GROUPS):
            await commit(number, 0)
        times.clear()
        before, begun = cpu_seconds(node.process.pid), time.perf_counter()
        for second in range(COMMIT_SECONDS):
            await asyncio.gather(*(commit(number, second) for number in range(GROUPS)))
            await asyncio.sleep(max(0.0, begun + second + 1 - time.perf_counter()))
        cpu = cpu_seconds(node.process.pid) - before
    return sum(times) / len(times), cpu / (time.perf_counter() - begun)


def commits(folder: Path, jars: Path, _: Options) -> list[Row]:
    """300 groups commit three offsets each second."""
    found = {}
    for kind in KINDS:
        with node_of(kind, folder, jars) as node:
            progress(f"{kind}: {GROUPS} groups")
            found[kind] = asyncio.run(_commit_each_second(node))
    (ours_ms, ours_cpu), (kafka_ms, kafka_cpu) = found["sparkraft"], found["kafka"]
    what = f"{GROUPS} groups that commit each second"
    return [
        Row(f"{what}: a commit", f"{ours_ms:.1f} ms", f"{kafka_ms:.1f} ms", ours_ms / kafka_ms),
        Row(f"  server CPU: {what}", f"{ours_cpu:.1%}", f"{kafka_cpu:.1%}", ours_cpu / kafka_cpu),
    ]


def three(folder: Path, jars: Path, options: Options) -> list[Row]:
    """A member joins, then leaves, in groups of both protocols on three nodes of a kind."""
    found: dict[str, list[Handovers]] = {}
    overrides = {"offsets.topic.num.partitions": "50", **QUICK_HEARTBEATS}
    for kind in KINDS:
        with three_nodes(folder, kind, jars, overrides=overrides) as cluster:
            asyncio.run(_make_topic(cluster.bootstrap))
            servers, found[kind] = Servers(cluster.bootstrap, pids_of(cluster)), []
            for protocol in PROTOCOLS:
                progress(f"three of {kind}: {THREE_MEMBERS} members, {protocol}")
                measured = _handovers(servers, THREE_MEMBERS, protocol, options.rounds)
                found[kind].append(asyncio.run(measured))
    rows: list[Row] = []
    for protocol, ours, kafka in zip(PROTOCOLS, *found.values(), strict=True):
        where = f"{THREE_MEMBERS} members, {PARTITIONS} partitions, {protocol}, {starved()}"
        rows += _handover_rows(where, ours, kafka, has_goal=False)
    return rows


PARTS = {
    "handover": handover,
    "death": death,
    "topics": topics,
    "commits": commits,
    "three": three,
}


def main() -> int:
    """Measure; 1 if a goal is missed."""
    parser = parser_for(__doc__, PARTS)
    parser.add_argument("--members", type=int, nargs="+", default=[10, 100])
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help="joins, leaves and deaths in each group"
    )
    chosen = parser.parse_args()
    title = "Consumer groups beside Apache Kafka 4.3.1, same client"
    return run(
        "groups", title, PARTS, chosen, Options(members=chosen.members, rounds=chosen.rounds)
    )


if __name__ == "__main__":
    sys.exit(main())
