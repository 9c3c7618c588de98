"""DuckDB's own readers of Delta and Iceberg return the rows that the sinks have stored."""

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from sparkraft.pipeline import iceberg_upkeep, upkeep
from sparkraft.pipeline.delta import DeltaSink
from sparkraft.pipeline.iceberg import IcebergSink
from tests.pipeline.test_table_merge import upsert

duckdb = pytest.importorskip("duckdb")
extensions = pytest.importorskip("duckdb_ext")


TIME = datetime(2026, 1, 1, 1, 2, 3, 4, UTC)


@pytest.fixture(scope="module")
def duck():
    connection = duckdb.connect()
    (folder,) = extensions.__path__
    for name in ("delta", "avro", "iceberg"):
        (file,) = Path(folder).rglob(f"{name}.duckdb_extension")
        connection.execute(f"LOAD '{file}'")
    connection.execute("SET TimeZone = 'UTC'")
    yield connection
    connection.close()


def rows_of(first, count, name):
    ids = list(range(first, first + count))
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "part": [("a/b %=ü", "c", None)[each % 3] for each in ids],
            "name": [f"{name}{each}" for each in ids],
            "day": [date(2026, 1, 1 + each % 9) for each in ids],
            "at": pa.array([TIME] * count, pa.timestamp("us", "UTC")),
            "price": pa.array([Decimal("1.25")] * count, pa.decimal128(10, 2)),
            "nested": [{"x": each, "y": [name]} for each in ids],
            "tombstone": [each % 5 == 0 and name == "b" for each in ids],
        }
    )  # fmt: skip


def expected():
    rows = {row["id"]: row for row in rows_of(0, 20, "a").to_pylist()}
    rows |= {row["id"]: row for row in rows_of(10, 20, "b").to_pylist()}
    kept = [row for row in rows.values() if not row.pop("tombstone")]
    return sorted(kept, key=lambda row: row["id"])


def sink_of(kind, tmp_path, parts):
    if kind == "delta":
        return DeltaSink(str(tmp_path / "t"), ("id",), partition_by=parts)
    return IcebergSink(str(tmp_path / "wh"), "ns.t", "fail", {}, keys=("id",), partition_by=parts)


def read(duck, sink):
    place = f"delta_scan('{sink.path}')" if isinstance(sink, DeltaSink) else (
        f"iceberg_scan('{sink.loaded().metadata_location}')"
    )  # fmt: skip
    return duck.execute(f"SELECT * FROM {place} ORDER BY id").fetch_arrow_table().to_pylist()


TRANSFORMS = ("day(at)", "bucket(3, id)", "truncate(2, name)", "month(day)")


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        ("delta", ()),
        ("delta", ("part",)),
        ("delta", ("at",)),
        ("iceberg", ()),
        ("iceberg", ("part",)),
        ("iceberg", TRANSFORMS),
    ],
)
def test_duckdb_reads_what_was_written(duck, tmp_path, kind, parts):
    sink = sink_of(kind, tmp_path, parts)
    upsert(sink, rows_of(0, 20, "a"), 0)
    upsert(sink, rows_of(10, 20, "b"), 1)
    assert read(duck, sink) == expected()
    if kind == "delta":
        upkeep.keep_up(sink.path, retain_hours=1)
    else:
        iceberg_upkeep.keep_up(sink, target_bytes=1 << 20, retain_hours=1)
    assert read(duck, sink) == expected()
