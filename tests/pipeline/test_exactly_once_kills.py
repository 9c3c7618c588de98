"""kill -9 of the whole Spark application: each source offset is visible once in the topic.

Moments are those of `test_ten_kills`; between the commits, the topic has a decided batch that Spark
does not know of.
"""

import logging
import random

import pytest

from tests.pipeline.test_fetch_and_produce import fill
from tests.pipeline.test_ten_kills import HOLD, Application, committed_batches, planned_batches
from tests.support.killed_batches import committed_values

pytestmark = [pytest.mark.spark, pytest.mark.long]

log = logging.getLogger(__name__)

RECORDS_OF = {"between commits": 1_000, "at work": 10_000, "after start": 10_000}
"""More than a run that is killed at this moment processes."""

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


def test_killed_applications_write_each_record_once(application, cluster):
    dice = random.Random(20250101)
    plan = ["between commits"] * 3 + ["at work"] * 7 + ["after start"] * 2
    dice.shuffle(plan)
    records = sum(RECORDS_OF[moment] for moment in plan)
    fill(cluster, "in", records, partitions=4)
    cluster.create_topic("out", partitions=4, configs={"retention.ms": "-1"})
    for moment in plan:
        match moment:
            case "after start":
                application.kill_after_start(dice.uniform(1, 15))
            case "at work":
                application.kill_at_work(dice.randrange(1, 5), dice.uniform(0, 1.5))
            case "between commits":
                batch = application.kill_between_commits()
                assert batch not in committed_batches(application.folder)
        planned, done = planned_batches(application.folder), committed_batches(application.folder)
        log.info("killed %s: %d planned, %d committed", moment, len(planned), len(done))
    application.finish()
    ends = cluster.list_offsets({("in", number): -1 for number in range(4)})
    expected = [b"%d-%d" % (number, at) for (_, number), end in ends.items() for at in range(end)]
    assert len(expected) == records
    assert sorted(committed_values(cluster, "out", 4)) == sorted(expected)
