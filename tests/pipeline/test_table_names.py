"""Delta tables with renamed columns: tasks write files that deltalake reads, and find keys."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from sparkraft.pipeline.delta import DeltaSink, Stored
from sparkraft.pipeline.spec import SpecError
from sparkraft.pipeline.table_files import Written
from sparkraft.pipeline.table_names import inverse, names_of, renamed
from tests.pipeline.test_table_files import put, run_task
from tests.pipeline.test_table_merge import merge_of, upsert
from tests.support.delta_logs import field, mapped, new_table, rows_of


def inner(number):
    """A struct whose field ids begin with that number."""
    fields = [mapped(field("x"), number), mapped(field("y", "string"), number + 1)]
    return {"type": "struct", "fields": fields}


def array(element):
    return {"type": "array", "elementType": element, "containsNull": True}


def by_text(value):
    return {"type": "map", "keyType": "string", "valueType": value, "valueContainsNull": True}


FIELDS = [
    mapped(field("id"), 1),
    mapped(field("name", "string"), 2),
    mapped(field("place", inner(11)), 3),
    mapped(field("places", array(inner(13))), 4),
    mapped(field("by_name", by_text(inner(15))), 5),
    mapped(field("day", "date"), 6),
]


@pytest.fixture(params=["name", "id"])
def path(request, tmp_path):
    """A table whose columns were renamed."""
    return new_table(
        tmp_path / "t", FIELDS, features=["columnMapping"], partition_by=["day"],
        **{"delta.columnMapping.mode": request.param, "delta.columnMapping.maxColumnId": "16"},
    )  # fmt: skip


def row(number, name, day="2026-11-27"):
    return {
        "id": number,
        "name": name,
        "place": {"x": number, "y": "p"} if number % 2 else None,
        "places": [{"x": number, "y": name}, {"x": None, "y": None}],
        "by_name": {name: {"x": number, "y": None}},
        "day": day,
    }


def batch(path, *rows, without=()):
    schema = pa.schema(DeltaTable(path).schema().to_arrow())
    days = [pa.scalar(each["day"]).cast(pa.date32()).as_py() for each in rows]
    made = pa.Table.from_pylist(
        [
            {**each, "day": day, "by_name": list(each["by_name"].items())}
            for each, day in zip(rows, days, strict=True)
        ],
        schema=schema,
    )
    return made.drop_columns(list(without))


def read(path):
    """The rows as deltalake reads them."""
    found = rows_of(path)
    for each in found:
        each["day"] = each["day"].isoformat()
        if each["by_name"] is not None:
            each["by_name"] = dict(each["by_name"])
    return found


def last_actions(path):
    log = max(Path(path, "_delta_log").glob("*.json"))
    return [json.loads(line) for line in log.read_text().splitlines()]


def test_tasks_write_files_with_physical_names_and_ids(path):
    sink = DeltaSink(path, ())
    rows = [row(1, "a"), row(2, "b", "2026-11-28")]
    assert sink.why_collected([each["name"] for each in FIELDS]) is None
    assert put(sink, batch(path, *rows), 0, tasks=1) == Stored(rows=2)
    assert read(path) == rows
    added = [each["add"] for each in last_actions(path) if "add" in each]
    assert [each["partitionValues"] for each in added] == [
        {"col-6": "2026-11-27"}, {"col-6": "2026-11-28"},
    ]  # fmt: skip
    stats = json.loads(added[0]["stats"])
    assert (stats["minValues"], stats["maxValues"]) == ({"col-1": 1, "col-2": "a"},) * 2
    schema = pq.read_schema(Path(path, added[0]["path"]))
    assert schema.names == [f"col-{number}" for number in range(1, 6)]
    place = schema.field("col-3")
    ids = [each.metadata[b"PARQUET:field_id"] for each in (place, *place.type)]
    assert ids == [b"3", b"11", b"12"]


def test_files_have_the_fields_of_those_that_deltalake_writes(path):
    put(DeltaSink(path, ()), batch(path, row(1, "a")), 0, tasks=1)
    write_deltalake(path, batch(path, row(2, "b")), mode="append")
    files = list(Path(path).rglob("*.parquet"))
    # The first lines name an object and the whole schema.
    ours, theirs = (str(pq.ParquetFile(each).schema).splitlines()[2:] for each in files)
    assert ours == theirs
    assert "  optional int64 field_id=1 col-1;" in ours


def test_rows_are_replaced_by_key_in_files_of_both_writers(path):
    sink = DeltaSink(path, ("id",), schema_changes="ignore")
    write_deltalake(path, batch(path, row(1, "a"), row(2, "b"), row(3, "c")), mode="append")
    columns = [each["name"] for each in FIELDS]
    assert sink.why_collected(columns) is None
    assert upsert(sink, batch(path, row(2, "bb"), row(4, "d")), 0) == Stored(rows=2)
    assert read(path) == [row(1, "a"), row(2, "bb"), row(3, "c"), row(4, "d")]
    removed = [each["remove"] for each in last_actions(path) if "remove" in each]
    assert [each["partitionValues"] for each in removed] == [{"col-6": "2026-11-27"}]
    # Files whose bounds exclude the keys are not searched.
    merge = merge_of(sink, batch(path, row(9, "i")), 1)
    merge._run = lambda tasks: pytest.fail("a file is searched") if tasks else []
    sink.merge(merge, "q", 1)
    gone = batch(path, row(1, "")).append_column("tombstone", [[True]])
    assert upsert(sink, gone, 2) == Stored(rows=0, deletes=1)
    assert [each["id"] for each in read(path)] == [2, 3, 4, 9]


def test_columns_that_a_batch_lacks_keep_their_values(path):
    sink = DeltaSink(path, ("id",), schema_changes="ignore")
    upsert(sink, batch(path, row(1, "a"), row(2, "b")), 0)
    upsert(sink, batch(path, row(1, "aa"), row(3, "c"), without=["place", "by_name"]), 1)
    first, second, third = read(path)
    assert first == row(1, "aa") | {"by_name": row(1, "a")["by_name"]}
    assert second == row(2, "b")
    assert third == row(3, "c") | {"place": None, "by_name": None}


def test_a_column_that_is_renamed_meanwhile_is_reported(path):
    sink = DeltaSink(path, ())
    rows = batch(path, row(1, "a"))
    task = sink.file_task(rows.schema, "p", separates=False)
    log = max(Path(path, "_delta_log").glob("*.json"))
    text = log.read_text().replace("col-2", "col-22")
    assert "col-22" in text
    log.write_text(text)
    written = Written()
    run_task(task, rows, written)
    with pytest.raises(SpecError, match="another writer changed the table's columns meanwhile"):
        sink.commit(task, rows.schema, written, "q", 0)


def test_new_columns_are_refused_before_anything_is_written(path):
    sink = DeltaSink(path, ("id",), schema_changes="add")
    rows = batch(path, row(1, "a")).append_column("tombstone", [[False]])
    with pytest.raises(SpecError, match=r'column more is new, .* set schema_changes = "ignore"$'):
        sink.keyed_task(rows.append_column("more", [[1]]).schema, "p", separates=False)
    assert upsert(sink, rows, 0) == Stored(rows=1)


def test_names_inside_of_columns_are_changed_and_changed_back(path):
    names = names_of(DeltaTable(path))
    rows = batch(path, row(1, "a"), row(2, "b"), row(3, "c"))
    there = renamed(rows.slice(1), names)
    assert there.column_names == [f"col-{number}" for number in range(1, 7)]
    assert there.column("col-4").to_pylist()[0] == [
        {"col-13": 2, "col-14": "b"}, {"col-13": None, "col-14": None},
    ]  # fmt: skip
    assert renamed(there, inverse(names)).to_pylist() == rows.slice(1).to_pylist()
    assert names_of(DeltaTable(new_table(Path(path).parent / "plain", [field("id")]))) == {}
    assert renamed(rows, {}) is rows
