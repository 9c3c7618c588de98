"""The quorum's controllers beside Apache Kafka's: failover, hand-over, commits, 100,000 partitions.

Three controllers of each kind with their defaults, one kind after the other, and the same probe for
both (`quorums`). Each part can be run by itself and keeps its rows in `.cache/bench`; `--table`
prints all that is kept.

    failover    kill -9 of the active controller, until another one acknowledges a CreateTopics:
                asked of the controllers themselves, and of a broker
    handover    the same by SIGTERM
    commit      one record at a time by IncrementalAlterConfigs; topics a second
    partitions  100,000 of them on brokers that only register and heartbeat: how long a controller
                takes to start and replay, to take over, and what memory each has

Every time is a median of 20 or more, but for the creation of all the many partitions: that is one.
All of it takes some 15 minutes on two cores, and 25 at most where they have other work.
"""

import asyncio
import math
import random
import signal
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from benchmarks import suite
from benchmarks.measure import rss_mib
from benchmarks.quorums import (
    HOST,
    TOPIC,
    BenchCluster,
    Probe,
    bury,
    measured,
    new_topic,
    progress,
    seconds_until_known,
    settled,
    strike,
    three_controllers,
)
from benchmarks.registered_brokers import RegisteredBrokers
from benchmarks.report import Row
from sparkraft.client.admin import Admin
from sparkraft.client.connection import Connection
from sparkraft.client.quorum_admin import witnesses
from sparkraft.protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.support.clusters import Cluster, Kind

KINDS: tuple[Kind, ...] = ("sparkraft", "kafka")
BROKER = 11
"""The one broker beside the three controllers."""

PHASE_SECONDS_MAX = 0.5
"""Kills come at a random moment of the nodes' timers, the same moments for both kinds."""

COMMIT_SERIES = 20
SERIES_COMMITS = 100
WARM_UP_COMMITS = 300
CREATE_WINDOWS = 20
WARM_UP_WINDOWS = 7
WINDOW_TOPICS = 20
MANY_IN_FLIGHT = 32
MANY_WINDOW_TOPICS = 320
"""Ten of each request in flight: what the disk does at a time hardly shows."""

TOPIC_PARTITIONS = 1_000
"""Partitions of a topic, and so of a request, of the many."""

REGISTERED = tuple(range(101, 107))


@dataclass
class Options:
    """What the command line says."""

    kills: int
    partitions: int
    partition_kills: int
    replication_factor: int


@dataclass
class Strikes:
    """What came of striking the active controller again and again; times in ms."""

    direct: list[float] = field(default_factory=list)
    through_broker: list[float] = field(default_factory=list)
    restart: list[float] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)
    """By how many epochs the quorum moved each time: 1 where one election sufficed."""
    candidacies: list[int] = field(default_factory=list)
    """Of the election journals, ours only."""


# ---- failover and hand-over


def struck_again_and_again(cluster: BenchCluster, how: signal.Signals, times: int) -> Strikes:
    """Strike the active controller, measure, restart it; `times` times."""
    seen = Strikes()
    dice = random.Random(1)
    for number in range(1, times + 1):
        struck_once(cluster, how, f"{how.name}-{number}", seen, phase=dice.random())
        progress(
            f"{cluster.directory.name}: {how.name} {number} of {times}, "
            f"{seen.direct[-1]:,.0f} ms, restarted in {seen.restart[-1]:,.0f} ms"
        )
    return seen


def struck_once(
    cluster: BenchCluster, how: signal.Signals, name: str, seen: Strikes, *, phase: float
) -> None:
    """Once; `phase` of 0 to 1 is how far into `PHASE_SECONDS_MAX`."""
    settled(cluster)
    time.sleep(phase * PHASE_SECONDS_MAX)
    before = cluster.describe_quorum()
    old, since = before.leader_id, int(time.time() * 1000)
    survivors = [cluster.ports[n][1] for n in cluster.controllers if n != old]
    probes = [Probe(survivors, f"{name}-direct")]
    if cluster.brokers:
        probes.append(Probe([cluster.ports[BROKER][0]], f"{name}-broker"))
    took = asyncio.run(measured(probes, lambda: strike(cluster, old, how)))
    bury(cluster, old)
    seen.direct.append(took[0] * 1000)
    seen.through_broker += [seconds * 1000 for seconds in took[1:]]
    seen.epochs.append(cluster.describe_quorum().leader_epoch - before.leader_epoch)
    if cluster.members[old].kind == "sparkraft":
        seen.candidacies.append(candidacies(cluster, since))
    seen.restart.append(seconds_until_known(cluster, old, probes[0].created) * 1000)


def candidacies(cluster: Cluster, since: int) -> int:
    """How many elections the controllers' journals tell of since a wall-clock time in ms."""

    async def work(admin: Admin) -> int:
        told, _ = await witnesses(admin.cluster, since_ms=since)
        return sum(entry.kind == "candidate" for one in told for entry in one.entries)

    return cluster.ask(work, controllers=True)


def failover(folder: Path, jars: Path, options: Options) -> list[Row]:
    """kill -9 of the active controller."""
    ours, kafka = (_struck(folder, kind, jars, signal.SIGKILL, options.kills) for kind in KINDS)
    what = "kill -9 of the active controller to a topic created"
    alone = sum(count == 1 for count in ours.candidacies)
    theirs = sum(count == 1 for count in kafka.epochs)
    return [
        *_times(f"{what}: median of {options.kills}", ours.direct, kafka.direct, at_most=0.5),
        *_times(f"{what} through a broker", ours.through_broker, kafka.through_broker, at_most=0.5),
        Row(
            "kills after which one election sufficed",
            f"{alone} of {len(ours.candidacies)}",
            f"{theirs} of {len(kafka.epochs)}",
            alone / len(ours.candidacies),
            at_least=0.95,
        ),
        *_times("restart of a controller to its image complete", ours.restart, kafka.restart),
    ]


def handover(folder: Path, jars: Path, options: Options) -> list[Row]:
    """SIGTERM of the active controller."""
    ours, kafka = (_struck(folder, kind, jars, signal.SIGTERM, options.kills) for kind in KINDS)
    what = "SIGTERM of the active controller to a topic created by the next"
    # Not through a broker: the old controller may still have answered that.
    return _times(f"{what}: median of {options.kills}", ours.direct, kafka.direct)


def _struck(folder: Path, kind: Kind, jars: Path, how: signal.Signals, times: int) -> Strikes:
    progress(f"{kind}: starting")
    with three_controllers(folder, kind, jars, brokers=1) as cluster:
        found = struck_again_and_again(cluster, how, times)
        return found


def _times(
    what: str, ours: Sequence[float], theirs: Sequence[float], *, at_most: float | None = None
) -> list[Row]:
    """Median and maximum of times in ms."""
    rows = []
    for label, pick, limit in (("", statistics.median, at_most), ("  the longest", max, None)):
        a, b = pick(ours), pick(theirs)
        rows.append(Row(label or what, f"{a:,.0f} ms", f"{b:,.0f} ms", a / b, at_most=limit))
    return rows


# ---- commits


@dataclass
class Commits:
    """Figures of one kind."""

    series: list[list[float]]
    """Of single commits, each series sorted, in ms."""
    one: float
    many: float
    """Topics a second, one or `MANY_IN_FLIGHT` requests in flight."""

    def quantile(self, share: float) -> float:
        """The series' median of the time within which a share of their commits was done."""
        place = math.ceil(SERIES_COMMITS * share) - 1
        return statistics.median(times[place] for times in self.series)


def commit(folder: Path, jars: Path, options: Options) -> list[Row]:
    """One record at a time, then topics as fast as they go."""
    del options
    ours, kafka = (_commits(folder, kind, jars) for kind in KINDS)
    rows = []
    series = f"median of {COMMIT_SERIES} series of {SERIES_COMMITS}"
    for label, share in (("p50", 0.5), ("p99", 0.99)):
        a, b = (found.quantile(share) for found in (ours, kafka))
        what = f"commit of one record, three voters: {label}, {series}"
        rows.append(Row(what, f"{a:.2f} ms", f"{b:.2f} ms", a / b))
    for label, size, a, b in (
        ("one request in flight", WINDOW_TOPICS, ours.one, kafka.one),
        (f"{MANY_IN_FLIGHT} in flight", MANY_WINDOW_TOPICS, ours.many, kafka.many),
    ):
        windows = f"median of {CREATE_WINDOWS} times {size}"
        what = f"topics created, {label}: {windows}"
        rows.append(Row(what, f"{a:,.0f} /s", f"{b:,.0f} /s", a / b))
    return rows


def _commits(folder: Path, kind: Kind, jars: Path) -> Commits:
    progress(f"{kind}: starting")
    with three_controllers(folder, kind, jars, brokers=1) as cluster:
        port = cluster.ports[settled(cluster).leader_id][1]
        cluster.create_topic("configured")
        progress(f"{kind}: {COMMIT_SERIES} series of {SERIES_COMMITS} commits")
        series = asyncio.run(_commit_series(port))
        progress(f"{kind}: topics, one in flight")
        one = _rate(port, 1, WINDOW_TOPICS, "one")
        progress(f"{kind}: topics, {MANY_IN_FLIGHT} in flight")
        return Commits(series, one, _rate(port, MANY_IN_FLIGHT, MANY_WINDOW_TOPICS, "many"))


async def _commit_series(port: int) -> list[list[float]]:
    connection = await Connection.open(HOST, port, client_id="bench")
    total = WARM_UP_COMMITS + COMMIT_SERIES * SERIES_COMMITS
    times = [await _commit_time(connection, number) for number in range(total)]
    await connection.close()
    return [
        sorted(times[first : first + SERIES_COMMITS])
        for first in range(WARM_UP_COMMITS, total, SERIES_COMMITS)
    ]


async def _commit_time(connection: Connection, number: int) -> float:
    """Milliseconds that one more record takes; `number` is another each time."""
    entry = AlterableConfig(name="retention.ms", config_operation=0, value=str(1_000_000 + number))
    resource = AlterConfigsResource(
        resource_type=TOPIC, resource_name="configured", configs=[entry]
    )
    begun = time.perf_counter()
    answer = await connection.send(IncrementalAlterConfigsRequest(resources=[resource]))
    took = time.perf_counter() - begun
    assert answer.responses[0].error_code == 0, answer
    return took * 1000


def _rate(port: int, in_flight: int, size: int, name: str) -> float:
    """Topics a second: the median of windows, of `size` topics each, that follow each other."""
    count = (WARM_UP_WINDOWS + CREATE_WINDOWS) * size
    times = asyncio.run(_creation_times(port, in_flight, name, count))
    ends = times[WARM_UP_WINDOWS * size :: size]
    return size / statistics.median(end - begun for begun, end in pairwise(ends))


async def _creation_times(port: int, in_flight: int, name: str, count: int) -> list[float]:
    """When it began, and when each of `count` topics was acknowledged, by `time.perf_counter`.

    A connection for each request in flight: Kafka serves those of one in turn.
    """
    connections = [await Connection.open(HOST, port, client_id="bench") for _ in range(in_flight)]
    numbers = iter(range(count))
    times = [time.perf_counter()]

    async def create(connection: Connection) -> None:
        for number in numbers:
            answer = await connection.send(new_topic(f"{name}-{number}"))
            times.append(time.perf_counter())
            assert answer.topics[0].error_code == 0, answer
        await connection.close()

    await asyncio.gather(*map(create, connections))
    return times


# ---- many partitions


@dataclass
class Many:
    """Figures of one kind with many partitions."""

    created: list[float]
    """Seconds, of each request."""
    strikes: Strikes
    memory: list[float]
    """Of each controller after it all, in MiB, the largest first."""


def partitions(folder: Path, jars: Path, options: Options) -> list[Row]:
    """Many partitions without replicas on a disk."""
    ours, kafka = (_many(folder, kind, jars, options) for kind in KINDS)
    what = f"{options.partitions:,} partitions of {options.replication_factor} replicas"
    a, b = sum(ours.created), sum(kafka.created)
    request = f"  a request for {TOPIC_PARTITIONS:,} of them: median of {len(ours.created)}"
    kills = f"median of {options.partition_kills}"
    return [
        Row(f"{what}: created", f"{a:.1f} s", f"{b:.1f} s", a / b),
        *_times(request, *([s * 1000 for s in found.created] for found in (ours, kafka))),
        *_times(f"{what}: restart of a controller to its image complete: {kills}",
                ours.strikes.restart, kafka.strikes.restart),
        *_times(f"{what}: kill -9 of the active controller to a topic created: {kills}",
                ours.strikes.direct, kafka.strikes.direct, at_most=0.5),
        *_memory(what, ours, kafka),
    ]  # fmt: skip


def _memory(what: str, ours: Many, kafka: Many) -> list[Row]:
    """Of all three controllers."""
    labels = (f"{what}: memory of the largest controller", "  of the second", "  of the smallest")
    return [
        Row(label, f"{a:,.0f} MiB", f"{b:,.0f} MiB", a / b)
        for label, a, b in zip(labels, ours.memory, kafka.memory, strict=True)
    ]


def _many(folder: Path, kind: Kind, jars: Path, options: Options) -> Many:
    progress(f"{kind}: starting")
    with three_controllers(folder, kind, jars) as cluster:
        leader = settled(cluster).leader_id
        ports = [cluster.ports[n][1] for n in cluster.controllers]
        with RegisteredBrokers(ports, REGISTERED) as brokers:
            created = asyncio.run(_create_many(cluster.ports[leader][1], kind, options))
            strikes = struck_again_and_again(cluster, signal.SIGKILL, options.partition_kills)
            settled(cluster)
            assert brokers.alive == len(REGISTERED), f"{brokers.alive} of the brokers are alive"
            pids = [node.process.pid for node in cluster.nodes.values() if node.process]
            return Many(created, strikes, sorted(map(rss_mib, pids), reverse=True))


async def _create_many(port: int, kind: Kind, options: Options) -> list[float]:
    """Seconds of each request."""
    connection = await Connection.open(HOST, port, client_id="bench")
    topics = -(-options.partitions // TOPIC_PARTITIONS)
    times = []
    for number in range(topics):
        count = min(TOPIC_PARTITIONS, options.partitions - number * TOPIC_PARTITIONS)
        request = new_topic(f"many-{number}", count, options.replication_factor)
        begun = time.perf_counter()
        answer = await connection.send(request, timeout_ms=60_000)
        times.append(time.perf_counter() - begun)
        assert answer.topics[0].error_code == 0, answer
        progress(f"{kind}: {number + 1} of {topics} topics")
    await connection.close()
    return times


# ---- the suite

PARTS: dict[str, Callable[[Path, Path, Options], list[Row]]] = {
    "failover": failover,
    "handover": handover,
    "commit": commit,
    "partitions": partitions,
}


def main() -> int:
    """Measure what is asked for; print it, or all that is kept."""
    parser = suite.parser_for(__doc__, PARTS)
    parser.add_argument("--kills", type=int, default=20, help="of failover and handover")
    parser.add_argument("--partitions", type=int, default=100_000)
    parser.add_argument("--partition-kills", type=int, default=20)
    parser.add_argument("--replication-factor", type=int, default=3, help="of the many partitions")
    chosen = parser.parse_args()
    options = Options(
        chosen.kills, chosen.partitions, chosen.partition_kills, chosen.replication_factor
    )
    title = "Three controllers beside Apache Kafka 4.3.1"
    return suite.run("controller", title, PARTS, chosen, options)


if __name__ == "__main__":
    sys.exit(main())
