"""A ZooKeeper ensemble in memory: servers that speak the wire protocol and agree at once.

    Ensemble   tree, sessions and watches, the state on which the real servers agree
    _Link      one client's connection to one server

The protocol between the servers is not simulated, only its effects on clients. An ensemble without
a leader serves nothing and closes all connections (`lose_leader`); with the next leader each
session has its whole timeout again. A session without a message for its timeout expires. A reply
may be lost after its write was applied (`lose_reply`). Events precede the reply of any later read.

It runs on any asyncio loop, so tests compare it with a real ensemble over real sockets.
"""

import asyncio
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparkraft.base.env import Clock
from sparkraft.base.errors import DecodeError
from sparkraft.server.env import Network
from sparkraft.simulation.world.znodes import Applied, MultiRefusedError, RefusedError, Znodes
from sparkraft.zookeeper import jute
from sparkraft.zookeeper.errors import Code
from sparkraft.zookeeper.exchange import EventType, WatchEvent
from sparkraft.zookeeper.jute import Reader
from sparkraft.zookeeper.requests import (
    Acl,
    Check,
    Create,
    Delete,
    Multi,
    Op,
    Operation,
    SetAcl,
    SetData,
    Stat,
)

if TYPE_CHECKING:
    from collections.abc import Callable

SESSION_TICKS = (2, 20)
"""Session timeouts are at least two and at most twenty ticks."""

READS = {Op.SYNC, Op.GET_ACL, Op.EXISTS, Op.GET_DATA, Op.GET_CHILDREN2}
"""Operations that read, besides MULTI_READ."""

PASSWORD_BYTES = 16
_LENGTH_BYTES = 4
_SYNC_CONNECTED = 3
_MULTI_END = jute.encode_int(-1) + jute.encode_bool(value=True) + jute.encode_int(-1)


@dataclass(slots=True, eq=False)
class _Session:
    id: int
    password: bytes
    timeout_ms: int
    heard_ms: int
    link: "_Link | None" = None
    data_watches: set[str] = field(default_factory=set)
    child_watches: set[str] = field(default_factory=set)


class Ensemble:
    """The servers of an ensemble; see the module's docstring.

    Attributes:
        znodes: the tree.
        has_leader: whether the servers serve.
        lose_reply: asked for each write after it was applied; true closes the connection instead
            of replying.
        serves_multi_read: false for servers before ZooKeeper 3.6, which respond to an operation
            that they do not know with UNIMPLEMENTED and close the connection.
    """

    def __init__(self, clock: Clock, dice: random.Random, *, tick_ms: int = 500) -> None:
        self.znodes = Znodes()
        self.has_leader = True
        self.lose_reply: Callable[[], bool] = lambda: False
        self.serves_multi_read = True
        self._clock = clock
        self._dice = dice
        self._tick_ms = tick_ms
        self._sessions: dict[int, _Session] = {}
        self._links: dict[_Link, None] = {}
        """In the order of their connections."""
        self._next_session = 0x100_0000_0000_0001

    async def listen(self, network: Network, host: str, port: int) -> asyncio.AbstractServer:
        """Open one server; call it once per server of the ensemble."""
        server = await network.listen(lambda: _Link(self), host, port)
        await server.start_serving()
        return server

    async def run(self) -> None:
        """Expire sessions until cancelled, in steps of a tick."""
        while True:
            await asyncio.sleep(self._tick_ms / 1000)
            self.expire_sessions()

    @property
    def sessions(self) -> list[int]:
        """The ids of live sessions."""
        return sorted(self._sessions)

    def lose_leader(self) -> None:
        """Stop serving: the leader crashed, or the majority is gone."""
        self.has_leader = False
        for link in list(self._links):
            link.close()

    def elect_leader(self) -> None:
        """Serve again; each session has its whole timeout from now on."""
        self.has_leader = True
        for session in self._sessions.values():
            session.heard_ms = self._clock.mono_ms()

    def expire_sessions(self) -> None:
        """End the sessions whose timeout has passed."""
        if not self.has_leader:
            return
        now = self._clock.mono_ms()
        for session in list(self._sessions.values()):
            if now - session.heard_ms > session.timeout_ms:
                self.expire(session.id)

    def expire(self, session_id: int) -> None:
        """End a session at once; its client learns it when it connects again."""
        session = self._sessions.pop(session_id)
        if session.link is not None:
            session.link.close()
        self._notify(self.znodes.end_session(session_id))

    # For links

    def add(self, link: "_Link") -> None:
        self._links[link] = None

    def remove(self, link: "_Link") -> None:
        self._links.pop(link, None)
        if link.session is not None and link.session.link is link:
            link.session.link = None
            link.session.data_watches.clear()
            link.session.child_watches.clear()

    def open(self, session_id: int, password: bytes, timeout_ms: int) -> _Session | None:
        """Return the session to continue, or a new one for id 0; None if it has expired."""
        if session_id:
            session = self._sessions.get(session_id)
            if session is None or session.password != password:
                return None
            session.heard_ms = self._clock.mono_ms()
            return session
        low, high = (ticks * self._tick_ms for ticks in SESSION_TICKS)
        self.znodes.next_zxid()
        session = _Session(
            self._next_session,
            self._dice.randbytes(PASSWORD_BYTES),
            min(max(timeout_ms, low), high),
            self._clock.mono_ms(),
        )
        self._next_session += 1
        self._sessions[session.id] = session
        return session

    def hear(self, session: _Session) -> None:
        session.heard_ms = self._clock.mono_ms()

    def close_session(self, session: _Session) -> None:
        self._sessions.pop(session.id, None)
        self._notify(self.znodes.end_session(session.id))

    def write(self, session: _Session, write: "Create | Delete | SetData | SetAcl") -> object:
        return self._done(self.znodes.apply(write, session.id, self._clock.wall_ms()))[0]

    def multi(self, session: _Session, multi: Multi) -> list[object]:
        return self._done(self.znodes.apply_multi(multi, session.id, self._clock.wall_ms()))

    def _done(self, applied: Applied) -> list[object]:
        self._notify(applied.events)
        return applied.results

    def _notify(self, events: list[WatchEvent]) -> None:
        for event in events:
            for session in self._sessions.values():
                if session.link is not None and _take_watch(session, event):
                    session.link.send_event(event)


def _take_watch(session: _Session, event: WatchEvent) -> bool:
    """Whether a watch of `session` fires; it is gone then."""
    tables = {
        EventType.NODE_CREATED: [session.data_watches],
        EventType.NODE_DATA_CHANGED: [session.data_watches],
        EventType.NODE_DELETED: [session.data_watches, session.child_watches],
        EventType.NODE_CHILDREN_CHANGED: [session.child_watches],
    }[event.type]
    fires = any(event.path in table for table in tables)
    for table in tables:
        table.discard(event.path)
    return fires


class _Link(asyncio.Protocol):
    """One connection; requests are handled one by one, in order."""

    def __init__(self, ensemble: Ensemble) -> None:
        self.session: _Session | None = None
        self._ensemble = ensemble
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._ensemble.add(self)
        if not self._ensemble.has_leader:
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ensemble.remove(self)

    def close(self) -> None:
        self._ensemble.remove(self)
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while not self._is_closing() and (frame := self._next_frame()) is not None:
            try:
                self._handle(Reader(frame))
            except DecodeError:
                self.close()

    def send_event(self, event: WatchEvent) -> None:
        body = jute.encode_int(event.type) + jute.encode_int(_SYNC_CONNECTED)
        self._reply(-1, -1, Code.OK, body + jute.encode_string(event.path))

    def _is_closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def _next_frame(self) -> bytes | None:
        if len(self._buffer) < _LENGTH_BYTES:
            return None
        end = _LENGTH_BYTES + int.from_bytes(self._buffer[:_LENGTH_BYTES], "big")
        if len(self._buffer) < end:
            return None
        frame = bytes(self._buffer[_LENGTH_BYTES:end])
        del self._buffer[:end]
        return frame

    def _write(self, body: bytes) -> None:
        if not self._is_closing():
            assert self._transport is not None
            self._transport.write(jute.encode_buffer(body))

    def _reply(self, xid: int, zxid: int, code: int, body: bytes = b"") -> None:
        header = jute.encode_int(xid) + jute.encode_long(zxid) + jute.encode_int(code)
        self._write(header + body)

    def _handle(self, reader: Reader) -> None:
        if self.session is None:
            self._open(reader)
            return
        self._ensemble.hear(self.session)
        xid, op = reader.read_int(), reader.read_int()
        writes = op in {Op.CREATE, Op.DELETE, Op.SET_DATA, Op.SET_ACL, Op.MULTI}
        code, body = self._result(self.session, op, reader)
        if writes and self._ensemble.lose_reply():
            self.close()
            return
        self._reply(xid, self._ensemble.znodes.zxid, code, body)
        if op == Op.CLOSE or code == Code.UNIMPLEMENTED:
            self.close()

    def _open(self, reader: Reader) -> None:
        reader.read_int()
        zxid, timeout_ms, session_id = reader.read_long(), reader.read_int(), reader.read_long()
        password = reader.read_buffer() or b""
        if zxid > self._ensemble.znodes.zxid:
            self.close()  # the client has seen what this server has not
            return
        found = self._ensemble.open(session_id, password, timeout_ms)
        if found is not None:
            if found.link is not None:
                found.link.close()
            found.link = self
            self.session = found
        body = jute.encode_int(0) + jute.encode_int(found.timeout_ms if found else 0)
        body += jute.encode_long(found.id if found else 0)
        body += jute.encode_buffer(found.password if found else bytes(PASSWORD_BYTES))
        self._write(body + jute.encode_bool(value=False))
        if found is None:
            self.close()

    def _result(  # noqa: PLR0911 (one for each kind of operation)
        self, session: _Session, op: int, reader: Reader
    ) -> tuple[int, bytes]:
        try:
            match op:
                case Op.MULTI:
                    return Code.OK, self._multi(session, reader)
                case Op.MULTI_READ if self._ensemble.serves_multi_read:
                    return Code.OK, self._multi_read(reader)
                case Op.CREATE | Op.DELETE | Op.SET_DATA | Op.SET_ACL:
                    write = _decode_write(op, reader)
                    assert not isinstance(write, Check)
                    return Code.OK, _encode_result(self._ensemble.write(session, write))
                case Op.CLOSE:
                    self._ensemble.close_session(session)
                    return Code.OK, b""
                case Op.PING:
                    return Code.OK, b""
                case Op.SET_WATCHES:
                    self._set_watches(session, reader)
                    return Code.OK, b""
                case _:
                    return Code.OK, self._read(session, op, reader)
        except RefusedError as refused:
            return refused.code, b""

    def _multi(self, session: _Session, reader: Reader) -> bytes:
        operations: list[Operation] = []
        while True:
            op, is_end, _ = reader.read_int(), reader.read_bool(), reader.read_int()
            if is_end:
                break
            write = _decode_write(op, reader)
            assert not isinstance(write, SetAcl)
            operations.append(write)
        try:
            results = self._ensemble.multi(session, Multi(tuple(operations)))
        except MultiRefusedError as refused:
            return b"".join(
                _multi_frame(Op.ERROR, jute.encode_int(c), c) for c in refused.codes
            ) + (_MULTI_END)
        frames = (
            _multi_frame(operation.op, _encode_result(result))
            for operation, result in zip(operations, results, strict=True)
        )
        return b"".join(frames) + _MULTI_END

    def _multi_read(self, reader: Reader) -> bytes:
        frames: list[bytes] = []
        while True:
            op, is_end, _ = reader.read_int(), reader.read_bool(), reader.read_int()
            if is_end:
                return b"".join(frames) + _MULTI_END
            path, _ = reader.read_string(), reader.read_bool()  # a watch is not set
            try:
                node = self._ensemble.znodes.get(path)
            except RefusedError as refused:
                frames.append(_multi_frame(Op.ERROR, jute.encode_int(refused.code), refused.code))
            else:
                body = jute.encode_buffer(node.data) + encode_stat(node.stat())
                frames.append(_multi_frame(op, body))

    def _read(self, session: _Session, op: int, reader: Reader) -> bytes:
        if op not in READS:
            raise RefusedError(Code.UNIMPLEMENTED)
        path = reader.read_string()
        znodes = self._ensemble.znodes
        if op == Op.SYNC:
            return jute.encode_string(path)
        if op == Op.GET_ACL:
            node = znodes.get(path)
            entries = [
                jute.encode_int(entry.permissions)
                + jute.encode_string(entry.scheme)
                + jute.encode_string(entry.id)
                for entry in node.acl
            ]
            return jute.encode_int(len(entries)) + b"".join(entries) + encode_stat(node.stat())
        watch = reader.read_bool()
        if op == Op.EXISTS and watch:
            session.data_watches.add(path)
        node = znodes.get(path)
        if op == Op.EXISTS:
            return encode_stat(node.stat())
        if watch:
            (session.data_watches if op == Op.GET_DATA else session.child_watches).add(path)
        if op == Op.GET_DATA:
            return jute.encode_buffer(node.data) + encode_stat(node.stat())
        return jute.encode_strings(sorted(node.children)) + encode_stat(node.stat())

    def _set_watches(self, session: _Session, reader: Reader) -> None:
        """Set watches again; those whose znode has changed since `zxid` fire at once."""
        zxid = reader.read_long()
        data, exist, child = reader.read_strings(), reader.read_strings(), reader.read_strings()
        for path in data:
            self._watch_again(
                session, session.data_watches, path, zxid, EventType.NODE_DATA_CHANGED
            )
        for path in exist:
            if self._stat(path) is not None:
                self.send_event(WatchEvent(EventType.NODE_CREATED, path))
            else:
                session.data_watches.add(path)
        for path in child:
            changed = EventType.NODE_CHILDREN_CHANGED
            self._watch_again(session, session.child_watches, path, zxid, changed)

    def _watch_again(
        self, session: _Session, table: set[str], path: str, zxid: int, changed: EventType
    ) -> None:
        stat = self._stat(path)
        if stat is None:
            self.send_event(WatchEvent(EventType.NODE_DELETED, path))
        elif (stat.mzxid if table is session.data_watches else stat.pzxid) > zxid:
            self.send_event(WatchEvent(changed, path))
        else:
            table.add(path)

    def _stat(self, path: str) -> Stat | None:
        try:
            return self._ensemble.znodes.get(path).stat()
        except RefusedError:
            return None


def _multi_frame(op: int, body: bytes, code: int = 0) -> bytes:
    return jute.encode_int(op) + jute.encode_bool(value=False) + jute.encode_int(code) + body


def encode_stat(stat: Stat) -> bytes:
    longs = b"".join(map(jute.encode_long, stat[:4]))
    ints = b"".join(map(jute.encode_int, stat[4:7]))
    owner = jute.encode_long(stat.ephemeral_owner)
    sizes = jute.encode_int(stat.data_length) + jute.encode_int(stat.num_children)
    return longs + ints + owner + sizes + jute.encode_long(stat.pzxid)


def _encode_result(result: object) -> bytes:
    match result:
        case str():
            return jute.encode_string(result)
        case Stat():
            return encode_stat(result)
        case _:
            return b""


def _decode_write(op: int, reader: Reader) -> "Create | Delete | SetData | SetAcl | Check":
    path = reader.read_string()
    match op:
        case Op.CREATE:
            data, acl, flags = reader.read_buffer() or b"", _decode_acl(reader), reader.read_int()
            return Create(
                path=path, data=data, acl=acl, ephemeral=bool(flags & 1), sequential=bool(flags & 2)
            )
        case Op.DELETE:
            return Delete(path=path, version=reader.read_int())
        case Op.SET_DATA:
            return SetData(path=path, data=reader.read_buffer() or b"", version=reader.read_int())
        case Op.SET_ACL:
            return SetAcl(path=path, acl=_decode_acl(reader), version=reader.read_int())
        case Op.CHECK:
            return Check(path=path, version=reader.read_int())
        case _:
            raise RefusedError(Code.UNIMPLEMENTED)


def _decode_acl(reader: Reader) -> tuple[Acl, ...]:
    return tuple(
        Acl(reader.read_int(), reader.read_string(), reader.read_string())
        for _ in range(reader.read_count())
    )
