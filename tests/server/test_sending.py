"""Large answers arrive whole, whatever the socket takes at a time."""

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparkraft.server.network.sending import (
    COPIED_BYTES_MAX,
    PIECE_BYTES,
    TLS_BYTES_MAX,
    SocketSender,
    TlsSender,
    TransportSender,
    join_front,
    sender_of,
)
from sparkraft.storage.disk import OsDisk
from sparkraft.storage.mapped import VIEW_BYTES_MIN, WINDOW_BYTES


def test_small_parts_are_joined_and_large_ones_are_not_copied() -> None:
    large = bytes(100_000)
    parts = join_front(deque([b"head", b"more", large, b"tail"]))
    assert [bytes(part) for part in parts] == [b"headmore", large, b"tail"]
    assert parts[1].obj is large


def test_parts_are_joined_no_earlier_than_they_are_written() -> None:
    shared = bytes(1_000)
    backlog = deque([shared] * 10_000)
    front = join_front(backlog)
    assert sum(map(len, front)) < 2 * COPIED_BYTES_MAX
    assert sum(part is shared for part in backlog) > 8_000
    assert sum(map(len, backlog)) == 10_000_000


def test_two_responses_of_a_megabyte_leave_in_one_write() -> None:
    backlog = deque([b"head", bytes(1 << 20), b"head", bytes(1 << 20)])
    assert list(map(len, join_front(backlog))) == [4, 1 << 20, 4, 1 << 20]


class Served(asyncio.Protocol):
    """The near end of a connection, with the sender that a server would use."""

    def __init__(self) -> None:
        self.rooms = 0
        self.unreadable = 0
        self.lost = asyncio.get_running_loop().create_future()
        self.sender: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        def on_room() -> None:
            self.rooms += 1

        def on_unreadable() -> None:
            self.unreadable += 1

        assert isinstance(transport, asyncio.Transport)
        self.sender = sender_of(transport, on_room, on_unreadable)

    def send(self, *parts: Any) -> None:
        self.sender.send(list(parts), sum(map(len, parts)))

    def connection_lost(self, exc: Exception | None) -> None:
        self.sender.drop()
        self.lost.set_result(exc)


def over_a_socket(work: Callable[[Served, socket.socket], Any]) -> None:
    """Let `work` send through a socket that takes little at a time, and read at its far end."""

    async def run() -> None:
        near, far = socket.socketpair()
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        near.setblocking(False)
        far.setblocking(False)
        _, served = await asyncio.get_running_loop().create_connection(Served, sock=near)
        with far:
            await work(served, far)

    asyncio.run(asyncio.wait_for(run(), 30))


async def read_all(far: socket.socket) -> bytes:
    """What comes until the near end is closed."""
    received = bytearray()
    while more := await asyncio.get_running_loop().sock_recv(far, 1 << 20):
        received += more
    return bytes(received)


def test_a_socket_gets_every_byte_once_though_it_takes_few_at_a_time() -> None:
    parts = [bytes([number]) * (1 + 37_777 * (number % 3)) for number in range(200)]

    async def work(served: Served, far: socket.socket) -> None:
        assert isinstance(served.sender, SocketSender)
        for number in range(0, 200, 4):
            served.send(*parts[number : number + 4])
        assert served.sender.unsent > 1_000_000
        assert served.sender.waits
        served.sender.close()
        assert await read_all(far) == b"".join(parts)
        assert await served.lost is None

    over_a_socket(work)


def test_who_waits_for_room_is_told_of_it_and_watches_no_longer_than_that() -> None:
    async def work(served: Served, far: socket.socket) -> None:
        before = len(os.listdir("/proc/self/fd"))
        whole = os.urandom(1 << 20)
        served.send(whole)
        assert served.rooms == 0
        received = bytearray()
        while len(received) < len(whole):
            received += await asyncio.get_running_loop().sock_recv(far, 1 << 20)
        await asyncio.sleep(0.05)
        assert received == whole
        assert served.rooms > 1
        assert not served.sender.waits
        assert len(os.listdir("/proc/self/fd")) == before
        served.send(b"small")
        assert await asyncio.get_running_loop().sock_recv(far, 100) == b"small"
        served.sender.close()
        await served.lost

    over_a_socket(work)


@pytest.mark.parametrize("size", [10, 1 << 20])
def test_a_peer_that_is_gone_ends_the_connection(size: int) -> None:
    async def work(served: Served, far: socket.socket) -> None:
        served.send(bytes(size))
        far.close()
        served.send(bytes(size))
        await served.lost
        assert not served.sender.waits
        served.send(b"late")  # before its connection hears of it
        assert served.unreadable == 0

    over_a_socket(work)


def test_a_part_cut_off_behind_its_back_closes_the_connection_and_not_the_process(
    tmp_path: Path,
) -> None:
    disk, path = OsDisk(), f"{tmp_path}/x"
    data = os.urandom(WINDOW_BYTES)
    disk.append(path, [data])

    async def work(served: Served, far: socket.socket) -> None:
        served.send(*disk.view(path, 2 << 20, 0, grows=False))
        assert len(await asyncio.get_running_loop().sock_recv(far, 1000)) == 1000
        disk.truncate(path, 4096)
        rest = await read_all(far)
        assert len(rest) < 2 << 20
        assert served.unreadable == 1
        await served.lost

    over_a_socket(work)
    assert disk.pread(path, 10_000, 0) == data[:4096]
    disk.close()


def test_no_part_of_a_file_is_small_enough_to_be_joined() -> None:
    parts = join_front(deque([b"head", memoryview(bytes(VIEW_BYTES_MIN)), b"tail"]))
    assert [len(part) for part in parts] == [4, VIEW_BYTES_MIN, 4]


def test_parts_of_files_go_to_plain_sockets_alone() -> None:
    class Tls(asyncio.Transport):
        def get_extra_info(self, name: str, default: Any = None) -> Any:
            return {"socket": socket.socket(), "sslcontext": object()}.get(name, default)

    def nothing() -> None: ...

    sender = sender_of(Tls(), nothing, nothing)
    assert isinstance(sender, TlsSender)
    assert not sender.takes_views


class Slow(asyncio.Transport):
    """Takes one piece, then wants a rest."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[bytes] = []
        self.sender: TransportSender | None = None
        self.closed = False

    def write(self, data: Any) -> None:
        self.pieces.append(bytes(data))
        assert self.sender is not None
        self.sender.pause()

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


def test_a_transport_gets_pieces_in_order_and_as_it_has_room() -> None:
    transport = Slow()
    transport.sender = sender = TransportSender(transport)
    whole = bytes(range(256)) * 1000
    sender.send([whole, b"tail"], len(whole) + 4)
    sender.send([b"more"], 4)
    assert len(transport.pieces) == 1
    while sender.unsent:
        sender.resume()
    assert sender.waits  # the transport has something left
    assert all(len(piece) <= PIECE_BYTES for piece in transport.pieces)
    assert b"".join(transport.pieces) == whole + b"tail" + b"more"
    sender.send([b"last"], 4)
    sender.close()
    assert transport.closed
    assert transport.pieces[-1] == b"last"


class Gathered(asyncio.Transport):
    """Takes several pieces at once, and becomes full when it is asked to."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []
        self.taken = b""
        self.full_after = 0
        self.sender: TlsSender | None = None

    def writelines(self, list_of_data: Any) -> None:
        data = b"".join(list_of_data)
        self.sizes.append(len(data))
        self.taken += data
        if self.full_after == len(self.sizes):
            assert self.sender is not None
            self.sender.pause()

    def is_closing(self) -> bool:
        return False


def test_tls_gets_more_at_once_as_long_as_its_peer_keeps_up() -> None:
    transport = Gathered()
    transport.sender = sender = TlsSender(transport)
    whole = bytes(range(256)) * 4096
    sender.send([b"head", whole], 4 + len(whole))
    assert transport.sizes[:3] == [PIECE_BYTES, 2 * PIECE_BYTES, TLS_BYTES_MAX]
    assert max(transport.sizes) == TLS_BYTES_MAX
    assert sender.unsent == 0
    transport.sizes.clear()
    transport.full_after = 1
    sender.send([whole], len(whole))
    assert transport.sizes == [TLS_BYTES_MAX]
    assert sender.unsent == len(whole) - TLS_BYTES_MAX
    sender.resume()
    assert transport.sizes[1] == PIECE_BYTES, "it copies what waits"
    assert transport.taken == b"head" + whole + whole
