"""One connection of a session: its writes, and replies that it cannot read."""

import asyncio
from typing import Any

import pytest

from sparkraft.server.env import SystemClock
from sparkraft.zookeeper.errors import ConnectionLossError
from sparkraft.zookeeper.exchange import SessionState
from sparkraft.zookeeper.line import Line
from sparkraft.zookeeper.requests import Check, GetChildren, GetData, Multi, SetData
from sparkraft.zookeeper.watches import Watches
from tests.zookeeper.test_exchange import OPENED, STAT


class Transport(asyncio.Transport):
    """Keeps what was written."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.is_aborted = False

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))

    def abort(self) -> None:
        self.is_aborted = True


def new_line() -> Line:
    return Line(
        SessionState(),
        Watches(),
        SystemClock(),
        chroot="",
        timeout_ms=6_000,
        on_event=lambda _: None,
        on_end=lambda: None,
    )


def opened() -> tuple[Line, Transport]:
    line, transport = new_line(), Transport()
    line.connection_made(transport)
    line.open()
    line.data_received(OPENED)
    transport.writes.clear()
    return line, transport


def reply(xid: int, body: bytes) -> bytes:
    frame = xid.to_bytes(4, "big") + (9).to_bytes(8, "big") + bytes(4) + body
    return len(frame).to_bytes(4, "big") + frame


NODE = bytes.fromhex("00000001 78") + STAT


def test_requests_that_follow_replies_are_sent_in_one_write() -> None:
    async def run() -> None:
        line, transport = opened()
        results: list[Any] = []

        def on_result(result: Any) -> None:
            results.append(result)
            line.post(GetData(path="/next"), results.append)

        for _ in range(3):
            line.post(GetData(path="/first"), on_result)
        assert len(transport.writes) == 3
        line.data_received(b"".join(reply(xid, NODE) for xid in (1, 2, 3)))
        assert [data for data, _ in results] == [b"x"] * 3
        (written,) = transport.writes[3:]
        assert written.count(b"/next") == 3
        line.data_received(b"".join(reply(xid, NODE) for xid in (4, 5, 6)))
        assert len(results) == 6

    asyncio.run(run())


def test_a_malformed_reply_fails_its_request_with_the_connection() -> None:
    async def run() -> None:
        line, transport = opened()
        waiting = [asyncio.create_task(line.send(GetData(path=f"/{at}"))) for at in range(3)]
        await asyncio.sleep(0)
        line.data_received(reply(1, NODE) + reply(2, NODE[:-1]))
        assert (await waiting[0])[0] == b"x"
        for each in waiting[1:]:
            with pytest.raises(ConnectionLossError):
                await each
        assert transport.is_aborted
        assert line.closed.result().endswith(", in place of the reply to GetData /1")

    asyncio.run(run())


def test_a_reply_above_jute_maxbuffer_is_named() -> None:
    """As in Kafka, the request is sent again on the next connection; the log names its znode."""

    async def run() -> None:
        line, transport = opened()
        waiting = asyncio.create_task(line.send(GetChildren(path="/brokers/topics")))
        await asyncio.sleep(0)
        line.data_received((4 * 1024 * 1024 + 1).to_bytes(4, "big"))
        with pytest.raises(ConnectionLossError):
            await waiting
        assert transport.is_aborted
        reason = line.closed.result()
        assert "4194305 bytes: longer than 4194304 (jute.maxbuffer)" in reason
        assert reason.endswith("in place of the reply to GetChildren /brokers/topics")

    asyncio.run(run())


def test_a_lost_connection_names_the_largest_request_in_flight() -> None:
    """A server closes the connection on a request above its jute.maxbuffer, without a reply."""

    async def run() -> None:
        line, _ = opened()
        lost: list[Any] = []
        write = SetData(path="/brokers/topics/t", data=bytes(1100))
        for request in (
            GetData(path="/first"),
            Multi((Check(path="/controller_epoch", version=3), write)),
            GetData(path="/last"),
        ):
            line.post(request, lost.append)
        line.connection_lost(ConnectionResetError("reset by the peer"))
        assert [type(each) for each in lost] == [ConnectionLossError] * 3
        reason = line.closed.result()
        expected = (
            "reset by the peer; the largest of 3 requests in flight is Multi /brokers/topics/t"
        )
        assert reason.startswith(expected)
        idle, _ = opened()
        idle.connection_lost(None)
        assert idle.closed.result() == "the server closed the connection"

    asyncio.run(run())


def test_a_server_that_closes_the_connection_without_a_session_may_be_read_only() -> None:
    async def run() -> None:
        line = new_line()
        line.connection_made(Transport())
        line.open()
        line.connection_lost(None)
        with pytest.raises(ConnectionError, match="in place of a session: it has no quorum, is re"):
            await line.opened

    asyncio.run(run())


def test_what_follows_the_end_of_the_connection_is_not_written() -> None:
    async def run() -> None:
        line, transport = opened()
        ends: list[Any] = []

        def on_result(result: Any) -> None:
            ends.append(result)
            line.post(GetData(path="/next"), ends.append)

        line.post(GetData(path="/first"), on_result)
        line.connection_lost(None)
        await asyncio.sleep(0)
        assert [type(each) for each in ends] == [ConnectionLossError] * 2
        assert len(transport.writes) == 1

    asyncio.run(run())
