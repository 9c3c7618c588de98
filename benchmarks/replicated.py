"""Three combined nodes with replicated topics, and what a replication benchmark asks of them."""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from benchmarks.measure import has_files, rss_mib
from benchmarks.quorums import HOST, PROBE_SECONDS_MAX, RETRY_SECONDS, BenchCluster
from sparkraft.base.errors import KafkaError
from sparkraft.client.admin import Admin
from sparkraft.client.cluster import TopicInfo
from sparkraft.client.connection import Connection
from sparkraft.client.values import NewTopic
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from sparkraft.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from sparkraft.protocol.messages.k43_elect_leaders import ElectLeadersRequest, TopicPartitions
from sparkraft.protocol.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from sparkraft.protocol.messages.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from sparkraft.records.record import BatchBuilder
from tests.support.clusters import Kind, Member
from tests.support.ports import wait_until

REPLICAS = 3
EMPTY: Mapping[str, str] = MappingProxyType({})
_LOOKING = -1
"""The purpose of a connection that asks who leads; a partition's number is another."""

PRODUCE_VERSION_MAX = 12
"""The last one that names topics; the ids of v13 would have to be asked for first."""


def three_nodes(
    directory: Path, kind: Kind, jars: Path | None, *, overrides: Mapping[str, str] = EMPTY
) -> BenchCluster:
    """Three nodes that are broker and controller, with `overrides` besides."""
    members = [Member(number, kind) for number in (1, 2, 3)]
    # Two keys aren't the defaults, so that bytes of deleted topics go at once: docs/PERFORMANCE.md.
    given = {
        "offsets.topic.replication.factor": "3",
        "log.segment.delete.delay.ms": "100",
        "log.retention.check.interval.ms": "500",
        **overrides,
    }
    return BenchCluster(directory / kind, members, jars=jars, overrides=given)


def starved() -> str:
    """Label of rows whose three nodes share this machine's cores with their clients."""
    return f"three nodes, starved on {len(os.sched_getaffinity(0))} cores"


def pids_of(cluster: BenchCluster) -> list[int]:
    """The processes that run."""
    return [node.process.pid for node in cluster.nodes.values() if node.process]


def memory_of(cluster: BenchCluster) -> list[float]:
    """MiB of each node that runs, the largest first."""
    return sorted(map(rss_mib, pids_of(cluster)), reverse=True)


def make_topic(
    cluster: BenchCluster,
    name: str,
    partitions: int = -1,
    *,
    assignment: Mapping[int, list[int]] | None = None,
) -> None:
    """Create a topic and return when all its replicas are in sync everywhere."""
    replicas = len(assignment[0]) if assignment else REPLICAS
    topic = NewTopic(
        name=name,
        partitions=-1 if assignment else partitions,
        replication_factor=-1 if assignment else REPLICAS,
        assignment=assignment or {},
        configs={"min.insync.replicas": str(max(1, replicas - 1))},
    )

    async def work(admin: Admin) -> None:
        created = (await admin.create_topics([topic]))[name]
        if isinstance(created, KafkaError):
            raise created

    cluster.ask(work, timeout_ms=60_000)
    wait_until(
        lambda: fully_replicated(cluster, name, replicas=replicas), f"{name} is in sync", 120
    )


def drop_topic(cluster: BenchCluster, name: str) -> None:
    """Delete a topic and return when its bytes are gone from every disk."""

    async def work(admin: Admin) -> None:
        error = (await admin.delete_topics([name]))[name]
        if error is not None:
            raise error

    cluster.ask(work, timeout_ms=60_000)
    folders = [node.log_dir for node in cluster.nodes.values()]
    wait_until(
        lambda: not any(has_files(folder, name) for folder in folders),
        f"{name} is removed",
        120,
    )


def fully_replicated(cluster: BenchCluster, topic: str, *, replicas: int = REPLICAS) -> bool:
    """Whether every partition has a leader and all its replicas in sync, as every node tells."""

    async def work(admin: Admin) -> TopicInfo | KafkaError:
        return (await admin.describe_topics([topic]))[topic]

    for node in cluster.brokers:
        try:
            found = cluster.ask(work, of=node, timeout_ms=5_000)
        except (KafkaError, OSError):
            return False
        if isinstance(found, KafkaError):
            return False
        if not all(p.leader >= 0 and len(p.isr) == replicas for p in found.partitions.values()):
            return False
    return True


async def _to_controller(cluster: BenchCluster) -> Connection:
    async def active(admin: Admin) -> int:
        return (await admin.describe_quorum()).leader_id

    leader = await asyncio.to_thread(cluster.ask, active, controllers=True)
    return await Connection.open(HOST, cluster.ports[leader][1], client_id="bench")


def elect_preferred(cluster: BenchCluster, topic: str, partitions: int) -> None:
    """Give every partition its first replica as leader."""

    async def work() -> None:
        connection = await _to_controller(cluster)
        places = [TopicPartitions(topic=topic, partitions=list(range(partitions)))]
        request = ElectLeadersRequest(election_type=0, topic_partitions=places)
        answer = await connection.send(request)
        assert answer.error_code == 0, answer
        await connection.close()

    asyncio.run(work())


def reassigned(cluster: BenchCluster, topic: str, replicas: Sequence[int]) -> float:
    """Move partition 0 of `topic`; seconds until the controller has completed it."""

    async def work() -> float:
        connection = await _to_controller(cluster)
        partition = ReassignablePartition(partition_index=0, replicas=list(replicas))
        wanted = ReassignableTopic(name=topic, partitions=[partition])
        begun = time.perf_counter()
        answer = await connection.send(AlterPartitionReassignmentsRequest(topics=[wanted]))
        assert answer.responses[0].partitions[0].error_code == 0, answer
        async with asyncio.timeout(PROBE_SECONDS_MAX):
            while True:
                left = await connection.send(ListPartitionReassignmentsRequest(topics=None))
                if not left.topics:
                    break
                await asyncio.sleep(RETRY_SECONDS)
        took = time.perf_counter() - begun
        await connection.close()
        return took

    return asyncio.run(work())


class Writers:
    """Writes a record to every partition with acks=all, tried every 10 ms until it is accepted.

    Who leads is asked of the nodes in turn, every 10 ms as well: nothing here waits longer than a
    client that retries eagerly would.
    """

    def __init__(self, ports: Sequence[int], topic: str, partitions: int) -> None:
        """Nothing is sent yet; `ports` are client listeners."""
        self._ports = tuple(ports)
        self._topic = topic
        self._partitions = partitions
        self._connections: dict[tuple[int, int], Connection] = {}
        """By port and purpose: a parked Produce would hold up what comes behind it."""
        self._leaders: dict[int, int] = {}
        """Partition → port."""

    async def seconds_until_all_accepted(self, strike_now: Callable[[], float]) -> float:
        """Seconds from a strike until each partition has accepted one write begun after it."""
        for port in self._ports:
            for purpose in (_LOOKING, *range(self._partitions)):
                await self._connection(port, purpose)
        begun = strike_now()
        looking = asyncio.create_task(self._look())
        try:
            async with asyncio.timeout(PROBE_SECONDS_MAX):
                ends = await asyncio.gather(
                    *(self._accepted(number) for number in range(self._partitions))
                )
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
            for connection in self._connections.values():
                await connection.close()
        return max(ends) - begun

    async def _connection(self, port: int, purpose: int) -> Connection:
        connection = self._connections.get((port, purpose))
        if connection is None or connection.is_closed:
            connection = await Connection.open(HOST, port, client_id="probe")
            self._connections[port, purpose] = connection
        return connection

    async def _look(self) -> None:
        """Keep up with who leads."""
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name=self._topic)])
        turn = 0
        while True:
            turn += 1
            with contextlib.suppress(KafkaError):
                connection = await self._connection(self._ports[turn % len(self._ports)], _LOOKING)
                answer = await connection.send(wanted)
                ports = {broker.node_id: broker.port for broker in answer.brokers}
                for partition in answer.topics[0].partitions:
                    if partition.leader_id in ports:
                        self._leaders[partition.partition_index] = ports[partition.leader_id]
            await asyncio.sleep(RETRY_SECONDS)

    async def _accepted(self, partition: int) -> float:
        while True:
            begun = time.perf_counter()
            with contextlib.suppress(KafkaError):
                if await self._write(partition):
                    return time.perf_counter()
            await asyncio.sleep(max(0.0, begun + RETRY_SECONDS - time.perf_counter()))

    async def _write(self, partition: int) -> bool:
        port = self._leaders.get(partition)
        if port is None:
            return False
        connection = await self._connection(port, partition)
        builder = BatchBuilder()
        builder.append(int(time.time() * 1000), None, b"probe", [])
        place = PartitionProduceData(index=partition, records=builder.build())
        request = ProduceRequest(
            acks=-1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name=self._topic, partition_data=[place])],
        )
        version = connection.version_for(ApiKey.PRODUCE, at_most=PRODUCE_VERSION_MAX)
        answer = await connection.send(request, version=version, timeout_ms=60_000)
        return bool(answer.responses[0].partition_responses[0].error_code == 0)
