"""Spark's tasks write a batch into a Delta table; the driver's memory does not grow with it."""

import logging
import os
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from sparkraft.pipeline import sinks, spec
from sparkraft.pipeline.decisions import QueryBatch
from tests.support.jvm import java

pytestmark = pytest.mark.spark

log = logging.getLogger(__name__)

FILE = """
name = "n"
checkpoint = "c"
[source]
subscribe = "t"
[[sink]]
kind = "delta"
path = "table"
partition_by = ["kind"]
"""

GIB_BATCH = """
import resource, sys
from pathlib import Path
from sparkraft.pipeline import sinks
from sparkraft.pipeline.delta import DeltaSink
from sparkraft.pipeline.iceberg import IcebergSink
from sparkraft.pipeline.session import session

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

work, kind = Path(sys.argv[1]), sys.argv[2]
settings = {"spark.driver.memory": "512m"}
spark = session("gib", master="local[2]", work=work / "w", log=work / "log", settings=settings)
keys = ("id",) if "keyed" in kind else ()
table = DeltaSink(str(work / "table"), keys)
if "iceberg" in kind:
    table = IcebergSink(str(work / "table"), "ns.t", "fail", {}, keys=keys)

def put(first, rows, number):
    # Random texts: as large in memory as their length, and without compression on disk.
    batch = spark.range(first, first + rows, numPartitions=4).selectExpr(
        "id", *(f"hex(randstr(32)) AS t{n}" for n in range(16)))
    name = sinks.BatchOfTable("q", number, separates=False)
    return (sinks._merge_files if keys else sinks._put_files)(table, batch, name, print)

put(0, 1000, 0)
before = peak()
stored = put(0, 1_000_000, 1)
# With keys, half of the rows of a large batch are replaced.
again = put(500_000, 1_000_000, 2) if keys else stored
print(stored.rows, again.rows, peak() - before)
"""
"""A row has 16 texts of 64 characters: 1 KiB."""


def test_tasks_write_a_partitioned_table_once(spark, tmp_path):
    pipeline = spec.parse(FILE, folder=tmp_path, values={})
    write = sinks._delta(pipeline.sinks[0], pipeline)
    batch = spark.range(0, 1000, numPartitions=2).selectExpr(
        "id", "if(id % 2 = 0, 'even', 'odd') AS kind", "timestamp_millis(id) AS at", "id / 3d AS x"
    )
    for _ in range(2):
        write(batch, QueryBatch("q", 0))
    table = DeltaTable(str(tmp_path / "table"))
    assert table.metadata().partition_columns == ["kind"]
    assert len(table.file_uris()) == 4
    stored = sorted(table.to_pyarrow_table().to_pylist(), key=lambda row: row["id"])
    assert [row["id"] for row in stored] == list(range(1000))
    assert {row["kind"] for row in stored[::2]} == {"even"}
    assert [row["x"] for row in stored] == [each / 3 for each in range(1000)]
    assert stored[7]["at"].timestamp() == 0.007


KEYED = FILE.replace('partition_by = ["kind"]', 'keys = ["id"]\norder_by = "version"')


@pytest.mark.parametrize("on_driver", [True, False])
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_tasks_replace_rows_by_key_once(spark, tmp_path, monkeypatch, kind, on_driver):
    if not on_driver:
        monkeypatch.setattr(sinks, "_ON_DRIVER_BYTES_MAX", 0)
    text = KEYED if kind == "delta" else KEYED.replace('"delta"', '"iceberg"\ntable = "ns.t"')
    pipeline = spec.parse(text, folder=tmp_path, values={})
    write = sinks._WRITERS[kind](pipeline.sinks[0], pipeline)
    write(
        spark.range(0, 100, numPartitions=2).selectExpr("id", "'a' AS name", "0 AS version"),
        QueryBatch("q", 0),
    )
    # Ids 50 to 149, each three times; the last deletes every tenth.
    changes = spark.range(0, 300, numPartitions=3).selectExpr(
        "50 + id % 100 AS id",
        "concat('b', id) AS name",
        "id AS version",
        "id >= 200 AND id % 10 = 0 AS tombstone",
    )
    for _ in range(2):
        write(changes, QueryBatch("q", 1))
    expected = dict.fromkeys(range(50), "a")
    expected |= {50 + each % 100: f"b{each}" for each in range(200, 300) if each % 10}
    if kind == "delta":
        found = DeltaTable(str(tmp_path / "table")).to_pyarrow_table().to_pylist()
    else:
        found = sinks.iceberg_sink(pipeline.sinks[0]).loaded().scan().to_arrow().to_pylist()
    assert sorted(found, key=lambda row: row["id"]) == [
        {"id": key, "name": name} for key, name in sorted(expected.items())
    ]


def test_a_parquet_batch_that_is_complete_is_not_written_again(spark, tmp_path):
    text = FILE.replace('"delta"', '"parquet"')
    tmp_path /= "a folder {like} a [pattern]*"
    pipeline = spec.parse(text, folder=tmp_path, values={})
    write = sinks._parquet(pipeline.sinks[0], pipeline)
    rows = spark.range(0, 10, numPartitions=1).selectExpr("id", "id % 2 AS kind")
    write(rows, QueryBatch("batch", 7))
    folder = tmp_path / "table" / "run=batch" / f"batch={7:010d}"
    assert sorted(each.name for each in folder.glob("kind=*")) == ["kind=0", "kind=1"]
    before = sorted(folder.rglob("*.parquet"))
    write(rows, QueryBatch("batch", 7))
    assert sorted(folder.rglob("*.parquet")) == before
    # A driver that was killed leaves some files and no mark.
    (folder / "_SUCCESS").unlink()
    write(rows, QueryBatch("batch", 7))
    assert sum(pq.read_metadata(each).num_rows for each in folder.rglob("*.parquet")) == 10
    assert sorted(folder.rglob("*.parquet")) != before


@pytest.mark.long  # the tests above have the same steps with few rows
@pytest.mark.parametrize("kind", ["delta", "delta keyed", "iceberg keyed"])
def test_the_driver_does_not_grow_with_a_batch_of_1_gib(tmp_path: Path, kind: str) -> None:
    if java() is None:
        pytest.skip("Spark needs Java; no java command was found")
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", GIB_BATCH, str(tmp_path), kind],
        capture_output=True, text=True, timeout=1200, check=False, env=os.environ,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    rows, again, grown_mib = map(int, done.stdout.split()[-3:])
    seconds = time.monotonic() - started
    log.info("%s: the driver grew by %d MiB in %.0f s", kind, grown_mib, seconds)
    assert (rows, again) == (1_000_000, 1_000_000)
    size = sum(each.stat().st_size for each in (tmp_path / "table").rglob("*.parquet"))
    assert size > 0.5 * (1 << 30), "the batch is smaller than it should be"
    assert grown_mib <= 200
    if kind == "delta keyed":
        assert DeltaTable(str(tmp_path / "table")).count() == 1_500_000
