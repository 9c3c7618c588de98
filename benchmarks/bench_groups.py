"""Consumer groups on one node of ours and one of Apache Kafka: hand-overs, deaths and their cost.

Members are our client's memberships without fetches, all in this process, so that what is measured
is the coordinator. The two nodes are measured one after the other.

    ./bench groups --only handover      one part: handover, death, topics, commits
    ./bench groups --members 10         fewer members (default 10 and 100)
    ./bench groups --rounds 9           deaths in each group (default 5)

A coordinator notices a death when the session ends, and the other members learn of it from their
next heartbeats. When that is depends on the phase between the last heartbeat of the dead member and
those of the others: up to an interval, by chance. So the dead member sends its last heartbeat right
before it dies, and the rounds place it evenly in the interval of the others, on both nodes alike.
"""

import asyncio
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from benchmarks.bench_beside_kafka import BenchKafka
from benchmarks.measure import cpu_seconds, rss_mib
from benchmarks.quorums import progress
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
ROUNDS = 5

MANY_TOPICS = 1_000
JOINS = 20
MEMORY_GOAL = 1 / 8
EMPTY: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Options:
    """What the command line said."""

    members: Sequence[int]
    rounds: int


@dataclass(frozen=True)
class Handover:
    """Seconds until all partitions are owned again, and the node's CPU seconds meanwhile."""

    join: float
    leave: float
    cpu: float


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

    def __init__(self, node: NodeProcess, group_id: str, protocol: str) -> None:
        self._node = node
        self._group_id = group_id
        self._protocol = protocol
        self._members: list[tuple[Member, asyncio.Task[None]]] = []

    def add(self) -> None:
        """Start one more."""
        member = Member(self._node.bootstrap, self._group_id, self._protocol)
        task = asyncio.get_running_loop().create_task(member.poll_forever())
        self._members.append((member, task))

    async def remove(self) -> None:
        """Let the last one leave."""
        member, task = self._members.pop()
        task.cancel()
        await member.leave()

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


async def _handover(node: NodeProcess, members: int, protocol: str) -> Handover:
    assert node.process is not None
    crowd = Crowd(node, f"crowd-{members}-{protocol}", protocol)
    for _ in range(members - 1):
        crowd.add()
    await crowd.settle()
    before = cpu_seconds(node.process.pid)
    crowd.add()
    join = await crowd.settle()
    begun = time.perf_counter()
    await crowd.remove()
    await crowd.settle()
    leave = time.perf_counter() - begun
    cpu = cpu_seconds(node.process.pid) - before
    for _ in range(members - 1):
        await crowd.remove()
    return Handover(join=join, leave=leave, cpu=cpu)


async def _deaths(node: NodeProcess, members: int, protocol: str, rounds: int) -> list[float]:
    """Seconds from each member's death until the others own all partitions, in order."""
    crowd = Crowd(node, f"mortal-{members}-{protocol}", protocol)
    for _ in range(members - 1):
        crowd.add()
    took = []
    for number in range(rounds):
        crowd.add()
        await crowd.settle()
        phase = (number + 0.5) / rounds
        await asyncio.sleep((1 + phase) * HEARTBEAT_MS / 1000)
        await crowd.kill()
        begun = time.perf_counter()
        await crowd.settle()
        took.append(time.perf_counter() - begun)
    for _ in range(members - 1):
        await crowd.remove()
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


def handover(folder: Path, jars: Path, options: Options) -> list[Row]:
    """A member joins, then leaves, in groups of both protocols."""
    cells = [(members, protocol) for members in options.members for protocol in (CLASSIC, CONSUMER)]
    found: dict[str, list[Handover]] = {}
    memory: dict[str, float] = {}
    for kind in ("sparkraft", "kafka"):
        with node_of(kind, folder, jars) as node:
            found[kind] = []
            for members, protocol in cells:
                progress(f"{kind}: {members} members, {protocol}")
                found[kind].append(asyncio.run(_handover(node, members, protocol)))
            assert node.process is not None
            memory[kind] = rss_mib(node.process.pid)
    rows = []
    for (members, protocol), ours, kafka in zip(
        cells, found["sparkraft"], found["kafka"], strict=True
    ):
        where = f"{members} members, {PARTITIONS} partitions, {protocol}"
        rows += [
            Row(f"a member joins: {where}", f"{ours.join:.2f} s", f"{kafka.join:.2f} s",
                ours.join / kafka.join, at_most=1),
            Row(f"a member leaves: {where}", f"{ours.leave:.2f} s", f"{kafka.leave:.2f} s",
                ours.leave / kafka.leave, at_most=1),
            Row(f"  server CPU of both: {where}", f"{ours.cpu:.2f} s", f"{kafka.cpu:.2f} s",
                ours.cpu / max(kafka.cpu, 0.01)),
        ]  # fmt: skip
    rows.append(
        Row("memory after that", f"{memory['sparkraft']:.0f} MiB", f"{memory['kafka']:.0f} MiB",
            memory["sparkraft"] / memory["kafka"], at_most=MEMORY_GOAL)
    )  # fmt: skip
    return rows


SHORT_SESSIONS = {
    "group.consumer.min.session.timeout.ms": str(SESSION_MS),
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
}
"""The coordinator's for KIP-848 members; classic ones choose their own."""


def death(folder: Path, jars: Path, options: Options) -> list[Row]:
    """A member dies in groups of both protocols."""
    cells = [(members, protocol) for members in options.members for protocol in (CLASSIC, CONSUMER)]
    found: dict[str, list[list[float]]] = {}
    for kind in ("sparkraft", "kafka"):
        with node_of(kind, folder, jars, SHORT_SESSIONS) as node:
            found[kind] = []
            for members, protocol in cells:
                progress(f"{kind}: deaths among {members} members, {protocol}")
                deaths = _deaths(node, members, protocol, options.rounds)
                found[kind].append(asyncio.run(deaths))
    rows = []
    for (members, protocol), ours, kafka in zip(
        cells, found["sparkraft"], found["kafka"], strict=True
    ):
        what = (
            f"a member dies, its session lasts {SESSION_MS // 1000} s: {members} members, "
            f"{PARTITIONS} partitions, {protocol}"
        )
        middle, theirs = statistics.median(ours), statistics.median(kafka)
        rows += [
            Row(f"{what}: median of {len(ours)}", f"{middle:.2f} s", f"{theirs:.2f} s",
                middle / theirs, at_most=1.1),
            Row("  shortest and longest", f"{ours[0]:.2f} to {ours[-1]:.2f} s",
                f"{kafka[0]:.2f} to {kafka[-1]:.2f} s", None),
        ]  # fmt: skip
    return rows


def topics(folder: Path, jars: Path, _: Options) -> list[Row]:
    """A KIP-848 member joins with many topics."""
    found: dict[str, list[float]] = {}
    for kind in ("sparkraft", "kafka"):
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
    for kind in ("sparkraft", "kafka"):
        with node_of(kind, folder, jars) as node:
            progress(f"{kind}: {GROUPS} groups")
            found[kind] = asyncio.run(_commit_each_second(node))
    (ours_ms, ours_cpu), (kafka_ms, kafka_cpu) = found["sparkraft"], found["kafka"]
    what = f"{GROUPS} groups that commit each second"
    return [
        Row(f"{what}: a commit", f"{ours_ms:.1f} ms", f"{kafka_ms:.1f} ms", ours_ms / kafka_ms),
        Row(f"  server CPU: {what}", f"{ours_cpu:.1%}", f"{kafka_cpu:.1%}", ours_cpu / kafka_cpu),
    ]


PARTS = {"handover": handover, "death": death, "topics": topics, "commits": commits}


def main() -> int:
    """Measure; 1 if a goal is missed."""
    parser = parser_for(__doc__, PARTS)
    parser.add_argument("--members", type=int, nargs="+", default=[10, 100])
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="deaths in each group")
    chosen = parser.parse_args()
    title = "Consumer groups beside Apache Kafka 4.3.1, one node each, same client"
    return run(
        "groups", title, PARTS, chosen, Options(members=chosen.members, rounds=chosen.rounds)
    )


if __name__ == "__main__":
    sys.exit(main())
