"""TCP in memory: ordered streams with latency, split at random, stalled by loss and partitions.

A lost segment delays a stream by a retransmission. A cut link stalls it until the link is restored
or the sender gives up. A killed process resets its connections, and so may a middlebox between two
machines; a machine without power sends nothing. Each direction of a link has its own latency and
can be cut or slowed down separately.
"""

import asyncio
import errno
import random
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Protocol
from zlib import crc32

from sparkraft.simulation.world.loop import CURRENT, Incarnation, SimLoop

RETRANSMIT_S = 0.2
GIVE_UP_S = 20.0
CONNECT_GIVE_UP_S = 10.0
CHUNKS_MAX = 3
"""The largest number of pieces in which a write arrives."""

LINK_S = (0.0001, 0.002)
"""Bounds of the base latency, chosen for each direction of each link."""

JITTER_S = (0.0001, 0.002)
"""Bounds of the extra latency of each piece."""


class TrafficWatch(Protocol):
    """Sees the bytes of all connections."""

    def on_write(self, end: "SimTransport", raw: bytes) -> None:
        """Called when a process writes to its end of a connection."""

    def on_read(self, end: "SimTransport", count: int) -> None:
        """Called when the process at `end` reads."""

    def on_drop(self, end: "SimTransport") -> None:
        """Called when what was written at `end`, and not read yet, is lost."""


class SimNetwork:
    """All links and listeners.

    Attributes:
        cut: directed pairs of machine names.
        loss: fraction of pieces that are retransmitted once.
        slow_s: directed pairs of machine names → extra latency of each piece.
        on_bytes: called for every write with the sender's end of the connection and the bytes.
        watch: sees writes and reads, for drawings.
    """

    def __init__(self, loop: SimLoop, dice: random.Random) -> None:
        self.loop = loop
        self.dice = dice
        self.cut: set[tuple[str, str]] = set()
        self.loss = 0.0
        self.slow_s: dict[tuple[str, str], float] = {}
        self._link_s: dict[tuple[str, str], float] = {}
        self.on_bytes: Callable[[SimTransport, bytes], None] = lambda *_: None
        self.watch: TrafficWatch | None = None
        self._machines: dict[str, str] = {}
        """Host name → the machine it leads to, if that has another name; "" for no machine."""
        self._servers: dict[tuple[str, int], SimServer] = {}
        self._transports: dict[Incarnation, list[SimTransport]] = {}
        self._next_port = 40_000

    def latency_s(self, origin: str, target: str) -> float:
        """Return the latency of one piece from `origin` to `target`."""
        link = (origin, target)
        base = self._link_s.get(link)
        if base is None:
            base = self._link_s[link] = self.dice.uniform(*LINK_S)
        delay = base + self.dice.uniform(*JITTER_S) + self.slow_s.get(link, 0.0)
        return delay + RETRANSMIT_S if self.dice.random() < self.loss else delay

    def is_cut(self, origin: str, target: str) -> bool:
        """Return whether the link from `origin` to `target` is cut."""
        return (origin, target) in self.cut

    # ---- host names

    def add_host(self, host: str, machine: str) -> None:
        """Let another host name lead to a machine."""
        self._machines[host] = machine

    def withdraw_host(self, host: str) -> None:
        """Let a host name lead nowhere, and reset the connections that were opened by it."""
        self._machines[host] = ""
        for end in self.connections():
            if end.host == host:
                end.break_off()

    def machine_of(self, host: str) -> str:
        """Return the machine that a host name leads to; "" after it was withdrawn."""
        return self._machines.get(host, host)

    # ---- listening and connecting

    async def listen(
        self, factory: Callable[[], asyncio.Protocol], host: str | None, port: int
    ) -> "SimServer":
        """See `sparkraft.server.env.Network`."""
        _ = host
        owner = CURRENT.get()
        assert owner is not None
        known = self._servers.get((owner.name, port))
        if known is not None and not known.incarnation.dead:
            raise OSError(errno.EADDRINUSE, "Address already in use")
        server = self._servers[owner.name, port] = SimServer(self, owner, factory, port)
        return server

    def listens(self, host: str, port: int) -> Incarnation | None:
        """Return the incarnation that accepts connections there, or None."""
        server = self._servers.get((self.machine_of(host), port))
        served = server is not None and server.serving and not server.incarnation.dead
        return server.incarnation if server is not None and served else None

    def forget(self, server: "SimServer") -> None:
        """Remove a closed listener."""
        key = (server.incarnation.name, server.port)
        if self._servers.get(key) is server:
            del self._servers[key]

    async def connect(
        self, factory: Callable[[], Any], host: str, port: int
    ) -> tuple["SimTransport", Any]:
        """See `sparkraft.server.env.Network`."""
        origin = CURRENT.get()
        assert origin is not None
        return await self.connect_from(origin, factory, host, port)

    async def connect_from(
        self, origin: Incarnation, factory: Callable[[], Any], host: str, port: int
    ) -> tuple["SimTransport", Any]:
        """Open a connection, or raise OSError."""
        given_up = self.loop.now + CONNECT_GIVE_UP_S
        machine = self.machine_of(host)
        await self._wait(origin, self.latency_s(origin.name, machine))
        while True:
            server = self._servers.get((machine, port))
            lost = self.is_cut(origin.name, machine) or self.is_cut(machine, origin.name)
            if not lost and not (server is not None and server.incarnation.silent):
                break
            if self.loop.now >= given_up:
                raise TimeoutError(errno.ETIMEDOUT, "Connection timed out")
            await self._wait(origin, RETRANSMIT_S)
        await self._wait(origin, self.latency_s(machine, origin.name))
        if server is None or server.incarnation.dead or not server.serving:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        return self._join(origin, factory, server, host)

    def _join(
        self, origin: Incarnation, factory: Callable[[], Any], server: "SimServer", host: str
    ) -> tuple["SimTransport", Any]:
        self._next_port += 1
        near = (origin.name, self._next_port)
        far = (server.incarnation.name, server.port)
        here = SimTransport(self, origin, near, far)
        there = SimTransport(self, server.incarnation, far, near)
        here.peer, there.peer = there, here
        here.opened_it = True
        here.host = host
        for transport in (here, there):
            self._transports.setdefault(transport.incarnation, []).append(transport)
        protocol = here.protocol = factory()
        protocol.connection_made(here)
        self.loop.after(0, there.accept, server.factory, of=server.incarnation)
        return here, protocol

    async def _wait(self, origin: Incarnation, delay_s: float) -> None:
        future: asyncio.Future[None] = self.loop.create_future()

        def wake() -> None:
            if not future.done():
                future.set_result(None)

        self.loop.after(delay_s, wake, of=origin)
        await future

    # ---- resets and crashes

    def connections(self) -> list["SimTransport"]:
        """Return one end of each open connection, oldest first."""
        ends = (end for known in self._transports.values() for end in known)
        return [end for end in ends if end.opened_it and not end.is_closing()]

    def reset(self, one: str, other: str) -> int:
        """Reset all connections between two machines; return how many.

        Bytes in flight are lost, even in the middle of a request.
        """
        between = [end for end in self.connections() if {end.near, end.far} == {one, other}]
        for end in between:
            end.break_off()
        return len(between)

    def reset_all(self, incarnation: Incarnation) -> None:
        """Reset the connections of a killed process, as its kernel does."""
        for transport in self._transports.pop(incarnation, []):
            transport.vanish()

    def silence(self, incarnation: Incarnation) -> None:
        """Mark a machine as powered off: its peers notice only by timeouts."""
        incarnation.silent = True

    def on_gone(self, transport: "SimTransport") -> None:
        """Remove a closed transport."""
        known = self._transports.get(transport.incarnation)
        if known is not None and transport in known:
            known.remove(transport)


class SimServer(asyncio.AbstractServer):
    """A listening socket."""

    sockets = ()

    def __init__(
        self, network: SimNetwork, incarnation: Incarnation, factory: Callable[[], Any], port: int
    ) -> None:
        self._network = network
        self.incarnation = incarnation
        self.factory = factory
        self.port = port
        self.serving = False

    async def start_serving(self) -> None:
        """Accept connections."""
        self.serving = True

    def close(self) -> None:
        """Free the port."""
        self.serving = False
        self._network.forget(self)

    async def wait_closed(self) -> None:
        """Return at once."""

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """See `asyncio`."""
        return self._network.loop

    async def serve_forever(self) -> None:
        """Not supported; nodes call `start_serving`."""
        raise NotImplementedError

    def is_serving(self) -> bool:
        """Return whether it accepts connections."""
        return self.serving


def ip_of(machine: str) -> str:
    """Return the IP address of a machine or a client."""
    number = crc32(machine.encode())
    return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"


def _socket_name(machine: str, port: int) -> tuple[str, int]:
    return ip_of(machine), port


class SimTransport(asyncio.Transport):
    """One end of a connection; `peer` is the other."""

    def __init__(
        self,
        network: SimNetwork,
        incarnation: Incarnation,
        near: tuple[str, int],
        far: tuple[str, int],
    ) -> None:
        super().__init__({"sockname": _socket_name(*near), "peername": _socket_name(*far)})
        self._network = network
        self._loop = network.loop
        self.incarnation = incarnation
        self.protocol: Any = None
        self.peer: SimTransport
        self.near, self.far = near[0], far[0]
        self.far_port = far[1]
        self.opened_it = False
        self.host = ""
        """The host name by which it was opened, at this end."""
        self._queue: deque[bytes | None] = deque()
        self._pumping = False
        self._stalled_since: float | None = None
        self._unread = 0
        self._high, self._low = 64 * 1024, 16 * 1024
        self._writing_paused = False
        self._reading_paused = False
        self._arrived: deque[bytes | None] = deque()
        self._closing = False
        self._gone = False

    # ---- called by protocols

    def write(self, data: Any) -> None:
        """See `asyncio`."""
        raw = bytes(data)
        if self._closing or not raw or self.incarnation.dead:
            return
        self._network.on_bytes(self, raw)
        if self._network.watch is not None:
            self._network.watch.on_write(self, raw)
        self._unread += len(raw)
        for piece in self._pieces(raw):
            self._queue.append(piece)
        self._pump_later()
        if self._unread > self._high and not self._writing_paused:
            self._writing_paused = True
            self.protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        """See `asyncio`."""
        self.write(b"".join(list_of_data))

    def _pieces(self, raw: bytes) -> list[bytes]:
        dice = self._network.dice
        cuts = sorted(dice.randrange(len(raw)) for _ in range(dice.randrange(CHUNKS_MAX)))
        bounds = [0, *cuts, len(raw)]
        found = [raw[a:b] for a, b in pairwise(bounds)]
        return [piece for piece in found if piece]

    def close(self) -> None:
        """See `asyncio`."""
        if self._closing:
            return
        self._closing = True
        self._queue.append(None)
        self._pump_later()
        self._loop.call_soon(self._lose, None)

    def abort(self) -> None:
        """See `asyncio`."""
        if self._gone:
            return
        self._closing = True
        self._drop()
        self._loop.call_soon(self._lose, None)
        self._reset_peer()

    def is_closing(self) -> bool:
        """See `asyncio`."""
        return self._closing

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes the other side has not read."""
        return self._unread

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """See `asyncio`."""
        self._high = 64 * 1024 if high is None else high
        self._low = self._high // 4 if low is None else low

    def pause_reading(self) -> None:
        """See `asyncio`."""
        self._reading_paused = True

    def resume_reading(self) -> None:
        """See `asyncio`."""
        self._reading_paused = False
        self._loop.after(0, self._hand_over, of=self.incarnation)

    def is_reading(self) -> bool:
        """See `asyncio`."""
        return not self._reading_paused

    # ---- bytes on their way

    def _drop(self) -> None:
        self._queue.clear()
        if self._network.watch is not None:
            self._network.watch.on_drop(self)

    def _pump_later(self) -> None:
        if not self._pumping and self._queue:
            self._pumping = True
            delay_s = self._network.latency_s(self.near, self.far)
            self._loop.after(delay_s, self._pump, of=None)

    def _pump(self) -> None:
        """Send a piece, as the kernel does, even while the process is paused."""
        self._pumping = False
        if self.incarnation.silent:  # without power its kernel sends nothing either
            self._drop()
        if not self._queue:
            return
        peer = self.peer
        if self._network.is_cut(self.near, self.far) or peer.incarnation.silent:
            self._stall()
            return
        self._stalled_since = None
        if peer.incarnation.dead:
            self._drop()
            return
        self._loop.after(0, peer.receive, self._queue.popleft(), of=peer.incarnation)
        self._pump_later()

    def _stall(self) -> None:
        now = self._loop.now
        if self._stalled_since is None:
            self._stalled_since = now
        if now - self._stalled_since > GIVE_UP_S:
            self._drop()
            self._closing = True
            error = TimeoutError(errno.ETIMEDOUT, "Connection timed out")
            self._loop.after(0, self._lose, error, of=self.incarnation)
            return
        self._pumping = True
        self._loop.after(RETRANSMIT_S, self._pump, of=None)

    def accept(self, factory: Callable[[], Any]) -> None:
        """Accept the connection in the listening process."""
        self.protocol = factory()
        self.protocol.connection_made(self)
        self._hand_over()

    def receive(self, piece: bytes | None) -> None:
        """Receive a piece, or None for the end of the stream."""
        if self._gone:
            self._reset_peer()  # the kernel knows no such connection
            return
        self._arrived.append(piece)
        self._hand_over()

    def _hand_over(self) -> None:
        while self._arrived and not self._reading_paused and self.protocol is not None:
            piece = self._arrived.popleft()
            if self._gone or self._closing:
                return
            if piece is None:
                if not self.protocol.eof_received():
                    self.close()
                return
            self._loop.after(0, self.peer.on_taken, len(piece), of=self.peer.incarnation)
            if self._network.watch is not None:
                self._network.watch.on_read(self, len(piece))
            self.protocol.data_received(piece)

    def on_taken(self, count: int) -> None:
        """Called when the other side has read `count` bytes."""
        self._unread -= count
        if self._writing_paused and self._unread <= self._low:
            self._writing_paused = False
            if not self._gone:
                self.protocol.resume_writing()

    # ---- the end

    def _lose(self, error: Exception | None) -> None:
        if self._gone:
            return
        self._gone = self._closing = True
        self._network.on_gone(self)
        if self._network.watch is not None:
            self._network.watch.on_drop(self.peer)
        if self.protocol is not None:
            self.protocol.connection_lost(error)

    def vanish(self) -> None:
        """Close this end of a killed process."""
        self._gone = self._closing = True
        self._drop()
        self._reset_peer()

    def break_off(self) -> None:
        """Reset the connection at both ends."""
        for end in (self, self.peer):
            error = ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
            self._loop.after(0, end.on_reset, error, of=end.incarnation)

    def _reset_peer(self) -> None:
        def arrive() -> None:
            if self._network.is_cut(self.near, self.far):
                self._loop.after(RETRANSMIT_S, arrive, of=None)
                return
            error = ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
            self._loop.after(0, self.peer.on_reset, error, of=self.peer.incarnation)

        delay_s = self._network.latency_s(self.near, self.far)
        self._loop.after(delay_s, arrive, of=None)

    def on_reset(self, error: Exception) -> None:
        """Called when the other side has reset the connection."""
        self._drop()
        self._lose(error)


def tell_bytes(raw: bytes) -> str:
    """Return the size and a checksum of the bytes as text."""
    return f"{len(raw)} bytes {crc32(raw):08x}"
