"""Tables of the metadata log in a real Spark, as batch and as stream."""

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


def created_in(folder: Path):
    import pyarrow.parquet as pq

    table = [row for file in folder.glob("*.parquet") for row in pq.read_table(file).to_pylist()]
    assert {row["change"] for row in table} == {"created"}
    return [(row["topic"], row["partition"]) for row in table]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metadata": "leaders"}, "metadata must be one of elections, isr, partitions"),
        ({"metadata": "isr", "startingOffsets": "first"}, "startingOffsets must be earliest or"),
        ({"metadata": "isr", "maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger"),
        ({"metadata": "isr", "subscribe": "nowhere"}, "topic nowhere, which subscribe names"),
    ],
)
def test_wrong_options_are_named(reader, options, message):
    with pytest.raises(Exception, match=message):
        reader(**options).collect()
