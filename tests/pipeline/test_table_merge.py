"""Rows with keys: tasks write the touched files of a Delta table again, and nothing is lost."""

import json
import random
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from sparkraft.pipeline import table_files, table_merge, table_rewrite
from sparkraft.pipeline.delta import DeltaSink, Stored
from sparkraft.pipeline.key_match import KeyIndex, last_of_runs
from sparkraft.pipeline.spec import SpecError
from sparkraft.pipeline.table_merge import Merge, run_here, sorted_rows
from sparkraft.pipeline.upkeep import keep_up


def merge_of(sink, rows, batch_id, tasks=2, run=run_here):
    """Write a batch as `tasks` tasks do, in this process."""
    task = sink.keyed_task(rows.schema, f"part-{batch_id}", separates=False)
    keys = [tuple(row.values()) for row in rows.select(list(sink.keys)).to_pylist()]
    reports = []
    for number in range(tasks):
        chosen = [hash(str(key)) % tasks == number for key in keys]
        part = rows.filter(pa.array(chosen, pa.bool_()))
        part = sorted_rows(part, sink.keys, sink.order_by)
        found = task.run(iter(part.to_batches(max_chunksize=3)))
        reports += [row["report"] for each in found for row in each.to_pylist()]
    return Merge(task, rows.schema, table_files.collected(reports), run)


def upsert(sink, rows, batch_id, query_id="q", **options):
    return sink.merge(merge_of(sink, rows, batch_id, **options), query_id, batch_id)


def stored(path, by=("id",)):
    rows = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: [(row[name] is not None, row[name]) for name in by])


def actions(path):
    return pa.table(DeltaTable(str(path)).get_add_actions(flatten=True)).to_pylist()


def numbers(ids, text):
    ids = list(ids)
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [f"{text}{each}" for each in ids]})


@pytest.fixture
def sink(tmp_path):
    return DeltaSink(str(tmp_path / "t"), ("id",))


def test_rows_are_inserted_replaced_and_deleted_once(sink):
    assert upsert(sink, numbers(range(10), "a"), 0) == Stored(rows=10)
    rows = pa.table(
        {
            "id": [1, 20, 3, 99],
            "name": ["b1", "b20", None, None],
            "tombstone": [False, None, True, True],
        }
    )
    for _ in range(2):
        upsert(sink, rows, 1)
    upsert(sink, numbers([4], "late"), 1)  # repeated: the table has the batch
    expected = {each: f"a{each}" for each in range(10)} | {1: "b1", 20: "b20"}
    del expected[3]
    assert {row["id"]: row["name"] for row in stored(sink.path)} == expected
    assert "tombstone" not in stored(sink.path)[0]
    assert sink.has("q", 1)
    assert not list(Path(sink.path).glob("keys-*"))


def test_a_file_without_the_keys_stays_and_one_out_of_their_bounds_is_not_read(sink, monkeypatch):
    upsert(sink, numbers(range(0, 10, 2), "a"), 0, tasks=1)
    upsert(sink, numbers(range(100, 110), "a"), 1, tasks=1)
    (low, high) = sorted(
        (each["path"] for each in actions(sink.path)), key=lambda path: "-1-" in path
    )
    searched = []

    def run(tasks):
        searched.extend(file.path for task in tasks for file in task.found)
        return run_here(tasks)

    upsert(sink, numbers([3, 5], "b"), 2, run=run)
    assert searched == [low]
    assert {low, high} < {each["path"] for each in actions(sink.path)}
    upsert(sink, numbers([4], "b"), 3, run=run)
    assert low not in {each["path"] for each in actions(sink.path)}
    assert high not in searched


def test_the_last_of_several_rows_with_one_key_is_stored_by_its_order(tmp_path):
    sink = DeltaSink(str(tmp_path / "t"), ("id",), order_by="offset")
    rows = pa.table(
        {
            "id": [1, 2, 1, 1, 2, 3],
            "name": ["first", "kept", "last", "second", "gone", "x"],
            "tombstone": [False, False, False, False, True, False],
            "offset": [0, 1, 5, 2, 9, 3],
        }
    )
    assert upsert(sink, rows, 0) == Stored(rows=2, deletes=1)
    assert stored(sink.path) == [{"id": 1, "name": "last"}, {"id": 3, "name": "x"}]
    same = rows.set_column(3, "offset", [[0, 1, 5, 5, 9, 3]])
    with pytest.raises(SpecError, match="several rows for one id that order_by does not put"):
        upsert(sink, same, 1)


def test_without_an_order_several_rows_with_one_key_are_refused(sink):
    rows = numbers([1, 2, 3, 4, 4, 5, 6, 7], "a")
    with pytest.raises(SpecError, match="several rows for one id; aggregate them"):
        upsert(sink, rows, 0)
    assert not DeltaTable.is_deltatable(sink.path)


def test_keys_may_be_several_columns_texts_dates_and_nulls(tmp_path):
    sink = DeltaSink(str(tmp_path / "t"), ("day", "who"), partition_by=("day",))
    days, who = [date(2026, 1, 1), None, date(2026, 1, 2), None], ["a/b =%", "x", None, None]
    upsert(sink, pa.table({"day": days, "who": who, "n": [1, 2, 3, 4]}), 0)
    changed = {
        "day": days[1:],
        "who": who[1:],
        "n": [20, 30, 40],
        "tombstone": [False, True, False],
    }
    upsert(sink, pa.table(changed), 1)
    found = {(row["day"], row["who"]): row["n"] for row in stored(sink.path, ("n",))}
    assert found == {(days[0], who[0]): 1, (None, "x"): 20, (None, None): 40}


def test_a_row_moves_to_the_partition_of_its_new_value(tmp_path):
    sink = DeltaSink(str(tmp_path / "t"), ("id",), partition_by=("place",))
    upsert(sink, pa.table({"id": [1, 2, 3], "place": ["a/b %", "c", "a/b %"]}), 0)
    upsert(sink, pa.table({"id": [1, 2], "place": ["d", "a/b %"]}), 1)
    assert [row["place"] for row in stored(sink.path)] == ["d", "a/b %", "a/b %"]
    parts = {each["partition.place"] for each in actions(sink.path)}
    assert parts == {"d", "a/b %"}


@pytest.mark.parametrize("partition_by", [None, ["place"]])
def test_files_of_another_writer_are_written_again(tmp_path, partition_by):
    path = str(tmp_path / "t")
    places = ["a/b =%ü", None, "c"]
    rows = pa.table({"id": [1, 2, 3], "place": places, "s": [{"x": each} for each in range(3)]})
    write_deltalake(path, rows, partition_by=partition_by)
    changed = pa.table({"id": [1, 2, 4], "place": places, "s": [{"x": 7}] * 3})
    upsert(DeltaSink(path, ("id",)), changed, 0)
    assert [(row["id"], row["place"], row["s"]["x"]) for row in stored(path)] == [
        (1, places[0], 7), (2, None, 7), (3, "c", 2), (4, "c", 7),
    ]  # fmt: skip


def test_columns_that_the_batch_lacks_keep_their_values_in_replaced_rows(tmp_path):
    path = str(tmp_path / "t")
    upsert(DeltaSink(path, ("id",)), numbers(range(4), "a"), 0)
    rows = pa.table({"id": [3, 1, 9], "s": [{"x": 1}] * 3, "tombstone": [False, False, False]})
    add = DeltaSink(path, ("id",), "add")
    upsert(add, rows, 1)
    assert stored(path) == [
        {"id": 0, "name": "a0", "s": None},
        {"id": 1, "name": "a1", "s": {"x": 1}},
        {"id": 2, "name": "a2", "s": None},
        {"id": 3, "name": "a3", "s": {"x": 1}},
        {"id": 9, "name": None, "s": {"x": 1}},
    ]
    nested = pa.table({"id": [1, 2], "s": [{"x": 2, "y": "new"}] * 2})
    upsert(add, nested, 2)
    assert stored(path)[1] == {"id": 1, "name": "a1", "s": {"x": 2, "y": "new"}}
    assert upsert(
        DeltaSink(path, ("id",), "ignore"), nested.rename_columns(["id", "z"]), 3
    ) == Stored(rows=2, ignored=2)
    assert stored(path)[1]["name"] == "a1"
    with pytest.raises(SpecError, match="returns no column name"):
        upsert(DeltaSink(path, ("id",)), nested, 4)


def test_rows_that_another_writer_adds_meanwhile_are_searched_before_the_commit(sink):
    upsert(sink, numbers(range(4), "a"), 0)
    searched = []

    def run(tasks):
        searched.append([file.path for task in tasks for file in task.found])
        if len(searched) == 1:
            upsert(DeltaSink(sink.path, ("id",)), numbers([1, 50], "other"), 0, query_id="other")
        return run_here(tasks)

    upsert(sink, numbers([1, 50], "mine"), 1, run=run)
    found = {row["id"]: row["name"] for row in stored(sink.path)}
    assert found == {0: "a0", 1: "mine1", 2: "a2", 3: "a3", 50: "mine50"}
    assert len(searched) == 2
    assert not set(searched[0]) & set(searched[1])


def test_a_compaction_that_commits_first_is_searched_again(sink):
    for batch in range(3):
        upsert(sink, numbers(range(batch * 2, batch * 2 + 4), "a"), batch)
    rounds = []

    def run(tasks):
        if not rounds:
            keep_up(sink.path, retain_hours=1)
        rounds.append(tasks)
        return run_here(tasks)

    merge = merge_of(sink, numbers([0, 7], "b"), 3, run=run)
    sink.merge(merge, "q", 3)
    found = {row["id"]: row["name"] for row in stored(sink.path)}
    assert found == {each: f"a{each}" for each in range(1, 7)} | {0: "b0", 7: "b7"}
    assert len(rounds) == 2


def test_a_driver_that_was_thought_dead_adds_its_batch_no_second_time(sink):
    upsert(sink, numbers(range(4), "a"), 0)
    late = merge_of(sink, numbers([1, 9], "b"), 1)

    def run(tasks):
        upsert(DeltaSink(sink.path, ("id",)), numbers([1, 9], "b"), 1)
        return run_here(tasks)

    late._run = run
    sink.merge(late, "q", 1)
    assert [row["id"] for row in stored(sink.path)] == [0, 1, 2, 3, 9]


def test_another_writer_that_adds_a_column_stops_the_batch(sink):
    upsert(sink, numbers(range(4), "a"), 0)
    merge = merge_of(sink, numbers([1], "b"), 1)
    wider = numbers([1], "c").append_column("more", [[1]])
    write_deltalake(sink.path, wider, mode="append", schema_mode="merge")
    with pytest.raises(SpecError, match="another writer changed the table's columns meanwhile"):
        sink.merge(merge, "q", 1)


def test_large_keys_and_files_are_read_in_parts(sink, monkeypatch):
    monkeypatch.setattr(table_rewrite, "_KEY_BYTES_MAX", 200)
    monkeypatch.setattr(table_rewrite, "_ROWS", 16)
    monkeypatch.setattr(table_merge, "_TASK_BYTES", 3000)
    monkeypatch.setattr(table_files, "_BUFFER_BYTES_MAX", 500)
    monkeypatch.setattr(table_files, "_FILE_BYTES", 2000)
    dice = random.Random(4)
    expected: dict[int, str] = {}
    for batch in range(6):
        ids = dice.sample(range(400), 150)
        gone = {each for each in ids if dice.random() < 0.2}
        rows = numbers(ids, f"b{batch}-")
        rows = rows.append_column("tombstone", [[each in gone for each in ids]])
        assert upsert(sink, rows, batch) == Stored(150 - len(gone), len(gone))
        expected |= {each: f"b{batch}-{each}" for each in ids}
        expected = {key: value for key, value in expected.items() if key not in gone}
        assert {row["id"]: row["name"] for row in stored(sink.path)} == expected
    assert len(actions(sink.path)) > 10


def test_tables_whose_rows_are_not_just_in_files_are_merged_by_the_library(tmp_path):
    path = str(tmp_path / "t")
    write_deltalake(path, numbers([1], "a"), configuration={"delta.enableChangeDataFeed": "true"})
    sink = DeltaSink(path, ("id",), order_by="offset")
    assert sink.why_collected(["id", "name"])
    assert DeltaSink(path, ()).why_collected(["id", "name"]) is None
    columns = {"id": [1, 2, 1], "name": ["x", "b2", "b1"], "offset": [1, 2, 3]}
    assert sink.write(pa.table(columns), "q", 0) == Stored(rows=2)
    assert stored(path) == [{"id": 1, "name": "b1"}, {"id": 2, "name": "b2"}]
    changes = pa.table(DeltaTable(path).load_cdf(1).read_all()).to_pylist()
    assert sorted((each["_change_type"], each["name"]) for each in changes) == [
        ("insert", "b2"), ("update_postimage", "b1"), ("update_preimage", "a1"),
    ]  # fmt: skip
    assert DeltaSink(str(tmp_path / "none"), ("id",)).why_collected(["id", "name"]) is None


def test_a_table_partitioned_by_numbers_with_a_fraction_is_written_by_the_library(tmp_path):
    path = str(tmp_path / "t")
    rows = numbers([1, 2], "a").append_column("x", [[0.5, 1.5]])
    write_deltalake(path, rows, partition_by=["x"])
    sink = DeltaSink(path, ("id",))
    assert sink.why_collected(["id", "name", "x"]) == (
        "is partitioned by other types than text, integers, dates, times and booleans"
    )
    sink.write(rows.slice(0, 1).set_column(1, "name", [["b"]]), "q", 0)
    assert [row["name"] for row in stored(path)] == ["b", "a2"]


@pytest.mark.parametrize("zone", [UTC, None])
def test_rows_of_a_table_partitioned_by_times_are_replaced(tmp_path, zone):
    path = str(tmp_path / "t")
    times = [datetime(2026, 1, 1, 2, 3, 4, each, tzinfo=zone) for each in (0, 5)]
    column = pa.array([*times, None], pa.timestamp("us", "UTC" if zone else None))
    rows = numbers([1, 2, 3], "a").append_column("at", column)
    write_deltalake(path, rows, partition_by=["at"])
    sink = DeltaSink(path, ("at", "id"))
    assert sink.why_collected(["id", "name", "at"]) is None
    upsert(sink, rows.slice(1).set_column(1, "name", [["b2", "b3"]]), 0)
    assert [(row["at"], row["name"]) for row in stored(path)] == [
        (times[0], "a1"), (times[1], "b2"), (None, "b3"),
    ]  # fmt: skip
    # Replaced by a key that is not in the partitioning, a row may move.
    moved = numbers([2], "c").append_column("at", column.slice(0, 1))
    upsert(DeltaSink(path, ("id",)), moved, 1)
    assert [(row["at"], row["name"]) for row in stored(path)] == [
        (times[0], "a1"), (times[0], "c2"), (None, "b3"),
    ]  # fmt: skip


def test_nulls_come_first_in_the_order_also_on_the_driver(tmp_path):
    rows = pa.table({"id": [1, 1], "name": ["later", "null"], "n": pa.array([7, None])})
    for name, write in (("a", upsert), ("b", lambda sink, *batch: sink.write(*batch))):
        sink = DeltaSink(str(tmp_path / name), ("id",), order_by="n")
        write(sink, rows, *([0] if name == "a" else ["q", 0]))
        assert stored(sink.path) == [{"id": 1, "name": "later"}]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (pa.table({"x": [1]}), "column id to merge by does not exist, only x"),
        (pa.table({"id": [{"x": 1}]}), "column id to merge by is struct<x: int64>"),
    ],
)
def test_keys_that_cannot_be_are_refused(sink, rows, message):
    with pytest.raises(SpecError, match=message):
        upsert(sink, rows, 0)


def test_a_batch_of_deletes_is_named_and_creates_no_table(sink):
    rows = pa.table({"id": [5], "name": pa.nulls(1, pa.string()), "tombstone": [True]})
    assert upsert(sink, rows, 0) == Stored(deletes=1)
    assert not DeltaTable.is_deltatable(sink.path)
    upsert(sink, numbers([5], "a"), 1)
    upsert(sink, rows, 2)
    assert stored(sink.path) == []
    upsert(sink, rows, 3)
    assert sink.has("q", 3)


@pytest.mark.parametrize("seed", range(5))
def test_an_index_finds_the_keys_that_a_dictionary_finds(seed):
    dice = random.Random(seed)
    values = [None, "", "a", "b", "ü", "a|b"]
    kinds = {
        "n": [None, *range(-3, 4)],
        "t": values,
        "d": [None, date(2026, 1, 1), date(2026, 2, 1)],
    }
    names = dice.sample(sorted(kinds), dice.randint(1, 3))
    every = {tuple(dice.choice(kinds[name]) for name in names) for _ in range(12)}
    keys = dice.sample(sorted(every, key=str), dice.randint(0, len(every)))
    rows = [tuple(dice.choice(kinds[name]) for name in names) for _ in range(200)]
    types = {"n": pa.int64(), "t": pa.string(), "d": pa.date32()}

    def table(tuples):
        columns = {name: [each[at] for each in tuples] for at, name in enumerate(names)}
        return pa.table({name: pa.array(columns[name], types[name]) for name in names})

    places = {key: at for at, key in enumerate(keys)}
    found = KeyIndex(table(keys)).positions(table(rows))
    assert found.tolist() == [places.get(row, -1) for row in rows]


def test_runs_end_with_their_last_row():
    rows = pa.table({"a": [1, 1, None, None, 2, 2], "b": ["x", "x", None, "y", "y", "y"]})
    found, repeated = last_of_runs(rows, ["a", "b"])
    assert repeated
    assert found.to_pylist() == [rows.to_pylist()[at] for at in (1, 2, 3, 5)]
    assert last_of_runs(rows.slice(0, 1), ["a"])[1] is False


def test_statistics_of_files_have_dates(sink):
    rows = pa.table({"id": [1, 2], "day": [date(2026, 1, 1), None]})
    upsert(sink, rows, 0, tasks=1)
    (found,) = actions(sink.path)
    assert (found["min.day"], found["max.day"], found["null_count.day"]) == (
        date(2026, 1, 1), date(2026, 1, 1), 1,
    )  # fmt: skip
    log = next((Path(sink.path) / "_delta_log").glob("*1.json")).read_text()
    stats = [json.loads(line)["add"]["stats"] for line in log.splitlines() if '"add"' in line]
    assert json.loads(stats[0])["maxValues"] == {"id": 2, "day": "2026-01-01"}
