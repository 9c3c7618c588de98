"""How many connections come in a second, and how much memory their requests may take."""

import asyncio
import socket
import struct
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparkraft.base.ids import Millis
from sparkraft.metadata.image import ResourceType
from sparkraft.server.config import NodeConfig
from sparkraft.server.network.connection_rate import AcceptLine, ConnectionRates, CreationRate
from sparkraft.server.network.request_memory import (
    CHECK_MS,
    DEFAULT_BYTES,
    PROGRESS_BYTES_MIN,
    RESERVE_DIVISOR,
    SMALL_DIVISOR,
    RequestMemory,
    bound_of,
)
from sparkraft.simulation.world.loop import SimLoop
from tests.server.harness import (
    append,
    batch,
    config_of,
    connect,
    create_topic,
    node_in,
    run,
    until,
)
from tests.server.test_dynamic_configs import alter

SMALL = DEFAULT_BYTES // SMALL_DIVISOR

RATE = "max.connection.creation.rate"


def test_a_burst_passes_after_a_quiet_time_and_then_the_rate_holds() -> None:
    """Kafka's Rate: over ten whole windows at least, and no wait beyond one."""
    rate = CreationRate(windows=11, window_ms=1_000, per_second_max=2)
    assert [rate.record(5_000) for _ in range(20)] == [0] * 20
    now, admitted = 5_000, []
    for _ in range(20):
        now += rate.record(now)
        admitted.append(now)
    assert all(now - before <= 1_000 for before, now in pairwise(admitted))
    assert admitted[0] == 5_500
    assert admitted[-1] - admitted[0] >= 9_000
    assert rate.record(admitted[-1] + 20_000) == 0, "what is long ago counts no more"


def test_no_rate_means_a_window_s_wait_and_no_limit_none() -> None:
    assert CreationRate(windows=11, window_ms=700, per_second_max=0).record(1) == 700
    free = CreationRate(windows=11, window_ms=700)
    assert {free.record(1) for _ in range(100_000)} == {0}


class Visitor:
    """A connection as the line sees it."""

    def __init__(self) -> None:
        self.rests = False
        self.served_at_ms = -1

    def pause_reading(self) -> None:
        self.rests = True

    def run(self) -> None:
        self.served_at_ms = round(asyncio.get_running_loop().time() * 1000)


def test_who_comes_too_soon_waits_in_line_and_those_behind_it_too() -> None:
    async def test() -> list[Visitor]:
        loop = asyncio.get_running_loop()
        clock: Any = SimpleNamespace(mono_ms=lambda: round(loop.time() * 1000))
        rate = CreationRate(windows=2, window_ms=1_000, per_second_max=2)
        line = AcceptLine([rate, CreationRate(windows=2, window_ms=1_000)], clock)
        visitors: list[Any] = [Visitor() for _ in range(6)]
        for visitor in visitors:
            line.enter(visitor)
        assert len(line) == 4
        await until(lambda: not len(line))
        return visitors

    loop = SimLoop()
    try:
        visitors = loop.run_until_complete(test())
    finally:
        loop.close()
    assert [visitor.rests for visitor in visitors] == [False] * 2 + [True] * 4
    served = [visitor.served_at_ms for visitor in visitors[2:]]
    assert served == sorted(served)
    assert served[0] == 500
    assert served[-1] >= 1_500


def test_listeners_have_limits_of_their_own_and_brokers_come_past_the_shared_one(tmp_path) -> None:
    properties = config_of(tmp_path) | {
        "listeners": "A://127.0.0.1:1,B://127.0.0.1:2,CONTROLLER://127.0.0.1:3",
        "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "B",
        RATE: "7",
        f"listener.name.a.{RATE}": "5",
    }
    rates = ConnectionRates(NodeConfig(properties))

    def limits(name: str) -> list[int]:
        return [rate.per_second_max for rate in rates.of(name)]

    assert (limits("A"), limits("B"), limits("CONTROLLER")) == ([5, 7], [7], [7, 7])
    assert rates.of("A")[1] is not rates.of("CONTROLLER")[1]


def test_a_node_serves_connections_no_faster_than_it_is_told(tmp_path) -> None:
    async def test() -> None:
        windows = {"quota_window_num": "2", "quota_window_size_seconds": "1"}
        async with node_in(tmp_path, **windows) as node:
            first = await connect(node)
            listener = node.listeners[0]
            await alter(first, ResourceType.BROKER, "", RATE, "1")
            await alter(first, ResourceType.BROKER, "1", f"listener.name.plaintext.{RATE}", "900")
            own, shared = node.connection_rates.of("PLAINTEXT")
            assert (own.per_second_max, shared.per_second_max) == (900, 1)
            opened = [asyncio.ensure_future(connect(node)) for _ in range(3)]
            await until(lambda: listener.in_line == 2)
            for task in opened:
                await (await task).close()
            assert listener.in_line == 0
            await alter(first, ResourceType.BROKER, "", RATE, None)
            assert shared.per_second_max == 2**31 - 1
            await first.close()

    run(test())


class Asker:
    """A connection as the memory sees it."""

    def __init__(self, *, closed: bool = False) -> None:
        self.closed = closed
        self.got = 0
        self.received: int | None = 0
        self.gave_way = False

    def on_memory(self, count: int) -> bool:
        self.got = 0 if self.closed else count
        return not self.closed

    def give_way(self) -> None:
        self.gave_way = True


def test_memory_goes_to_who_waited_longest_and_is_exceeded_by_one_request_at_most() -> None:
    memory = RequestMemory(100)
    first, second, gone, last = Asker(), Asker(), Asker(closed=True), Asker()
    assert memory.take(first, 20)
    assert memory.take(second, 90)
    assert not memory.take(gone, 10)
    assert not memory.take(last, 50)
    memory.give_back(gone)
    assert (last.got, memory.taken) == (0, 110)
    memory.give_back(first)
    assert (gone.got, last.got, memory.taken) == (0, 50, 140)
    memory.give_back(second)
    memory.give_back(last)
    assert memory.take(first, 1_000)


def test_without_a_bound_nobody_waits() -> None:
    memory = RequestMemory(-1)
    assert all(memory.take(Asker(), 1 << 30) for _ in range(1_000))


def test_small_requests_do_not_wait_for_large_ones() -> None:
    memory = RequestMemory(DEFAULT_BYTES)
    assert memory.take(Asker(), DEFAULT_BYTES)
    assert not memory.take(Asker(), SMALL + 1)
    small = [Asker() for _ in range(RESERVE_DIVISOR * 2)]
    served = [one for one in small if memory.take(one, SMALL)]
    assert len(served) == SMALL_DIVISOR // RESERVE_DIVISOR
    memory.give_back(served[0])
    assert memory.take(Asker(), SMALL)


def test_a_request_that_does_not_arrive_gives_way_to_one_that_waits() -> None:
    memory = RequestMemory(DEFAULT_BYTES)
    stopped, slow, whole = Asker(), Asker(), Asker()
    whole.received = None
    for one in (stopped, slow, whole):
        assert memory.take(one, 40 << 20)
    for check in range(5):
        slow.received = PROGRESS_BYTES_MIN * check
        memory.check_progress(Millis(CHECK_MS * (check + 1)))
    assert not stopped.gave_way, "nobody waits"
    assert not memory.take(Asker(), 40 << 20)
    memory.check_progress(Millis(CHECK_MS * 6 - 1))
    assert not stopped.gave_way, "it is not time yet"
    slow.received = PROGRESS_BYTES_MIN * 5
    memory.check_progress(Millis(CHECK_MS * 6))
    assert (stopped.gave_way, slow.gave_way, whole.gave_way) == (True, False, False)


def test_a_request_that_has_just_begun_has_time_to_arrive() -> None:
    memory = RequestMemory(DEFAULT_BYTES)
    assert memory.take(Asker(), DEFAULT_BYTES)
    late = Asker()
    memory.check_progress(Millis(CHECK_MS))
    assert not memory.take(late, DEFAULT_BYTES)
    first = next(iter(memory._holdings))
    memory.give_back(first)
    assert late.got == DEFAULT_BYTES
    assert not memory.take(Asker(), DEFAULT_BYTES)
    memory.check_progress(Millis(2 * CHECK_MS))
    assert not late.gave_way
    memory.check_progress(Millis(3 * CHECK_MS))
    assert late.gave_way


def head(key: int, client_id: bytes) -> bytes:
    return struct.pack(">ihhih", 1 << 20, key, 12, 1, len(client_id)) + client_id


def test_requests_of_other_nodes_have_memory_of_their_own() -> None:
    of_nodes = RequestMemory(100)
    memory = RequestMemory(100, of_nodes)
    assert memory.part_for(head(1, b"broker-2-fetcher-0")) is of_nodes
    assert memory.part_for(head(23, b"broker-2-fetcher-0")) is of_nodes
    assert memory.part_for(head(27, b"")) is of_nodes
    assert memory.part_for(head(1, b"consumer-1")) is memory
    assert memory.part_for(head(0, b"broker-2")) is memory
    assert memory.part_for(head(27, b"")[:9]) is memory
    assert of_nodes.part_for(head(0, b"")) is of_nodes


def test_the_bound_is_ours_unless_one_is_set() -> None:
    def bound(**more: str) -> int:
        return bound_of(NodeConfig(config_of(Path("logs"), **more)))

    assert bound() == DEFAULT_BYTES
    assert bound(socket_request_max_bytes=str(300 << 20)) == 300 << 20
    assert bound(socket_request_max_bytes="1000") == DEFAULT_BYTES
    assert bound(queued_max_request_bytes=str(200 << 20)) == 200 << 20
    assert bound(queued_max_request_bytes="-1") == -1


@pytest.mark.parametrize("ends", ["is handled", "is never finished"])
def test_requests_wait_for_memory_that_another_one_has(tmp_path, ends) -> None:
    """Two large requests arrive in pieces, and only one of them may be in memory."""

    async def test() -> None:
        limits = {"queued_max_request_bytes": "700000", "socket_request_max_bytes": "700000"}
        async with node_in(tmp_path, **limits) as node:
            client = await connect(node)
            topic_id = await create_topic(client, "t")
            memory = node.listeners[0].memory
            _, slow = await asyncio.open_connection("127.0.0.1", node.ports["PLAINTEXT"])
            body = b"\0\x12\0\0\0\0\0\7\xff\xff" + bytes(699_990)  # ApiVersions v0, and more
            slow.write((len(body)).to_bytes(4, "big") + body[:1000])
            await until(lambda: memory.taken == 700_004)
            others = [await connect(node) for _ in range(2)]
            waiting = [
                asyncio.ensure_future(append(other, topic_id, batch(bytes(600_000)), acks=1))
                for other in others
            ]
            await until(lambda: memory.waiting == 2)
            assert (await append(client, topic_id, batch(b"small"), acks=1)).base_offset == 0
            assert not any(task.done() for task in waiting)
            if ends == "is handled":
                slow.write(body[1000:])
            else:
                slow.transport.abort()
            assert sorted([(await task).base_offset for task in waiting]) == [1, 2]
            assert (memory.taken, memory.waiting) == (0, 0)
            slow.close()
            for each in (client, *others):
                await each.close()

    run(test())


def test_a_client_that_does_not_read_is_disconnected_when_responses_fill_memory(tmp_path) -> None:
    async def test() -> None:
        limits = {"sparkraft_queued_max_response_bytes": "10000"}
        async with node_in(tmp_path, **limits) as node:
            port, memory = node.ports["PLAINTEXT"], node.listeners[0].response_memory
            silent = socket.socket()
            silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            silent.connect(("127.0.0.1", port))
            resource = struct.pack(">bh1si", 4, 1, b"1", -1)
            body = struct.pack(">hhihi", 32, 3, 1, -1, 250) + resource * 250 + b"\1\1"
            silent.sendall(struct.pack(">i", len(body)) + body)
            await until(lambda: memory.dropped == 1)
            await until(lambda: not node.listeners[0].connections)
            assert memory.bytes == 0
            silent.close()
            client = await connect(node)
            await create_topic(client, "t")
            await client.close()

    run(test())


def test_a_request_that_does_not_arrive_is_dropped_for_one_that_waits(tmp_path) -> None:
    async def test() -> None:
        limits = {"queued_max_request_bytes": "700000", "socket_request_max_bytes": "700000"}
        async with node_in(tmp_path, **limits) as node:
            client = await connect(node)
            topic_id = await create_topic(client, "t")
            reader, stopped = await asyncio.open_connection("127.0.0.1", node.ports["PLAINTEXT"])
            stopped.write((700_000).to_bytes(4, "big") + bytes(1000))
            await until(lambda: node.listeners[0].memory.taken == 700_004)
            assert (await append(client, topic_id, batch(bytes(600_000)), acks=1)).base_offset == 0
            assert await reader.read() == b""
            assert node.listeners[0].memory.gave_way == 1
            stopped.close()
            await client.close()

    run(test())
