"""Runs of equal layout and the compiled walks accept what the walk record by record accepts."""

import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sparkraft.base.errors import DecodeError
from sparkraft.records.batch import BATCH_OVERHEAD
from sparkraft.records.filter import Place, places_in_python
from sparkraft.records.record import BatchBuilder
from sparkraft.records.runs import RUN_MIN, find_run
from sparkraft.records.walk import walk_in_python
from tests.support.native import native

LENGTHS = st.sampled_from([None, 0, 1, 5, 63, 64, 200, 8191, 8192])
STEPS = st.sampled_from([[0], [1], [0, 3, -2], [63, 64], [7, 100, 9_000], [1 << 40]])
COUNTS = st.sampled_from([1, 3, 5, 6, 7, 63, 64, 65, 66, 70, 130])


def equal_records(count, key, value, steps, headers=()):
    """Records with equal lengths, and timestamps that grow by `steps` in turn."""
    builder = BatchBuilder()
    timestamp = 1_000
    for index in range(count):
        content = [None if size is None else bytes([index & 0xFF]) * size for size in (key, value)]
        builder.append(timestamp, *content, headers)
        timestamp += steps[index % len(steps)]
    return builder.build()[BATCH_OVERHEAD:]


def one_by_one(data, count):
    """Walk each record alone, so that no run is looked for; None if one is unusual."""
    at = keyless = 0
    lows, highs = [], []
    for index in range(count):
        part = walked(walk_in_python, data, at, index, index + 1)
        if part is None:
            return None
        at, low, high, without_key = part
        lows.append(low)
        highs.append(high)
        keyless += without_key
    return at, min(lows), max(highs), keyless


def walked(walk, data, at, first, last):
    """One walk; None if it is cut off."""
    try:
        part = walk(data, at, first, last)
    except (IndexError, DecodeError):
        return None
    return part if part is None or part[0] <= len(data) else None


@pytest.fixture(scope="module", params=["runs", "compiled"])
def walk(request):
    """The walk with runs, and the compiled one."""
    return walk_in_python if request.param == "runs" else native().walk_part


def assert_agreed(walk, data, count):
    assert walked(walk, data, 0, 0, count) == one_by_one(data, count)


@given(COUNTS, LENGTHS, LENGTHS, STEPS)
def test_equal_records_are_walked(walk, count, key, value, steps):
    data = equal_records(count, key, value, steps)
    assert one_by_one(data, count) is not None
    assert_agreed(walk, data, count)


@given(COUNTS, st.tuples(LENGTHS, LENGTHS), STEPS, st.booleans(), st.data())
@settings(max_examples=400)
def test_damage_is_found_in_runs(walk, count, sizes, steps, headers, data):
    key, value = sizes
    records = bytearray(equal_records(count, key, value, steps, [("h", b"x")] if headers else ()))
    for _ in range(data.draw(st.integers(1, 3))):
        # The description of a record lies at its begin and its end: most damage goes there.
        record = data.draw(st.integers(0, count - 1)) * len(records) // count
        at = (record + data.draw(st.integers(-8, 12))) % len(records)
        records[at] = data.draw(st.sampled_from([0, 1, 2, 3, 0x7F, 0x80, 0x81, 0xFE, 0xFF]))
    assert_agreed(walk, bytes(records), count)
    assert_agreed(walk, bytes(records[: data.draw(st.integers(0, len(records)))]), count)


@given(st.binary(max_size=60), st.integers(1, 9))
@example(b"\x0c\x00\x00\x00\x81\x80\x00\x01\x00", 1)
@example(b"\xff" * 10 + b"\x01", 1)
def test_random_bytes_are_judged_alike(walk, data, count):
    assert_agreed(walk, data, count)


@pytest.mark.parametrize("count", [8_190, 8_260, 16_500])
def test_runs_end_at_longer_offset_deltas(walk, count):
    data = equal_records(count, None, 1, [0, 1])
    assert_agreed(walk, data, count)
    damaged = bytearray(data)
    damaged[-len(data) // (count * 2)] ^= 2
    assert_agreed(walk, bytes(damaged), count)


def test_a_run_is_found_and_ends_with_its_layout():
    data = equal_records(40, 3, 100, [0, 2]) + equal_records(40, 3, 101, [0])
    run = find_run(data, 0, 0, 80)
    assert run is not None
    assert (run.size, run.low, run.high, run.keyless) == (40, 0, 38, 0)
    assert run.end == len(equal_records(40, 3, 100, [0, 2]))
    assert find_run(data, 0, 0, RUN_MIN - 1) is None


def test_a_run_is_checked_with_few_steps():
    """Bytecode lines of a walk over 60 equal records: a walk record by record takes over 1,000."""
    data = equal_records(60, None, 100, [1])
    lines = 0

    def count_lines(_frame, event, _argument):
        nonlocal lines
        lines += event == "line"
        return count_lines

    before = sys.gettrace()
    sys.settrace(count_lines)
    try:
        assert walk_in_python(data, 0, 0, 60) is not None
    finally:
        sys.settrace(before)
    assert lines < 300


@given(COUNTS, LENGTHS, LENGTHS, STEPS, st.data())
def test_compiled_places_are_those_of_python(count, key, value, steps, data):
    places = native().places
    records = bytearray(equal_records(count, key, value, steps))
    assert places(Place, records, count) == places_in_python(bytes(records), count)
    for _ in range(data.draw(st.integers(0, 2))):
        at = data.draw(st.integers(0, min(len(records), 40) - 1))
        records[at] = data.draw(st.integers(0, 255))
    try:
        expected = places_in_python(bytes(records), count)
    except DecodeError:
        expected = None
    found = places(Place, bytes(records), count)
    assert found == expected
    assert found is None or all(type(place) is Place for place in found)


def test_the_compiled_functions_refuse_impossible_arguments():
    walk_part, places = native().walk_part, native().places
    for at, first, last in ((-1, 0, 1), (9, 0, 1), (0, -1, 1), (0, 1, 1)):
        assert walk_part(b"\x00" * 8, at, first, last) is None
    with pytest.raises(TypeError):
        places(str, b"", 0)
