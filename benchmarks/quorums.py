"""Clusters of either kind as the benchmarks want them, and what their controllers are asked.

A probe is a client that tries to create a topic every 10 ms until somebody acknowledges it; the
same code asks our nodes and Kafka's. It has its connections before anything is killed, so that
no handshake is part of what is measured.
"""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from benchmarks.bench_beside_kafka import BenchKafka
from sparkraft.base.errors import KafkaError
from sparkraft.client.connection import Connection
from sparkraft.client.values import QuorumInfo
from sparkraft.protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from sparkraft.protocol.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from tests.support.clusters import Cluster, KafkaMember, Kind, Member, SparkraftMember
from tests.support.ports import wait_until

HOST = "127.0.0.1"
RETRY_SECONDS = 0.010
PROBE_SECONDS_MAX = 120
TOPIC = 2
"""The type of a config resource."""


class _BenchKafkaMember(BenchKafka, KafkaMember):
    """Kafka with the heap and flags of its own start script."""


class BenchCluster(Cluster):
    """A cluster whose nodes have their defaults, Kafka's default heap included."""

    kinds: ClassVar[Mapping[Kind, type[SparkraftMember | KafkaMember]]] = {
        "sparkraft": SparkraftMember,
        "kafka": _BenchKafkaMember,
    }


def three_controllers(
    directory: Path, kind: Kind, jars: Path | None, *, brokers: int = 0
) -> BenchCluster:
    """Three controllers of a kind (ids 1 to 3), and brokers beside them (from 11 on)."""
    members = [Member(number, kind, "controller") for number in (1, 2, 3)]
    members += [Member(10 + number, kind, "broker") for number in range(1, brokers + 1)]
    return BenchCluster(directory / kind, members, jars=jars)


def progress(text: str) -> None:
    """Show `text` in the place of what was shown before."""
    if sys.stderr.isatty():
        print(f"\r\033[K  … {text}", end="", file=sys.stderr, flush=True)
    else:
        print(f"  … {text}", file=sys.stderr, flush=True)


def settled(cluster: Cluster, *, seconds: float = 120) -> QuorumInfo:
    """Wait until every voter has what the leader had a moment ago; the quorum as it was then."""
    begun: list[QuorumInfo] = []

    def everyone_caught_up() -> bool:
        with contextlib.suppress(KafkaError, OSError):
            found = cluster.describe_quorum()
            begun.append(found)
            wanted = begun[0].high_watermark
            running = set(cluster.running)
            return all(v.log_end_offset >= wanted for v in found.voters if v.id in running)
        return False

    wait_until(everyone_caught_up, f"the voters caught up\n{cluster.tails()}", seconds)
    return begun[-1]


def strike(cluster: Cluster, node_id: int, how: signal.Signals) -> float:
    """Send a signal to a node; when, by `time.perf_counter`."""
    process = cluster.nodes[node_id].process
    assert process is not None
    begun = time.perf_counter()
    os.kill(process.pid, how)
    return begun


def bury(cluster: Cluster, node_id: int, *, seconds: float = 60) -> None:
    """Wait for the end of a node that was struck."""
    node = cluster.nodes[node_id]
    assert node.process is not None
    node.process.wait(seconds)
    node.process = None


def new_topic(name: str, partitions: int = 1, replication_factor: int = 1) -> CreateTopicsRequest:
    """A request for one topic."""
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replication_factor
    )
    return CreateTopicsRequest(topics=[topic])


class Probe:
    """Tries to create topics over some ports at once; the first acknowledgement ends it."""

    def __init__(self, ports: Sequence[int], name: str) -> None:
        """Connect to nobody yet; topics begin with `name`."""
        self._ports = tuple(ports)
        self._name = name
        self._connections: dict[int, Connection] = {}
        self.created = ""
        """The topic that was acknowledged."""

    async def connect(self) -> None:
        """Connect to every port."""
        for port in self._ports:
            self._connections[port] = await Connection.open(HOST, port, client_id="probe")

    async def first_success(self) -> float:
        """When, by `time.perf_counter`, a creation was first acknowledged."""
        async with asyncio.timeout(PROBE_SECONDS_MAX):
            tries = [asyncio.create_task(self._try(port)) for port in self._ports]
            try:
                done, _ = await asyncio.wait(tries, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tries:
                    task.cancel()
                await asyncio.gather(*tries, return_exceptions=True)
        return min(task.result() for task in done)

    async def _try(self, port: int) -> float:
        number = 0
        while True:
            number += 1
            begun = time.perf_counter()
            name = f"{self._name}-{port}-{number}"
            with contextlib.suppress(KafkaError):
                if await self._created(port, name):
                    self.created = name
                    return time.perf_counter()
            await asyncio.sleep(max(0.0, begun + RETRY_SECONDS - time.perf_counter()))

    async def _created(self, port: int, name: str) -> bool:
        connection = self._connections.get(port)
        if connection is None or connection.is_closed:
            connection = await Connection.open(HOST, port, client_id="probe")
            self._connections[port] = connection
        answer = await connection.send(new_topic(name))
        return bool(answer.topics[0].error_code == 0)

    async def close(self) -> None:
        """Close every connection."""
        for connection in self._connections.values():
            await connection.close()


async def measured(probes: Sequence[Probe], strike_now: Callable[[], float]) -> list[float]:
    """Seconds from a strike to the first success of each probe."""
    for probe in probes:
        await probe.connect()
    begun = strike_now()
    try:
        ends = await asyncio.gather(*(probe.first_success() for probe in probes))
    finally:
        for probe in probes:
            await probe.close()
    return [end - begun for end in ends]


def seconds_until_known(cluster: Cluster, node_id: int, topic: str) -> float:
    """Start a controller; seconds until its image holds `topic`."""
    node = cluster.nodes[node_id]
    port = cluster.ports[node_id][1]
    begun = time.perf_counter()
    node.launch()
    return asyncio.run(_until(lambda: _knows(port, topic))) - begun


async def _until(condition: Callable[[], Awaitable[bool]]) -> float:
    async with asyncio.timeout(PROBE_SECONDS_MAX):
        while True:
            with contextlib.suppress(KafkaError):
                if await condition():
                    return time.perf_counter()
            await asyncio.sleep(RETRY_SECONDS)


async def _knows(port: int, topic: str) -> bool:
    connection = await Connection.open(HOST, port, client_id="probe")
    try:
        resource = DescribeConfigsResource(
            resource_type=TOPIC, resource_name=topic, configuration_keys=["retention.ms"]
        )
        answer = await connection.send(DescribeConfigsRequest(resources=[resource]))
        return bool(answer.results[0].error_code == 0)
    finally:
        await connection.close()
