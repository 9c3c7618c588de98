"""A whole node inside the test's own event loop: real sockets and files, and a disk that fails.

`asyncio.run` gets a loop whose exceptions fail the test. No test waits longer than `PATIENCE_S`.
"""

import asyncio
import errno
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sparkraft.base.env import random_uuid
from sparkraft.client.connection import Connection
from sparkraft.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from sparkraft.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from sparkraft.protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from sparkraft.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from sparkraft.protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from sparkraft.records.record import BatchBuilder, decode_records
from sparkraft.server.config import NodeConfig
from sparkraft.server.env import Env, SystemClock, SystemEntropy, SystemNetwork
from sparkraft.server.node import Node
from sparkraft.storage.disk import OsDisk
from sparkraft.storage.meta_properties import MetaProperties, write_meta_properties
from tests.support.ports import lasting_ports

PATIENCE_S = 120
"""Longer than a loaded machine ever takes; what works takes milliseconds."""
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
NOW_MS = 1_700_000_000_000


class FaultyDisk(OsDisk):
    """The machine's disk, until `fault` says otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.fault: Callable[[str, str], int] = lambda operation, path: 0
        """(operation, path) → errno, 0 for none."""
        self.fsyncs: list[str] = []

    def _check(self, operation: str, path: str) -> None:
        number = self.fault(operation, path)
        if number:
            raise OSError(number, errno.errorcode[number], path)

    def append(self, path: str, buffers: Any) -> None:
        self._check("append", path)
        super().append(path, buffers)

    def mkdir(self, path: str) -> None:
        self._check("mkdir", path)
        super().mkdir(path)

    def move(self, old: str, new: str) -> None:
        self._check("move", old)
        super().move(old, new)

    def fsync_dir(self, path: str) -> None:
        self._check("fsync_dir", path)
        super().fsync_dir(path)

    def pread(self, path: str, count: int, at: int) -> bytes:
        self._check("pread", path)
        return super().pread(path, count, at)

    def fsync(self, path: str) -> None:
        self._check("fsync", path)
        self.fsyncs.append(path)
        super().fsync(path)

    def replace(self, path: str, data: bytes) -> None:
        self._check("replace", path)
        super().replace(path, data)


def make_env(disk: OsDisk | None = None) -> Env:
    return Env(
        clock=SystemClock(),
        entropy=SystemEntropy(),
        network=SystemNetwork(),
        disk=disk or FaultyDisk(),
        executor=ThreadPoolExecutor(2),
    )


def run(test: Coroutine[Any, Any, None]) -> None:
    """Run `test` in a loop of its own; anything nobody caught in it fails the test."""
    uncaught: list[dict[str, Any]] = []

    async def bounded() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: uncaught.append(context))
        async with asyncio.timeout(PATIENCE_S):
            await test

    asyncio.run(bounded())
    assert not uncaught, uncaught


def format_dir(path: Path, *, node_id: int = 1, cluster_id: str = CLUSTER_ID) -> None:
    disk = OsDisk()
    meta = MetaProperties(
        cluster_id=cluster_id, node_id=node_id, directory_id=random_uuid(SystemEntropy())
    )
    write_meta_properties(disk, str(path), meta)
    disk.close()


def config_of(
    *log_dirs: Path, roles: str = "broker,controller", **overrides: str
) -> dict[str, str]:
    """Properties of node 1; underscores in the names of overrides stand for dots."""
    port, controller_port = lasting_ports(2)
    return {
        "process.roles": roles,
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": ",".join(map(str, log_dirs)),
        "offsets.topic.num.partitions": "2",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.num.partitions": "2",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        **{key.replace("_", "."): value for key, value in overrides.items()},
    }


@asynccontextmanager
async def running(properties: dict[str, str], env: Env | None = None):
    node = Node(NodeConfig(properties), env or make_env())
    try:
        await node.start()
        yield node
    finally:
        await node.stop()


@asynccontextmanager
async def node_in(path: Path, env: Env | None = None, **overrides: str):
    """A formatted combined node in `path`."""
    if not (path / "meta.properties").exists():
        format_dir(path)
    async with running(config_of(path, **overrides), env) as node:
        yield node


async def connect(node: Node, listener: str = "PLAINTEXT") -> Connection:
    return await Connection.open("127.0.0.1", node.ports[listener], client_id="test")


async def create_topic(connection: Connection, name: str, partitions: int = 1, **configs: str):
    """Create a topic; return once its partitions are served."""
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )
    answer = await connection.send(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
    assert answer.topics[0].error_code == 0, answer
    await until(lambda: led(connection, name, partitions))
    await until(lambda: served(connection, name, partitions))
    return answer.topics[0].topic_id


async def led(connection: Connection, name: str, partitions: int) -> bool:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False
    )
    topic = (await connection.send(request)).topics[0]
    return len(topic.partitions) == partitions and all(p.leader_id == 1 for p in topic.partitions)


async def served(connection: Connection, name: str, partitions: int) -> bool:
    """Whether every partition exists at its leader."""
    parts = [ListOffsetsPartition(partition_index=n, timestamp=-1) for n in range(partitions)]
    topic = ListOffsetsTopic(name=name, partitions=parts)
    answer = await connection.send(ListOffsetsRequest(replica_id=-1, topics=[topic]))
    return not any(part.error_code for part in answer.topics[0].partitions)


async def until(condition: Callable[[], Any]) -> None:
    """Ask again until it holds, plain or awaitable; the harness's patience bounds it."""
    while True:
        holds = condition()
        if await holds if isinstance(holds, Awaitable) else holds:
            return
        await asyncio.sleep(0.002)


def batch(*values: bytes, key: bytes | None = None, **given: Any) -> bytes:
    builder = BatchBuilder(**given)
    for value in values:
        builder.append(NOW_MS, key, value, [])
    return bytes(builder.build())


def produce(topic_id: Any, records: Any, *, partition: int = 0, acks: int = -1) -> ProduceRequest:
    """A Produce request by topic id; by name where `topic_id` is text."""
    named = {"name": topic_id} if isinstance(topic_id, str) else {"topic_id": topic_id}
    data = PartitionProduceData(index=partition, records=records)
    return ProduceRequest(
        acks=acks,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(partition_data=[data], **named)],
    )


async def append(
    connection: Connection, topic_id: Any, records: Any, *, acks: int = -1, partition: int = 0,
    version: int | None = None,
) -> Any:  # fmt: skip
    """What became of one batch: a `PartitionProduceResponse`."""
    request = produce(topic_id, records, partition=partition, acks=acks)
    answer = await connection.send(request, version=version)
    return answer.responses[0].partition_responses[0]


def fetch(topic_id: Any, offset: int = 0, *, partitions: tuple[int, ...] = (0,), **given: Any):
    """A Fetch request of one topic."""
    part: dict[str, Any] = {"partition_max_bytes": given.pop("partition_max_bytes", 1 << 20)}
    for name in ("current_leader_epoch", "last_fetched_epoch"):
        if name in given:
            part[name] = given.pop(name)
    topics = [
        FetchTopic(
            topic_id=topic_id,
            partitions=[
                FetchPartition(partition=p, fetch_offset=offset, **part) for p in partitions
            ],
        )
    ]
    settings = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 26} | given
    return FetchRequest(topics=topics, **settings)


def values_of(partition_data: Any) -> list[bytes]:
    """The values in a fetched partition."""
    from sparkraft.records.batch import iter_batches

    return [
        record.value
        for _, view in iter_batches(partition_data.records or b"")
        for record in decode_records(view)
    ]
