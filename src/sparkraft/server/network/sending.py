"""Large answers to a socket, without copying them on the way.

A transport of asyncio copies what the socket doesn't take at once, and before Python 3.12 it joins
what `writelines` gets. While a transport holds nothing back, what waits may go to the socket with
one writev; what is left then goes through the transport, piece by piece, and the transport tells
when there is room again.

Not here: when a connection writes, and in which order (`connection`).
"""

import asyncio
import os
from collections import deque
from itertools import islice
from typing import Any

PIECE_BYTES = 64 * 1024
"""What a transport gets at once: it copies what the socket doesn't take."""

_SMALL_BYTES = 32 * 1024
"""Parts below it are joined with small neighbours: a copy is cheaper than a further buffer."""

_JOINED_BYTES_MAX = 512 * 1024

_BUFFERS_MAX = 64
"""Buffers of one writev: more than one answer has, and far below Linux's 1024."""


def plain_fd(transport: asyncio.Transport) -> int:
    """The descriptor of a transport that sends bytes as they are; -1 where there is none."""
    socket = transport.get_extra_info("socket")
    if socket is None or transport.get_extra_info("sslcontext") is not None:
        return -1
    return int(socket.fileno())


def join_small(parts: list[Any]) -> list[Any]:
    """`parts` with small neighbours joined; large ones stay as they are."""
    out: list[Any] = []
    small: list[Any] = []
    small_bytes = 0
    for part in parts:
        size = len(part)
        if size < _SMALL_BYTES:
            small.append(part)
            small_bytes += size
            if small_bytes < _JOINED_BYTES_MAX:
                continue
        if small:
            out.append(b"".join(small) if len(small) > 1 else small[0])
            small, small_bytes = [], 0
        if size >= _SMALL_BYTES:
            out.append(memoryview(part))
    if small:
        out.append(b"".join(small) if len(small) > 1 else small[0])
    return out


def write_straight(fd: int, backlog: deque[Any]) -> None:
    """Send from the front of `backlog` what the socket takes now.

    An error is left to the transport, which meets the same one and closes the connection. The
    caller makes sure that `fd` is still the transport's and that the transport holds nothing back.
    """
    while backlog:
        try:
            sent = os.writev(fd, list(islice(backlog, _BUFFERS_MAX)))
        except OSError:
            return
        while backlog and sent >= len(backlog[0]):
            sent -= len(backlog.popleft())
        if sent:
            backlog[0] = memoryview(backlog[0])[sent:]
            return


def next_piece(backlog: deque[Any]) -> Any:
    """Take what a transport gets next from the front of a `backlog` that isn't empty."""
    front = backlog[0]
    if len(front) <= PIECE_BYTES:
        return backlog.popleft()
    view = memoryview(front)
    backlog[0] = view[PIECE_BYTES:]
    return view[:PIECE_BYTES]
