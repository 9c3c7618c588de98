"""The proxy before real nodes: each fault does what it says to real sockets, each way by itself."""

import asyncio
import json
import socket
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sparkraft.testing import partitions
from sparkraft.testing.fault_proxy import FaultProxy, node_of_client_id
from tests.support.ports import lasting_ports

SECONDS_MAX = 60
"""Any wait in here takes milliseconds."""

SILENT_SECONDS = 0.3
"""How long nothing must come where nothing may; loopback takes less than one millisecond."""


def frame(client_id: str, body: bytes = b"") -> bytes:
    head = struct.pack(">hhih", 18, 3, 7, len(client_id)) + client_id.encode() + body
    return len(head).to_bytes(4, "big") + head


class Node:
    """Echoes what it gets, and remembers it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.connections: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self.got = bytearray()
        self.ends: list[str] = []
        self.news = asyncio.Event()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._on_connection, "127.0.0.1", self.port)

    async def _on_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.connections.append((reader, writer))
        end = "eof"
        try:
            while data := await reader.read(65_536):
                self.got += data
                self.news.set()
                writer.write(data)
        except ConnectionResetError:
            end = "reset"
        finally:
            if self.got:
                self.ends.append(end)
                self.news.set()
            writer.close()

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(SECONDS_MAX):
            while not condition():
                self.news.clear()
                await self.news.wait()

    async def stop(self) -> None:
        """As a killed process: nobody listens, its connections are reset."""
        if self._server is not None:
            self._server.close()
        for _, writer in self.connections:
            writer.transport.abort()


class World:
    """A node named 2 behind a proxy, and whoever connects."""

    def __init__(self, proxy: FaultProxy, node: Node, port: int) -> None:
        self.proxy = proxy
        self.node = node
        self.port = port
        self.there = proxy.link("1", "2")
        self.back = proxy.link("2", "1")

    async def connect(
        self, client_id: str = "broker-1"
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(frame(client_id))
        return reader, writer

    async def connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection of node 1 over which something has passed."""
        reader, writer = await self.connect()
        assert await exactly(reader, len(frame("broker-1"))) == frame("broker-1")
        return reader, writer


async def exactly(reader: asyncio.StreamReader, count: int) -> bytes:
    async with asyncio.timeout(SECONDS_MAX):
        return await reader.readexactly(count)


async def nothing(reader: asyncio.StreamReader) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(SILENT_SECONDS):
            raise AssertionError(await reader.read(100))


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    listen_port, target_port = lasting_ports(2)
    node = Node(target_port)
    proxy = FaultProxy()
    await node.start()
    try:
        await proxy.route("2", listen_port=listen_port, target_port=target_port)
        yield World(proxy, node, listen_port)
    finally:
        await proxy.close()
        await node.stop()


def in_a_world(test: Callable[[World], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    async def run() -> None:
        async with world() as made:
            await test(made)

    def played() -> None:
        asyncio.run(run())

    played.__name__ = test.__name__
    return played


@pytest.mark.parametrize(
    ("client_id", "name"),
    [
        ("raft-client-3", "3"),
        ("broker-3", "3"),
        ("broker-3-fetcher-0", "3"),
        ("3", "3"),
        ("producer-3", "client"),
        ("broker-x", "client"),
        ("", "client"),
    ],
)
def test_nodes_are_told_by_their_client_ids(client_id: str, name: str) -> None:
    assert node_of_client_id(client_id) == name


@in_a_world
async def test_bytes_pass_both_ways_however_many(world: World) -> None:
    reader, writer = await world.connected()
    many = bytes(range(256)) * 20_000
    writer.write(many)
    assert await exactly(reader, len(many)) == many
    assert world.proxy.seen["bytes"] >= 2 * len(many)


@in_a_world
async def test_what_is_sent_over_a_cut_link_waits_until_it_is_mended(world: World) -> None:
    reader, writer = await world.connected()
    world.there.set(is_cut=True)
    writer.write(b"there")
    await nothing(reader)
    assert not world.node.got.endswith(b"there")
    world.proxy.heal()
    assert await exactly(reader, 5) == b"there"
    assert world.proxy.seen["cut"] == 1


@in_a_world
async def test_only_the_direction_that_is_cut_is(world: World) -> None:
    reader, writer = await world.connected()
    world.back.set(is_cut=True)
    writer.write(b"heard")
    await world.node.until(lambda: world.node.got.endswith(b"heard"))
    await nothing(reader)
    world.proxy.heal()
    assert await exactly(reader, 5) == b"heard"


@pytest.mark.parametrize("direction", ["there", "back"])
def test_a_new_connection_needs_both_directions(direction: str) -> None:
    async def test(world: World) -> None:
        getattr(world, direction).set(is_cut=True)
        reader, _ = await world.connect()
        await nothing(reader)
        assert not world.node.got
        world.proxy.heal()
        assert await exactly(reader, len(frame("broker-1")))

    in_a_world(test)()


@in_a_world
async def test_a_node_never_hears_of_a_connection_that_was_given_up(world: World) -> None:
    world.there.set(is_cut=True)
    reader, writer = await world.connect()
    await nothing(reader)
    writer.close()
    async with asyncio.timeout(SECONDS_MAX):
        while not world.proxy.seen["given up"]:  # noqa: ASYNC110 (a counter, bounded)
            await asyncio.sleep(0.01)
    world.proxy.heal()
    await world.connected()
    assert bytes(world.node.got) == frame("broker-1")


@in_a_world
async def test_another_origin_has_a_link_of_its_own(world: World) -> None:
    world.there.set(is_cut=True)
    reader, _ = await world.connect("raft-client-3")
    assert await exactly(reader, len(frame("raft-client-3")))
    reader, _ = await world.connect("a-producer")
    assert await exactly(reader, len(frame("a-producer")))


@in_a_world
async def test_delayed_bytes_come_late_but_many_at_a_time(world: World) -> None:
    reader, writer = await world.connected()
    world.there.set(delay_ms=100)
    world.back.set(delay_ms=100)
    begun = asyncio.get_running_loop().time()
    writer.write(b"a" * 3_000_000)
    await exactly(reader, 3_000_000)
    assert asyncio.get_running_loop().time() - begun >= 0.2
    assert world.proxy.seen["delay"] > 1


@in_a_world
async def test_a_throttled_link_passes_no_more_than_it_may(world: World) -> None:
    reader, writer = await world.connected()
    world.there.set(bytes_per_second=100_000)
    begun = asyncio.get_running_loop().time()
    writer.write(b"a" * 50_000)
    await exactly(reader, 50_000)
    # The last piece is through before its own pause.
    assert asyncio.get_running_loop().time() - begun >= 0.44
    # As many pieces as it takes at least; what came in parts makes more.
    assert world.proxy.seen["throttle"] >= 10


@in_a_world
async def test_a_slicing_link_passes_the_same_bytes_in_small_pieces(world: World) -> None:
    reader, writer = await world.connected()
    world.there.set(slice_bytes=3)
    writer.write(b"0123456789")
    assert await exactly(reader, 10) == b"0123456789"
    assert world.proxy.seen["slice"] == 3


@in_a_world
async def test_a_reset_reaches_both_ends(world: World) -> None:
    reader, _ = await world.connected()
    assert world.proxy.reset("2", "1") == 1
    with pytest.raises(ConnectionResetError):
        await exactly(reader, 1)
    await world.node.until(lambda: world.node.ends == ["reset"])
    await world.connected()


@in_a_world
async def test_one_side_of_a_half_open_connection_hears_nothing(world: World) -> None:
    reader, writer = await world.connected()
    assert world.proxy.half_open("1", "2") == 1
    await world.node.until(lambda: world.node.ends == ["reset"])
    writer.write(b"anybody there?")
    await nothing(reader)
    assert not world.node.got.endswith(b"there?")
    await world.connected()


@in_a_world
async def test_the_end_of_a_connection_does_not_pass_a_cut(world: World) -> None:
    reader, _ = await world.connected()
    world.back.set(is_cut=True)
    await world.node.stop()
    await nothing(reader)
    world.proxy.heal()
    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
        await exactly(reader, 1)


@in_a_world
async def test_where_nobody_listens_connections_are_refused_until_somebody_does(
    world: World,
) -> None:
    reader, _ = await world.connected()
    await world.node.stop()
    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
        await exactly(reader, 1)
    with pytest.raises(ConnectionRefusedError):
        await world.connect()
    await world.node.start()
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            try:
                await world.connected()
            except ConnectionRefusedError:
                await asyncio.sleep(0.01)
            else:
                break
    assert world.proxy.seen["refused"] == 1


def test_partitions_by_name() -> None:
    three, five = ["1", "2", "3"], ["1", "2", "3", "4", "5"]
    assert partitions.deaf("1", three) == (("2", "1"), ("3", "1"))
    assert partitions.mute("1", three) == (("1", "2"), ("1", "3"))
    assert set(partitions.apart(["1"], three)) == {("1", "2"), ("1", "3"), ("2", "1"), ("3", "1")}
    assert set(partitions.bridge("2", three)) == {("1", "3"), ("3", "1")}
    halves = {frozenset(pair) for pair in partitions.bridge("3", five)}
    assert halves == {frozenset(pair) for pair in ("14", "15", "24", "25")}
    for count in (5, 7, 9):
        nodes = [str(n) for n in range(count)]
        cut = set(partitions.majority_ring(nodes))
        seen = [frozenset(b for b in nodes if (a, b) not in cut) for a in nodes]
        assert all(len(group) > count // 2 for group in seen)
        assert len(set(seen)) == count
        assert all((b, a) in cut for a, b in cut)
    with pytest.raises(ValueError, match="5 nodes"):
        partitions.majority_ring(three)


def test_the_command_obeys_line_by_line_and_ends_with_its_input() -> None:
    listen_port, target_port, other = lasting_ports(3)
    with (
        socket.create_server(("127.0.0.1", target_port)),
        socket.create_server(("127.0.0.1", other)),
    ):
        command = [sys.executable, "-m", "sparkraft.cli.main", "fault-proxy"]
        routes = [f"--route=1=127.0.0.1:{listen_port}:{target_port}"]
        said = subprocess.run(
            [*command, *routes],
            input="cut 1 client\ndelay * 1 20\ndeaf 1\nheal\nreset 1 client\nseen\nring\n"
            "mend\ncut 1 9\nfly\ndelay 1 client soon\n\n",
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout.splitlines()
        assert said[:6] == ["ready", "ok", "ok", "ok", "ok", "ok 0"]
        assert json.loads(said[6])["reset"] == 0
        assert said[7] == "ok"
        assert said.pop(8) == "ok"
        assert said[8] == "error: cut 1 9: 9 has no route"
        assert said[9].startswith("error: unknown command fly, expected one of cut, ")
        assert said[10].startswith("error: delay 1 client soon: ")
        assert said[11] == "error: missing command"
        taken = subprocess.run(
            [*command, f"--route=1=127.0.0.1:{other}:{target_port}"],
            input="", capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert taken.returncode == 1
        assert "Traceback" not in taken.stderr
        assert str(other) in taken.stderr
