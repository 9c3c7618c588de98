"""Points of OpenTelemetry's metrics, against bytes written by hand."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkraft.base.errors import DecodeError
from sparkraft.server.broker.otlp_points import (
    ATTRIBUTES_MAX,
    FIELDS_PER_PAUSE,
    Point,
    read_points,
)


def varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes((value & 0x7F | 0x80,))
        value >>= 7
    return out + bytes((value,))


def part(number: int, body: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(body)) + body


def flag(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def attribute(key: str, value: bytes) -> bytes:
    return part(7, part(1, key.encode()) + part(2, value))


def text(value: str) -> bytes:
    return part(1, value.encode())


def double(value: float) -> bytes:
    return varint(4 << 3 | 1) + struct.pack("<d", value)


def integer(value: int) -> bytes:
    return varint(6 << 3 | 1) + struct.pack("<q", value)


def gauge(name: str, *points: bytes) -> bytes:
    return part(2, part(1, name.encode()) + part(5, b"".join(part(1, each) for each in points)))


def total(name: str, *points: bytes, temporality: int = 1, monotonic: int = 1) -> bytes:
    body = b"".join(part(1, each) for each in points) + flag(2, temporality) + flag(3, monotonic)
    return part(2, part(1, name.encode()) + part(7, body))


def payload(*metrics: bytes) -> bytes:
    """MetricsData with one resource and one scope."""
    return part(1, part(1, attribute("job", text("x"))) + part(2, b"".join(metrics)))


def test_gauges_and_sums_with_attributes():
    data = payload(
        gauge("latency", double(1.5), integer(-7) + attribute("node", text("3"))),
        total("sent", integer(10)),
        total("size", integer(4), temporality=2, monotonic=0),
    )
    assert list(read_points(data)) == [
        Point("latency", (), 1.5, False, False),
        Point("latency", (("node", "3"),), -7.0, False, False),
        Point("sent", (), 10.0, True, True),
        Point("size", (), 4.0, False, False),
    ]


def test_attributes_of_other_types_are_text():
    point = integer(1) + attribute("id", flag(3, 5)) + attribute("on", flag(2, 1))
    (found,) = read_points(payload(gauge("x", point)))
    assert found.attributes == (("id", "5"), ("on", "1"))


def test_histograms_and_unknown_fields_are_skipped():
    histogram = part(2, part(1, b"h") + part(9, part(1, double(1))))
    fixed32 = varint(99 << 3 | 5) + bytes(4)
    assert list(read_points(payload(histogram) + fixed32)) == []


def test_too_many_attributes_are_refused():
    point = integer(1) + b"".join(attribute(str(n), text("v")) for n in range(ATTRIBUTES_MAX + 1))
    with pytest.raises(DecodeError, match="attributes"):
        list(read_points(payload(gauge("x", point))))


@pytest.mark.parametrize(
    "data",
    [
        payload(gauge("x", *[double(1)] * (2 * FIELDS_PER_PAUSE))),
        payload(*[gauge("x")] * FIELDS_PER_PAUSE),
        payload(part(2, flag(99, 1) * (4 * FIELDS_PER_PAUSE))),
    ],
    ids=["points", "metrics", "unknown fields"],
)
def test_a_thread_pauses_whatever_the_payload_consists_of(data):
    pauses: list[int] = []
    list(read_points(data, lambda: pauses.append(1)))
    assert len(pauses) >= 3


WHOLE = payload(gauge("latency", double(1.5) + attribute("node", text("3"))))


@pytest.mark.parametrize("cut", range(1, len(WHOLE)))
def test_every_cut_is_an_error(cut):
    with pytest.raises(DecodeError):
        list(read_points(WHOLE[:cut]))


@given(st.binary(max_size=200))
def test_any_bytes_are_points_or_an_error(data):
    try:
        list(read_points(data))
    except DecodeError:
        return
