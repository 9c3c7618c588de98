"""The blocking client on a real node: what is produced is read, once, also when links break."""

import contextlib
import socket
import threading
from dataclasses import replace

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.pipeline import offsets as plan
from sparkraft.pipeline.fetch import DataLossError, RangeReader
from sparkraft.pipeline.options import source_options
from sparkraft.pipeline.places import EARLIEST, LATEST
from sparkraft.pipeline.produce import Producer
from sparkraft.pipeline.wire import Cluster

pytestmark = pytest.mark.real_clients


def options_for(node, **more):
    given = {"kafka.bootstrap.servers": node.bootstrap, "subscribe": "x", "includeHeaders": "true"}
    return source_options(given | more, streaming=False)


def fill(cluster, topic, count, *, partitions=3, size=20):
    cluster.create_topic(topic, partitions=partitions, configs={"retention.ms": "-1"})
    producer = Producer(cluster)
    for number in range(count):
        producer.send(
            topic,
            b"key-%d" % number if number % 3 else None,
            b"%d:" % number + b"v" * (number % size) if number % 5 else None,
            timestamp_ms=1_700_000_000_000 + number,
            headers=[("n", b"%d" % number)] * (number % 3),
        )
    producer.flush()


def everything(cluster, topic):
    keys = [(topic, number) for number in cluster.topics([topic])[topic].leaders]
    start = cluster.list_offsets(dict.fromkeys(keys, EARLIEST))
    end = cluster.list_offsets(dict.fromkeys(keys, LATEST))
    return plan.ranges_of(start, end)


def read(cluster, ranges, options):
    return [
        row for piece in RangeReader(cluster, ranges, options).read() for row in piece.to_pylist()
    ]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_is_produced_is_read(node, cluster, client_options, codec):
    topic = f"round-{codec}"
    fill(Cluster(replace(client_options, compression=codec, batch_bytes_max=4000)), topic, 3000)
    rows = read(cluster, everything(cluster, topic), options_for(node))
    assert len(rows) == 3000
    assert len({(row["partition"], row["offset"]) for row in rows}) == 3000
    by_time = sorted(rows, key=lambda row: row["timestamp"])
    for number, row in enumerate(by_time):
        assert row["key"] == (b"key-%d" % number if number % 3 else None)
        wanted = b"%d:" % number + b"v" * (number % 20) if number % 5 else None
        assert row["value"] == wanted
        assert len(row["headers"] or ()) == number % 3


def test_offsets_come_in_order_within_a_partition_and_only_those_asked_for(node, cluster):
    fill(cluster, "parts", 2000, partitions=2)
    ranges = [
        plan.Range("parts", 0, 100, 300),
        plan.Range("parts", 1, 7, 8),
        plan.Range("parts", 0, 500, 510),
    ]
    rows = read(cluster, ranges, options_for(node))
    zero = [row["offset"] for row in rows if row["partition"] == 0]
    assert zero == [*range(100, 300), *range(500, 510)]
    assert [row["offset"] for row in rows if row["partition"] == 1] == [7]


def test_a_small_range_does_not_fetch_megabytes(node, cluster, client_options):
    small = Cluster(replace(client_options, batch_bytes_max=2000))
    fill(small, "large", 20_000, partitions=1, size=200)
    reader = RangeReader(cluster, [plan.Range("large", 0, 0, 10)], options_for(node))
    request = reader._request([("large", 0)])
    assert request.topics[0].partitions[0].partition_max_bytes <= 16 << 10
    assert sum(piece.num_rows for piece in reader.read()) == 10


def test_other_clients_read_what_we_produce_and_we_what_they_produce(node, cluster):
    from confluent_kafka import Consumer
    from confluent_kafka import Producer as ConfluentProducer

    fill(cluster, "ours", 500, partitions=1)
    consumer = Consumer(
        {"bootstrap.servers": node.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["ours"])
    seen = []
    while len(seen) < 500:
        batch = consumer.consume(500, timeout=60)
        assert batch, "no more records within a minute"
        seen += batch
    consumer.close()
    assert [each.offset() for each in seen] == list(range(500))
    assert seen[1].value() == b"1:v"

    cluster.create_topic("theirs", partitions=1)
    producer = ConfluentProducer({"bootstrap.servers": node.bootstrap, "compression.type": "zstd"})
    for number in range(300):
        producer.produce("theirs", b"v%d" % number, b"k", headers=[("h", b"%d" % number)])
    assert producer.flush(60) == 0
    rows = read(cluster, everything(cluster, "theirs"), options_for(node))
    assert [row["value"] for row in rows] == [b"v%d" % number for number in range(300)]
    assert rows[7]["headers"] == [{"key": "h", "value": b"7"}]


def delete_before(node, topic, offset):
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    for future in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        future.result(60)


def test_records_that_were_deleted_are_data_loss(node, cluster):
    fill(cluster, "shrinking", 400, partitions=1)
    delete_before(node, "shrinking", 150)
    wanted = [plan.Range("shrinking", 0, 0, 400)]
    with pytest.raises(DataLossError, match="offset 0 is required, but the partition has 150 to"):
        read(cluster, wanted, options_for(node))
    rows = read(cluster, wanted, options_for(node, failOnDataLoss="false"))
    assert [row["offset"] for row in rows] == list(range(150, 400))


def test_a_topic_that_is_not_there_ends_in_its_name(node, client_options):
    quick = Cluster(replace(client_options, retries_max=2, retry_pause_ms=1))
    options = options_for(node, **{"kafka.retries": "2", "kafka.retry.backoff.ms": "1"})
    with pytest.raises(KafkaError, match="topic nowhere does not exist"):
        read(quick, [plan.Range("nowhere", 0, 0, 1)], options)


def test_nobody_listening_is_told_with_the_address(client_options):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        lonely = Cluster(
            replace(client_options, bootstrap_servers=(("127.0.0.1", port),), retries_max=1)
        )
        with pytest.raises(KafkaError, match=f"cannot connect to 127.0.0.1:{port}"):
            lonely.topics(["x"])


def test_a_group_shows_published_offsets(node, client_options):
    # The first group of a node waits until the topic of offsets is made.
    cluster = Cluster(replace(client_options, retries_max=600))
    fill(cluster, "published", 30, partitions=2)
    cluster.commit_group_offsets("lag-tools", {("published", 0): 4, ("published", 1): 5})
    assert cluster.group_offsets("lag-tools") == {("published", 0): 4, ("published", 1): 5}


class CuttingProxy:
    """Passes bytes to the node, and cuts a connection instead of every n-th answer chunk."""

    def __init__(self, port, every):
        self.target = port
        self.every = every
        self.answers = 0
        self.cuts = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self.target))
            threading.Thread(target=self.pump, args=(near, far, False), daemon=True).start()
            threading.Thread(target=self.pump, args=(far, near, True), daemon=True).start()

    def pump(self, source, target, answers):
        try:
            while chunk := source.recv(1 << 16):
                if answers:
                    self.answers += 1
                    if self.answers % self.every == 0:
                        self.cuts += 1
                        break
                target.sendall(chunk)
        except OSError:
            pass
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def flaky(node, client_options, monkeypatch):
    """A cluster whose answers get lost now and then; metadata's addresses are ignored."""
    proxy = CuttingProxy(node.port, every=7)
    made = Cluster(
        replace(
            client_options,
            bootstrap_servers=(("127.0.0.1", proxy.port),),
            retries_max=50,
            retry_pause_ms=1,
            batch_bytes_max=500,
            request_bytes_max=500,
        )
    )
    direct = made._connection
    monkeypatch.setattr(made, "_connection", lambda _host, _port: direct("127.0.0.1", proxy.port))
    yield made, proxy
    proxy.listener.close()
    made.close()


def test_lost_answers_make_no_second_record(flaky, node, cluster):
    breaking, proxy = flaky
    fill(breaking, "cut", 2000, partitions=2)
    assert proxy.cuts > 5
    rows = read(cluster, everything(cluster, "cut"), options_for(node))
    numbers = [row["timestamp"].timestamp() * 1000 - 1_700_000_000_000 for row in rows]
    assert sorted(round(number) for number in numbers) == list(range(2000))


def test_reading_goes_on_after_lost_answers_without_gap_or_double(
    flaky, node, cluster, client_options
):
    breaking, proxy = flaky
    fill(Cluster(replace(client_options, batch_bytes_max=500)), "readcut", 3000, partitions=2)
    before = proxy.cuts
    options = options_for(
        node,
        **{
            "kafka.max.partition.fetch.bytes": "2000",
            "kafka.retries": "50",
            "kafka.retry.backoff.ms": "1",
        },
    )
    rows = read(breaking, everything(cluster, "readcut"), options)
    assert proxy.cuts > before
    assert len(rows) == len({(row["partition"], row["offset"]) for row in rows}) == 3000
    for partition in (0, 1):
        offsets = [row["offset"] for row in rows if row["partition"] == partition]
        assert offsets == list(range(len(offsets)))


def test_a_refused_record_is_not_sent_again(node, client_options):
    once = Cluster(replace(client_options, request_bytes_max=8 << 20, batch_bytes_max=8 << 20))
    once.create_topic("tight", partitions=1, configs={"max.message.bytes": "1000"})
    producer = Producer(once)
    producer.send("tight", None, b"x" * 5000, timestamp_ms=1)
    with pytest.raises(KafkaError) as refused:
        producer.flush()
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
