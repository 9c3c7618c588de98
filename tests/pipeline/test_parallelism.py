"""Into how many tasks a read is divided, in sessions of one machine, clusters and Spark Connect."""

import pickle
import sys
from types import SimpleNamespace

import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql.datasource import CaseInsensitiveDict

from sparkraft.pipeline import spark_tasks
from sparkraft.pipeline.options import ClientOptions, parse_servers
from sparkraft.pipeline.produce import Producer
from sparkraft.pipeline.source import SparkraftDataSource, sized_source
from sparkraft.pipeline.spark_tasks import settled, tasks_of_source
from sparkraft.pipeline.wire import Cluster

PARTITIONS = 8
RECORDS = 2000
EVERY_PARTITION = sys.maxsize


@pytest.fixture(scope="module")
def readers(node):
    """Readers of a topic with eight partitions, made as Spark makes them."""

    def made(parallelism, **options):
        options |= {"kafka.bootstrap.servers": node.bootstrap, "subscribe": "divided"}
        registered = pickle.loads(cloudpickle.dumps(sized_source(parallelism)))
        source = pickle.loads(cloudpickle.dumps(registered(options=CaseInsensitiveDict(options))))
        assert type(source) is SparkraftDataSource
        return source.reader(source.schema()), source.streamReader(source.schema())

    return made


@pytest.fixture(scope="module", autouse=True)
def topic(node):
    options = ClientOptions(
        bootstrap_servers=parse_servers(node.bootstrap), client_id="test", request_timeout_ms=60_000
    )
    cluster = Cluster(options)
    cluster.create_topic("divided", partitions=PARTITIONS, configs={"retention.ms": "-1"})
    producer = Producer(cluster)
    for number in range(RECORDS * PARTITIONS):
        producer.send("divided", None, b"v", partition=number % PARTITIONS, timestamp_ms=1)
    producer.flush()
    cluster.close()


@pytest.mark.parametrize(
    ("parallelism", "options", "tasks"),
    [
        (3, {}, 3),
        (64, {}, PARTITIONS),
        (EVERY_PARTITION, {}, PARTITIONS),
        (3, {"maxPartitions": "5"}, 5),
        (3, {"minPartitions": "16"}, 16),
    ],
)
def test_a_read_has_as_many_tasks_as_the_cluster_has_cores(readers, parallelism, options, tasks):
    batch, stream = readers(parallelism, **options)
    assert len(batch.partitions()) == tasks
    begin = {"divided": {str(number): 0 for number in range(PARTITIONS)}}
    end = {"divided": {str(number): RECORDS for number in range(PARTITIONS)}}
    assert len(stream.partitions(begin, end)) == tasks


@pytest.mark.parametrize("parallelism", [1, 3, 64])
def test_records_of_a_partition_stay_in_order(readers, parallelism):
    batch, _ = readers(parallelism)
    seen = [each.partition for task in batch.partitions() for each in task.value]
    assert sorted(seen) == list(range(PARTITIONS))


def session(master, *, executors, dynamic=False):
    """A session of a cluster that has one more core each time it is asked, up to `executors`."""
    cores = iter(range(1, 100))
    jobs = []

    class Context:
        @property
        def defaultParallelism(self):  # noqa: N802 (Spark's)
            return min(next(cores), executors)

    Context.master = master
    settings = {"spark.dynamicAllocation.enabled": str(dynamic).lower()}
    return SimpleNamespace(
        conf=SimpleNamespace(get=settings.get),
        sparkContext=Context(),
        range=lambda _: SimpleNamespace(count=lambda: jobs.append(1)),
        jobs=jobs,
    )


def test_the_executors_of_a_cluster_are_waited_for(monkeypatch):
    pauses = []
    assert settled(iter([2, 2]).__next__, pauses.append) == 2
    assert settled(iter([2, 3, 9, 9]).__next__, pauses.append) == 9
    assert pauses == [1.0] * 4
    assert settled(iter(range(100)).__next__, pauses.append) == 30
    monkeypatch.setattr(spark_tasks, "settled", lambda count: settled(count, pauses.append))
    cluster = session("spark://h:7077", executors=6)
    assert tasks_of_source(cluster) == 6
    assert cluster.jobs == [1]


def test_a_local_session_has_its_own_cores_at_once():
    local = session("local[4]", executors=1)
    assert tasks_of_source(local) == 1
    assert local.jobs == []


def test_a_cluster_that_grows_with_its_tasks_has_no_bound():
    growing = session("spark://h:7077", executors=6, dynamic=True)
    assert tasks_of_source(growing) == EVERY_PARTITION
    assert growing.jobs == []


def test_a_spark_connect_server_reports_its_cores():
    class Connected:
        conf = SimpleNamespace(get={}.get)

        @property
        def sparkContext(self):  # noqa: N802 (Spark's)
            raise PySparkException("no context")

        def sql(self, text):
            assert text == "EXPLAIN SELECT * FROM range(1)"
            plan = "*(1) Range (0, 1, step=1, splits=200)"
            return SimpleNamespace(collect=lambda: [[plan]])

    assert tasks_of_source(Connected()) == 200
