"""Tables of the metadata log in a real Spark, as batch and as stream."""

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark


@pytest.fixture
def reader(spark, node):
    def read(streaming=False, **options):
        made = (spark.readStream if streaming else spark.read).format("sparkraft")
        return made.options(**{"kafka.bootstrap.servers": node.bootstrap, **options}).load()

    return read


def test_a_batch_has_the_first_leaders(reader, cluster):
    cluster.create_topic("first", partitions=2)
    found = reader(metadata="elections", subscribe="first").orderBy("partition").collect()
    assert [(row.topic, row.partition, row.previous, row.kind) for row in found] == [
        ("first", 0, None, "made"),
        ("first", 1, None, "made"),
    ]
    assert found[0].leader is not None
    assert found[0].timestamp is not None
    end = str(found[0].offset)
    before = reader(metadata="elections", subscribe="first", endingOffsets=end)
    assert before.count() == 0


def test_a_stream_continues_after_its_checkpoint(reader, cluster, tmp_path):
    def run():
        rows = reader(True, metadata="partitions", startingOffsets="earliest")
        query = (
            rows.where("topic LIKE 'stream-%'")
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "state"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "rows"))
        )
        assert query.awaitTermination(600)

    cluster.create_topic("stream-1", partitions=1)
    run()
    cluster.create_topic("stream-2", partitions=2)
    run()
    found = created_in(tmp_path / "rows")
    assert sorted(found) == [("stream-1", 0), ("stream-2", 0), ("stream-2", 1)]


def test_the_records_of_the_log_have_their_fields(reader, cluster):
    cluster.create_topic("recorded", partitions=2)
    rows = reader(metadata="records")
    found = {row.offset: row for row in rows.collect()}
    assert list(found) == sorted(found)
    (topic,) = [
        row for row in found.values() if row.type == "TOPIC_RECORD" and "recorded" in row.record
    ]
    assert json.loads(topic.record)["data"]["name"] == "recorded"
    assert topic.leaderEpoch >= 1
    assert topic.timestamp is not None
    partitions = [found[topic.offset + at] for at in (1, 2)]
    assert [row.type for row in partitions] == ["PARTITION_RECORD"] * 2
    assert "LEADER_CHANGE" in {row.type for row in found.values()}
    assert "NO_OP_RECORD" not in {row.type for row in found.values()}
    start, end = str(topic.offset + 1), str(topic.offset + 3)
    part = reader(metadata="records", startingOffsets=start, endingOffsets=end)
    assert [row.offset for row in part.collect()] == [topic.offset + 1, topic.offset + 2]


def created_in(folder: Path):
    import pyarrow.parquet as pq

    table = [row for file in folder.glob("*.parquet") for row in pq.read_table(file).to_pylist()]
    assert {row["change"] for row in table} == {"created"}
    return [(row["topic"], row["partition"]) for row in table]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metadata": "leaders"}, "metadata must be one of elections, isr, partitions, records"),
        ({"metadata": "isr", "startingOffsets": "first"}, "startingOffsets must be earliest or"),
        ({"metadata": "isr", "maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger"),
        ({"metadata": "records", "subscribe": "t"}, "records has no topics to subscribe to"),
        ({"metadata": "isr", "subscribe": "nowhere"}, "topic nowhere, which subscribe names"),
    ],
)
def test_wrong_options_are_named(reader, options, message):
    with pytest.raises(Exception, match=message):
        reader(**options).collect()
