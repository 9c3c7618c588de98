"""A node in 1 GiB of address space survives requests that are made to fill memory."""

import contextlib
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparkraft.base.errors import ErrorCode
from sparkraft.protocol.api_keys import API_INFO
from sparkraft.protocol.codec import encode_parts
from sparkraft.protocol.declare import Message
from sparkraft.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from sparkraft.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from sparkraft.protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from sparkraft.protocol.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from sparkraft.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from sparkraft.protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from sparkraft.protocol.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from sparkraft.protocol.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
)
from sparkraft.records.compression import Codec
from sparkraft.records.record import BatchBuilder
from tests.support.nodes import SparkraftNode, with_limits
from tests.support.ports import wait_until

pytestmark = [pytest.mark.real_clients, pytest.mark.long]

ADDRESS_SPACE_KB = 1 << 20
RETURNED_BYTES = 160 << 20
"""Resident memory of a node that has freed what an attack took; idle it has half of that."""

RETURN_SECONDS = 30
FRAME_BYTES = 100_000_000
SENT_BYTES = 95_000_000


def frame(request: Message, version: int) -> bytes:
    """One request of the client `attacker`."""
    found = next(k for k, info in API_INFO.items() if info.request_class() is type(request))
    info = API_INFO[found]
    flexible = info.flexible_from is not None and version >= info.flexible_from
    head = struct.pack(">hhih", found, version, 7, 8) + b"attacker" + (b"\x00" if flexible else b"")
    body = head + b"".join(bytes(part) for part in encode_parts(request, version))
    return struct.pack(">i", len(body)) + body


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def receive(client: socket.socket) -> bytes:
    """The response that comes next; nothing if the connection is closed first."""
    answer = bytearray()
    while len(answer) < 4 or len(answer) < 4 + struct.unpack_from(">i", answer)[0]:
        chunk = client.recv(1 << 20)
        if not chunk:
            return b""
        answer += chunk
    return bytes(answer)


def ask(port: int, request: Message, version: int) -> bytes:
    with connected(port) as client:
        client.sendall(frame(request, version))
        return receive(client)


class LimitedNode(SparkraftNode):
    """A node in little address space."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, overrides={"group.initial.rebalance.delay.ms": "0"})
        self.prefix = with_limits(f"ulimit -v {ADDRESS_SPACE_KB}")

    @property
    def resident_bytes(self) -> int:
        """Of its own memory, without the files it maps."""
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("RssAnon"))
        return int(line.split()[1]) * 1024

    def produce(self, topic: str, data: bytes, *, acks: int = 1) -> bytes:
        partition = PartitionProduceData(index=0, records=data)
        wanted = TopicProduceData(name=topic, partition_data=[partition])
        request = ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[wanted])
        return ask(self.port, request, 9)

    def create(self, topic: str, **configs: str) -> None:
        settings = [
            CreatableTopicConfig(name=name.replace("_", "."), value=value)
            for name, value in configs.items()
        ]
        wanted = CreatableTopic(
            name=topic, num_partitions=1, replication_factor=1, configs=settings
        )
        assert ask(self.port, CreateTopicsRequest(topics=[wanted], timeout_ms=30_000), 5)


def batch(value: bytes, *, codec: Codec = Codec.NONE, records: int = 1) -> bytes:
    builder = BatchBuilder(codec=codec)
    for _ in range(records):
        builder.append(int(time.time() * 1000), b"k", value)
    return builder.build()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LimitedNode]:
    with LimitedNode(tmp_path_factory.mktemp("limited")) as found:
        found.create("plain")
        found.create("compacted", cleanup_policy="compact", max_message_bytes=str(100 << 20))
        yield found


@contextlib.contextmanager
def attacked(node: LimitedNode) -> Iterator[None]:
    """The node serves afterwards, and its memory returns."""
    yield
    assert node.process is not None
    assert node.process.poll() is None, node.output_tail()
    since = time.monotonic()
    wait_until(lambda: node.produce("plain", batch(b"still here")), "it serves", RETURN_SECONDS)
    left = RETURN_SECONDS - (time.monotonic() - since)
    wait_until(
        lambda: node.resident_bytes < RETURNED_BYTES,
        f"its memory returns, {node.resident_bytes >> 20} MiB",
        left,
    )


def commit_large_metadata(node: LimitedNode, group: str) -> None:
    """A hundred offsets with 4 KB of metadata each."""
    ask(node.port, FindCoordinatorRequest(key=group, key_type=0), 3)
    node.create("many")
    partitions = [
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=1, committed_metadata="m" * 4_000
        )
        for index in range(100)
    ]
    topic = OffsetCommitRequestTopic(name="many", partitions=partitions)
    request = OffsetCommitRequest(group_id=group, topics=[topic])
    wait_until(lambda: ask(node.port, request, 7)[-2:] == b"\0\0", "the offsets are committed")


def repeated_configs(node: LimitedNode) -> None:
    """A3: DescribeConfigs that names a broker 3,000 times."""
    resources = [DescribeConfigsResource(resource_type=4, resource_name="1")] * 3_000
    request = DescribeConfigsRequest(
        resources=resources, include_synonyms=True, include_documentation=True
    )
    for _ in range(2):
        with contextlib.suppress(OSError):
            ask(node.port, request, 3)


def repeated_groups(node: LimitedNode) -> None:
    """A4: OffsetFetch that names a group 5,000 times."""
    commit_large_metadata(node, "large")
    groups = [OffsetFetchRequestGroup(group_id="large", topics=None)] * 5_000
    with connected(node.port) as client, contextlib.suppress(OSError):
        client.sendall(frame(OffsetFetchRequest(groups=groups), 8))
        client.recv(1)


def half_requests(node: LimitedNode, port: int) -> None:
    """A5: twenty clients send most of a request and wait."""
    clients = []
    try:
        for _ in range(20):
            client = connected(port)
            client.settimeout(2)
            clients.append(client)
            head = struct.pack(">i", FRAME_BYTES) + frame(MetadataRequest(topics=[]), 9)[4:14]
            with contextlib.suppress(OSError):
                client.sendall(head + bytes(SENT_BYTES))
        assert node.produce("plain", batch(b"meanwhile"))
        assert node.produce("plain", batch(bytes(900_000))), "a request in pieces is served"
    finally:
        for client in clients:
            client.close()


def invented_topics(node: LimitedNode) -> None:
    """A8: Metadata of 100,000 names that do not exist."""
    topics = [MetadataRequestTopic(name=f"inv-{number}") for number in range(100_000)]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=True)
    with contextlib.suppress(OSError):
        ask(node.port, request, 9)


def bombs(node: LimitedNode) -> None:
    """Twelve batches at once that inflate to much more than they are, for a compacted topic."""
    codecs = (Codec.LZ4, Codec.ZSTD, Codec.GZIP, Codec.SNAPPY)
    clients = []
    try:
        for number in range(12):
            data = batch(bytes(90 << 20), codec=codecs[number % len(codecs)])
            partition = PartitionProduceData(index=0, records=data)
            topic = TopicProduceData(name="compacted", partition_data=[partition])
            request = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[topic])
            client = connected(node.port)
            clients.append(client)
            client.sendall(frame(request, 9))
        for client in clients:
            with contextlib.suppress(OSError):
                receive(client)
    finally:
        for client in clients:
            client.close()


def subscriptions(node: LimitedNode) -> None:
    """Two hundred members of consumer groups, each with 20,000 topic names."""
    ask(node.port, FindCoordinatorRequest(key="g", key_type=0), 3)
    names = [f"a-topic-that-does-not-exist-{index:05d}" for index in range(20_000)]
    refused = 0
    with connected(node.port) as client:
        for number in range(200):
            joining = ConsumerGroupHeartbeatRequest(
                group_id=f"g{number}", member_id="m", member_epoch=0, rebalance_timeout_ms=1_000,
                subscribed_topic_names=names, topic_partitions=[],
            )  # fmt: skip
            client.sendall(frame(joining, 1))
            code = struct.unpack_from(">h", receive(client), 4 + 4 + 1 + 4)[0]
            refused += code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        for number in range(200):
            leaving = ConsumerGroupHeartbeatRequest(
                group_id=f"g{number}", member_id="m", member_epoch=-1
            )
            client.sendall(frame(leaving, 1))
            receive(client)
    assert 100 < refused < 200, refused


@pytest.mark.parametrize(
    "attack",
    [
        repeated_configs,
        repeated_groups,
        lambda node: half_requests(node, node.port),
        lambda node: half_requests(node, node.controller_port),
        invented_topics,
        bombs,
        subscriptions,
    ],
    ids=[
        "configs",
        "groups",
        "half requests",
        "half requests to the controller",
        "names",
        "bombs",
        "subscriptions",
    ],
)
def test_a_node_in_little_memory_survives(
    node: LimitedNode, attack: Callable[[LimitedNode], None]
) -> None:
    with attacked(node):
        attack(node)
    assert "Traceback" not in node.output_tail()
