"""Writes to the connections of a simulated network as messages for drawings.

A message is one write: usually a request or a response, sometimes several. It arrives when the
other side has read its last byte, and is lost if the connection ends before.
"""

import struct
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from sparkraft.protocol.api_keys import ApiKey

_REQUEST = struct.Struct(">hhi")
_NAMES = {key.value: key.name.title().replace("_", "") for key in ApiKey}


@dataclass(slots=True)
class _Direction:
    """The bytes that one end of a connection has written.

    Attributes:
        written: bytes.
        read: bytes that the other end has read of them.
        unread: position of the last byte, and id, of each message that has not arrived.
        asked: correlation id → name of each request without a response.
    """

    written: int = 0
    read: int = 0
    unread: deque[tuple[int, int]] = field(default_factory=deque)
    asked: dict[int, str] = field(default_factory=dict)


class WireMessages:
    """Records messages; see `network.TrafficWatch`. An end of a connection is a `SimTransport`."""

    def __init__(self, record: Callable[..., None]) -> None:
        """Record with `record(kind, **fields)`; see `trace_events`."""
        self._record = record
        self._messages = 0
        self._directions: dict[Any, _Direction] = {}

    def on_write(self, end: Any, raw: bytes) -> None:
        self._messages += 1
        direction = self._direction(end)
        direction.written += len(raw)
        direction.unread.append((direction.written, self._messages))
        sender, receiver = end.incarnation.name, end.peer.incarnation.name
        name = self._name(end, raw)
        self._record(
            "sends",
            id=self._messages,
            node=sender,
            to=receiver,
            message=name,
            text=f"{sender} sends {receiver}: {name}, {len(raw)} bytes",
        )

    def on_read(self, end: Any, count: int) -> None:
        direction = self._direction(end.peer)
        direction.read += count
        while direction.unread and direction.unread[0][0] <= direction.read:
            self._record("arrives", id=direction.unread.popleft()[1])

    def on_drop(self, end: Any) -> None:
        direction = self._directions.pop(end, None)
        for _, message in direction.unread if direction is not None else ():
            self._record("lost", id=message)

    def _direction(self, end: Any) -> _Direction:
        return self._directions.setdefault(end, _Direction())

    def _name(self, end: Any, raw: bytes) -> str:
        names = [self._frame_name(end, frame) for frame in _frames(raw)]
        if not names:
            return "bytes"
        return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"

    def _frame_name(self, end: Any, frame: bytes) -> str:
        if not end.opened_it:
            asked = self._direction(end.peer).asked
            name = asked.pop(int.from_bytes(frame[:4], signed=True), None)
            return "response" if name is None else f"{name} response"
        if len(frame) < _REQUEST.size:
            return "bytes"
        key, _, correlation_id = _REQUEST.unpack_from(frame)
        name = _NAMES.get(key, f"API {key}")
        self._direction(end).asked[correlation_id] = name
        return f"{name} request"


def _frames(raw: bytes) -> Iterator[bytes]:
    """Yield the frames that `raw` begins with; nothing unless it begins with a whole one."""
    at = 0
    while at + 4 <= len(raw):
        size = int.from_bytes(raw[at : at + 4], signed=True)
        if size < 4 or at + 4 + size > len(raw):  # noqa: PLR2004 (a correlation id)
            return
        yield raw[at + 4 : at + 4 + size]
        at += 4 + size
