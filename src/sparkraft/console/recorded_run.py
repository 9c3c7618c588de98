"""A recorded simulation, `simulate --trace-json`, indexed by time so that any part is read quickly.

`RecordedRun` reads the file once. It keeps the few events that a drawing of the whole run needs,
the position of every 100 ms in the file, and for each message its position and when it arrived. A
window of time is then read from the file.
"""

from __future__ import annotations

import json
import re
from array import array
from bisect import bisect_left
from threading import Lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FORMAT = 1
"""Of the file; see `simulation.world.trace_events`."""

STEP_MS = 100
"""Distance of the indexed positions."""

WINDOW_ITEMS_MAX = 1_500
"""Events, and messages, in a window; a drawing of more shows nothing."""

OVERVIEW_EVENTS_MAX = 10_000

LONG_MESSAGE_MS = 5_000
"""Messages under way for longer are few, and are looked at for every window."""

UNDER_WAY, ARRIVED, LOST = range(3)
"""The state of a message at the end of the run."""

_FATES = {"arrives": ARRIVED, "lost": LOST}
_FATE_NAMES = {ARRIVED: "arrives", LOST: "lost"}
_IS_FETCH = re.compile(r" Fetch(Request|Response) ")
_DETAILS = frozenset({"does", "log"})


class RunFileError(ValueError):
    """The file is not a recorded run; the message names the line."""


class RecordedRun:
    """One run.

    Attributes:
        about: the first line: tier, scenario, seed, nodes, command.
        overview: starts, stops, states, faults, cuts and the violation, in order.
        omitted: events beyond `OVERVIEW_EVENTS_MAX`.
        end_ms: time of the last event.
        result: the last line: the invariant that did not hold and why; None if the file has none.
    """

    def __init__(self, path: Path) -> None:
        """Read the file.

        Raises:
            RunFileError: it has another format or is damaged.
            OSError: it cannot be read.
        """
        self._path = path
        self._lock = Lock()
        self.about: dict[str, Any] = {}
        self.overview: list[dict[str, Any]] = []
        self.omitted = 0
        self.end_ms = 0
        self.result: dict[str, Any] | None = None
        self._steps = array("q")
        self._starts = array("q")
        self._places = array("q")
        self._ends = array("q")
        self._fates = bytearray()
        self._index_of: dict[int, int] = {}
        self._again: dict[int, list[tuple[int, int]]] = {}
        self._file = path.open("rb")
        try:
            self._read()
        except BaseException:
            self._file.close()
            raise
        self._long = [
            index
            for index, fate in enumerate(self._fates)
            if fate == UNDER_WAY or self._ends[index] - self._starts[index] > LONG_MESSAGE_MS
        ]

    def close(self) -> None:
        self._file.close()

    def _read(self) -> None:
        place = 0
        for number, line in enumerate(self._file, start=1):
            try:
                document = json.loads(line)
                if number == 1:
                    self._read_about(document)
                else:
                    self._read_event(document, place)
            except (ValueError, KeyError, TypeError) as error:
                raise RunFileError(
                    f"{self._path}: line {number} was not written by simulate --trace-json: "
                    f"{type(error).__name__}: {error}"
                ) from error
            place += len(line)
        if not self.about:
            raise RunFileError(f"{self._path} is empty")

    def _read_about(self, document: dict[str, Any]) -> None:
        if document["format"] != FORMAT:
            raise ValueError(f"its format is {document['format']}, this release reads {FORMAT}")
        self.about = document

    def _read_event(self, event: dict[str, Any], place: int) -> None:
        at, kind = event["t"], event["kind"]
        while len(self._steps) * STEP_MS <= at:
            self._steps.append(place)
        self.end_ms = max(self.end_ms, at)
        if kind == "sends":
            self._index_of[event["id"]] = len(self._starts)
            self._starts.append(at)
            self._places.append(place)
            self._ends.append(at)
            self._fates.append(UNDER_WAY)
        elif kind in _FATES:
            self._read_fate(self._index_of[event["id"]], at, _FATES[kind])
        elif kind == "end":
            self.result = event
        elif kind not in _DETAILS:
            self._keep(event)

    def _read_fate(self, index: int, at: int, fate: int) -> None:
        if self._fates[index] == UNDER_WAY:
            self._ends[index] = at
            self._fates[index] = fate
        else:
            self._again.setdefault(index, []).append((at, fate))

    def _keep(self, event: dict[str, Any]) -> None:
        if len(self.overview) < OVERVIEW_EVENTS_MAX:
            self.overview.append(event)
        else:
            self.omitted += 1

    # ---- windows

    def window(self, from_ms: int, to_ms: int, *, with_fetches: bool) -> dict[str, Any]:
        """Return what happens from `from_ms` to before `to_ms`, as data.

        Args:
            from_ms: the first millisecond.
            to_ms: the first one that is not part of the window.
            with_fetches: whether to include Fetch requests and responses, which are most messages.

        Returns:
            `events` in order; `messages` under way in the window, each with its `ends` (time and
            whether it arrives or is lost); and `omitted`, the number of events and messages that
            exceed `WINDOW_ITEMS_MAX`.
        """
        with self._lock:
            events = list(self._events(from_ms, to_ms))
            messages = [self._message(index) for index in self._under_way(from_ms, to_ms)]
        if not with_fetches:
            messages = [one for one in messages if not one["message"].startswith("Fetch ")]
            events = [one for one in events if not _IS_FETCH.search(one.get("text", ""))]
        counts = (len(events), len(messages))
        return {
            "events": events[:WINDOW_ITEMS_MAX],
            "messages": messages[:WINDOW_ITEMS_MAX],
            "omitted": sum(max(0, count - WINDOW_ITEMS_MAX) for count in counts),
        }

    def _events(self, from_ms: int, to_ms: int) -> Iterator[dict[str, Any]]:
        step = max(0, from_ms) // STEP_MS
        if step >= len(self._steps):
            return
        self._file.seek(self._steps[step])
        for line in self._file:
            event = json.loads(line)
            if event["t"] >= to_ms:
                return
            if event["t"] >= from_ms and event["kind"] not in {"sends", "end", *_FATES}:
                yield event

    def _under_way(self, from_ms: int, to_ms: int) -> Iterator[int]:
        first = bisect_left(self._starts, from_ms - LONG_MESSAGE_MS)
        last = bisect_left(self._starts, to_ms)
        for index in self._long:
            is_over = self._fates[index] != UNDER_WAY and self._ends[index] < from_ms
            if index < first and not is_over:
                yield index
        for index in range(first, last):
            if self._fates[index] == UNDER_WAY or self._ends[index] >= from_ms:
                yield index

    def _message(self, index: int) -> dict[str, Any]:
        self._file.seek(self._places[index])
        message: dict[str, Any] = json.loads(self._file.readline())
        fate = self._fates[index]
        ends = [] if fate == UNDER_WAY else [(self._ends[index], fate)]
        ends += self._again.get(index, [])
        message["ends"] = [{"t": at, "kind": _FATE_NAMES[fate]} for at, fate in ends]
        return message
