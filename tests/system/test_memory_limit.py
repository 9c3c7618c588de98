"""A node in 1 GiB of address space survives requests that are made to fill memory."""

import contextlib
import random
import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from sparkraft.base.errors import ErrorCode
from sparkraft.protocol.messages import k01_fetch as k01
from sparkraft.protocol.messages import k21_delete_records as k21
from sparkraft.protocol.messages import k27_write_txn_markers as k27
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
from sparkraft.protocol.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from sparkraft.protocol.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
)
from sparkraft.records.compression import Codec
from tests.support.limited_node import (
    LimitedNode,
    ask,
    attacked,
    batch,
    connected,
    frame,
    produce_request,
    receive,
)
from tests.support.ports import wait_until

if TYPE_CHECKING:
    from sparkraft.protocol.declare import Message

pytestmark = [pytest.mark.real_clients, pytest.mark.long]

FRAME_BYTES = 100_000_000
SENT_BYTES = 95_000_000
LARGE_BYTES = 104_857_600 - 1_000
ENTRIES = 990_000
"""Of one request: nearly a million elements."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LimitedNode]:
    with LimitedNode(tmp_path_factory.mktemp("limited")) as found:
        yield found


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
        assert node.produce("plain", batch(b"meanwhile")) == 0
        assert node.produce("plain", batch(bytes(900_000))) == 0, "a request in pieces is served"
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
            client = connected(node.port)
            clients.append(client)
            client.sendall(produce_request("compacted", data))
        for client in clients:
            with contextlib.suppress(OSError):
                receive(client)
    finally:
        for client in clients:
            client.close()


def empty_records(node: LimitedNode) -> None:
    """A7: eight batches at once with 450,000 records without a value."""
    data = produce_request("compacted", batch(b"", codec=Codec.ZSTD, records=450_000))
    clients = [connected(node.port) for _ in range(8)]
    try:
        for client in clients:
            client.sendall(data)
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


def very_many_entries(node: LimitedNode) -> None:
    """Requests of nearly as many elements as one may have, about partitions that do not exist."""
    everyone = range(1, ENTRIES)
    parts = [PartitionProduceData(index=index, records=None) for index in everyone]
    deleted = [k21.DeleteRecordsPartition(partition_index=index) for index in everyone]
    marked = k27.WritableTxnMarkerTopic(name="plain", partition_indexes=list(everyone))
    fetched = [k01.FetchPartition(partition=index) for index in everyone[: ENTRIES // 2]]
    requests: list[tuple[Message, int]] = [
        (
            ProduceRequest(
                acks=1, topic_data=[TopicProduceData(name="plain", partition_data=parts)]
            ),
            9,
        ),
        (
            k21.DeleteRecordsRequest(
                topics=[k21.DeleteRecordsTopic(name="plain", partitions=deleted)]
            ),
            2,
        ),
        (
            k27.WriteTxnMarkersRequest(
                markers=[k27.WritableTxnMarker(producer_id=5, producer_epoch=0, topics=[marked])]
            ),
            1,
        ),
        (
            k01.FetchRequest(
                max_wait_ms=1, topics=[k01.FetchTopic(topic="plain", partitions=fetched)]
            ),
            12,
        ),
    ]
    for request, version in requests:
        answer = ask(node.port, request, version)
        assert len(answer) > ENTRIES, (request.SCHEMA.name, len(answer), node.output_tail())


@pytest.mark.parametrize(
    "attack",
    [
        repeated_configs,
        repeated_groups,
        lambda node: half_requests(node, node.port),
        lambda node: half_requests(node, node.controller_port),
        invented_topics,
        bombs,
        empty_records,
        subscriptions,
        very_many_entries,
    ],
    ids=[
        "configs",
        "groups",
        "half requests",
        "half requests to the controller",
        "names",
        "bombs",
        "empty records",
        "subscriptions",
        "entries",
    ],
)
def test_a_node_in_little_memory_survives(
    node: LimitedNode, attack: Callable[[LimitedNode], None]
) -> None:
    with attacked(node):
        attack(node)
    assert "Traceback" not in node.output_tail()


def test_a_batch_of_nearly_100_mib_is_stored_and_read(node: LimitedNode) -> None:
    """As by Kafka, whose socket.request.max.bytes is 100 MiB."""
    node.create("large", max_message_bytes=str(100 << 20))
    value = random.Random(1).randbytes(LARGE_BYTES)
    with attacked(node):
        assert node.produce("large", batch(value)) == 0
        partition = k01.FetchPartition(partition=0, partition_max_bytes=1 << 20)
        request = k01.FetchRequest(
            max_wait_ms=1, topics=[k01.FetchTopic(topic="large", partitions=[partition])]
        )
        assert value in ask(node.port, request, 12)
