"""The trace of a simulation: one line per event, and a digest of all lines.

A line has the world's time in milliseconds and the event. Nodes are `n1`, or `n1*` if they lead;
logs are `LEO=7 HW=5`, as everywhere in the project.

Invariant: the seed determines each line: no addresses, no sets of strings, no real clock.
"""

from collections import deque
from dataclasses import fields
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from sparkraft.simulation.world.trace_events import TraceEvents

TAIL_LINES = 60
"""Lines kept for the report of a failing seed."""

DIGEST_BYTES = 16

_UNTOLD = frozenset({"cluster_id", "endpoints", "leader_endpoints", "payload", "read", "detail"})
"""Fields that never vary within a run or do not help a reader."""


class Trace:
    """Keeps a trace's digest and last lines; writes all lines to `sink` if there is one.

    Attributes:
        events: gets the same as data, for drawings.
    """

    def __init__(self, sink: TextIO | None = None) -> None:
        self._sink = sink
        self.events: TraceEvents | None = None
        self._digest = blake2b(digest_size=DIGEST_BYTES)
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self.lines = 0

    def add(self, at: int, text: str, kind: str | None = "note", **fields: Any) -> None:
        """Add a line, and with a `kind` an event of it; see `trace_events`."""
        if self.events is not None and kind is not None:
            self.events.add(at, kind, text=text, **fields)
        line = f"{at:>8} {text}\n"
        self._digest.update(line.encode())
        self.tail.append(line)
        self.lines += 1
        if self._sink is not None:
            self._sink.write(line)

    def digest(self) -> str:
        """Return the digest, which is equal for equal traces."""
        return self._digest.hexdigest()


_FIELDS: dict[type[Any], list[tuple[str, Any]]] = {}
"""Cache of field names and defaults by message class."""


def tell(message: Any) -> str:
    """Return a message or effect as text: its name and the fields that differ from the default."""
    kind = type(message)
    known = _FIELDS.get(kind)
    if known is None:
        told = [field for field in fields(kind) if field.name not in _UNTOLD]
        known = _FIELDS[kind] = [(field.name, field.default) for field in told]
    parts = [kind.__name__]
    for name, default in known:
        value = getattr(message, name)
        if value != default and value is not None:
            parts.append(f"{name}={_tell_value(value)}")
    return " ".join(parts)


def _tell_value(value: Any) -> str:
    if isinstance(value, bytes | memoryview | bytearray):
        return f"<{len(value)} bytes {blake2b(value, digest_size=4).hexdigest()}>"
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return "[" + ",".join(_tell_value(item) for item in value) + "]"
    name = getattr(value, "name", None)
    if isinstance(name, str):
        return name
    return _tell_known(value)


def _tell_known(value: Any) -> str:
    match type(value).__name__:
        case "EpochAndOffset":
            return f"{value.epoch}@{value.offset}"
        case "LogBatch":
            controls = "".join(f" {_control(control)}" for control in value.controls)
            return f"({value.epoch}@{value.base_offset}-{value.last_offset}{controls})"
        case "ReplicaKey":
            return (
                f"n{value.id}"
                if value.directory_id is None
                else f"n{value.id}.{value.directory_id[0]}"
            )
        case "VoterSet":
            return _tell_value(tuple(voter.key for voter in value.voters))
        case _:
            return str(value)


def _control(control: Any) -> str:
    match type(control).__name__:
        case "VotersChange":
            return f"voters={_tell_value(control.voters)}"
        case "LeaderChange":
            return f"leader=n{control.leader_id}"
        case "KRaftVersionChange":
            return f"kraft.version={control.kraft_version}"
        case _:
            return "-"
