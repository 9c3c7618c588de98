"""kill -9 of the whole Spark application, again and again: each offset is once in table and topic.

Moments are drawn by seed: some seconds after the start, while Java and Spark come up; or some
batches later and a bit, while a batch is planned, read, written or committed; or exactly between
the table's commit and Spark's own commit of the same batch, where a batch is bound to run again.
"""

import json
import logging
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sparkraft.pipeline.iceberg import IcebergSink
from tests.pipeline.test_fetch_and_produce import fill
from tests.support.killed_batches import committed_values
from tests.support.ports import wait_until

pytestmark = [pytest.mark.spark]

log = logging.getLogger(__name__)

BATCH = 1_000
RECORDS_OF = {"between commits": 2_000, "at work": 10_000, "after start": 10_000}
"""More than a run that is killed at this moment gets through."""

PATIENCE_S = 180

PIPELINE = f"""
name = "killed"
checkpoint = "checkpoint"
trigger = "0 seconds"
group = "killed-${{kills}}"
[source]
"kafka.bootstrap.servers" = "${{bootstrap}}"
subscribe = "killed-${{kills}}"
startingOffsets = "earliest"
maxOffsetsPerTrigger = {BATCH}
[transform]
sql = "SELECT partition, offset, crc32(value) AS crc FROM source"
[[sink]]
kind = "delta"
path = "table"
[[sink]]
kind = "topic"
topic = "copied-${{kills}}"
delivery = "exactly_once"
[[sink]]
kind = "function"
function = "hold.py:hold"
"""

KEYED = (
    PIPELINE.replace(
        "crc32(value) AS crc", "crc32(value) AS crc, offset % 300 AS slot, offset AS version"
    ).replace(
        'path = "table"', 'path = "table"\nkeys = ["partition", "slot"]\norder_by = "version"', 1
    )
    + """
[[sink]]
kind = "iceberg"
path = "warehouse"
table = "ns.t"
keys = ["partition", "slot"]
order_by = "version"
partition_by = ["partition"]
"""
)
"""A batch has many keys twice, and replaces rows of earlier ones."""

HOLD = """
import signal
from pathlib import Path

here = Path(__file__).parent

def hold(batch, batch_id):
    # Between the table's commit and Spark's: where the test asks for it, wait to be killed.
    if (here / "hold").exists():
        (here / "held").write_text(str(batch_id))
        signal.pause()
"""


def process_tree(root: int) -> list[int]:
    """The process and all its descendants, from the kernel's own table."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


class Application:
    """The pipeline as a user runs it: Python driver, JVM, Python workers."""

    def __init__(self, folder, bootstrap):
        self.folder = folder
        self.command = [
            sys.executable, "-m", "sparkraft.cli.main", "pipeline", "run", "--master", "local[2]",
            str(folder / "pipeline.toml"), "--set", f"bootstrap={bootstrap}",
        ]  # fmt: skip
        self.process = None

    def start(self, *extra):
        with (self.folder / "out.txt").open("ab") as out:
            self.process = subprocess.Popen([*self.command, *extra], stdout=out, stderr=out)

    def kill(self):
        """All of it at once: nobody gets to clean up."""
        for pid in process_tree(self.process.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait(60)

    def output(self):
        return (self.folder / "out.txt").read_text(errors="replace")[-3000:]

    def kill_after_start(self, seconds):
        self.start()
        self.kill_in(seconds)

    def kill_at_work(self, batches, seconds):
        """Kill it so many planned batches from now, and so many seconds later."""
        before = len(planned_batches(self.folder))
        self.start()

        def has_worked():
            assert self.process.poll() is None, f"it ended by itself:\n{self.output()}"
            return len(planned_batches(self.folder)) >= before + batches

        wait_until(has_worked, f"{batches} more batches are planned", PATIENCE_S)
        self.kill_in(seconds)

    def kill_in(self, seconds):
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
        else:
            raise AssertionError(f"it ended by itself:\n{self.output()}")

    def kill_between_commits(self):
        """Kill it when the table has a batch that Spark has not committed; the batch's number."""
        held = self.folder / "held"
        held.unlink(missing_ok=True)
        (self.folder / "hold").touch()
        self.start()

        def is_held():
            assert self.process.poll() is None, f"it ended by itself:\n{self.output()}"
            return held.exists() and held.read_text()

        wait_until(is_held, "a batch waits between the commits", PATIENCE_S)
        self.kill()
        (self.folder / "hold").unlink()
        return int(held.read_text())

    def finish(self):
        self.start("--once")
        assert self.process.wait(3 * PATIENCE_S) == 0, self.output()


@pytest.fixture
def application(tmp_path, node):
    (tmp_path / "pipeline.toml").write_text(PIPELINE)
    (tmp_path / "hold.py").write_text(HOLD)
    made = Application(tmp_path, node.bootstrap)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.kill()


def table_of(folder):
    from deltalake import DeltaTable

    return DeltaTable(str(folder / "table"))


def committed_batches(folder):
    return [int(each.name) for each in (folder / "checkpoint/commits").glob("[0-9]*")]


def planned_batches(folder):
    return [int(each.name) for each in (folder / "checkpoint/offsets").glob("[0-9]*")]


@pytest.mark.parametrize(
    ("moments", "seed"),
    [
        ({"between commits": 1}, 20130101),
        pytest.param(
            {"between commits": 2, "at work": 6, "after start": 2}, 20131231, marks=pytest.mark.long
        ),
    ],
)
def test_every_offset_is_in_the_table_and_in_the_topic_once(application, cluster, moments, seed):
    topic = kill_and_finish(application, cluster, moments, seed)
    rows = table_of(application.folder).to_pyarrow_table().select(["partition", "offset"])
    found = sorted(zip(*(column.to_pylist() for column in rows.columns), strict=True))
    ends = cluster.group_offsets(topic)
    expected = sorted((p, o) for (_, p), end in ends.items() for o in range(end))
    assert found == expected
    copies = map(json.loads, committed_values(cluster, topic.replace("killed", "copied"), 4))
    assert sorted((row["partition"], row["offset"]) for row in copies) == expected


@pytest.mark.long  # test_table_kills kills committers without Spark, and stays in ./test
def test_tables_with_keys_have_the_last_row_of_each_key(application, cluster):
    (application.folder / "pipeline.toml").write_text(KEYED)
    moments = {"between commits": 2, "at work": 2, "after start": 1}
    topic = kill_and_finish(application, cluster, moments, 20130202)
    ends = cluster.group_offsets(topic)
    last = {(p, o % 300): o for (_, p), end in ends.items() for o in range(end)}
    expected = sorted((partition, slot, offset) for (partition, slot), offset in last.items())
    iceberg = IcebergSink(str(application.folder / "warehouse"), "ns.t", "fail", {}).loaded()
    for rows in (table_of(application.folder).to_pyarrow_table(), iceberg.scan().to_arrow()):
        columns = rows.select(["partition", "slot", "offset"]).columns
        assert sorted(zip(*(each.to_pylist() for each in columns), strict=True)) == expected


def kill_and_finish(application, cluster, moments, seed):
    """Kill the application at each of the moments, and let it finish; return the topic."""
    dice = random.Random(seed)
    plan = [moment for moment, count in moments.items() for _ in range(count)]
    dice.shuffle(plan)
    records = sum(RECORDS_OF[moment] for moment in plan)
    topic = f"killed-{len(plan)}"
    application.command += ["--set", f"kills={len(plan)}"]
    fill(cluster, topic, records, partitions=4)
    copied, keep = topic.replace("killed", "copied"), {"retention.ms": "-1"}
    cluster.create_topic(copied, partitions=4, configs=keep)
    replayed = []
    for moment in plan:
        match moment:
            case "after start":
                application.kill_after_start(dice.uniform(1, 15))
            case "at work":
                application.kill_at_work(dice.randrange(1, 7), dice.uniform(0, 1.5))
            case "between commits":
                replayed.append(application.kill_between_commits())
                assert replayed[-1] not in committed_batches(application.folder)
        planned, done = planned_batches(application.folder), committed_batches(application.folder)
        log.info("killed %s: %d planned, %d committed", moment, len(planned), len(done))
    application.finish()
    assert len(replayed) == moments["between commits"]
    for batch in replayed:
        assert batch in committed_batches(application.folder)
    assert sum(cluster.group_offsets(topic).values()) == records
    return topic
