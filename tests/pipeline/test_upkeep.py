"""Compaction joins small files and deletes old ones, beside writers that do not stop."""

import os
import threading
import time
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from sparkraft.cli import main as cli
from sparkraft.pipeline import upkeep
from sparkraft.pipeline.delta import DeltaSink
from sparkraft.pipeline.spec import SpecError
from sparkraft.pipeline.upkeep import keep_up
from tests.pipeline.test_table_files import numbers, put, stored
from tests.pipeline.test_table_merge import upsert

WEEK = 168

FILE = """
name = "n"
checkpoint = "c"
[source]
subscribe = "t"
[[sink]]
kind = "delta"
path = "table"
"""


def files_below(path):
    return sorted(Path(path).rglob("*.parquet"))


def age(paths, hours):
    then = time.time() - hours * 3600
    for each in paths:
        os.utime(each, (then, then))


def test_small_files_are_joined_and_stay_for_readers(tmp_path):
    sink = DeltaSink(str(tmp_path / "t"), ())
    for batch in range(5):
        put(sink, numbers(batch * 10, 10), batch)
    before = DeltaTable(sink.path)
    assert keep_up(sink.path, retain_hours=WEEK) == (10, 1, 0)
    assert keep_up(sink.path, retain_hours=WEEK) == (1, 1, 0)
    assert stored(sink.path) == numbers(0, 50).to_pylist()
    assert before.to_pyarrow_table().num_rows == 50
    assert sink.has("q", 4)


def test_files_without_a_commit_are_deleted_when_they_are_old(tmp_path):
    sink = DeltaSink(str(tmp_path / "t"), ())
    put(sink, numbers(0, 10), 0, tasks=1)
    task = sink.file_task(numbers(0, 1).schema, "killed", separates=False)
    list(task.run(iter(numbers(10, 10).to_batches())))
    assert len(files_below(sink.path)) == 2
    assert keep_up(sink.path, retain_hours=WEEK).deleted == 0
    age([each for each in files_below(sink.path) if "killed" in each.name], WEEK + 1)
    assert keep_up(sink.path, retain_hours=WEEK).deleted == 1
    assert stored(sink.path) == numbers(0, 10).to_pylist()


def test_partitions_are_kept_apart(tmp_path):
    sink = DeltaSink(str(tmp_path / "t"), (), partition_by=("name",))
    for batch in range(3):
        rows = pa.table({"id": [batch * 2, batch * 2 + 1], "name": ["a", "b/ä"]})
        put(sink, rows, batch, tasks=1)
    assert keep_up(sink.path, retain_hours=WEEK)[:2] == (6, 2)
    assert [row["name"] for row in stored(sink.path)] == ["a", "b/ä"] * 3


@pytest.mark.parametrize("keys", [(), ("id",)])
def test_batches_that_are_written_meanwhile_are_stored_once(tmp_path, keys):
    sink = DeltaSink(str(tmp_path / "t"), keys)
    batches, failures = 40, []

    def write_all():
        try:
            for batch in range(batches):
                rows = numbers(batch * 5, 10)
                write(sink, rows, batch)
        except Exception as error:
            failures.append(error)

    write = upsert if keys else put
    write(sink, numbers(-10, 10), 0, query_id="first")
    writer = threading.Thread(target=write_all)
    writer.start()
    rounds = 0
    while writer.is_alive():
        keep_up(sink.path, retain_hours=1)
        rounds += 1
    writer.join()
    assert failures == []
    assert rounds > 1
    found = [row["id"] for row in stored(sink.path)]
    twice = range(5, batches * 5)
    expected = range(-10, batches * 5 + 5)
    assert found == (list(expected) if keys else sorted([*expected, *twice]))


def test_a_pipeline_compacts_a_table_with_many_small_files(tmp_path, caplog):
    sink = DeltaSink(str(tmp_path / "t"), (), partition_by=("name",))
    policy = upkeep.CompactionPolicy(
        "t",
        4,
        partial(upkeep.delta_files, sink.path),
        partial(keep_up, sink.path, retain_hours=WEEK),
    )

    def batches(first, count):
        for batch in range(first, first + count):
            put(sink, pa.table({"id": [batch, batch], "name": ["a", "b"]}), batch, tasks=1)
            policy.after_batch()
            if policy._thread:
                policy._thread.join()
        return len(DeltaTable(sink.path).file_uris())

    assert batches(0, 10) == 20
    assert batches(10, 1) == 2  # of two partitions
    assert batches(11, 9) == 20
    assert len(stored(sink.path)) == 40
    policy._files = lambda: 1 / 0
    batches(20, 1)
    assert "t could not be compacted" in caplog.text
    large = [("a", upkeep.TARGET_BYTES), ("a", 1), ("b", 1)]
    assert (upkeep.joinable(large), upkeep.joinable([*large, ("b", 5), ("b", 5)])) == (0, 2)


def test_mistakes_are_named(tmp_path):
    with pytest.raises(SpecError, match="is not a Delta table"):
        keep_up(str(tmp_path), retain_hours=WEEK)
    with pytest.raises(SpecError, match="at least 1 hour"):
        keep_up(str(tmp_path), retain_hours=0)


def test_the_command_names_the_files(tmp_path, capsys):
    (tmp_path / "n.toml").write_text(FILE)
    for batch in range(2):
        put(DeltaSink(str(tmp_path / "table"), ()), numbers(batch, 1), batch)
    assert cli.main(["pipeline", "compact", str(tmp_path / "n.toml")]) == 0
    assert capsys.readouterr().out.endswith("table: 2 files before, 1 after, 0 deleted\n")
    command = ["pipeline", "compact", str(tmp_path / "n.toml"), "--target-mib", "0"]
    assert cli.main(command) != 0
