"""kill -9 of the Spark application, parts of it and the broker: each source offset is visible once.

The first moments are those of `test_ten_kills`; between the commits, the topic has a decided batch
that Spark does not know of. A killed worker or JVM may end the application; it is killed as a whole
a little later. The killed broker, which coordinates all transactions, is restarted while the
application runs.
"""

import logging
import os
import random
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.pipeline.test_fetch_and_produce import fill
from tests.pipeline.test_ten_kills import (
    HOLD,
    PATIENCE_S,
    Application,
    committed_batches,
    planned_batches,
    process_tree,
)
from tests.support.killed_batches import committed_values
from tests.support.ports import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.long]

log = logging.getLogger(__name__)

PLAN = {"between commits": 2, "at work": 2, "worker": 3, "jvm": 2, "broker": 3}
RECORDS = 12_000
"""More than a run that is killed processes."""

PIPELINE = """
name = "killed"
checkpoint = "checkpoint"
trigger = "0 seconds"
[source]
"kafka.bootstrap.servers" = "${bootstrap}"
subscribe = "in"
startingOffsets = "earliest"
maxOffsetsPerTrigger = 1000
[transform]
sql = "SELECT concat(partition, '-', offset) AS value FROM source"
[[sink]]
kind = "topic"
topic = "out"
delivery = "exactly_once"
[[sink]]
kind = "function"
function = "hold.py:hold"
"""


@pytest.fixture
def application(tmp_path, node):
    (tmp_path / "pipeline.toml").write_text(PIPELINE)
    (tmp_path / "hold.py").write_text(HOLD)
    made = Application(tmp_path, node.bootstrap)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.kill()


def start_working(application, batches):
    """Start the application, and return when it has planned so many batches more."""
    before = len(planned_batches(application.folder))
    application.start()

    def works():
        assert application.process.poll() is None, f"it ended by itself:\n{application.output()}"
        return len(planned_batches(application.folder)) >= before + batches

    wait_until(works, f"{batches} more batches are planned", PATIENCE_S)


def pids_of(application, word):
    """Descendants of the application with a word in their command lines."""
    found = []
    for pid in process_tree(application.process.pid)[1:]:
        with suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
            if word in command:
                found.append(pid)
    return found


def kill_part(application, word, dice):
    """Kill one of these processes in a batch, then what is left of the application."""
    start_working(application, 2)
    time.sleep(dice.uniform(0, 0.5))
    victims = pids_of(application, word)
    assert victims, word
    with suppress(ProcessLookupError):
        os.kill(dice.choice(victims), signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        application.process.wait(3)
    application.kill()


def kill_broker(application, node, dice):
    """Kill the broker in a batch and restart it; the application may continue or end."""
    start_working(application, 2)
    time.sleep(dice.uniform(0, 0.5))
    node.kill()
    time.sleep(1)
    node.start()
    with suppress(subprocess.TimeoutExpired):
        application.process.wait(5)
    application.kill()


def kill(application, node, moment, dice):
    match moment:
        case "at work":
            application.kill_at_work(dice.randrange(1, 5), dice.uniform(0, 1.5))
        case "between commits":
            batch = application.kill_between_commits()
            assert batch not in committed_batches(application.folder)
        case "worker":
            kill_part(application, "pyspark.daemon", dice)
        case "jvm":
            kill_part(application, "org.apache.spark.deploy.SparkSubmit", dice)
        case "broker":
            kill_broker(application, node, dice)


def test_each_record_is_visible_once_after_kills(application, cluster, node):
    dice = random.Random(20250101)
    plan = [moment for moment, count in PLAN.items() for _ in range(count)]
    dice.shuffle(plan)
    fill(cluster, "in", RECORDS * len(plan), partitions=4)
    cluster.create_topic("out", partitions=4, configs={"retention.ms": "-1"})
    for moment in plan:
        kill(application, node, moment, dice)
        planned, done = planned_batches(application.folder), committed_batches(application.folder)
        log.info("killed %s: %d planned, %d committed", moment, len(planned), len(done))
    application.finish()
    ends = cluster.list_offsets({("in", number): -1 for number in range(4)})
    expected = [b"%d-%d" % (number, at) for (_, number), end in ends.items() for at in range(end)]
    assert len(expected) == RECORDS * len(plan)
    assert sorted(committed_values(cluster, "out", 4)) == sorted(expected)
