"""Clients that hold a node up without meaning harm: thousands idle, deaf ones, very slow ones.

What a single connection does with each of them is held in `tests/server/test_connection.py`; here
a real process has to live with all of them while an ordinary client goes on as if alone.
"""

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from sparkraft.protocol.codec import encode
from sparkraft.protocol.headers import RequestHeader
from sparkraft.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from tests.support.nodes import SparkraftNode

pytestmark = pytest.mark.real_clients

IDLE = 5_000
FILES_NEEDED = 2 * IDLE
DEAF, SLOW = 20, 200
REQUESTS_OF_THE_DEAF = 1_000
LARGE_BYTES = 400_000
RSS_BYTES_MAX = 200 << 20
"""5,000 connections and all that deaf clients asked for must fit in; without bounds the answers
alone would be forty times as much."""


def framed(request: bytes) -> bytes:
    return len(request).to_bytes(4, "big") + request


def metadata_request() -> bytes:
    """Metadata v1 of no topics, header v1."""
    return framed(bytes.fromhex("0003 0001 00000001 0004 736c6f77 00000000"))


def fetch_request() -> bytes:
    """Fetch v4 of 400 KB from the start of `large`."""
    header = RequestHeader(
        request_api_key=1, request_api_version=4, correlation_id=1, client_id="deaf"
    )
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=LARGE_BYTES)
    body = FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=LARGE_BYTES,
        topics=[FetchTopic(topic="large", partitions=[part])],
    )
    return framed(encode(header, 1) + encode(body, 4))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkraftNode]:
    with SparkraftNode(tmp_path_factory.mktemp("odd")) as started:
        fill_large(started)
        yield started
        if started.process is not None:
            assert started.stop() == 0


def fill_large(node: SparkraftNode) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": node.bootstrap})
    for _ in range(4):
        producer.produce("large", bytes(LARGE_BYTES // 4))
        assert producer.flush(30) == 0


def ordinary_client_works(node: SparkraftNode) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition

    producer = Producer({"bootstrap.servers": node.bootstrap, "message.timeout.ms": 30_000})
    refused: list[object] = []
    for number in range(100):
        producer.produce(
            "small", b"%d" % number, on_delivery=lambda e, _: refused.append(e) if e else None
        )
    assert producer.flush(30) == 0
    assert not refused
    consumer = Consumer(
        {"bootstrap.servers": node.bootstrap, "group.id": "g", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition("small", 0, 0)])
    assert len(consumer.consume(100, timeout=30)) == 100
    consumer.close()


def rss_bytes(node: SparkraftNode) -> int:
    assert node.process is not None
    for line in Path(f"/proc/{node.process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


def test_deaf_clients_and_slow_ones_hold_up_nobody(node: SparkraftNode) -> None:
    request, wish = metadata_request(), fetch_request()
    with socket.create_connection(("127.0.0.1", node.port), 30) as hearing:
        hearing.send(wish)
        assert int.from_bytes(hearing.recv(4, socket.MSG_WAITALL)) > LARGE_BYTES / 2
    with ExitStack() as stack:
        for _ in range(DEAF):
            deaf = stack.enter_context(socket.create_connection(("127.0.0.1", node.port), 30))
            deaf.setblocking(False)
            try:
                for _ in range(REQUESTS_OF_THE_DEAF):
                    deaf.send(wish)
            except BlockingIOError:
                pass  # The node reads no further from who doesn't read: just what it should do.
        slow = [
            stack.enter_context(socket.create_connection(("127.0.0.1", node.port), 30))
            for _ in range(SLOW)
        ]
        for place in range(len(request) - 1):
            for connection in slow:
                connection.send(request[place : place + 1])
        ordinary_client_works(node)
        for connection in slow:
            connection.send(request[-1:])
        for connection in slow:
            assert connection.recv(4, socket.MSG_WAITALL) > bytes(4), "each is answered"
        assert rss_bytes(node) < RSS_BYTES_MAX
    ordinary_client_works(node)


def test_thousands_of_idle_connections_cost_little_and_the_node_still_stops(
    node: SparkraftNode,
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < FILES_NEEDED:
        pytest.skip(f"needs {FILES_NEEDED} open files, and the limit is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, FILES_NEEDED), hard))
    with ExitStack() as stack:
        for _ in range(IDLE):
            stack.enter_context(socket.create_connection(("127.0.0.1", node.port), 30))
        ordinary_client_works(node)
        assert rss_bytes(node) < RSS_BYTES_MAX
        assert node.stop() == 0, "with all of them still connected"
