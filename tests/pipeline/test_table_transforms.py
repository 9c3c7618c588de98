"""Iceberg's partition transforms: equal to pyiceberg's, and in the tables that the sink writes."""

import random
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from pyiceberg.transforms import parse_transform
from pyiceberg.types import (
    BinaryType,
    DateType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from sparkraft.pipeline.iceberg import IcebergSink, data_files
from sparkraft.pipeline.iceberg_replace import Manifests
from sparkraft.pipeline.iceberg_upkeep import keep_up
from sparkraft.pipeline.spec import SpecError
from sparkraft.pipeline.table_files import Written
from sparkraft.pipeline.table_transforms import Part, part_in_iceberg, part_of, transformed
from tests.pipeline.test_table_files import put, run_task
from tests.pipeline.test_table_merge import upsert

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DICE = random.Random(20260101)


def moments(count):
    ends = int(timedelta(days=80_000).total_seconds())
    return [
        EPOCH + timedelta(seconds=DICE.randrange(-ends, ends), microseconds=DICE.randrange(10**6))
        for _ in range(count)
    ]


def texts(count):
    letters = "aZ0 -ü€😀\0"
    return ["".join(DICE.choices(letters, k=DICE.randrange(12))) for _ in range(count)]


def naive(found):
    return [each.replace(tzinfo=None) for each in found]


def numbers(bits):
    edge = 1 << bits - 1
    least = -edge + 1000  # smaller numbers can wrap around
    return [*(DICE.randrange(least, edge) for _ in range(200)), least, -1, 0, 1, edge - 1]


BEFORE = EPOCH - timedelta(microseconds=1)
COLUMNS = {
    "timestamp": (pa.timestamp("us"), TimestampType(), naive([*moments(200), EPOCH, BEFORE])),
    "timestamptz": (pa.timestamp("us", "UTC"), TimestamptzType(), [*moments(200), EPOCH, BEFORE]),
    "date": (pa.date32(), DateType(), [each.date() for each in [*moments(200), EPOCH, BEFORE]]),
    "long": (pa.int64(), LongType(), numbers(64)),
    "int": (pa.int32(), IntegerType(), numbers(32)),
    "text": (pa.string(), StringType(), [*texts(200), ""]),
    "bytes": (pa.binary(), BinaryType(), [*(each.encode() for each in texts(200)), b""]),
}
"""Types in Arrow and Iceberg, and values."""


@pytest.mark.parametrize(
    ("transform", "kinds"),
    [
        ("year", ["timestamp", "timestamptz", "date"]),
        ("month", ["timestamp", "timestamptz", "date"]),
        ("day", ["timestamp", "timestamptz", "date"]),
        ("hour", ["timestamp", "timestamptz"]),
        ("bucket[16]", ["timestamp", "timestamptz", "date", "long", "int", "text", "bytes"]),
        ("bucket[1000003]", ["long", "text", "bytes"]),
        ("truncate[3]", ["long", "int", "text"]),
        ("truncate[1000]", ["long", "int"]),
    ],
)
def test_values_equal_those_of_pyiceberg(transform, kinds):
    for kind in kinds:
        of_arrow, of_iceberg, given = COLUMNS[kind]
        values = pa.array([*given, None], of_arrow)
        part = part_in_iceberg("x", transform)
        one_by_one = parse_transform(transform).transform(of_iceberg)
        expected = [one_by_one(each) for each in values.to_pylist()]
        # Slices have an offset in their buffers, and a column has several chunks.
        pieces = pa.chunked_array([values.slice(0, 7), values.slice(7)])
        found = transformed(part, pieces)
        assert found.to_pylist() == expected, kind
        assert transformed(part, pa.chunked_array([values.slice(5)])).to_pylist() == expected[5:]


def test_the_smallest_numbers_wrap_around():
    for kind, bits in ((pa.int32(), 32), (pa.int64(), 64)):
        least = -(1 << bits - 1)
        found = transformed(Part("x", "truncate", 1000), pa.chunked_array([[least]], kind))
        assert found.to_pylist() == [least - least % 1000 + (1 << bits)]


def test_entries_are_columns_or_transforms():
    assert part_of("place") == Part("place")
    assert part_of(" bucket( 16 , my id ) ") == Part("my id", "bucket", 16)
    assert part_of("day(at)") == Part("at", "day")
    for text in ("hour(at)", "bucket(16, id)", "truncate(4, name)", "place"):
        part = part_of(text)
        assert str(part) == text
        assert part_in_iceberg(part.column, part.in_iceberg) == part
    assert part_in_iceberg("x", "void") is None
    with pytest.raises(SpecError, match="needs a size from 1 to 2147483647"):
        part_of("bucket(0, id)")


def rows(first, count):
    at = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=7 * n) for n in range(count)]
    return pa.table(
        {
            "id": pa.array(range(first, first + count), pa.int64()),
            "name": [f"name-{n % 3}" if n % 4 else None for n in range(count)],
            "at": pa.array(at, pa.timestamp("us", "UTC")),
            "d": [each.date() for each in at],
        }
    )


ALL = ("day(at)", "bucket(4, id)", "truncate(5, name)", "month(d)", "name")


def made(tmp_path, *keys, parts=ALL):
    return IcebergSink(str(tmp_path / "wh"), "ns.t", "fail", {}, keys=keys, partition_by=parts)


def stored(sink, row_filter="true"):
    found = sink.loaded().scan(row_filter=row_filter).to_arrow().to_pylist()
    return sorted(found, key=lambda row: row["id"])


def test_a_table_has_rows_in_the_files_of_their_transforms(tmp_path):
    sink, given = made(tmp_path), rows(0, 30)
    put(sink, given, 0)
    put(sink, rows(30, 10), 1)
    fields = [(each.name, str(each.transform)) for each in sink.loaded().spec().fields]
    assert fields == [
        ("at_day", "day"),
        ("id_bucket_4", "bucket[4]"),
        ("name_trunc_5", "truncate[5]"),
        ("d_month", "month"),
        ("name", "identity"),
    ]
    everything = [*given.to_pylist(), *rows(30, 10).to_pylist()]
    assert stored(sink) == everything
    one = everything[11]
    # pyiceberg skips files by their partitions: a wrong one would hide the row.
    for text in (
        f"at = '{one['at'].isoformat()}'", "id = 11", "name = 'name-2'", f"d = '{one['d']}'"
    ):  # fmt: skip
        assert one in stored(sink, text)
        planned = len(list(sink.loaded().scan(row_filter=text).plan_files()))
        assert planned < len(list(sink.loaded().scan().plan_files()))


def test_rows_are_replaced_in_their_partitions_and_files_are_joined(tmp_path):
    sink = made(tmp_path, "id", parts=("day(at)", "bucket(2, id)"))
    upsert(sink, rows(0, 20), 0)
    upsert(sink, rows(10, 20), 1)
    kept = {row["id"]: row for row in [*rows(0, 20).to_pylist(), *rows(10, 20).to_pylist()]}
    assert stored(sink) == [kept[each] for each in sorted(kept)]
    keep_up(sink, target_bytes=1 << 20, retain_hours=168)
    assert stored(sink) == [kept[each] for each in sorted(kept)]
    files = data_files(sink.loaded(), "t", "x", Manifests()).values()
    groups = {tuple(each.partition.items()) for each, _ in files}
    assert len(groups) == len(files)
    assert {tuple(each.partition) for each, _ in files} == {("day(at)", "bucket(2, id)")}


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ("hour(d)", r"partition_by has hour\(d\), and hour of date32\[day\] is not supported"),
        ("year(id)", "year of int64 is not supported"),
        ("truncate(3, at)", "truncate of timestamp"),
        ("day(nothing)", "the rows have no column nothing to partition by"),
    ],
)
def test_a_transform_of_another_type_is_refused(tmp_path, part, message):
    with pytest.raises(SpecError, match=message):
        put(made(tmp_path, parts=(part,)), rows(0, 1), 0)


def test_a_partitioning_that_another_writer_changes_meanwhile_is_named(tmp_path):
    sink = made(tmp_path, parts=("day(at)",))
    put(sink, rows(0, 3), 0)
    task = sink.file_task(rows(0, 1).schema, "p", separates=False)
    with made(tmp_path).loaded().update_spec() as update:
        update.add_field("id", "bucket[3]")
    written = Written()
    run_task(task, rows(3, 3), written)
    with pytest.raises(SpecError, match="changed the table's partitioning meanwhile"):
        sink.commit(task, rows(0, 1).schema, written, "q", 1)
