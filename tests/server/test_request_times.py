"""Histograms of request times: buckets, parts, and what connections count."""

import asyncio
import socket
import struct

import pytest

from benchmarks.produce_counters import counting_statements
from sparkraft.protocol.codec import encode
from sparkraft.server.kafka_metrics import kafka_metrics
from sparkraft.server.network.request_times import BOUNDS_MS, Histogram, RequestTimes
from tests.server.harness import append, batch, connect, create_topic, fetch, node_in, run, until

PREFIX = "kafka_network_requestmetrics_"


def test_buckets_have_inclusive_upper_bounds() -> None:
    histogram = Histogram()
    for duration_ms in (0, 1, 2, 3, 30_000, 30_001):
        histogram.add(duration_ms, 2)
    assert histogram.counts[:3] == [4, 2, 2]
    assert histogram.counts[-2:] == [2, 2]
    assert histogram.total_ms == 2 * (0 + 1 + 2 + 3 + 30_000 + 30_001)


def test_instant_requests_are_durations_of_zero() -> None:
    times = RequestTimes()
    times.on_handled(3, 0, 0)
    times.on_handled(1, 4, 20)
    times.on_waited(1, 2, 300)
    assert times.requests == 5
    sums = RequestTimes()
    times.add_to(sums)
    times.add_to(sums)
    assert sum(sums.total.counts) == 10
    assert sums.total.counts[0] == 6
    assert sums.total.total_ms == 2 * (24 + 303)
    assert (sum(sums.remote.counts), sums.remote.total_ms) == (2, 600)
    assert (sums.queue.total_ms, sums.local.total_ms) == (2 * 5, 2 * 22)


def test_a_response_that_only_waited_took_no_time_in_the_other_parts() -> None:
    times = RequestTimes()
    times.on_waited(0, 0, 300)
    times.on_waited(0, 2, 300)
    times.on_handled(1, 0, 0)
    assert times.requests == 3
    sums = RequestTimes()
    times.add_to(sums)
    assert (sum(sums.total.counts), sums.total.total_ms) == (3, 602)
    assert (sum(sums.remote.counts), sums.remote.total_ms) == (2, 600)
    assert (sum(sums.queue.counts), sums.queue.counts[0], sums.queue.total_ms) == (3, 3, 0)
    assert (sum(sums.local.counts), sums.local.counts[0], sums.local.total_ms) == (3, 2, 2)
    assert sum(sums.send.counts) == 3


def test_the_benchmark_of_the_counters_has_all_of_them() -> None:
    """`./bench console --only counters` measures the statements that the product has."""
    assert len(counting_statements()) == 5


def parts_of(node) -> dict[tuple[str, str], float]:
    """Counts and sums by part, and request."""
    return {
        (sample.name.removeprefix(PREFIX), sample.labels["request"]): sample.value
        for family in kafka_metrics(node)
        for sample in family.samples
        if family.name.startswith(PREFIX) and sample.name.endswith(("_count", "_sum"))
    }


@pytest.mark.parametrize("flush_messages", ["1", None])
def test_each_request_is_in_one_histogram_of_each_part(tmp_path, flush_messages) -> None:
    """An fsync for each batch makes responses wait; without one they are sent at once."""

    async def test() -> None:
        async with node_in(tmp_path) as node:
            client = await connect(node)
            configs = {} if flush_messages is None else {"flush_messages": flush_messages}
            topic = await create_topic(client, "orders", **configs)
            for _ in range(5):
                await append(client, topic, batch(b"x"))
            found = parts_of(node)
            assert found["totaltimems_count", "Produce"] == 5
            assert found["requestqueuetimems_count", "Produce"] == 5
            assert found["localtimems_count", "Produce"] == 5
            waits = 5 if flush_messages else 0
            assert found["remotetimems_count", "Produce"] == waits
            await client.close()

    run(test())


def test_a_long_poll_waits_remotely(tmp_path) -> None:
    async def test() -> None:
        async with node_in(tmp_path) as node:
            client = await connect(node)
            topic = await create_topic(client, "orders")
            before = parts_of(node).get(("remotetimems_sum", "Fetch"), 0)
            await client.send(fetch(topic, max_wait_ms=150, min_bytes=1))
            waited = parts_of(node)["remotetimems_sum", "Fetch"] - before
            assert waited >= 100
            assert waited <= parts_of(node)["totaltimems_sum", "Fetch"]
            assert BOUNDS_MS[-1] >= waited
            await client.close()

    run(test())


def test_only_slow_responses_are_in_the_histogram_of_send_times() -> None:
    times = RequestTimes()
    times.on_handled(5, 0, 0)
    for _ in range(3):
        times.on_unsent()
    times.on_sent(40)
    times.on_sent(60)
    sums = RequestTimes()
    times.add_to(sums)
    assert (sum(sums.send.counts), sums.send.counts[0], sums.send.total_ms) == (4, 2, 100)


def test_a_client_that_reads_slowly_makes_its_response_take_long_to_send(tmp_path) -> None:
    """Eight megabytes are more than the buffers of a socket that receives 64 KB take at once."""

    async def test() -> None:
        async with node_in(tmp_path) as node:
            client = await connect(node)
            topic = await create_topic(client, "orders")
            for _ in range(8):
                await append(client, topic, batch(bytes(1_000_000)))
            assert parts_of(node)["responsesendtimems_sum", "Produce"] == 0
            assert parts_of(node)["responsesendtimems_count", "Produce"] == 8
            reader = socket.socket()
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
            reader.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(reader, ("127.0.0.1", node.ports["PLAINTEXT"]))
            request = fetch(topic, partition_max_bytes=16 << 20)
            frame = struct.pack(">hhih4sb", 1, 17, 7, 4, b"slow", 0) + encode(request, 17)
            await loop.sock_sendall(reader, struct.pack(">i", len(frame)) + frame)
            size = int.from_bytes(await loop.sock_recv(reader, 4), "big")
            assert size > 8_000_000
            await asyncio.sleep(0.3)
            assert parts_of(node)["responsesendtimems_sum", "Fetch"] == 0, "it is not sent yet"
            while size:
                size -= len(await loop.sock_recv(reader, 1 << 20))
            await until(lambda: is_sent(node))
            assert parts_of(node)["responsesendtimems_sum", "Fetch"] >= 250
            assert parts_of(node)["responsesendtimems_count", "Fetch"] == 1
            reader.close()
            await client.close()

    run(test())


async def is_sent(node) -> bool:
    return parts_of(node).get(("responsesendtimems_sum", "Fetch"), 0) > 0
