"""TLS over real sockets in one loop, against Python's own `ssl` as the other side."""

import asyncio
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparkraft.security.tls_settings import read_tls_settings
from sparkraft.tls import stream as tls_stream
from sparkraft.tls.contexts import client_context, server_context
from sparkraft.tls.dialing import TlsDialer
from sparkraft.tls.stream import (
    PIECE_BYTES,
    TlsFailedError,
    TlsSide,
    TlsStream,
)
from tests.support.certificates import Authority, pem_configs

PATIENCE_S = 60


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


class Peer(asyncio.Protocol):
    """Keeps what it receives, and echoes it if asked to."""

    def __init__(self, *, echoes: bool = False) -> None:
        self.echoes = echoes
        self.received = bytearray()
        self.transport: Any = None
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self.paused = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        if self.echoes:
            self.transport.write(data)

    def pause_writing(self) -> None:
        self.paused += 1

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result(exc)


class Server:
    """Accepts TLS; `failures` and `secured` are what became of the handshakes."""

    def __init__(self, context: ssl.SSLContext, *, may_work: Callable[..., bool] | None = None):
        self.peers: list[Peer] = []
        self.failures: list[str] = []
        self.secured: list[bytes | None] = []
        self.refusal: str | None = None
        self.side = TlsSide(
            context=lambda: context,
            server_side=True,
            buffer=bytearray(tls_stream.RECEIVE_BYTES),
            may_work=may_work or (lambda _: True),
            on_secured=self._on_secured,
            on_failed=lambda _, error: self.failures.append(str(error)),
        )
        self.port = 0

    def _on_secured(self, stream: TlsStream) -> None:
        if self.refusal is not None:
            raise TlsFailedError(self.refusal)
        self.secured.append(stream.peer_certificate)

    def _new(self) -> TlsStream:
        self.peers.append(Peer(echoes=True))
        return TlsStream(self.peers[-1], self.side)

    async def __aenter__(self) -> "Server":
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._new, "127.0.0.1", 0)  # type: ignore[arg-type]
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for peer in self.peers:
            peer.transport.abort()
        await asyncio.gather(*(peer.lost for peer in self.peers))


def run(work: Callable[[], Any]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await work()

    asyncio.run(bounded())


async def until(condition: Callable[[], Any]) -> None:
    while not condition():  # noqa: ASYNC110 (conditions are of objects under test)
        await asyncio.sleep(0.002)


def contexts(
    authority: Authority, *, client: Path | None = None, **configs: str
) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of a server, with `configs` (underscores for dots), and of a client that trusts it."""
    given = pem_configs(authority.issue("server"), authority.ca_path)
    given |= {key.replace("_", "."): value for key, value in configs.items()}
    of_client = pem_configs(client, authority.ca_path)
    return (
        server_context(read_tls_settings(given.get)),
        client_context(read_tls_settings(of_client.get)),
    )


async def dial(server: Server, context: ssl.SSLContext, host: str = "127.0.0.1") -> Peer:
    peers: list[Peer] = []

    def factory() -> Peer:
        peers.append(Peer())
        return peers[-1]

    await TlsDialer(lambda: context).connect(factory, host, server.port)
    return peers[0]


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize("size", [1, 16_384, 70_000, 5_000_000])
def test_bytes_arrive_whole_in_both_directions(authority: Authority, version: str, size: int):
    of_server, of_client = contexts(authority, ssl_enabled_protocols=version)
    data = bytes(range(256)) * (size // 256) + bytes(size % 256)

    async def work() -> None:
        async with Server(of_server) as server:
            peer = await dial(server, of_client)
            assert peer.transport.get_extra_info("ssl_object").version() == version
            peer.transport.writelines([data[:10], data[10:]])
            await until(lambda: len(peer.received) == size)
            assert peer.received == data
            peer.transport.close()
            assert await peer.lost is None
            assert await server.peers[0].lost is None
            assert server.failures == []

    run(work)


def test_large_writes_are_encrypted_in_pieces(authority: Authority):
    """Larger pieces leave the processor's cache before they are sent."""
    of_server, of_client = contexts(authority)

    class Recording:
        def __init__(self, tls: Any) -> None:
            self.tls, self.sizes = tls, []

        def __getattr__(self, name: str) -> Any:
            return getattr(self.tls, name)

        def write(self, data: Any) -> int:
            self.sizes.append(len(data))
            return self.tls.write(data)

    async def work() -> None:
        async with Server(of_server) as server:
            peer = await dial(server, of_client)
            peer.transport._tls = recording = Recording(peer.transport._tls)
            peer.transport.write(bytes(200_000))
            await until(lambda: len(peer.received) == 200_000)
            assert recording.sizes == [65_536, 65_536, 65_536, 200_000 - 3 * 65_536]
            peer.transport.close()

    run(work)


def test_python_s_own_tls_is_understood(authority: Authority):
    """Another implementation of the driving: blocking sockets, and close_notify at the end."""
    of_server, of_client = contexts(authority)

    def talk(port: int) -> tuple[bytes, bytes]:
        with (
            socket.create_connection(("127.0.0.1", port), PATIENCE_S) as raw,
            of_client.wrap_socket(raw, server_hostname="127.0.0.1") as tls,
        ):
            tls.sendall(b"x" * 100_000)
            echoed = b""
            while len(echoed) < 100_000:
                echoed += tls.recv(65_536)
            return echoed, tls.unwrap().recv(1)

    async def work() -> None:
        async with Server(of_server) as server:
            echoed, end = await asyncio.to_thread(talk, server.port)
            assert echoed == b"x" * 100_000
            assert end == b""

    run(work)


def test_a_peer_that_does_not_read_pauses_the_writer(authority: Authority):
    of_server, of_client = contexts(authority)

    async def work() -> None:
        async with Server(of_server) as server:
            peer = await dial(server, of_client)
            peer.transport.pause_reading()
            peer.transport.write(b"x")
            await until(lambda: server.peers)
            echo = server.peers[0]
            await until(lambda: echo.received)
            while not echo.paused:
                echo.transport.write(bytes(1 << 20))
                await asyncio.sleep(0)
            assert echo.transport.get_write_buffer_size() > 0
            assert len(peer.received) <= 1 << 20

    run(work)


def test_a_small_part_is_sent_with_the_next_one(authority: Authority):
    """Each call wakes the peer."""
    of_server, of_client = contexts(authority)
    sent: list[int] = []

    async def work() -> None:
        async with Server(of_server) as server:
            peer = await dial(server, of_client)
            await until(lambda: server.peers)
            raw, original = peer.transport._raw, peer.transport._raw.write
            raw.write = lambda data: (sent.append(len(data)), original(data))
            parts = [b"head", bytes(2 * PIECE_BYTES), b"tail"]
            peer.transport.writelines(parts)
            assert len(sent) == 3
            assert min(sent[:2]) > PIECE_BYTES
            await until(lambda: len(server.peers[0].received) == 2 * PIECE_BYTES + 8)
            assert server.peers[0].received == b"".join(parts)

    run(work)


def test_a_wrong_host_name_is_refused_unless_it_is_not_compared(authority: Authority):
    given = pem_configs(authority.issue("elsewhere", hosts=["other.example"]), None)
    of_server = server_context(read_tls_settings(given.get))
    trusting = pem_configs(None, authority.ca_path)

    async def work() -> None:
        async with Server(of_server) as server:
            strict = client_context(read_tls_settings(trusting.get))
            with pytest.raises(OSError, match="IP address mismatch"):
                await dial(server, strict)
            trusting["ssl.endpoint.identification.algorithm"] = ""
            peer = await dial(server, client_context(read_tls_settings(trusting.get)))
            peer.transport.abort()

    run(work)


def test_an_unknown_authority_is_refused(authority: Authority, tmp_path: Path):
    of_server, _ = contexts(authority)
    stranger = pem_configs(None, Authority(tmp_path, "stranger").ca_path)

    async def work() -> None:
        async with Server(of_server) as server:
            with pytest.raises(OSError, match="certificate verify failed"):
                await dial(server, client_context(read_tls_settings(stranger.get)))
            await until(lambda: server.failures)
            assert "unknown ca" in server.failures[0]

    run(work)


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize("wanted", ["required", "requested"])
def test_client_certificates(authority: Authority, tmp_path: Path, wanted: str, version: str):
    """A certificate that does not verify is refused, also if none would be accepted."""
    configs = {"ssl_client_auth": wanted, "ssl_enabled_protocols": version}
    of_server, with_one = contexts(authority, client=authority.issue("client"), **configs)
    _, without = contexts(authority)
    stranger = Authority(tmp_path, "stranger").issue("stranger")
    _, untrusted = contexts(authority, client=stranger)

    async def outcome(server: Server, context: ssl.SSLContext) -> str:
        """`accepted`, or the reason for which the client was refused."""
        try:
            peer = await dial(server, context)
        except OSError as error:
            return str(error)
        peer.transport.write(b"early")  # in TLS 1.3 it leaves before the server has decided
        await until(lambda: peer.received or peer.lost.done())
        if peer.received:
            peer.transport.close()
            return "accepted"
        return str(peer.lost.result())

    async def work() -> None:
        async with Server(of_server) as server:
            assert await outcome(server, with_one) == "accepted"
            assert server.secured[-1] is not None
            alone = await outcome(server, without)
            if wanted == "requested":
                assert alone == "accepted"
                assert server.secured[-1] is None
            else:
                assert "alert" in alone
            before = len(server.secured)
            assert "unknown ca" in await outcome(server, untrusted)
            assert len(server.secured) == before
            assert not server.peers[-1].received, "a request of a refused client is never seen"

    run(work)


def test_a_refused_principal_is_closed_before_its_first_byte(authority: Authority):
    of_server, of_client = contexts(authority)

    async def work() -> None:
        async with Server(of_server) as server:
            server.refusal = "no rule"
            peer = await dial(server, of_client)
            peer.transport.write(b"early")
            await peer.lost
            assert server.failures == ["no rule"]
            assert not server.peers[0].received

    run(work)


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (b"\0\0\0\x16\0\x12\0\x04\0\0\0\1\0\7request\0\0\0", ""),
        (b"GET / HTTP/1.1\r\n\r\n", "http request"),
        (b"\x16\x03\x01\x01\x2c" + bytes(300), ""),
    ],
    ids=["kafka", "http", "garbage"],
)
def test_what_is_not_tls_is_closed(authority: Authority, first: bytes, said: str):
    of_server, _ = contexts(authority)

    async def work() -> None:
        async with Server(of_server) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(first)
            await reader.read()
            writer.close()
            await until(lambda: server.failures)
            assert said in server.failures[0]
            assert not server.peers[0].received

    run(work)


def test_a_handshake_is_bounded_in_time(authority: Authority, monkeypatch):
    monkeypatch.setattr(tls_stream, "HANDSHAKE_S_MAX", 0.05)
    of_server, _ = contexts(authority)

    async def work() -> None:
        async with Server(of_server) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            assert await reader.read() == b""
            writer.close()
            assert "longer than" in server.failures[0]

    run(work)


def test_a_handshake_is_bounded_in_bytes(authority: Authority, monkeypatch):
    """Hello messages may be cut into many records; OpenSSL would gather them."""
    monkeypatch.setattr(tls_stream, "HANDSHAKE_BYTES_MAX", 2_000)
    of_server, _ = contexts(authority)
    never_ending = b"\x16\x03\x01\x00\x05" + b"\x01\x00\x3f\xff\x03"
    more = b"\x16\x03\x01\x00\x01\x03"

    async def work() -> None:
        async with Server(of_server) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(never_ending)
            for _ in range(1_000):
                writer.write(more)
            await reader.read()
            writer.close()
            assert "bytes before the end" in server.failures[0]

    run(work)


def test_handshakes_wait_for_their_turn(authority: Authority):
    of_server, of_client = contexts(authority)
    waiting: list[TlsStream] = []

    def may_work(stream: TlsStream) -> bool:
        waiting.append(stream)
        return False

    async def work() -> None:
        async with Server(of_server, may_work=may_work) as server:
            dialing = asyncio.ensure_future(dial(server, of_client))
            await until(lambda: len(waiting) == 1)
            assert not dialing.done()
            waiting[0].run()
            await until(lambda: len(waiting) == 2)
            waiting[1].run()
            (await dialing).transport.abort()

    run(work)


def test_a_connection_lost_during_the_handshake_is_an_error_of_the_dialer(authority: Authority):
    _, of_client = contexts(authority)

    async def work() -> None:
        async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1000)
            writer.close()

        server = await asyncio.start_server(close, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(OSError, match="closed the connection during the handshake"):
            await TlsDialer(lambda: of_client).connect(Peer, "127.0.0.1", port)
        server.close()

    run(work)
