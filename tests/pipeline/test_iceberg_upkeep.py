"""Compaction and expiry of Iceberg tables, beside writers that do not stop."""

import os
import threading
import time

import pyarrow as pa
import pyiceberg.table
import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.manifest import ManifestFile

from sparkraft.cli import main as cli
from sparkraft.pipeline import iceberg_upkeep, upkeep
from sparkraft.pipeline.iceberg import IcebergSink
from sparkraft.pipeline.iceberg_upkeep import keep_up
from sparkraft.pipeline.spec import SpecError
from tests.pipeline.test_iceberg import FILE, stored
from tests.pipeline.test_table_files import numbers, put
from tests.pipeline.test_table_merge import upsert

TARGET = 1 << 20
WEEK = 168
ROUNDS = 3


@pytest.fixture
def sink(tmp_path):
    return made(tmp_path)


def made(tmp_path, *keys, partition_by=()):
    path = str(tmp_path / "wh")
    return IcebergSink(path, "ns.t", "fail", {}, keys=keys, partition_by=partition_by)


def age(folder, hours):
    then = time.time() - hours * 3600
    for each in [*folder.rglob("*.parquet"), *folder.rglob("*.avro")]:
        os.utime(each, (then, then))


def test_small_files_are_joined_and_stay_for_readers(sink, tmp_path):
    for batch in range(5):
        put(sink, numbers(batch * 10, 10), batch)
    before = sink.loaded().scan()
    assert upkeep.joinable(iceberg_upkeep.iceberg_files(sink)) == 9
    assert keep_up(sink, target_bytes=TARGET, retain_hours=WEEK) == (10, 1, 0)
    assert keep_up(sink, target_bytes=TARGET, retain_hours=WEEK) == (1, 1, 0)
    assert stored(tmp_path) == numbers(0, 50).to_pylist()
    assert before.to_arrow().num_rows == 50
    assert sink.has("q", 4)
    assert not sink.has("q", 5)


def test_files_of_a_size_stay_and_results_have_at_least_half_of_it(sink):
    for batch, count in enumerate((40_000, 10, 9000, 9000, 9000, 9000)):
        put(sink, numbers(batch * 100_000, count), batch, tasks=1)
    sizes = {
        task.file.file_path: task.file.file_size_in_bytes
        for task in sink.loaded().scan().plan_files()
    }
    target = max(sizes.values())
    large = max(sizes, key=lambda path: sizes[path])
    keep_up(sink, target_bytes=target, retain_hours=WEEK)
    found = [task.file for task in sink.loaded().scan().plan_files()]
    assert large in {each.file_path for each in found}
    assert sum(each.file_size_in_bytes < target / 2 for each in found) <= 1
    assert len(found) < len(sizes)


def test_old_snapshots_and_files_without_a_commit_are_deleted(sink, tmp_path, monkeypatch):
    put(sink, numbers(0, 10), 0)
    task = sink.file_task(numbers(0, 1).schema, "killed", separates=False)
    list(task.run(iter(numbers(10, 10).to_batches())))
    put(sink, numbers(10, 10), 1)
    assert keep_up(sink, target_bytes=TARGET, retain_hours=WEEK).deleted == 0
    assert len(sink.loaded().snapshots()) == 3
    age(tmp_path / "wh", 3)

    class Later(iceberg_upkeep.datetime):
        @classmethod
        def now(cls, zone):
            return super().now(zone) + iceberg_upkeep.timedelta(hours=2)

    monkeypatch.setattr(iceberg_upkeep, "datetime", Later)
    manifests = len(list((tmp_path / "wh").rglob("*.avro")))
    # The killed task's file, and four that were joined.
    assert keep_up(sink, target_bytes=TARGET, retain_hours=1).deleted == 5
    assert len(sink.loaded().snapshots()) == 1
    assert len(list((tmp_path / "wh").rglob("*.parquet"))) == 1
    assert len(list((tmp_path / "wh").rglob("*.avro"))) < manifests
    assert stored(tmp_path) == numbers(0, 20).to_pylist()


def test_partitions_are_kept_apart(tmp_path):
    sink = made(tmp_path, partition_by=("name",))
    for batch in range(3):
        rows = pa.table({"id": [batch * 2, batch * 2 + 1], "name": ["a", "b/ä"]})
        put(sink, rows, batch, tasks=1)
    assert keep_up(sink, target_bytes=TARGET, retain_hours=WEEK)[:2] == (6, 2)
    assert [row["name"] for row in stored(tmp_path)] == ["a", "b/ä"] * 3
    scan = sink.loaded().scan(row_filter=EqualTo("name", "b/ä"))
    assert len(list(scan.plan_files())) == 1


def test_a_compaction_that_lost_its_race_joins_nothing_again(sink, tmp_path, monkeypatch):
    """Otherwise each attempt takes longer than the last, and a busy pipeline always wins."""
    for batch in range(3):
        put(sink, numbers(batch * 10, 10), batch, tasks=1)
    batches, joined = [3], []
    write, join = iceberg_upkeep.write_snapshot, iceberg_upkeep._join

    def write_late(*arguments):
        write(*arguments)
        if len(batches) < 8:
            put(made(tmp_path), numbers(batches[-1] * 10, 10), batches[-1], tasks=1)
            batches.append(batches[-1] + 1)

    def count(folder, group):
        joined.append(len(group))
        return join(folder, group)

    monkeypatch.setattr(iceberg_upkeep, "write_snapshot", write_late)
    monkeypatch.setattr(iceberg_upkeep, "_join", count)
    assert keep_up(sink, target_bytes=TARGET, retain_hours=WEEK) == (3, 8, 0)
    assert joined == [3]
    assert stored(tmp_path) == numbers(0, 100).to_pylist()


def test_a_commit_is_prepared_again_with_new_manifests_alone(sink, tmp_path, monkeypatch):
    """A preparation that reads all of them takes longer with each batch that comes first."""
    for batch in range(12):
        put(sink, numbers(batch * 10, 10), batch, tasks=1)
    read, copies, attempts = [], [], []
    fetch, apply = ManifestFile.fetch_manifest_entry, pyiceberg.table.update_table_metadata
    write = iceberg_upkeep.write_snapshot

    def write_late(*arguments):
        attempts.append((len(read), len(copies)))
        write(*arguments)
        attempts[-1] = (len(read), len(copies) - attempts[-1][1])
        if len(attempts) < 4:
            put(made(tmp_path), numbers(200 + len(attempts) * 10, 10), 20 + len(attempts), tasks=1)

    def count_read(manifest, *arguments, **options):
        read.append(manifest.manifest_path)
        return fetch(manifest, *arguments, **options)

    def count_copy(*arguments, **options):
        copies.append(1)
        return apply(*arguments, **options)

    monkeypatch.setattr(iceberg_upkeep, "write_snapshot", write_late)
    monkeypatch.setattr(ManifestFile, "fetch_manifest_entry", count_read)
    monkeypatch.setattr(pyiceberg.table, "update_table_metadata", count_copy)
    assert iceberg_upkeep._compact(sink, TARGET) is None
    assert [count for count, _ in attempts] == [12, 13, 14, 15]
    assert max(count for _, count in attempts) <= 3
    assert len(set(read)) == len(read)
    assert stored(tmp_path) == numbers(0, 120).to_pylist() + numbers(210, 30).to_pylist()


@pytest.mark.parametrize("keys", [(), ("id",)])
def test_batches_that_are_written_meanwhile_are_stored_once(tmp_path, keys):
    failures, rounds, batches = [], [], [0]
    write = upsert if keys else put

    def write_all():
        try:
            while len(rounds) < ROUNDS:
                batches.append(len(batches))
                time.sleep(0.05)  # much less than Spark takes for a batch
                write(made(tmp_path, *keys), numbers(batches[-1] * 5, 10), batches[-1])
        except Exception as error:
            failures.append(error)

    write(made(tmp_path, *keys), numbers(0, 10), 0)
    writer = threading.Thread(target=write_all)
    writer.start()
    while writer.is_alive():
        rounds.append(keep_up(made(tmp_path), target_bytes=TARGET, retain_hours=1))
    writer.join()
    assert failures == []
    found = [row["id"] for row in stored(tmp_path)]
    end = len(batches) * 5
    expected, twice = range(end + 5), range(5, end)
    assert found == (list(expected) if keys else sorted([*expected, *twice]))


def test_the_command_names_the_files(tmp_path, capsys):
    (tmp_path / "n.toml").write_text(FILE)
    command = ["pipeline", "compact", str(tmp_path / "n.toml")]
    assert cli.main(command) != 0
    assert "ns.t is not a table of the catalog" in capsys.readouterr().err
    for batch in range(2):
        put(made(tmp_path), numbers(batch, 1), batch)
    assert cli.main(command) == 0
    assert capsys.readouterr().out.endswith("ns.t: 2 files before, 1 after, 0 deleted\n")
    with pytest.raises(SpecError, match="at least 1 hour"):
        keep_up(made(tmp_path), target_bytes=TARGET, retain_hours=0)
