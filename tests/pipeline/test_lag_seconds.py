"""The lag of a pipeline in seconds: the age of the oldest record that is not processed."""

import time
from dataclasses import replace

import pytest
from confluent_kafka import Producer as Librdkafka

from sparkraft.pipeline import progress, spec
from sparkraft.pipeline.produce import Producer

pytestmark = pytest.mark.real_clients

FILE = """
name = "n"
checkpoint = "n"
[source]
"kafka.bootstrap.servers" = "${bootstrap}"
subscribe = "t"
"kafka.retries" = "1"
[[sink]]
kind = "console"
"""
NOW = time.time()


@pytest.fixture
def pipeline(node, tmp_path):
    return spec.parse(FILE, folder=tmp_path, values={"bootstrap": node.bootstrap})


def batch(topic, end, latest):
    offsets = ({topic: {str(n): each for n, each in enumerate(ends)}} for ends in (end, latest))
    end, latest = offsets
    return progress.progress_of(
        {
            "batchId": 0,
            "numInputRows": 1,
            "durationMs": {},
            "sources": [{"endOffset": end, "latestOffset": latest}],
        }
    )


def seconds(pipeline, topic, end, latest):
    return progress.with_lag(pipeline, batch(topic, end, latest)).lag_seconds


def is_age(found, seconds):
    """Whether a lag is the age of a record that was so old when the tests began."""
    return seconds <= found <= seconds + (time.time() - NOW) + 1


def filled(cluster, topic, ages):
    cluster.create_topic(topic, partitions=len(ages), configs={"retention.ms": "-1"})
    producer = Producer(cluster)
    for partition, of_partition in enumerate(ages):
        for age in of_partition:
            stamp = int((NOW - age) * 1000)
            producer.send(topic, None, b"v", partition=partition, timestamp_ms=stamp)
    producer.flush()


def test_the_oldest_record_that_waits_counts(cluster, pipeline):
    filled(cluster, "ages", [[900, 30, 20], [800, 100]])
    assert is_age(seconds(pipeline, "ages", [0, 0], [3, 2]), 900)
    assert is_age(seconds(pipeline, "ages", [1, 1], [3, 2]), 100)
    assert is_age(seconds(pipeline, "ages", [1, 2], [3, 2]), 30)
    assert seconds(pipeline, "ages", [3, 2], [3, 2]) == 0.0


def test_a_record_from_the_future_has_no_age(cluster, pipeline):
    filled(cluster, "future", [[NOW - time.time() - 600]])
    assert seconds(pipeline, "future", [0], [1]) == 0.0


def test_markers_of_transactions_have_no_age(node, cluster, pipeline):
    cluster.create_topic("marked", partitions=1, configs={"retention.ms": "-1"})
    sender = Librdkafka({"bootstrap.servers": node.bootstrap, "transactional.id": "lag-seconds"})
    sender.init_transactions(30)
    for age in (500, 40):
        sender.begin_transaction()
        sender.produce("marked", b"v", timestamp=int((NOW - age) * 1000))
        sender.commit_transaction(30)
    # Each record has a marker after it.
    assert is_age(seconds(pipeline, "marked", [0], [4]), 500)
    assert is_age(seconds(pipeline, "marked", [1], [4]), 40)
    assert seconds(pipeline, "marked", [3], [4]) is None


def test_the_lag_is_unknown_while_no_broker_responds(pipeline):
    options = {**pipeline.sources[0].options, "kafka.bootstrap.servers": "127.0.0.1:1"}
    source = replace(pipeline.sources[0], options=options)
    away = replace(pipeline, sources=(source,))
    found = progress.with_lag(away, batch("t", [1], [5]))
    assert (found.lag, found.lag_seconds) == (4, None)
