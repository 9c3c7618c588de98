"""The connection against scripted peers on loopback sockets."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sparkraft.base.errors import DecodeError, ErrorCode, KafkaError
from sparkraft.client.connection import Connection
from sparkraft.client.wire_exchange import WHOLE_ELEMENTS_MAX, FrameReader
from sparkraft.protocol import codec
from sparkraft.protocol.messages.k03_metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseTopic,
)
from sparkraft.protocol.messages.k18_api_versions import ApiVersion, ApiVersionsResponse

BOUND = 60


class Peer:
    """The other end: reads requests as (key, version, correlation id), writes what it is told."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def request(self) -> tuple[int, int, int]:
        length = int.from_bytes(await self.reader.readexactly(4), "big")
        frame = await self.reader.readexactly(length)
        return tuple(int.from_bytes(part, "big") for part in (frame[:2], frame[2:4], frame[4:8]))  # type: ignore[return-value]

    def answer(self, correlation_id: int, body: bytes, *, flexible: bool = False) -> bytes:
        payload = correlation_id.to_bytes(4, "big") + (b"\x00" if flexible else b"") + body
        return len(payload).to_bytes(4, "big") + payload

    async def answer_versions(self, apis: list[ApiVersion]) -> None:
        _, version, correlation_id = await self.request()
        body = codec.encode(ApiVersionsResponse(api_keys=apis), version)
        self.writer.write(self.answer(correlation_id, body))


@asynccontextmanager
async def serving(script: Callable[[Peer], Awaitable[None]]):
    tasks = []

    async def on_client(reader, writer):
        tasks.append(asyncio.current_task())
        try:
            await script(Peer(reader, writer))
            await reader.read()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(on_client, "127.0.0.1", 0)
    try:
        async with asyncio.timeout(BOUND):
            yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def api(key: int, low: int, high: int) -> ApiVersion:
    return ApiVersion(api_key=key, min_version=low, max_version=high)


ALL = [api(18, 0, 4), api(3, 0, 13)]


def run(test: Awaitable[None]) -> None:
    asyncio.run(test)


def test_versions_are_negotiated_to_the_highest_both_know():
    async def script(peer: Peer) -> None:
        await peer.answer_versions([api(18, 0, 4), api(3, 1, 9), api(0, 99, 100)])

    async def test() -> None:
        async with serving(script) as port:
            connection = await Connection.open("127.0.0.1", port)
            assert connection.version_for(3) == 9
            assert connection.version_for(3, at_most=5) == 5
            with pytest.raises(KafkaError) as no_common:
                connection.version_for(0)
            assert no_common.value.code is ErrorCode.UNSUPPORTED_VERSION
            with pytest.raises(KafkaError) as not_served:
                connection.version_for(1)
            assert "does not serve Fetch" in str(not_served.value)
            await connection.close()

    run(test())


def test_a_peer_that_knows_only_older_api_versions_answers_in_v0_and_is_asked_again():
    asked = []

    async def script(peer: Peer) -> None:
        _, version, correlation_id = await peer.request()
        asked.append(version)
        refusal = ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[api(18, 0, 2)]
        )
        peer.writer.write(peer.answer(correlation_id, codec.encode(refusal, 0)))
        _, version, correlation_id = await peer.request()
        asked.append(version)
        body = codec.encode(ApiVersionsResponse(api_keys=ALL), version)
        peer.writer.write(peer.answer(correlation_id, body))

    async def test() -> None:
        async with serving(script) as port:
            connection = await Connection.open("127.0.0.1", port)
            assert asked == [4, 2]
            assert connection.versions[3] == (0, 13)
            await connection.close()

    run(test())


def test_answers_reach_their_requests_when_every_byte_comes_alone():
    async def script(peer: Peer) -> None:
        await peer.answer_versions(ALL)
        for cluster_id in ("one", "two"):
            _, version, correlation_id = await peer.request()
            body = codec.encode(MetadataResponse(cluster_id=cluster_id), version)
            for byte in peer.answer(correlation_id, body, flexible=True):
                peer.writer.write(bytes([byte]))
                await peer.writer.drain()

    async def test() -> None:
        async with serving(script) as port:
            connection = await Connection.open("127.0.0.1", port)
            first = connection.send_nowait(MetadataRequest())
            second = connection.send_nowait(MetadataRequest())
            assert (await first).cluster_id == "one"
            assert (await second).cluster_id == "two"
            await connection.close()

    run(test())


def test_a_cancelled_request_does_not_disturb_the_next_one():
    release = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.answer_versions(ALL)
        first = await peer.request()
        second = await peer.request()
        await release.wait()
        for (_, version, correlation_id), name in ((first, "late"), (second, "wanted")):
            body = codec.encode(MetadataResponse(cluster_id=name), version)
            peer.writer.write(peer.answer(correlation_id, body, flexible=True))

    async def test() -> None:
        async with serving(script) as port:
            connection = await Connection.open("127.0.0.1", port)
            given_up = asyncio.ensure_future(connection.send(MetadataRequest()))
            wanted = asyncio.ensure_future(connection.send(MetadataRequest()))
            await asyncio.sleep(0)
            given_up.cancel()
            release.set()
            assert (await wanted).cluster_id == "wanted"
            assert given_up.cancelled()
            await connection.close()

    run(test())


def test_no_answer_in_time_closes_the_connection():
    async def script(peer: Peer) -> None:
        await peer.answer_versions(ALL)

    async def test() -> None:
        async with serving(script) as port:
            connection = await Connection.open("127.0.0.1", port)
            with pytest.raises(KafkaError) as refused:
                await connection.send(MetadataRequest(), timeout_ms=20)
            assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT
            assert connection.is_closed
            with pytest.raises(KafkaError) as gone:
                await connection.send(MetadataRequest())
            assert gone.value.code is ErrorCode.NETWORK_EXCEPTION

    run(test())


@pytest.mark.parametrize(
    "frame",
    [
        (2**31 - 1).to_bytes(4, "big"),
        (-5).to_bytes(4, "big", signed=True),
        (3).to_bytes(4, "big") + b"abc",
        (12).to_bytes(4, "big") + (77).to_bytes(4, "big") + b"12345678",
        (6).to_bytes(4, "big") + (1).to_bytes(4, "big") + b"\x80\x80",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
    ids=["huge", "negative", "short", "wrong correlation id", "endless header", "http"],
)
def test_a_frame_that_is_no_answer_closes_the_connection(frame: bytes):
    async def script(peer: Peer) -> None:
        await peer.answer_versions(ALL)
        await peer.request()
        peer.writer.write(frame)

    async def test() -> None:
        async with serving(script) as port:
            connection = await Connection.open("127.0.0.1", port)
            with pytest.raises(KafkaError) as refused:
                await connection.send(MetadataRequest())
            assert refused.value.code is ErrorCode.NETWORK_EXCEPTION
            assert connection.is_closed

    run(test())


def test_every_pending_request_fails_when_the_peer_leaves():
    closed = []

    async def script(peer: Peer) -> None:
        await peer.answer_versions(ALL)
        await peer.request()
        peer.writer.close()

    async def test() -> None:
        async with serving(script) as port:
            connection = await Connection.open("127.0.0.1", port)
            connection.on_close = lambda: closed.append(True)
            futures = [connection.send_nowait(MetadataRequest()) for _ in range(3)]
            outcome = await asyncio.gather(*futures, return_exceptions=True)
            assert [error.code for error in outcome] == [ErrorCode.NETWORK_EXCEPTION] * 3
            assert closed == [True]

    run(test())


def test_nobody_listening_is_said_in_a_sentence():
    async def test() -> None:
        server = await asyncio.start_server(lambda _r, _w: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        with pytest.raises(KafkaError, match=f"cannot connect to 127.0.0.1:{port}"):
            await Connection.open("127.0.0.1", port)

    run(test())


def test_a_peer_that_says_nothing_is_given_up():
    async def script(peer: Peer) -> None:
        await peer.request()

    async def test() -> None:
        async with serving(script) as port:
            with pytest.raises(KafkaError) as refused:
                await Connection.open("127.0.0.1", port, timeout_ms=20)
            assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT

    run(test())


def test_frames_are_the_same_however_the_stream_is_cut():
    frames = [bytes([i]) * size for i, size in enumerate((4, 5, 300, 4, 1000))]
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    for step in (1, 2, 3, 7, 64, len(stream)):
        reader = FrameReader(10_000)
        found = []
        for at in range(0, len(stream), step):
            found += [bytes(frame) for frame in reader.feed(stream[at : at + step])]
        assert found == frames


def test_a_frame_longer_than_allowed_is_refused_before_its_bytes_come():
    with pytest.raises(DecodeError):
        FrameReader(100).feed((101).to_bytes(4, "big"))


def metadata(topics: int, version: int) -> bytes:
    """A response to Metadata with many topics."""
    found = [MetadataResponseTopic(name=f"topic-{number}") for number in range(topics)]
    return codec.encode(MetadataResponse(topics=found), version)


def before_each_slice(connection: Connection, call: Callable[[], object]) -> None:
    """Call before each slice of a long response."""
    decode_slice = connection._decode_slice

    def called(*arguments: Any) -> None:
        call()
        decode_slice(*arguments)

    connection._decode_slice = called  # type: ignore[method-assign]


@pytest.mark.parametrize("is_torn", [False, True], ids=["whole", "torn"])
def test_a_response_with_very_many_elements_is_decoded_over_many_iterations(is_torn: bool) -> None:
    topics = 20 * WHOLE_ELEMENTS_MAX

    async def script(peer: Peer) -> None:
        _, version, correlation_id = await peer.request()
        body = metadata(topics, version)
        body = body[:-1] if is_torn else body
        peer.writer.write(peer.answer(correlation_id, body, flexible=True))

    async def test() -> None:
        async with serving(script) as port:
            connection = await Connection.open("127.0.0.1", port, negotiate=False)
            slices = 0

            def count() -> None:
                nonlocal slices
                slices += 1

            before_each_slice(connection, count)
            response = connection.send(MetadataRequest(topics=[]), version=12)
            if is_torn:
                with pytest.raises(KafkaError) as lost:
                    await response
                assert lost.value.code is ErrorCode.NETWORK_EXCEPTION
                assert "are not a MetadataResponse of version 12" in str(lost.value)
                assert connection.is_closed
            else:
                assert len((await response).topics) == topics
            assert slices >= 20
            await connection.close()

    run(test())


def test_nothing_waits_for_a_long_response_whose_request_was_cancelled() -> None:
    async def script(peer: Peer) -> None:
        _, version, correlation_id = await peer.request()
        body = metadata(20 * WHOLE_ELEMENTS_MAX, version)
        peer.writer.write(peer.answer(correlation_id, body, flexible=True))
        _, version, correlation_id = await peer.request()
        body = metadata(1, version)
        peer.writer.write(peer.answer(correlation_id, body, flexible=True))

    async def test() -> None:
        async with serving(script) as port:
            connection = await Connection.open("127.0.0.1", port, negotiate=False)
            first = connection.send_nowait(MetadataRequest(topics=[]), version=12)
            second = connection.send_nowait(MetadataRequest(topics=[]), version=12)
            before_each_slice(connection, first.cancel)
            assert len((await second).topics) == 1
            assert not connection.is_closed
            await connection.close()

    run(test())
