"""Inject network faults into TCP connections between real processes, without root privileges.

Each node has a proxy and advertises the proxy's port, so all connections to it pass the proxy. The
proxy identifies the connecting node by the client id of its first request (`raft-client-1`,
`broker-1-fetcher-0`, `1`), because faults are set per pair of nodes and per direction:

    node 1 ──connects──> [proxy of node 2] ──> node 2
             link 1→2: requests                 link 2→1: responses

    cut         nothing passes; data is held back, as TCP would retransmit it
    delay       each chunk arrives later by this time
    throttle    limit on bytes per second
    slice       limit on the size of a chunk
    reset       the connections between two nodes are reset
    half-open   one side closes its socket without the other side noticing

Invariants:
    * A new connection needs both directions: if one is cut, the node never sees the connection.
    * Closing a connection passes only a link that is not cut.
    * A proxy listens only while its node does, so refused connections stay refused.

Not here: packet loss, which TCP turns into delay. Bytes are never reordered.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any

from sparkraft.testing.proxy_socket import End

LOOK_SECONDS = 0.05
"""Interval between attempts to connect to a node that refused a connection."""

THROTTLE_PIECES_PER_SECOND = 20
"""Chunks per second on a throttled link, so that it trickles instead of sending bursts."""

OUTSIDE = "client"
"""The name of any client that is not a node."""

_NODE_CLIENT_ID = re.compile(r"(?:raft-client-|broker-)?(\d{1,9})(?:-.*)?")
_HEAD_BYTES = 14  # length, API key, version, correlation id, and the client id's length


def node_of_client_id(client_id: str) -> str:
    """Return the id of the sparkraft or Apache Kafka node with this client id, else `OUTSIDE`."""
    found = _NODE_CLIENT_ID.fullmatch(client_id)
    return found[1] if found else OUTSIDE


@dataclass(slots=True)
class Link:
    """The faults of one direction between two names."""

    is_cut: bool = False
    delay_ms: int = 0
    bytes_per_second: int = 0
    """0: no limit."""
    slice_bytes: int = 0
    """0: no limit."""
    changed: asyncio.Event = field(default_factory=asyncio.Event, repr=False)

    def set(self, **faults: int) -> None:
        """Set faults and wake up connections that wait on this link."""
        for name, value in faults.items():
            setattr(self, name, value)
        self.changed.set()
        self.changed.clear()

    def heal(self) -> None:
        """Remove all faults from this link."""
        self.set(is_cut=False, delay_ms=0, bytes_per_second=0, slice_bytes=0)

    async def passable(self) -> None:
        """Wait until the link is not cut."""
        while self.is_cut:
            await self.changed.wait()

    @property
    def piece_bytes(self) -> int:
        """Size limit of a chunk; 0 for no limit."""
        paced = self.bytes_per_second and max(
            1, self.bytes_per_second // THROTTLE_PIECES_PER_SECOND
        )
        return min(filter(None, (paced, self.slice_bytes)), default=0)


@dataclass(slots=True, eq=False)
class _Connection:
    """Two sockets and the names at their ends."""

    origin: str
    target: str
    near: End
    far: End
    lanes: asyncio.Task[None] | None = None

    def end_at(self, name: str) -> End:
        return self.near if name == self.origin else self.far


@dataclass(slots=True, eq=False)
class _Route:
    """A node and the port of its proxy."""

    name: str
    host: str
    listen_port: int
    target_port: int
    server: asyncio.Server | None = None
    watcher: asyncio.Task[None] | None = None


class FaultProxy:
    """See the module docstring. Belongs to one event loop; `close` stops everything.

    Attributes:
        seen: how often each fault affected data or connections, and total `connections` and
            `bytes`.
    """

    def __init__(self, node_of: Callable[[str], str] = node_of_client_id) -> None:
        """Create a proxy without routes; `node_of` maps a client id to a name."""
        self.seen: Counter[str] = Counter()
        self._node_of = node_of
        self._routes: dict[str, _Route] = {}
        self._links: dict[tuple[str, str], Link] = {}
        self._connections: dict[_Connection, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    # ---- faults

    def link(self, origin: str, target: str) -> Link:
        """Return the link from `origin` to `target`, whichever side connected."""
        return self._links.setdefault((origin, target), Link())

    def cut(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Cut the direction from the first to the second name of each pair."""
        for origin, target in pairs:
            self.link(origin, target).set(is_cut=True)

    def heal(self) -> None:
        """Remove all faults from all links; held data passes."""
        for link in self._links.values():
            link.heal()

    def reset(self, one: str, other: str) -> int:
        """Reset the connections between the two names and return their number."""
        found = self._between(one, other)
        for connection in found:
            self._stop_lanes(connection)
            connection.near.close(reset=True)
            connection.far.close(reset=True)
        self.seen["reset"] += len(found)
        return len(found)

    def half_open(self, unaware: str, closed: str) -> int:
        """Reset the ends of `closed` only; `unaware` keeps its ends. Return how many there were."""
        found = self._between(unaware, closed)
        for connection in found:
            self._stop_lanes(connection)
            connection.end_at(unaware).swallow()
            connection.end_at(closed).close(reset=True)
        self.seen["half-open"] += len(found)
        return len(found)

    def _between(self, one: str, other: str) -> list[_Connection]:
        return [
            c
            for c in self._connections
            if {c.origin, c.target} == {one, other} and not (c.near.swallows or c.far.swallows)
        ]

    def _stop_lanes(self, connection: _Connection) -> None:
        if connection.lanes is not None:
            connection.lanes.cancel()
            connection.lanes = None

    # ---- routes

    async def route(
        self, name: str, *, listen_port: int, target_port: int, host: str = "127.0.0.1"
    ) -> None:
        """Forward connections to `listen_port` to node `name` at `target_port` once it listens.

        Raises:
            OSError: the port is in use.
        """
        route = _Route(name, host, listen_port, target_port)
        self._routes[f"{name}:{listen_port}"] = route
        await self._listen(route)
        await self._look(route)

    async def _listen(self, route: _Route) -> None:
        loop = asyncio.get_running_loop()

        def made() -> End:
            end = End()
            end.on_made = lambda near: self._start(self._serve(near, route))
            return end

        route.server = await loop.create_server(made, route.host, route.listen_port)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _look(self, route: _Route) -> None:
        """Stop listening while the node does not listen."""
        if not await _listens(route) and route.watcher is None:
            self.seen["refused"] += 1
            if route.server is not None:
                route.server.close()
                route.server = None
            route.watcher = self._start(self._until_it_listens(route))

    async def _until_it_listens(self, route: _Route) -> None:
        while not await _listens(route):  # noqa: ASYNC110 (another process sends no event)
            await asyncio.sleep(LOOK_SECONDS)
        await self._listen(route)
        route.watcher = None

    # ---- connections

    async def _serve(self, near: End, route: _Route) -> None:
        origin = self._node_of(await _client_id(near))
        if not await self._comes_about(near, origin, route.name):
            self.seen["given up"] += 1
            near.close(reset=True)
            return
        try:
            _, far = await asyncio.get_running_loop().create_connection(
                End, route.host, route.target_port
            )
        except OSError:
            await self._look(route)
            near.close(reset=True)
            return
        self.seen["connections"] += 1
        connection = _Connection(origin, route.name, near, far)
        self._connections[connection] = None
        connection.lanes = self._start(self._join(connection, route))
        try:
            await asyncio.wait([connection.lanes])
            while connection.near.swallows and not near.ended:
                await near.take()
            while connection.far.swallows and not far.ended:
                await far.take()
        finally:
            self._connections.pop(connection, None)
            near.close()
            far.close()

    async def _comes_about(self, near: End, origin: str, target: str) -> bool:
        """Wait until both directions pass; return False if the client gives up first."""
        there, back = self.link(origin, target), self.link(target, origin)
        gone = asyncio.ensure_future(near.gone())
        try:
            while (there.is_cut or back.is_cut) and not near.ended:
                self.seen["cut"] += 1
                passable = asyncio.ensure_future((there if there.is_cut else back).passable())
                await asyncio.wait({gone, passable}, return_when=asyncio.FIRST_COMPLETED)
                passable.cancel()
        finally:
            gone.cancel()
        return not near.ended

    async def _join(self, connection: _Connection, route: _Route) -> None:
        near, far = connection.near, connection.far
        async with asyncio.TaskGroup() as lanes:
            lanes.create_task(self._carry(near, far, connection.origin, route.name, None))
            lanes.create_task(self._carry(far, near, route.name, connection.origin, route))

    async def _carry(
        self, source: End, sink: End, origin: str, target: str, route: _Route | None
    ) -> None:
        """Forward all data and the end of the stream; `route` is that of the source, if a node."""
        link = self.link(origin, target)
        while (piece := await source.take()) is not None:
            came, data = piece
            await self._late(link, came)
            view = memoryview(data)
            while view:
                await self._held(link)
                size = link.piece_bytes or len(view)
                if link.slice_bytes and size < len(view):
                    self.seen["slice"] += 1
                if sink.lost:
                    source.close(reset=True)
                    return
                await sink.write(bytes(view[:size]))
                self.seen["bytes"] += min(size, len(view))
                await self._pace(link, min(size, len(view)))
                view = view[size:]
        await self._held(link)
        if route is not None:
            # Stop listening before clients see the close, so that a reconnect is refused.
            await self._look(route)
        if source.ended == "reset":
            sink.close(reset=True)
        else:
            sink.finish()

    async def _late(self, link: Link, came: float) -> None:
        now = asyncio.get_running_loop().time()
        if link.delay_ms:
            self.seen["delay"] += 1
            await asyncio.sleep(max(0.0, came + link.delay_ms / 1000 - now))

    async def _held(self, link: Link) -> None:
        if link.is_cut:
            self.seen["cut"] += 1
            await link.passable()

    async def _pace(self, link: Link, size: int) -> None:
        if link.bytes_per_second:
            self.seen["throttle"] += 1
            await asyncio.sleep(size / link.bytes_per_second)
        elif link.slice_bytes:
            await asyncio.sleep(0)

    async def close(self) -> None:
        """Stop listening and reset all connections."""
        for route in self._routes.values():
            if route.server is not None:
                route.server.close()
        for connection in list(self._connections):
            connection.near.close(reset=True)
            connection.far.close(reset=True)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _listens(route: _Route) -> bool:
    try:
        _, writer = await asyncio.open_connection(route.host, route.target_port)
    except OSError:
        return False
    writer.close()
    return True


async def _client_id(near: End) -> str:
    """Read the client id from the first request header; all versions from 1 on have it there."""
    head = await near.first(_HEAD_BYTES)
    size = int.from_bytes(head[_HEAD_BYTES - 2 : _HEAD_BYTES], "big", signed=True)
    if len(head) < _HEAD_BYTES or size <= 0:
        return ""
    head = await near.first(_HEAD_BYTES + size)
    return head[_HEAD_BYTES : _HEAD_BYTES + size].decode(errors="replace")
