"""The Iceberg sink: each batch once, no column lost in silence, read back by pyiceberg."""

from datetime import UTC, date, datetime

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from sparkraft.pipeline import sinks, spec
from sparkraft.pipeline.delta import Stored
from sparkraft.pipeline.iceberg import IcebergSink
from sparkraft.pipeline.spec import SpecError
from sparkraft.pipeline.table_files import Written
from tests.pipeline.test_table_files import numbers, put, run_task

ROWS = pa.table(
    {
        "id": [1, 2],
        "name": ["a", None],
        "at": pa.array([datetime(2026, 1, 1, tzinfo=UTC)] * 2, pa.timestamp("us", "UTC")),
        "s": [{"x": 1}, {"x": 2}],
        "l": [["a"], []],
        "d": [date(2026, 1, 1)] * 2,
        "b": [b"x", b"y"],
    }
)


@pytest.fixture
def sink(tmp_path):
    def made(schema_changes="fail", name="ns.t"):
        return IcebergSink(str(tmp_path / "wh"), name, schema_changes, {})

    return made


def table_of(tmp_path, name="ns.t"):
    """The table as pyiceberg sees it by the documented place of the catalog."""
    catalog = load_catalog("sparkraft", type="sql", uri=f"sqlite:///{tmp_path}/wh/catalog.db")
    return catalog.load_table(name)


def stored(tmp_path):
    rows = table_of(tmp_path).scan().to_arrow().to_pylist()
    return sorted(rows, key=lambda row: row["id"])


def test_a_batch_is_added_once_with_its_types(sink, tmp_path):
    written = sink()
    assert put(written, ROWS, 0) == Stored(rows=2)
    schema = ROWS.schema
    empty = written.file_task(schema, "p", separates=False)
    assert written.commit(empty, schema, Written(), "q", 7) == Stored()
    more = ROWS.set_column(0, "id", [[3, 4]])
    put(written, more, 1)
    put(written, more, 1)
    assert (written.has("q", 1), written.has("q", 2), written.has("other", 0)) == (
        True,
        False,
        False,
    )
    assert stored(tmp_path) == pa.concat_tables([ROWS, more]).to_pylist()
    marked = [each.summary.additional_properties for each in table_of(tmp_path).snapshots()]
    assert [each["sparkraft.batch"] for each in marked] == ["0", "1"]


def test_new_and_missing_columns_follow_schema_changes(sink):
    put(sink(), ROWS.select(["id", "name", "s"]), 0)
    nested = pa.table({"id": [3], "s": [{"x": 1, "y": 2}], "new": [True]})
    with pytest.raises(SpecError, match=r"the table has no column s\.y"):
        put(sink(), nested, 1)
    assert put(sink("ignore"), nested, 1) == Stored(rows=1, ignored=2)
    assert put(sink("add"), nested.set_column(0, "id", [[4]]), 2) == Stored(rows=1)
    assert sink()._table().scan(row_filter="id > 2").to_arrow().to_pylist() == [
        {"id": 4, "name": None, "s": {"x": 1, "y": 2}, "new": True},
        {"id": 3, "name": None, "s": {"x": 1, "y": None}, "new": None},
    ]


def test_a_batch_continues_on_what_another_writer_committed(sink, tmp_path):
    first, second = sink(), sink()
    put(first, numbers(0, 10), 0)
    task = first.file_task(numbers(0, 1).schema, "p", separates=False)
    written = Written()
    run_task(task, numbers(10, 10), written)
    put(second, numbers(20, 10), 0, query_id="other")
    first.commit(task, numbers(0, 1).schema, written, "q", 1)
    assert [row["id"] for row in stored(tmp_path)] == list(range(30))


FILE = """
name = "n"
checkpoint = "c"
[source]
subscribe = "t"
[[sink]]
kind = "iceberg"
table = "ns.t"
path = "wh"
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("ns.t", "t", "table of the iceberg sink must be namespace.table, not 't'"),
        ('path = "wh"', "", "the iceberg sink needs path, or options with the uri"),
        ('path = "wh"', 'path = "wh"\nkeys = ["id"]', "keys"),
    ],
)
def test_mistakes_are_named(tmp_path, old, new, message):
    with pytest.raises(SpecError, match=message):
        spec.parse(FILE.replace(old, new), folder=tmp_path, values={})


@pytest.mark.spark
def test_spark_writes_a_batch_once(spark, tmp_path):
    pipeline = spec.parse(FILE, folder=tmp_path, values={})
    write = sinks._iceberg(pipeline.sinks[0], pipeline)
    batch = spark.range(0, 100, numPartitions=2).selectExpr("id", "timestamp_millis(id) AS at")
    for _ in range(2):
        write(batch, 0)
    found = stored(tmp_path)
    assert [row["id"] for row in found] == list(range(100))
    assert found[7]["at"].timestamp() == 0.007
