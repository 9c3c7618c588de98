"""A node in 1 GiB of address space survives clients that do not read their responses."""

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from sparkraft.protocol.messages import k01_fetch as k01
from sparkraft.protocol.messages.k03_metadata import MetadataRequest
from sparkraft.protocol.messages.k15_describe_groups import DescribeGroupsRequest
from sparkraft.protocol.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from tests.support.limited_node import LimitedNode, attacked, batch, connected, frame, receive

pytestmark = [pytest.mark.real_clients, pytest.mark.long]

BATCHES, BATCH_BYTES = 420, 900_000
"""Of the topic `large`: many more windows than a node maps (`storage.mapped`)."""

FETCHED_BYTES = 10 << 20
UNREAD_SECONDS = 8
"""Longer than a node waits for a client to read while responses fill its memory."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LimitedNode]:
    with LimitedNode(tmp_path_factory.mktemp("limited")) as found:
        found.create("large")
        found.create("wide", partitions=1_000)
        for number in range(BATCHES):
            assert (
                found.produce("large", batch(number.to_bytes(4, "big") + bytes(BATCH_BYTES))) == 0
            )
        yield found


def fetch(offset: int) -> bytes:
    """A request for 10 MB of the topic `large`."""
    partition = k01.FetchPartition(
        partition=0, fetch_offset=offset % BATCHES, partition_max_bytes=FETCHED_BYTES
    )
    topic = k01.FetchTopic(topic="large", partitions=[partition])
    request = k01.FetchRequest(max_wait_ms=1, min_bytes=1, max_bytes=FETCHED_BYTES, topics=[topic])
    return frame(request, 12)


@contextlib.contextmanager
def unread(port: int, streams: list[bytes]) -> Iterator[list[socket.socket]]:
    """A client for each stream of requests; none of them reads."""
    clients: list[socket.socket] = []
    try:
        for stream in streams:
            client = connected(port)
            clients.append(client)
            client.setblocking(False)
            # What the node does not take is not sent: it waits in the kernel as long.
            with contextlib.suppress(OSError):
                client.send(stream)
        yield clients
    finally:
        for client in clients:
            client.close()


def serve_meanwhile(node: LimitedNode) -> None:
    """The node appends and answers others while the responses wait."""
    until = time.monotonic() + UNREAD_SECONDS
    while time.monotonic() < until:
        assert node.accepts_records(), node.output_tail()
        time.sleep(0.2)


def fetches(node: LimitedNode) -> None:
    """200 clients x 20 fetches of 10 MB each, from places all over the log."""
    streams = [
        b"".join(fetch(client * 7 + number * 12) for number in range(20)) for client in range(200)
    ]
    with unread(node.port, streams):
        serve_meanwhile(node)


def cold_fetches(node: LimitedNode) -> None:
    """The same of a log that is not in the page cache."""
    for path in node.log_dir.glob("large-0/*.log"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    fetches(node)


def metadata(node: LimitedNode) -> None:
    """200 clients x 3,000 requests for the metadata of all topics."""
    stream = frame(MetadataRequest(topics=None), 9) * 3_000
    with unread(node.port, [stream] * 200):
        serve_meanwhile(node)


def scrapes(node: LimitedNode) -> None:
    """60 clients x 300 requests for /metrics."""
    with unread(node.http_port, [b"GET /metrics HTTP/1.1\r\n\r\n" * 300] * 60):
        serve_meanwhile(node)


def repeated_groups(node: LimitedNode) -> None:
    """DescribeGroups and DescribeConfigs that name one thing very often, from 50 clients."""
    groups = frame(DescribeGroupsRequest(groups=["a-group"] * 1_000), 5)
    resource = DescribeConfigsResource(resource_type=2, resource_name="large")
    configs = frame(DescribeConfigsRequest(resources=[resource] * 10_000, include_synonyms=True), 3)
    with unread(node.port, [groups * 20 + configs * 4] * 50):
        serve_meanwhile(node)


@pytest.mark.parametrize(
    "attack",
    [fetches, cold_fetches, metadata, scrapes, repeated_groups],
    ids=["fetches", "cold fetches", "metadata", "scrapes", "repeated groups"],
)
def test_a_node_in_little_memory_survives_clients_that_do_not_read(
    node: LimitedNode, attack: Callable[[LimitedNode], None]
) -> None:
    with attacked(node):
        attack(node)
    assert "Traceback" not in node.output_tail()


def test_what_was_read_beside_them_is_whole(node: LimitedNode) -> None:
    """A consumer that does read gets its records while responses of others wait."""
    streams = [fetch(client * 2) * 20 for client in range(200)]
    with unread(node.port, streams):
        for offset in range(0, BATCHES, 20):
            with connected(node.port) as client:
                client.sendall(fetch(offset))
                assert offset.to_bytes(4, "big") + bytes(BATCH_BYTES) in receive(client)
    with attacked(node):
        pass
