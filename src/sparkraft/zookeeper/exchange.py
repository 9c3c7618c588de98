"""The bytes of one connection to a ZooKeeper server, without I/O.

    Exchange.open() ─► connect request          ReplyFrame ◄─ Exchange.feed(bytes)
    Exchange.encode(request) ─► frame           WatchEvent, SessionOpened

    frame     int32 length | body
    connect   int32 0 | int64 last zxid | int32 timeout ms | int64 session | buffer password | bool
    response  int32 0 | int32 timeout ms | int64 session | buffer password | bool read-only
    request   int32 xid | int32 op | body
    reply     int32 xid | int64 zxid | int32 error | body, in the order of the requests
    event     a reply with xid -1: int32 type | int32 state | string path

Pings, watches and authentication have fixed xids and are answered between the others.
"""

from collections import deque
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from sparkraft.base.errors import DecodeError
from sparkraft.zookeeper import jute
from sparkraft.zookeeper.jute import Reader
from sparkraft.zookeeper.requests import Request, without_chroot

FRAME_BYTES_MAX = 4 * 1024 * 1024
"""Kafka's `jute.maxbuffer` of clients: the children of /brokers/topics may take megabytes."""

_LENGTH_BYTES = 4
_PASSWORD_BYTES = 16
_XID_EVENT = -1
XID_PING = -2
XID_SET_WATCHES = -8
_XID_MAX = 2**31 - 1


class EventType(IntEnum):
    """Changes of watched znodes."""

    NODE_CREATED = 1
    NODE_DELETED = 2
    NODE_DATA_CHANGED = 3
    NODE_CHILDREN_CHANGED = 4


class WatchEvent(NamedTuple):
    """A watch fired, and is gone."""

    type: EventType
    path: str


class SessionOpened(NamedTuple):
    """The server accepted the connection.

    Attributes:
        session_id: 0 if the session has expired.
        timeout_ms: of the session, as the server decided.
    """

    session_id: int
    timeout_ms: int
    password: bytes
    is_read_only: bool


class Reply(NamedTuple):
    """The reply to the oldest request in flight, or to a ping.

    Attributes:
        reader: at the body.
    """

    xid: int
    zxid: int
    code: int
    reader: Reader


@dataclass(slots=True)
class SessionState:
    """The part of a session that outlives its connections."""

    session_id: int = 0
    password: bytes = bytes(_PASSWORD_BYTES)
    last_zxid: int = 0
    """The newest transaction seen; a server that has not seen it refuses the connection."""


class Exchange:
    """Encodes requests and decodes what a server sends, in order."""

    def __init__(self, chroot: str) -> None:
        self.chroot = chroot
        self._buffer = bytearray()
        self._is_open = False
        self._xid = 0
        self._in_flight: deque[int] = deque()

    def open(self, session: SessionState, timeout_ms: int) -> bytes:
        """Return the first frame: continue `session`, or start one if its id is 0."""
        body = (
            jute.encode_int(0)
            + jute.encode_long(session.last_zxid)
            + jute.encode_int(timeout_ms)
            + jute.encode_long(session.session_id)
            + jute.encode_buffer(session.password)
            + jute.encode_bool(value=False)
        )
        return jute.encode_buffer(body)

    def encode(self, request: Request, xid: int = 0) -> bytes:
        """Return the frame of `request`; `xid` 0 takes the next number."""
        body = request.encode(self.chroot)
        if not xid:
            self._xid = self._xid % _XID_MAX + 1
            xid = self._xid
            self._in_flight.append(xid)
        return jute.encode_buffer(jute.encode_int(xid) + jute.encode_int(request.op) + body)

    def feed(self, data: bytes) -> list[SessionOpened | WatchEvent | Reply]:
        """Take bytes of the server; return what they complete.

        Raises:
            DecodeError: not ZooKeeper's protocol, a frame above 4 MiB, or a reply out of order.
        """
        self._buffer += data
        found: list[SessionOpened | WatchEvent | Reply] = []
        while (frame := self._next_frame()) is not None:
            found.append(self._decode(frame) if self._is_open else self._decode_opened(frame))
        return found

    def _next_frame(self) -> bytes | None:
        if len(self._buffer) < _LENGTH_BYTES:
            return None
        size = int.from_bytes(self._buffer[:_LENGTH_BYTES], "big", signed=True)
        if not 0 <= size <= FRAME_BYTES_MAX:
            raise DecodeError(
                f"a frame of {size} bytes: longer than {FRAME_BYTES_MAX} (jute.maxbuffer), or not "
                "from a ZooKeeper server",
                at=0,
            )
        end = _LENGTH_BYTES + size
        if len(self._buffer) < end:
            return None
        frame = bytes(self._buffer[_LENGTH_BYTES:end])
        del self._buffer[:end]
        return frame

    def _decode_opened(self, frame: bytes) -> SessionOpened:
        reader = Reader(frame)
        reader.read_int()
        timeout_ms, session_id = reader.read_int(), reader.read_long()
        password = reader.read_buffer() or b""
        is_read_only = reader.read_bool() if reader.at < len(frame) else False
        self._is_open = True
        is_expired = timeout_ms <= 0
        return SessionOpened(0 if is_expired else session_id, timeout_ms, password, is_read_only)

    def _decode(self, frame: bytes) -> WatchEvent | Reply:
        reader = Reader(frame)
        xid, zxid, code = reader.read_int(), reader.read_long(), reader.read_int()
        if xid == _XID_EVENT:
            return self._decode_event(reader)
        if xid > 0 and (not self._in_flight or self._in_flight.popleft() != xid):
            raise DecodeError(f"reply {xid} is out of order")
        return Reply(xid, zxid, code, reader)

    def _decode_event(self, reader: Reader) -> WatchEvent:
        kind, _, path = reader.read_int(), reader.read_int(), reader.read_string()
        try:
            return WatchEvent(EventType(kind), without_chroot(self.chroot, path))
        except ValueError as error:
            raise DecodeError(f"unknown type of event {kind}") from error
