"""Reads the numbers in OpenTelemetry's MetricsData, as clients push it (KIP-714).

    MetricsData    1: ResourceMetrics*   2: ScopeMetrics*   2: Metric*
    Metric         1: name   5: Gauge   7: Sum
    Gauge          1: NumberDataPoint*
    Sum            1: NumberDataPoint*   2: temporality (1 delta, 2 cumulative)   3: monotonic
    NumberDataPoint   4: double   6: sfixed64   7: KeyValue*
    KeyValue       1: key   2: AnyValue (1: string   2: bool   3: int   4: double)

Protocol buffers: a tag (field number << 3 | wire type) and a value. Unknown fields are skipped, and
so are histograms and summaries, which no client sends. Runs in a thread, which pauses: a megabyte
takes a tenth of a second.
"""

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from sparkraft.base.errors import DecodeError
from sparkraft.base.loop_work import LoopBound

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DOUBLE = struct.Struct("<d")
_SFIXED64 = struct.Struct("<q")
_VARINT_BITS_MAX = 63
_DELTA = 1
ATTRIBUTES_MAX = 16
"""Attributes of a point; KIP-714's metrics have at most three."""


FIELDS_PER_PAUSE: LoopBound = 1_000
"""Fields read at once by a thread, which keeps the interpreter for about 2 ms then."""


class Point(NamedTuple):
    """One number.

    Attributes:
        name: of the metric.
        attributes: sorted keys and values.
        value: the number.
        is_total: it only grows: a monotonic sum.
        is_delta: it counts since the last push, not since the start.
    """

    name: str
    attributes: tuple[tuple[str, str], ...]
    value: float
    is_total: bool
    is_delta: bool


def read_points(data: bytes, pause: Callable[[], None] = lambda: None) -> Iterator[Point]:
    """The points of a payload, in order. `pause` is called after every `FIELDS_PER_PAUSE` fields.

    Raises:
        DecodeError: it is malformed.
    """
    return _Reader(pause).points(memoryview(data))


class _Reader:
    """Reads one payload, and counts its fields."""

    def __init__(self, pause: Callable[[], None]) -> None:
        self._pause = pause
        self._left = FIELDS_PER_PAUSE

    def points(self, data: memoryview) -> Iterator[Point]:
        """All points."""
        for resource in self._parts(data, 1):
            for scope in self._parts(resource, 2):
                for metric in self._parts(scope, 2):
                    yield from self._points_of(metric)

    def _points_of(self, metric: memoryview) -> Iterator[Point]:
        name = ""
        kinds: list[tuple[int, memoryview]] = []
        for number, value in self._fields(metric):
            if number == 1 and isinstance(value, memoryview):
                name = _text(value)
            elif number in {5, 7} and isinstance(value, memoryview):
                kinds.append((number, value))
        for number, body in kinds:
            is_sum = number == 7  # noqa: PLR2004 (see the module docstring)
            temporality = self._number(body, 2) if is_sum else 0
            is_total = is_sum and bool(self._number(body, 3))
            for point in self._parts(body, 1):
                found, attributes = self._point(point)
                yield Point(name, attributes, found, is_total, is_sum and temporality == _DELTA)

    def _point(self, body: memoryview) -> tuple[float, tuple[tuple[str, str], ...]]:
        number_of_it: float = 0.0
        attributes: list[tuple[str, str]] = []
        for number, value in self._fields(body):
            if number == 4 and isinstance(value, bytes):  # noqa: PLR2004
                number_of_it = _DOUBLE.unpack(value)[0]
            elif number == 6 and isinstance(value, bytes):  # noqa: PLR2004
                number_of_it = float(_SFIXED64.unpack(value)[0])
            elif number == 7 and isinstance(value, memoryview):  # noqa: PLR2004
                attributes.append(self._attribute(value))
                if len(attributes) > ATTRIBUTES_MAX:
                    raise DecodeError(f"a point has more than {ATTRIBUTES_MAX} attributes")
        return number_of_it, tuple(sorted(attributes))

    def _attribute(self, body: memoryview) -> tuple[str, str]:
        key = text = ""
        for number, value in self._fields(body):
            if not isinstance(value, memoryview):
                continue
            if number == 1:
                key = _text(value)
            else:
                text = self._any_value(value)
        return key, text

    def _any_value(self, body: memoryview) -> str:
        for number, value in self._fields(body):
            if number == 1 and isinstance(value, memoryview):
                return _text(value)
            if number == 4 and isinstance(value, bytes):  # noqa: PLR2004 (a double)
                return str(_DOUBLE.unpack(value)[0])
            if isinstance(value, int):
                return str(value)
        return ""

    def _parts(self, body: memoryview, wanted: int) -> Iterator[memoryview]:
        """The messages in a repeated field."""
        for number, value in self._fields(body):
            if number == wanted and isinstance(value, memoryview):
                yield value

    def _number(self, body: memoryview, wanted: int) -> int:
        """The last value of an integer field; 0 if it is missing."""
        found = 0
        for number, value in self._fields(body):
            if number == wanted and isinstance(value, int):
                found = value
        return found

    def _fields(self, body: memoryview) -> Iterator[tuple[int, int | bytes | memoryview]]:
        """Field numbers and values: an int, the bytes of a fixed size, or a part with a length."""
        at, end = 0, len(body)
        while at < end:
            self._left -= 1
            if self._left < 0:
                self._left = FIELDS_PER_PAUSE
                self._pause()
            tag, at = _varint(body, at)
            kind = tag & 7
            value: int | bytes | memoryview
            if kind == _VARINT:
                value, at = _varint(body, at)
            elif kind == _BYTES:
                size, at = _varint(body, at)
                value = body[at : at + size]
                at += size
            elif kind in {_FIXED64, _FIXED32}:
                size = 8 if kind == _FIXED64 else 4
                value = bytes(body[at : at + size])
                at += size
            else:
                raise DecodeError(f"unknown wire type {kind}", at=at)
            if at > end:
                raise DecodeError("a field ends after its message", at=end)
            yield tag >> 3, value


def _text(value: memoryview) -> str:
    try:
        return str(value, "utf-8")
    except UnicodeDecodeError as error:
        raise DecodeError("a name is not UTF-8") from error


def _varint(body: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift <= _VARINT_BITS_MAX:
        if at >= len(body):
            raise DecodeError("the message ends within a number", at=at)
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 (the continuation bit)
            return value, at
        shift += 7
    raise DecodeError("a number of more than 10 bytes", at=at)
