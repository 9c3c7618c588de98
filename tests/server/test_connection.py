"""What a connection does with frames: good, bad, slow, many, and out of turn (issue item 10)."""

import asyncio
import logging
import socket
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.metadata.image import EMPTY_IMAGE
from sparkraft.protocol import codec, headers
from sparkraft.protocol.api_keys import API_INFO, ApiKey
from sparkraft.protocol.messages.k07_controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from sparkraft.protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from sparkraft.protocol.messages.k61_describe_producers import DescribeProducersRequest
from sparkraft.server.api.authorization import NoAuthorization
from sparkraft.server.api.registry import Api
from sparkraft.server.env import SystemClock, SystemNetwork
from sparkraft.server.network import dispatch
from sparkraft.server.network.listener import Limits, Listener
from sparkraft.server.network.loop_budget import ITERATION_MS_MAX, LoopBudget
from sparkraft.server.network.responses import BACKLOG_AHEAD_MAX
from tests.server.harness import until

pytestmark = pytest.mark.filterwarnings("error")

PATIENCE_S = 60
"""No wait here needs it; a broken test ends by it."""


class FakeNode:
    """The little that ApiVersions asks of a node."""

    image = EMPTY_IMAGE
    raft = None
    finalized_features = None
    config = SimpleNamespace(migrates=False, is_migrating_broker=False)
    channel = SimpleNamespace(forwarded_versions=None)


@dataclass
class Served:
    listener: Listener
    broken: list[BaseException]

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.listener.port, limit=1 << 26)


@asynccontextmanager
async def serving(clock=None, **limits):
    given = {
        "connections_max": 100,
        "connections_per_ip_max": 100,
        "request_bytes_max": 1 << 20,
        "idle_ms_max": -1,
    } | limits
    clock = clock or SystemClock()
    broken: list[BaseException] = []
    listener = Listener(
        "PLAINTEXT",
        controller_listener=False,
        limits=Limits(**given),
        clock=clock,
        budget=LoopBudget(clock),
        on_invariant_broken=broken.append,
    )
    await listener.bind(SystemNetwork(), "127.0.0.1", 0)
    await listener.serve(FakeNode())
    try:
        yield Served(listener, broken)
    finally:
        await listener.close()


def run(test):
    async def bounded():
        async with asyncio.timeout(PATIENCE_S):
            await test

    asyncio.run(bounded())


def frame(key, version, correlation_id, body, client_id="tester"):
    header = headers.RequestHeader(
        request_api_key=int(key),
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    data = codec.encode(header, headers.request_header_version(key, version)) + body
    return len(data).to_bytes(4, "big") + data


def api_versions(correlation_id, version=3):
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    return frame(ApiKey.API_VERSIONS, version, correlation_id, codec.encode(request, version))


async def read_frame(reader):
    size = int.from_bytes(await reader.readexactly(4), "big")
    return await reader.readexactly(size)


async def assert_alive(served):
    """A new client is served: the node lives."""
    reader, writer = await served.connect()
    writer.write(api_versions(99))
    assert (await read_frame(reader))[:4] == (99).to_bytes(4, "big")
    writer.close()


async def assert_closed(reader):
    assert await reader.read() == b""


def put_api(monkeypatch, served, handle, **more):
    """Serve DescribeProducers (and Produce's key where asked) by a handler of the test's own."""
    key = more.pop("key", ApiKey.DESCRIBE_PRODUCERS)
    api = Api(key=key, handle=handle, authorize=NoAuthorization("a test's own"), **more)
    version = api.version_range()[1]
    code = int(key) << 16 | version
    served.listener.routes.by_code[code] = dispatch.Route(api, version)
    return version


def test_the_header_of_controlled_shutdown_v0_lacks_the_client_id(monkeypatch):
    """The upper half of the broker id is not the length of a client id (Kafka up to 3.9)."""

    async def test():
        async with serving() as served:
            seen = []

            def handle(node, context, request):
                seen.append((context.client_id, request.broker_id, request.broker_epoch))
                return ControlledShutdownResponse()

            key = ApiKey.CONTROLLED_SHUTDOWN
            put_api(monkeypatch, served, handle, key=key, versions=(0, 0))
            reader, writer = await served.connect()
            for broker in (7, 70_000, 0x7FFFFFFF):
                request = ControlledShutdownRequest(broker_id=broker)
                data = frame(key, 0, broker, codec.encode(request, 0))
                assert len(data) == 4 + 8 + 4
                writer.write(data)
                assert (await read_frame(reader))[:4] == broker.to_bytes(4, "big")
            assert seen == [("", broker, -1) for broker in (7, 70_000, 0x7FFFFFFF)]
            writer.close()

    run(test())


def test_pipelined_requests_are_answered_in_order_and_in_one_chunk():
    async def test():
        async with serving() as served:
            reader, writer = await served.connect()
            writer.write(b"".join(api_versions(i) for i in range(50)))
            for i in range(50):
                answer = await read_frame(reader)
                assert answer[:4] == i.to_bytes(4, "big")
                body = codec.decode(ApiVersionsResponse, 3, answer[4:])
                assert body.error_code == 0
                assert any(k.api_key == 3 for k in body.api_keys)
            writer.close()

    run(test())


def test_a_frame_that_comes_byte_by_byte_is_answered():
    async def test():
        async with serving() as served:
            reader, writer = await served.connect()
            writer.transport.get_extra_info("socket").setsockopt(
                socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
            )
            for byte in api_versions(7):
                writer.write(bytes([byte]))
                await asyncio.sleep(0)
            assert (await read_frame(reader))[:4] == (7).to_bytes(4, "big")
            writer.close()

    run(test())


def test_bytes_after_a_request_are_ignored_as_kafka_does():
    async def test():
        async with serving() as served:
            reader, writer = await served.connect()
            writer.write(frame(ApiKey.API_VERSIONS, 0, 1, b"what librdkafka leaves"))
            assert (await read_frame(reader))[:4] == (1).to_bytes(4, "big")
            writer.close()

    run(test())


def test_two_halves_of_frames_in_one_chunk_are_put_together():
    async def test():
        async with serving() as served:
            reader, writer = await served.connect()
            stream = api_versions(1) + api_versions(2) + api_versions(3)
            half = len(api_versions(1)) + 11
            writer.write(stream[:half])
            assert (await read_frame(reader))[:4] == (1).to_bytes(4, "big")
            writer.write(stream[half:])
            assert (await read_frame(reader))[:4] == (2).to_bytes(4, "big")
            assert (await read_frame(reader))[:4] == (3).to_bytes(4, "big")
            writer.close()

    run(test())


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "speaks HTTP"),
        (b"POST /topics HTTP/1.1\r\n\r\n", "speaks HTTP"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64), "speaks TLS"),
        (b"\xff\xff\xff\xff" + bytes(16), "negative length -1"),
        (b"\x80\x00\x00\x00", "negative length"),
        ((1 << 20 | 1).to_bytes(4, "big"), "socket.request.max.bytes is 1048576"),
        (b"\0\0\0\0", "shorter than its header"),
        (b"\0\0\0\x05hello", "shorter than its header"),
        (frame(ApiKey.METADATA, 12, 1, b"\x99" * 40), "is invalid"),
        (frame(ApiKey.METADATA, 9, 1, b"\xff\xff\xff\xff\x0f" + bytes(3)), "is invalid"),
        (b"\0\0\0\x0c\0\x12\0\0\0\0\0\x01\0\x20\0\0", "client_id ends after its frame"),
        (b"\0\0\0\x0c\0\x12\0\0\0\0\0\x01\0\x02\xff\xfe", "not UTF-8"),
    ],
)
def test_bytes_that_are_no_request_close_the_connection_with_a_line_in_the_log(sent, said, caplog):
    async def test():
        async with serving() as served:
            reader, writer = await served.connect()
            writer.write(sent)
            await assert_closed(reader)
            writer.close()
            await assert_alive(served)
            assert served.broken == []

    with caplog.at_level(logging.WARNING):
        run(test())
    assert any(said in record.getMessage() for record in caplog.records), caplog.text


@pytest.mark.parametrize(
    ("key", "version"), [(4, 0), (7, 1), (77, 0), (200, 0), (-1, 0), (0, 2), (3, 99), (3, -1)]
)
def test_unserved_keys_and_versions_close_the_connection(key, version, caplog):
    async def test():
        async with serving() as served:
            reader, writer = await served.connect()
            head = key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True)
            data = head + (1).to_bytes(4, "big") + b"\xff\xff" + bytes(20)
            writer.write(len(data).to_bytes(4, "big") + data)
            await assert_closed(reader)
            writer.close()
            await assert_alive(served)
            assert len(served.listener.routes.by_code) < 5

    with caplog.at_level(logging.WARNING):
        run(test())
    assert "does not serve" in caplog.text


def test_api_versions_too_new_is_answered_in_v0_with_its_own_range():
    async def test():
        async with serving() as served:
            reader, writer = await served.connect()
            data = b"\0\x12\0\x63" + (5).to_bytes(4, "big") + b"\0\x01x\0 from the future"
            writer.write(len(data).to_bytes(4, "big") + data)
            answer = await read_frame(reader)
            assert answer[:4] == (5).to_bytes(4, "big")
            body = codec.decode(ApiVersionsResponse, 0, answer[4:])
            assert body.error_code == ErrorCode.UNSUPPORTED_VERSION
            assert [(k.api_key, k.min_version, k.max_version) for k in body.api_keys] == [
                (18, 0, 4)
            ]
            writer.write(api_versions(6))
            assert (await read_frame(reader))[:4] == (6).to_bytes(4, "big")
            writer.close()

    run(test())


def test_answers_keep_the_order_of_requests_and_later_requests_wait(monkeypatch):
    async def test():
        async with serving() as served:
            gate = asyncio.Event()
            calls = []

            async def slow(node, context, request):
                calls.append(context.correlation_id)
                await gate.wait()
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)

            def refuse(response_class, request, version, error):
                return response_class()

            version = put_api(monkeypatch, served, slow, refuse=refuse)
            body = codec.encode(DescribeProducersRequest(), version)
            reader, writer = await served.connect()
            writer.write(
                frame(ApiKey.DESCRIBE_PRODUCERS, version, 1, body)
                + api_versions(2)
                + frame(ApiKey.DESCRIBE_PRODUCERS, version, 3, body)
            )
            await until(lambda: calls)
            await assert_alive(served)  # others are not held up
            assert calls == [1]
            gate.set()
            for i in (1, 2, 3):
                assert (await read_frame(reader))[:4] == i.to_bytes(4, "big")
            writer.close()

    run(test())


def test_pipelined_requests_take_effect_before_earlier_answers(monkeypatch):
    async def test():
        async with serving() as served:
            gate = asyncio.Event()
            calls = []

            def append(node, context, request):
                calls.append(context.correlation_id)
                if context.correlation_id == 1:
                    return wait()
                return API_INFO[ApiKey.PRODUCE].response_class()()

            async def wait():
                await gate.wait()
                return API_INFO[ApiKey.PRODUCE].response_class()()

            version = put_api(monkeypatch, served, append, key=ApiKey.PRODUCE, pipelined=True)
            body = codec.encode(API_INFO[ApiKey.PRODUCE].request_class()(), version)
            reader, writer = await served.connect()
            writer.write(b"".join(frame(ApiKey.PRODUCE, version, i, body) for i in (1, 2, 3)))
            await until(lambda: len(calls) == 3)
            gate.set()
            for i in (1, 2, 3):
                assert (await read_frame(reader))[:4] == i.to_bytes(4, "big")
            writer.close()

    run(test())


def test_a_parked_request_dies_with_its_connection(monkeypatch):
    async def test():
        async with serving() as served:
            parked = asyncio.get_running_loop().create_future()
            called = asyncio.Event()

            def park(node, context, request):
                called.set()
                return parked

            version = put_api(monkeypatch, served, park, dies_with_connection=True)
            body = codec.encode(DescribeProducersRequest(), version)
            _, writer = await served.connect()
            writer.write(frame(ApiKey.DESCRIBE_PRODUCERS, version, 1, body))
            await called.wait()
            writer.close()
            with pytest.raises(asyncio.CancelledError):
                await parked
            assert served.listener.connections == 0

    run(test())


def test_a_client_that_never_reads_pauses_only_itself(monkeypatch):
    async def test():
        async with serving() as served:
            calls = []

            def big(node, context, request):
                calls.append(1)
                return [b"\0\0\0\0", bytes(1 << 20), b"\x01\0"]

            version = put_api(monkeypatch, served, big)
            body = codec.encode(DescribeProducersRequest(), version)
            slow_reader, slow = await served.connect()
            slow.transport.pause_reading()
            slow.write(
                b"".join(frame(ApiKey.DESCRIBE_PRODUCERS, version, i, body) for i in range(200))
            )
            await slow.drain()
            await until(lambda: calls)
            for _ in range(20):
                await assert_alive(served)
            assert len(calls) < 100, "a client that doesn't read was served on"
            slow.transport.resume_reading()
            for _ in range(200):
                await read_frame(slow_reader)
            assert len(calls) == 200
            slow.close()

    run(test())


def test_the_next_request_is_served_while_an_answer_leaves_up_to_a_bound(monkeypatch):
    async def test():
        async with serving() as served:
            answer_bytes = BACKLOG_AHEAD_MAX // 2
            unsent = []

            def big(node, context, request):
                unsent.append(context.connection.unsent)
                return [b"\0\0\0\0", bytes(answer_bytes), b"\x01\0"]

            version = put_api(monkeypatch, served, big)
            body = codec.encode(DescribeProducersRequest(), version)
            reader, writer = await served.connect()
            writer.write(
                b"".join(frame(ApiKey.DESCRIBE_PRODUCERS, version, i, body) for i in range(100))
            )
            for _ in range(100):
                await read_frame(reader)
            assert any(unsent), "the socket ran dry before the next request was served"
            assert max(unsent) <= BACKLOG_AHEAD_MAX
            writer.close()

    run(test())


def test_connections_above_the_limit_are_closed_and_others_live(caplog):
    async def test():
        async with serving(connections_max=3) as served:
            kept = [await served.connect() for _ in range(3)]
            for reader, writer in kept:
                writer.write(api_versions(1))
                await read_frame(reader)
            reader, writer = await served.connect()
            writer.write(api_versions(1))
            with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                await read_frame(reader)
            writer.close()
            for reader, writer in kept:
                writer.write(api_versions(2))
                assert (await read_frame(reader))[:4] == (2).to_bytes(4, "big")
            kept.pop()[1].close()
            await until(lambda: served.listener.connections <= 2)
            await assert_alive(served)
            for _, writer in kept:
                writer.close()

    with caplog.at_level(logging.WARNING):
        run(test())
    assert "max.connections is 3" in caplog.text


def test_idle_connections_are_closed_and_busy_ones_kept(monkeypatch):
    async def test():
        from sparkraft.server.network import listener as listener_module

        monkeypatch.setattr(listener_module, "IDLE_CHECK_MS", 5)
        clock = HandClock()
        async with serving(clock, idle_ms_max=20) as served:
            parked = asyncio.get_running_loop().create_future()
            asked = []

            def park(node, context, request):
                asked.append(1)
                return parked

            version = put_api(monkeypatch, served, park)
            body = codec.encode(DescribeProducersRequest(), version)
            busy_reader, busy = await served.connect()
            busy.write(frame(ApiKey.DESCRIBE_PRODUCERS, version, 1, body))
            await until(lambda: asked)
            reader, writer = await served.connect()
            writer.write(api_versions(1))
            await read_frame(reader)
            clock.now += 1_000
            await assert_closed(reader)
            writer.close()
            parked.set_result(API_INFO[ApiKey.DESCRIBE_PRODUCERS].response_class()())
            assert (await read_frame(busy_reader))[:4] == (1).to_bytes(4, "big")
            busy.close()

    run(test())


def test_a_client_that_never_reads_is_idle_and_goes(monkeypatch):
    async def test():
        from sparkraft.server.network import listener as listener_module

        monkeypatch.setattr(listener_module, "IDLE_CHECK_MS", 5)
        async with serving(idle_ms_max=200) as served:
            answer = [b"\0\0\0\0", bytes(1 << 20), b"\x01\0"]
            version = put_api(monkeypatch, served, lambda *_: list(answer))
            body = codec.encode(DescribeProducersRequest(), version)
            requests = [frame(ApiKey.DESCRIBE_PRODUCERS, version, i, body) for i in range(30)]
            with socket.create_connection(("127.0.0.1", served.listener.port)) as unread:
                unread.sendall(b"".join(requests))
                await until(lambda: served.listener.connections_total == 1)
                await until(lambda: served.listener.connections == 0)

    run(test())


def test_a_handler_that_fails_answers_and_the_node_lives(monkeypatch, caplog):
    async def test():
        async with serving() as served:

            def broken(node, context, request):
                raise ZeroDivisionError

            version = put_api(monkeypatch, served, broken)
            body = codec.encode(DescribeProducersRequest(), version)
            reader, writer = await served.connect()
            writer.write(frame(ApiKey.DESCRIBE_PRODUCERS, version, 1, body))
            await assert_closed(reader)  # DescribeProducers has no field for an error of the whole
            writer.close()
            await assert_alive(served)

    with caplog.at_level(logging.ERROR):
        run(test())
    assert "ZeroDivisionError" in caplog.text


def test_many_idle_connections_cost_nothing_to_a_busy_one():
    async def test():
        async with serving(connections_max=600, connections_per_ip_max=600) as served:
            idle = [await served.connect() for _ in range(500)]
            await assert_alive(served)
            assert served.listener.connections >= 500
            for _, writer in idle:
                writer.close()

    run(test())


def test_memory_for_a_large_frame_grows_only_as_it_arrives():
    async def test():
        async with serving(request_bytes_max=1 << 30) as served:
            _, writer = await served.connect()
            writer.write((1 << 30).to_bytes(4, "big") + bytes(1000))

            def begun():
                return [c for c in served.listener._connections if c._reader._chunk_bytes]

            await until(begun)
            await assert_alive(served)
            (connection,) = begun()
            assert sum(map(len, connection._reader._chunks)) == 1004
            writer.close()

    run(test())


def test_a_refused_request_does_not_swallow_the_answers_before_it(monkeypatch):
    async def test():
        async with serving() as served:
            version = put_api(
                monkeypatch, served, lambda *_: [b"\0\0\0\0", bytes(4 << 20), b"\x01\0"]
            )
            body = codec.encode(DescribeProducersRequest(), version)
            reader, writer = await served.connect()
            writer.write(frame(ApiKey.DESCRIBE_PRODUCERS, version, 1, body) + b"\xff" * 8)
            assert len(await read_frame(reader)) > 4 << 20
            await assert_closed(reader)
            writer.close()

    run(test())


class HandClock:
    """Stands still but for what the test lets things cost."""

    now = 0

    def mono_ms(self):
        return self.now

    def wall_ms(self):
        return self.now


class Rounds:
    """Counts a loop's rounds as long as its block lasts."""

    count = 0

    def _next(self):
        self.count += 1
        self._handle = asyncio.get_running_loop().call_soon(self._next)

    def __enter__(self):
        self._next()
        return self

    def __exit__(self, *_):
        self._handle.cancel()


def test_clients_share_a_round_and_those_after_it_wait_for_the_next():
    class Client:
        def __init__(self, cost):
            self.cost = cost
            self.ran = 0

        def run(self):
            self.ran += 1
            clock.now += self.cost

    clock = HandClock()

    async def test():
        budget = LoopBudget(clock)
        busy, late, later = Client(ITERATION_MS_MAX), Client(ITERATION_MS_MAX), Client(1)
        assert budget.try_run(busy)
        busy.run()
        assert not budget.try_run(late)
        assert not budget.try_run(later)
        assert not budget.try_run(late), "nobody waits twice"
        assert (late.ran, later.ran) == (0, 0)
        await asyncio.sleep(0)
        assert (late.ran, later.ran) == (1, 0), "the budget of a round was overrun"
        await asyncio.sleep(0)
        assert (late.ran, later.ran) == (1, 1)
        assert budget.try_run(Client(1)), "a new round has a new budget"

    run(test())


def test_a_client_that_sends_a_thousand_requests_at_once_gives_the_loop_its_rounds(monkeypatch):
    """What it sent is one chunk; a heartbeat that is due must not wait until all is answered."""
    clock, requests = HandClock(), 1000

    async def test():
        async with serving(clock) as served:
            handled: list[int] = []

            def half_a_round(node, context, request):
                handled.append(rounds.count)
                clock.now += ITERATION_MS_MAX // 2
                return API_INFO[ApiKey.DESCRIBE_PRODUCERS].response_class()()

            version = put_api(monkeypatch, served, half_a_round)
            body = codec.encode(DescribeProducersRequest(), version)
            reader, writer = await served.connect()
            with Rounds() as rounds:
                frames = (
                    frame(ApiKey.DESCRIBE_PRODUCERS, version, i, body) for i in range(requests)
                )
                writer.write(b"".join(frames))
                for i in range(requests):
                    assert (await read_frame(reader))[:4] == i.to_bytes(4, "big")
            assert len(handled) == requests
            assert max(map(handled.count, handled)) <= 2, "more in one round than it has time for"
            await assert_alive(served)
            writer.close()

    run(test())


def test_a_client_that_waits_for_an_iteration_is_read_until_it_sends_more(monkeypatch):
    """To pause and to resume are system calls, and most clients wait for a response anyway."""
    clock = HandClock()

    async def test():
        async with serving(clock) as served:

            def respond(node, context, request):
                return API_INFO[ApiKey.DESCRIBE_PRODUCERS].response_class()()

            version = put_api(monkeypatch, served, respond)
            body = codec.encode(DescribeProducersRequest(), version)
            reader, writer = await served.connect()
            writer.write(frame(ApiKey.DESCRIBE_PRODUCERS, version, 0, body))
            await read_frame(reader)
            (connection,) = served.listener._connections
            served.listener.try_run(connection)
            clock.now += ITERATION_MS_MAX
            for number, is_read in ((1, True), (2, False), (3, False)):
                connection.data_received(frame(ApiKey.DESCRIBE_PRODUCERS, version, number, body))
                assert connection.transport.is_reading() is is_read
            for number in (1, 2, 3):
                assert (await read_frame(reader))[:4] == number.to_bytes(4, "big")
            assert connection.transport.is_reading()
            writer.close()

    run(test())


def test_answers_that_come_at_once_bring_no_client_its_turn_before_others(monkeypatch):
    """Many wait for one thing; the requests behind are a round's work for each of them."""
    clock, clients = HandClock(), 20

    async def test():
        async with serving(clock) as served:
            gate = asyncio.Event()
            waiting: list[int] = []
            handled: list[int] = []

            async def waits():
                await gate.wait()
                return API_INFO[ApiKey.DESCRIBE_PRODUCERS].response_class()()

            def first_waits_then_works(node, context, request):
                if context.correlation_id == 1:
                    waiting.append(1)
                    return waits()
                handled.append(rounds.count)
                clock.now += ITERATION_MS_MAX
                return API_INFO[ApiKey.DESCRIBE_PRODUCERS].response_class()()

            version = put_api(monkeypatch, served, first_waits_then_works)
            body = codec.encode(DescribeProducersRequest(), version)
            opened = [await served.connect() for _ in range(clients)]
            for _, writer in opened:
                frames = (frame(ApiKey.DESCRIBE_PRODUCERS, version, i, body) for i in (1, 2))
                writer.write(b"".join(frames))
            await until(lambda: len(waiting) == clients)
            with Rounds() as rounds:
                gate.set()
                for reader, writer in opened:
                    for i in (1, 2):
                        assert (await read_frame(reader))[:4] == i.to_bytes(4, "big")
                    writer.close()
            assert sorted(set(handled)) == sorted(handled), "two clients in one round"

    run(test())


def test_the_hexdump_marks_the_byte_that_was_wrong():
    from sparkraft.server.network.hexdump import hexdump

    lines = hexdump(b"0123456789abcdefXYZ", at=17).splitlines()
    assert lines[0].startswith("00000000  30 31")
    assert lines[1].startswith("00000010  58 59")
    assert lines[2].index("^^") == lines[1].index("59")
