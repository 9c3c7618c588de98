"""Tasks write files of a Delta table, and the driver commits each batch once."""

import json
from datetime import UTC, date, datetime

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from sparkraft.pipeline import table_files
from sparkraft.pipeline.delta import DeltaSink, Stored
from sparkraft.pipeline.spec import SpecError
from sparkraft.pipeline.table_files import TableFile, Written


def reports_of(task, rows):
    batches = task.run(iter(rows.to_batches(max_chunksize=100)))
    return [json.loads(row["report"]) for batch in batches for row in batch.to_pylist()]


def run_task(task, rows, written):
    for found in reports_of(task, rows):
        assert "error" not in found, found
        written.ignored += found.get("ignored", 0)
        if "file" in found:
            written.files.append(TableFile(*found["file"]))


def put(sink, rows, batch_id, query_id="q", tasks=2):
    """Write a batch as `tasks` tasks do, in this process, and commit it."""
    task = sink.file_task(rows.schema, f"part-{batch_id}", separates=False)
    written = Written()
    size = -(-rows.num_rows // tasks)
    for first in range(0, rows.num_rows, size):
        run_task(task, rows.slice(first, size), written)
    return sink.commit(task, rows.schema, written, query_id, batch_id)


def stored(path):
    rows = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: row["id"])


def numbers(first, count):
    ids = list(range(first, first + count))
    return pa.table({"id": ids, "name": [f"n{each}" for each in ids], "x": [0.5] * count})


def test_a_batch_is_added_once_and_named_in_its_commit(tmp_path):
    sink = DeltaSink(str(tmp_path / "t"), ())
    assert put(sink, numbers(0, 1000), 0) == Stored(rows=1000)
    assert put(sink, numbers(1000, 10), 1) == Stored(rows=10)
    assert sink.has("q", 1)
    assert not sink.has("q", 2)
    put(sink, numbers(5000, 10), 1)
    assert [row["id"] for row in stored(sink.path)] == list(range(1010))
    assert len(DeltaTable(sink.path).file_uris()) == 4


def test_files_have_the_bounds_of_their_rows(tmp_path):
    sink = DeltaSink(str(tmp_path / "t"), ())
    rows = pa.table(
        {"id": [3, 1, 2], "name": ["b", None, "a"], "s": [{"x": 1}] * 3, "long": ["x" * 99] * 3}
    )
    put(sink, rows, 0, tasks=1)
    (actions,) = pa.table(DeltaTable(sink.path).get_add_actions(flatten=True)).to_pylist()
    assert actions["num_records"] == 3
    assert (actions["min.id"], actions["max.id"], actions["null_count.id"]) == (1, 3, 0)
    assert (actions["min.name"], actions["max.name"], actions["null_count.name"]) == ("a", "b", 1)
    assert actions.get("min.long") is None


def test_rows_are_partitioned_by_text_numbers_dates_and_nulls(tmp_path):
    sink = DeltaSink(str(tmp_path / "t"), (), partition_by=("day", "who"))
    days = [date(2026, 1, 1), date(2026, 1, 2), None, date(2026, 1, 1)]
    rows = pa.table({"id": [0, 1, 2, 3], "day": days, "who": ["a/b =%", "ü", "a", None]})
    put(sink, rows, 0, tasks=1)
    put(sink, rows.set_column(0, "id", [[4, 5, 6, 7]]), 1)
    assert [(row["day"], row["who"]) for row in stored(sink.path)] == 2 * list(
        zip(days, rows["who"].to_pylist(), strict=True)
    )
    table = DeltaTable(sink.path)
    assert table.metadata().partition_columns == ["day", "who"]
    found = table.to_pyarrow_table(filters=[("who", "=", "a/b =%")])
    assert sorted(found["id"].to_pylist()) == [0, 4]
    # The partitioning of a table stays.
    again = DeltaSink(sink.path, ())
    put(again, rows.slice(0, 1).set_column(0, "id", [[8]]), 2)
    assert len(stored(sink.path)) == 9


@pytest.mark.parametrize("zone", [UTC, None])
def test_rows_are_partitioned_by_times(tmp_path, zone):
    times = [
        datetime(2026, 1, 2, 3, 4, 5, tzinfo=zone),
        datetime(2026, 1, 2, 3, 4, 5, 7, tzinfo=zone),
        datetime(1, 1, 2, tzinfo=zone),
        None,
    ]
    column = pa.array(times, pa.timestamp("us", "UTC" if zone else None))
    sink = DeltaSink(str(tmp_path / "t"), (), partition_by=("at",))
    put(sink, pa.table({"id": [0, 1, 2, 3], "at": column}), 0, tasks=1)
    assert [row["at"] for row in stored(sink.path)] == times
    assert len(DeltaTable(sink.path).file_uris()) == 4
    found = pa.table(DeltaTable(sink.path).get_add_actions(flatten=True)).column("partition.at")
    assert set(found.to_pylist()) == set(times)


@pytest.mark.parametrize(
    ("columns", "message"),
    [(("nope",), "no column nope to partition by"), (("x",), "column x is double")],
)
def test_partitioning_that_cannot_be_is_refused(tmp_path, columns, message):
    sink = DeltaSink(str(tmp_path / "t"), (), partition_by=columns)
    with pytest.raises(SpecError, match=message):
        put(sink, numbers(0, 1), 0)


def test_new_and_missing_columns_follow_schema_changes(tmp_path):
    path = str(tmp_path / "t")
    put(DeltaSink(path, ()), numbers(0, 1), 0)
    wider = pa.table({"id": [1], "name": ["n"], "new": [True]})
    with pytest.raises(SpecError, match="the table has no column new"):
        put(DeltaSink(path, ()), wider, 1)
    assert put(DeltaSink(path, (), "ignore"), wider, 1).ignored == 1
    put(DeltaSink(path, (), "add"), wider.set_column(0, "id", [[2]]), 2)
    assert stored(path) == [
        {"id": 0, "name": "n0", "x": 0.5, "new": None},
        {"id": 1, "name": "n", "x": None, "new": None},
        {"id": 2, "name": "n", "x": None, "new": True},
    ]


def test_a_row_that_does_not_fit_is_reported_by_its_task(tmp_path):
    sink = DeltaSink(str(tmp_path / "t"), ())
    put(sink, pa.table({"id": [1]}), 0)
    rows = pa.table({"id": [2.0, 2.5], "topic": ["t", "t"]})
    sink = DeltaSink(sink.path, (), "ignore")
    task = sink.file_task(rows.schema, "p", separates=False)
    (report,) = task.run(iter(rows.to_batches()))
    assert (
        "column id is double, which does not fit"
        in json.loads(report["report"][0].as_py())["error"]
    )
    task = sink.file_task(rows.schema, "p", separates=True)
    reports = [json.loads(r["report"][0].as_py()) for r in task.run(iter(rows.to_batches()))]
    (misfit,) = reports[0]["misfits"]
    assert misfit[:4] == ["t", None, None, '{"id": 2.5, "topic": "t"}']


def test_a_task_keeps_few_rows_and_closes_large_files(tmp_path, monkeypatch):
    monkeypatch.setattr(table_files, "_BUFFER_BYTES_MAX", 1000)
    monkeypatch.setattr(table_files, "_FILE_BYTES", 20_000)
    sink = DeltaSink(str(tmp_path / "t"), ())
    put(sink, numbers(0, 5000), 0, tasks=1)
    assert len(DeltaTable(sink.path).file_uris()) > 3
    assert [row["id"] for row in stored(sink.path)] == list(range(5000))


def test_another_writer_that_changes_a_column_stops_the_batch(tmp_path):
    sink = DeltaSink(str(tmp_path / "t"), ())
    rows = numbers(0, 1)
    task = sink.file_task(rows.schema, "p", separates=False)
    written = Written()
    run_task(task, rows, written)
    put(sink, pa.table({"id": ["text"]}), 0, query_id="other")
    with pytest.raises(SpecError, match="another writer changed the table's columns meanwhile"):
        sink.commit(task, rows.schema, written, "q", 0)


def test_a_file_that_the_driver_does_not_see_is_not_committed(tmp_path):
    sink = DeltaSink(str(tmp_path / "t"), ())
    rows = numbers(0, 1)
    task = sink.file_task(rows.schema, "p", separates=False)
    written = Written()
    run_task(task, rows, written)
    (tmp_path / "t" / written.files[0].path).unlink()
    with pytest.raises(SpecError, match="must be on storage that all workers share"):
        table_files.check_visible("t", task.folder, written.files)
