"""Large answers arrive whole, whatever the socket takes at a time."""

import socket
from collections import deque
from typing import Any

from sparkraft.server.network.sending import PIECE_BYTES, join_small, next_piece, write_straight


def test_small_parts_are_joined_and_large_ones_are_not_copied() -> None:
    large = bytes(100_000)
    parts = join_small([b"head", b"more", large, b"tail"])
    assert [bytes(part) for part in parts] == [b"headmore", large, b"tail"]
    assert parts[1].obj is large


def test_a_socket_gets_every_byte_once_though_it_takes_few_at_a_time() -> None:
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        sent = [bytes([number]) * (1 + 37_777 * (number % 3)) for number in range(200)]
        backlog: deque[Any] = deque(sent)
        received = bytearray()
        while backlog:
            write_straight(near.fileno(), backlog)
            received += far.recv(1 << 20)
        near.shutdown(socket.SHUT_WR)
        while more := far.recv(1 << 20):
            received += more
        assert received == b"".join(sent)


def test_a_peer_that_is_gone_leaves_the_backlog_to_the_transport() -> None:
    near, far = socket.socketpair()
    with near:
        far.close()
        backlog: deque[Any] = deque([b"answer"])
        write_straight(near.fileno(), backlog)
        assert list(backlog) == [b"answer"]


def test_a_transport_gets_pieces_in_order() -> None:
    whole = bytes(range(256)) * 1000
    backlog: deque[Any] = deque([memoryview(whole), b"tail"])
    pieces = []
    while backlog:
        pieces.append(bytes(next_piece(backlog)))
        assert len(pieces[-1]) <= PIECE_BYTES
    assert b"".join(pieces) == whole + b"tail"
