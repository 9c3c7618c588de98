"""Exactly-once into topics with Spark: batches that are repeated, and tasks that fail."""

import time

import pytest
from pyspark import TaskContext

from sparkraft.pipeline import run as running
from sparkraft.pipeline import spec
from sparkraft.pipeline.places import LATEST
from sparkraft.pipeline.produce import Producer
from sparkraft.pipeline.wire import Cluster
from tests.support.killed_batches import client_options, committed_values
from tests.support.nodes import SparkraftNode
from tests.support.ports import wait_until

pytestmark = pytest.mark.spark

RECORDS = 300
FILE = """
name = "copies"
checkpoint = "checkpoint"
group = "${target}.group"
trigger = "available now"
[source]
"kafka.bootstrap.servers" = "${bootstrap}"
subscribe = "${source}"
startingOffsets = "earliest"
maxOffsetsPerTrigger = 100
[transform]
sql = "SELECT concat(partition, '-', offset) AS value, ${check} FROM source"
[[sink]]
kind = "topic"
topic = "${target}"
delivery = "exactly_once"
options = { transactionalIdPrefix = "${target}.copy", "kafka.bootstrap.servers" = "${to}" }
"""
NO_CHECK = "1 AS checked"
FAILING = "assert_true(NOT (partition = 0 AND offset = 60)) AS checked"
"""Fails a task of the second batch; other tasks of it write."""


class Copy:
    """A query that copies the names of a topic's offsets to another topic."""

    def __init__(self, spark, node, cluster, folder, name):
        self.spark, self.node, self.cluster, self.folder = spark, node, cluster, folder
        self.to, self.target_cluster = node.bootstrap, cluster
        self.source, self.target = f"{name}-in", f"{name}-out"
        keep = {"retention.ms": "-1"}
        cluster.create_topic(self.target, partitions=2, configs=keep)
        cluster.create_topic(self.source, partitions=2, configs=keep)
        producer = Producer(cluster)
        for number in range(RECORDS):
            producer.send(self.source, None, b"v", partition=number % 2, timestamp_ms=1)
        producer.flush()

    def run(self, check=NO_CHECK):
        raise NotImplementedError

    def forget_last_commit(self):
        """Leave the checkpoint as if the driver had been killed before Spark's own commit."""
        commits = self.folder / "checkpoint" / "commits"
        last = max(int(each.name) for each in commits.glob("[0-9]*"))
        for name in (f"{last}", f".{last}.crc"):
            (commits / name).unlink()
        return last

    def shown(self):
        """The number of records before the offsets that the group has."""
        return sum(self.cluster.group_offsets(f"{self.target}.group").values())

    def committed(self):
        return sorted(map(bytes.decode, committed_values(self.target_cluster, self.target, 2)))

    def expected(self):
        ends = self.cluster.list_offsets({(self.source, n): LATEST for n in range(2)})
        return sorted(
            f"{number}-{offset}" for (_, number), end in ends.items() for offset in range(end)
        )


class FormatCopy(Copy):
    """With `writeStream.format("sparkraft")`, whose group has the offsets with the decisions."""

    def run(self, check=NO_CHECK):
        given = {"kafka.bootstrap.servers": self.node.bootstrap}
        records = (
            self.spark.readStream.format("sparkraft")
            .options(**given, subscribe=self.source, startingOffsets="earliest")
            .option("maxOffsetsPerTrigger", "100")
            .load()
        )
        query = (
            records.selectExpr("concat(partition, '-', offset) AS value", check)
            .writeStream.format("sparkraft")
            .options(**given, topic=self.target, transactionalIdPrefix=f"{self.target}.copy")
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .option("publishGroupId", f"{self.target}.group")
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(300)
        assert query.exception() is None


class FileCopy(Copy):
    """With a pipeline file, whose group has the offsets with the decisions."""

    group_has_decisions = True

    def run(self, check=NO_CHECK):
        values = {
            "bootstrap": self.node.bootstrap, "source": self.source, "target": self.target,
            "check": check, "to": self.to,
        }  # fmt: skip
        read = spec.parse(FILE, folder=self.folder, values=values)
        group = running._lag_group(read, self.spark)
        assert group.with_decisions == self.group_has_decisions
        assert running._started(read, self.spark, group).awaitTermination(300)


@pytest.mark.parametrize("kind", [FormatCopy, FileCopy])
def test_repeated_batches_and_failed_tasks_leave_each_record_once(
    kind, spark, node, cluster, tmp_path
):
    copy = kind(spark, node, cluster, tmp_path, kind.__name__)
    with pytest.raises(Exception, match=r"assert_true|USER_RAISED"):
        copy.run(check=FAILING)
    assert len(copy.committed()) == 100
    wait_until(lambda: copy.shown() == 100, "the group has the offsets of the first batch")
    copy.run()
    assert copy.committed() == copy.expected()
    wait_until(lambda: copy.shown() == RECORDS, "the group has the offsets of the last batch")
    assert copy.forget_last_commit() == 2
    copy.run()
    assert copy.committed() == copy.expected()


@pytest.mark.long  # the test above has both topics in one cluster, and stays in ./test
def test_a_second_cluster_has_each_record_once(spark, node, cluster, tmp_path):
    copy = FileCopy(spark, node, cluster, tmp_path, "far")
    with SparkraftNode(tmp_path / "second") as second:
        copy.group_has_decisions = False
        copy.to, copy.target_cluster = second.bootstrap, Cluster(client_options(second.bootstrap))
        copy.target_cluster.create_topic(copy.target, partitions=2, configs={"retention.ms": "-1"})
        with pytest.raises(Exception, match=r"assert_true|USER_RAISED"):
            copy.run(check=FAILING)
        assert len(copy.committed()) == 100
        copy.run()
        copy.forget_last_commit()
        copy.run()
        assert copy.committed() == copy.expected()
        assert f"{copy.target}.copy.decisions" in copy.target_cluster.topics(None)
        assert f"{copy.target}.copy.decisions" not in cluster.topics(None)
        assert committed_values(cluster, copy.target, 2) == []
        copy.target_cluster.close()


def test_a_batch_write_is_visible_as_a_whole_or_not_at_all(spark, node, cluster, tmp_path):
    copy = FormatCopy(spark, node, cluster, tmp_path, "appended")
    ended = tmp_path / "ended"

    def sized(batches):
        # The first task fails when it has written; the others still write then, and are killed.
        task = TaskContext.get().partitionId()
        for each in batches:
            yield each
            if task and not ended.exists():
                time.sleep(0.2)
        if not task and not ended.exists():
            raise RuntimeError("this task fails")

    def append():
        rows = spark.range(0, 40_000, numPartitions=2).selectExpr("CAST(id AS STRING) AS value")
        rows = rows.mapInArrow(sized, rows.schema)
        rows.write.format("sparkraft").options(
            **{"kafka.bootstrap.servers": node.bootstrap, "topic": copy.target},
            transactionalIdPrefix="appended",
        ).mode("append").save()

    with pytest.raises(Exception, match="this task fails"):
        append()
    assert copy.committed() == []
    ended.touch()
    append()
    assert len(copy.committed()) == 40_000
    append()
    assert len(copy.committed()) == 80_000


def test_exactly_once_needs_the_connector_with_transactions(tmp_path):
    values = {"bootstrap": "h:1", "source": "a", "target": "b", "check": NO_CHECK, "to": "h:1"}
    file = 'connector = "official"\n' + FILE.replace('group = "${target}.group"\n', "")
    with pytest.raises(spec.SpecError, match='exactly_once" needs connector = "sparkraft"'):
        spec.parse(file, folder=tmp_path, values=values)
