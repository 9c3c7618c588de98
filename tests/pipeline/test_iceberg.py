"""The Iceberg sink: each batch once, no column lost in silence, read back by pyiceberg."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
import requests
from pyiceberg import exceptions
from pyiceberg.catalog import load_catalog
from pyiceberg.types import LongType
from sqlalchemy.exc import OperationalError

from sparkraft.pipeline import sinks, spec
from sparkraft.pipeline.decisions import QueryBatch
from sparkraft.pipeline.delta import Stored
from sparkraft.pipeline.iceberg import IcebergSink
from sparkraft.pipeline.iceberg_upkeep import keep_up
from sparkraft.pipeline.spec import SpecError
from sparkraft.pipeline.table_files import Written
from sparkraft.pipeline.table_merge import run_here
from tests.pipeline.test_table_files import numbers, put, run_task
from tests.pipeline.test_table_merge import merge_of, upsert
from tests.pipeline.test_table_merge import numbers as texts

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
    assert sink().loaded().scan(row_filter="id > 2").to_arrow().to_pylist() == [
        {"id": 4, "name": None, "s": {"x": 1, "y": 2}, "new": True},
        {"id": 3, "name": None, "s": {"x": 1, "y": None}, "new": None},
    ]


NARROW = pa.schema(
    {
        "id": pa.int32(),
        "f": pa.float32(),
        "d": pa.decimal128(9, 2),
        "s": pa.struct({"x": pa.int32(), "t": pa.string()}),
        "l": pa.list_(pa.int32()),
        "m": pa.map_(pa.string(), pa.float32()),
    }
)
WIDE = pa.schema(
    {
        "id": pa.int64(),
        "f": pa.float64(),
        "d": pa.decimal128(20, 2),
        "s": pa.struct({"x": pa.int64(), "t": pa.string()}),
        "l": pa.list_(pa.int64()),
        "m": pa.map_(pa.string(), pa.float64()),
    }
)


def narrow(number):
    row = {"id": number, "f": 0.5, "d": Decimal("1.25"), "s": {"x": 1, "t": "a"}, "l": [1]}
    return pa.Table.from_pylist([{**row, "m": [("k", 0.5)]}], schema=NARROW)


def wide(number):
    row = {"id": number, "f": 0.1, "d": Decimal("123456789012.25"), "s": {"x": 1 << 40, "t": "b"}}
    return pa.Table.from_pylist([{**row, "l": [1 << 40], "m": [("k", 0.1)]}], schema=WIDE)


@pytest.mark.parametrize("keys", [(), ("id",)])
def test_types_are_widened_as_iceberg_allows(tmp_path, keys):
    def made(schema_changes):
        where = str(tmp_path / "wh")
        return IcebergSink(where, "ns.t", schema_changes, {}, keys=keys)

    write = upsert if keys else put
    for number in range(2):
        write(made("add"), narrow(number), number)
    for changes in ("fail", "ignore"):
        with pytest.raises(SpecError, match="does not fit the table's"):
            write(made(changes), wide(1), 2)
    for _ in range(2):
        write(made("add"), wide(1 << 40), 2)
    write(made("add"), narrow(1), 3)
    expected = [*narrow(0).to_pylist(), *narrow(1).to_pylist() * (1 if keys else 2)]
    assert stored(tmp_path) == [*expected, *wide(1 << 40).to_pylist()]
    found = table_of(tmp_path).scan(row_filter="id > 1").to_arrow()
    assert [row["id"] for row in found.to_pylist()] == [1 << 40]
    assert [str(each.field_type) for each in table_of(tmp_path).schema().fields[:3]] == [
        "long", "double", "decimal(20, 2)",
    ]  # fmt: skip


def test_a_commit_whose_answer_was_lost_has_widened_the_types(sink, tmp_path):
    """The attempt after it finds the table with the types of its own batch."""
    put(sink("add"), narrow(0), 0)
    again = sink("add")
    rows, written = wide(1 << 40), Written()
    task = again.file_task(rows.schema, "p", separates=False)
    run_task(task, rows, written)
    for _ in range(2):
        again.commit(task, rows.schema, written, "q", 1)
    assert len(stored(tmp_path)) == 2


def test_values_that_need_another_kind_of_type_are_not_widened(sink):
    put(sink("add"), narrow(0), 0)
    for name in ("d", "f", "id"):
        values = pa.array(["x"])
        rows = narrow(1).set_column(NARROW.get_field_index(name), name, values)
        with pytest.raises(SpecError, match=f"column {name} .* does not fit"):
            put(sink("add"), rows, 1)


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
        ('path = "wh"', 'path = "wh"\nkey = ["id"]', "did you mean keys"),
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
        write(batch, QueryBatch("q", 0))
    found = stored(tmp_path)
    assert [row["id"] for row in found] == list(range(100))
    assert found[7]["at"].timestamp() == 0.007


# ---- keys and partitions


def keyed(tmp_path, **options):
    return IcebergSink(str(tmp_path / "wh"), "ns.t", "fail", {}, keys=("id",), **options)


def names_of(tmp_path):
    return {row["id"]: row["name"] for row in stored(tmp_path)}


def test_rows_are_inserted_replaced_and_deleted_once(tmp_path):
    sink = keyed(tmp_path, order_by="offset")
    rows = texts(range(10), "a").append_column("offset", [list(range(10))])
    assert upsert(sink, rows, 0) == Stored(rows=10)
    changes = pa.table(
        {
            "id": [1, 20, 3, 99, 1],
            "name": ["old", "b20", None, None, "b1"],
            "tombstone": [False, None, True, True, False],
            "offset": [1, 2, 3, 4, 5],
        }
    )
    for _ in range(2):
        assert upsert(sink, changes, 1) == Stored(rows=2, deletes=2)
    expected = {each: f"a{each}" for each in range(10)} | {1: "b1", 20: "b20"}
    del expected[3]
    assert names_of(tmp_path) == expected
    assert sink.has("q", 1)
    assert not list((tmp_path / "wh").rglob("keys-*"))
    deletes = changes.slice(3, 1)
    upsert(sink, deletes, 2)
    assert sink.has("q", 2)


def test_a_partitioned_table_has_rows_in_the_files_of_their_values(tmp_path):
    sink = keyed(tmp_path, partition_by=("day", "place"))
    days = [date(2026, 1, 1), None, date(2026, 1, 2)]
    rows = {"id": [1, 2, 3], "day": days, "place": ["a/b %=ü", "c", None]}
    upsert(sink, pa.table(rows), 0)
    upsert(sink, pa.table({"id": [3, 4], "day": days[:2], "place": ["c", "c"]}), 1)
    table = table_of(tmp_path)
    assert [field.name for field in table.spec().fields] == ["day", "place"]
    found = [(row["id"], row["day"], row["place"]) for row in stored(tmp_path)]
    assert found == [
        (1, days[0], "a/b %=ü"), (2, None, "c"), (3, days[0], "c"), (4, None, "c"),
    ]  # fmt: skip
    filtered = table.scan(row_filter="day = '2026-01-01' and place = 'c'")
    assert len(list(filtered.plan_files())) == 1
    assert filtered.to_arrow()["id"].to_pylist() == [3]
    appended = IcebergSink(str(tmp_path / "wh"), "ns.t", "fail", {})
    put(appended, pa.table({"id": [9], "day": days[:1], "place": ["c"]}), 0, query_id="other")
    assert len(stored(tmp_path)) == 5
    with pytest.raises(SpecError, match="column x is double"):
        put(
            IcebergSink(str(tmp_path / "wh"), "ns.p", "fail", {}, partition_by=("x",)),
            numbers(0, 1),
            0,
        )


def test_files_of_pyiceberg_are_written_again(tmp_path):
    sink = keyed(tmp_path)
    catalog = sink._catalog_of()
    catalog.create_namespace("ns")
    made = catalog.create_table("ns.t", texts([1], "a").schema)
    made.append(texts(range(5), "a"))
    upsert(sink, texts([1, 7], "b"), 0)
    expected = {0: "a0", 1: "b1", 2: "a2", 3: "a3", 4: "a4", 7: "b7"}
    assert names_of(tmp_path) == expected
    table_of(tmp_path).delete("id = 3")
    upsert(sink, texts([4], "c"), 1)
    del expected[3]
    assert names_of(tmp_path) == expected | {4: "c4"}


def test_a_renamed_column_is_refused(tmp_path):
    sink = keyed(tmp_path)
    upsert(sink, texts([1], "a"), 0)
    with table_of(tmp_path).update_schema() as update:
        update.rename_column("name", "title")
    with pytest.raises(SpecError, match="column title was renamed or added again"):
        upsert(sink, texts([1], "a").rename_columns(["id", "title"]), 1)


def test_rows_that_another_writer_adds_meanwhile_are_searched_before_the_commit(tmp_path):
    sink = keyed(tmp_path)
    upsert(sink, texts(range(4), "a"), 0)
    searched = []

    def run(tasks):
        searched.append([file.path for task in tasks for file in task.found])
        if len(searched) == 1:
            upsert(keyed(tmp_path), texts([1, 50], "other"), 0, query_id="other")
        return run_here(tasks)

    upsert(sink, texts([1, 50], "mine"), 1, run=run)
    assert names_of(tmp_path) == {0: "a0", 1: "mine1", 2: "a2", 3: "a3", 50: "mine50"}
    assert len(searched) == 2
    assert not set(searched[0]) & set(searched[1])


@pytest.mark.parametrize("keys", [(), ("id",)])
def test_a_driver_that_was_thought_dead_adds_its_batch_no_second_time(tmp_path, keys, monkeypatch):
    def made():
        return IcebergSink(str(tmp_path / "wh"), "ns.t", "fail", {}, keys=keys)

    write = upsert if keys else put
    write(made(), texts([1], "a"), 0)
    late, real = made(), IcebergSink._write

    def slow(sink, *arguments):
        # The new driver is first, after the old one has looked for the batch.
        if sink is late and not seen:
            seen.append(True)
            write(made(), texts([2], "b"), 1)
        real(sink, *arguments)

    seen: list[bool] = []
    monkeypatch.setattr(IcebergSink, "_write", slow)
    write(late, texts([2], "b"), 1)
    assert seen
    assert [row["id"] for row in stored(tmp_path)] == [1, 2]


@pytest.mark.parametrize("lost", ["request", "response"])
@pytest.mark.parametrize("keys", [(), ("id",)])
def test_a_commit_whose_answer_is_lost_is_made_once(tmp_path, keys, lost, monkeypatch):
    sink = IcebergSink(str(tmp_path / "wh"), "ns.t", "fail", {}, keys=keys)
    write = upsert if keys else put
    write(sink, texts([1], "a"), 0)
    errors = [
        exceptions.CommitStateUnknownException("gateway"),
        OperationalError("update", {}, Exception("database is locked")),
        requests.ConnectionError("reset"),
    ]
    catalog = sink._catalog_of()
    real = catalog.commit_table

    def commit(*arguments):
        if lost == "response":
            real(*arguments)
        if errors:
            raise errors.pop()
        return real(*arguments)

    monkeypatch.setattr(catalog, "commit_table", commit)
    for number in range(1, 3):
        write(sink, texts([number + 1], "b"), number)
    monkeypatch.undo()
    assert [row["id"] for row in stored(tmp_path)] == [1, 2, 3]


def test_columns_that_the_batch_lacks_keep_their_values_in_replaced_rows(tmp_path):
    def made(changes):
        return IcebergSink(str(tmp_path / "wh"), "ns.t", changes, {}, keys=("id",))

    upsert(made("fail"), texts(range(4), "a"), 0)
    upsert(made("add"), pa.table({"id": [3, 1, 9], "s": [{"x": 1}] * 3}), 1)
    nested = pa.table({"id": [1], "s": [{"x": 2, "y": "new"}]})
    upsert(made("add"), nested, 2)
    upsert(made("ignore"), pa.table({"id": [3], "z": [1], "name": ["b3"]}), 3)
    found = [(row["id"], row["name"], row["s"]) for row in stored(tmp_path)]
    assert found == [
        (0, "a0", None),
        (1, "a1", {"x": 2, "y": "new"}),
        (2, "a2", None),
        (3, "b3", {"x": 1, "y": None}),
        (9, None, {"x": 1, "y": None}),
    ]
    with pytest.raises(SpecError, match="returns no column"):
        upsert(made("fail"), texts([1], "c"), 4)


def test_a_column_that_another_writer_adds_stops_a_batch_with_keys(tmp_path):
    sink = keyed(tmp_path)
    upsert(sink, texts([1], "a"), 0)
    merge = merge_of(sink, texts([1], "b"), 1)
    with table_of(tmp_path).update_schema() as update:
        update.add_column("more", LongType())
    with pytest.raises(SpecError, match="another writer changed the table's columns meanwhile"):
        sink.merge(merge, "q", 1)
    assert names_of(tmp_path) == {1: "a1"}


def test_a_warehouse_may_have_spaces_in_its_path(tmp_path):
    folder = tmp_path / "a b"
    sink = keyed(folder)
    upsert(sink, texts(range(3), "a"), 0)
    upsert(sink, texts([1], "b"), 1)
    assert names_of(folder) == {0: "a0", 1: "b1", 2: "a2"}
    done = keep_up(sink, target_bytes=1 << 20, retain_hours=1)
    assert done.after == 1
    assert names_of(folder) == {0: "a0", 1: "b1", 2: "a2"}
