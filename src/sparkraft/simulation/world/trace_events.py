"""The events of a simulation as data: a JSON document per line, for drawings.

The first line describes the run, the last one its result (`simulate --trace-json`). The lines
between them are events. Each has `t`, the world's time in milliseconds, and a `kind`:

kind              other fields
starts, stops     node: it is started; it is killed, loses power or exits
pauses, resumes   node
becomes           node, state, epoch: a new state in its quorum
log               node, epoch, end, highWatermark: a new high watermark
sends             id, node, to, message: a request, a response or a write to a connection
arrives, lost     id: of the message; a request may arrive twice
cuts              links: pairs of nodes; messages of the first one do not reach the second
does              node: another step, such as an append
fault             node, if it concerns one
violation         invariant
note              none

Most events have `text`, the line of the trace.
"""

import json
import re
from collections.abc import Callable, Iterable
from typing import Any, TextIO

FORMAT = 1
"""Version of the lines; raised if a reader of the old ones would misread the new ones."""

Links = Callable[[], Iterable[tuple[Any, Any]]]
"""Returns the directed pairs of nodes, by name or number, that are cut."""


class TraceEvents:
    """Writes events; invariant: nothing in the world depends on it."""

    def __init__(self, sink: TextIO, links: Links) -> None:
        self._sink = sink
        self._links = links
        self._cut: frozenset[tuple[Any, Any]] = frozenset()

    def add(self, at: int, kind: str, **fields: Any) -> None:
        """Add an event; first the links, if others are cut than at the last event."""
        cut = frozenset(self._links())
        if cut != self._cut:
            self._cut = cut
            links = sorted([_name(origin), _name(target)] for origin, target in cut)
            self.write({"t": at, "kind": "cuts", "links": links})
        self.write({"t": at, "kind": kind, **fields})

    def write(self, document: dict[str, Any]) -> None:
        """Add a line as it is."""
        self._sink.write(json.dumps(document, separators=(",", ":")) + "\n")


def _name(node: Any) -> str:
    return f"n{node}" if isinstance(node, int) else str(node)


def message_name(message: Any) -> str:
    """Return what a message is, in words: a `FetchRequest` is a "Fetch request"."""
    name = type(message).__name__
    if getattr(message, "pre_vote", False):
        name = "Pre" + name
    found = re.fullmatch(r"(\w+)(Request|Response)", name)
    return f"{found[1]} {found[2].lower()}" if found else name
