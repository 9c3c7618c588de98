"""Reads the numbers in OpenTelemetry's MetricsData, as clients push it (KIP-714).

    MetricsData    1: ResourceMetrics*   2: ScopeMetrics*   2: Metric*
    Metric         1: name   5: Gauge   7: Sum
    Gauge          1: NumberDataPoint*
    Sum            1: NumberDataPoint*   2: temporality (1 delta, 2 cumulative)   3: monotonic
    NumberDataPoint   4: double   6: sfixed64   7: KeyValue*
    KeyValue       1: key   2: AnyValue (1: string   2: bool   3: int   4: double)

Protocol buffers: a tag (field number << 3 | wire type) and a value. Unknown fields are skipped, and
so are histograms and summaries, which no client sends. Runs in a thread: a megabyte takes a tenth
of a second.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from sparkraft.base.errors import DecodeError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DOUBLE = struct.Struct("<d")
_SFIXED64 = struct.Struct("<q")
_VARINT_BITS_MAX = 63
_DELTA = 1
ATTRIBUTES_MAX = 16
"""Attributes of a point; KIP-714's metrics have at most three."""


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


def read_points(data: bytes) -> Iterator[Point]:
    """The points of a payload, in order.

    Raises:
        DecodeError: it is malformed.
    """
    for resource in _parts(memoryview(data), 1):
        for scope in _parts(resource, 2):
            for metric in _parts(scope, 2):
                yield from _points_of(metric)


def _points_of(metric: memoryview) -> Iterator[Point]:
    name = ""
    kinds: list[tuple[int, memoryview]] = []
    for number, value in _fields(metric):
        if number == 1 and isinstance(value, memoryview):
            name = _text(value)
        elif number in {5, 7} and isinstance(value, memoryview):
            kinds.append((number, value))
    for number, body in kinds:
        is_sum = number == 7  # noqa: PLR2004 (see the module docstring)
        temporality = _number(body, 2) if is_sum else 0
        is_total = is_sum and bool(_number(body, 3))
        for point in _parts(body, 1):
            found, attributes = _point(point)
            yield Point(name, attributes, found, is_total, is_sum and temporality == _DELTA)


def _point(body: memoryview) -> tuple[float, tuple[tuple[str, str], ...]]:
    number_of_it: float = 0.0
    attributes: list[tuple[str, str]] = []
    for number, value in _fields(body):
        if number == 4 and isinstance(value, bytes):  # noqa: PLR2004
            number_of_it = _DOUBLE.unpack(value)[0]
        elif number == 6 and isinstance(value, bytes):  # noqa: PLR2004
            number_of_it = float(_SFIXED64.unpack(value)[0])
        elif number == 7 and isinstance(value, memoryview):  # noqa: PLR2004
            attributes.append(_attribute(value))
            if len(attributes) > ATTRIBUTES_MAX:
                raise DecodeError(f"a point has more than {ATTRIBUTES_MAX} attributes")
    return number_of_it, tuple(sorted(attributes))


def _attribute(body: memoryview) -> tuple[str, str]:
    key = text = ""
    for number, value in _fields(body):
        if not isinstance(value, memoryview):
            continue
        if number == 1:
            key = _text(value)
        else:
            text = _any_value(value)
    return key, text


def _any_value(body: memoryview) -> str:
    for number, value in _fields(body):
        if number == 1 and isinstance(value, memoryview):
            return _text(value)
        if number == 4 and isinstance(value, bytes):  # noqa: PLR2004 (a double)
            return str(_DOUBLE.unpack(value)[0])
        if isinstance(value, int):
            return str(value)
    return ""


def _parts(body: memoryview, wanted: int) -> Iterator[memoryview]:
    """The messages in a repeated field."""
    for number, value in _fields(body):
        if number == wanted and isinstance(value, memoryview):
            yield value


def _number(body: memoryview, wanted: int) -> int:
    """The last value of an integer field; 0 if it is missing."""
    found = 0
    for number, value in _fields(body):
        if number == wanted and isinstance(value, int):
            found = value
    return found


def _text(value: memoryview) -> str:
    try:
        return str(value, "utf-8")
    except UnicodeDecodeError as error:
        raise DecodeError("a name is not UTF-8") from error


def _fields(body: memoryview) -> Iterator[tuple[int, int | bytes | memoryview]]:
    """Field numbers and values: an int, the bytes of a fixed size, or a part with a length."""
    at, end = 0, len(body)
    while at < end:
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
