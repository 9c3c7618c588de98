"""Encoded columns: byte for byte what the builder makes of the same records one by one."""

import random

import numpy as np
import pyarrow as pa
import pytest

from sparkraft.client.partitioner import murmur2
from sparkraft.pipeline import encode, partition_keys
from sparkraft.pipeline.decode import HEADERS_TYPE
from sparkraft.pipeline.options import ClientOptions
from sparkraft.pipeline.produce import Producer
from sparkraft.records.record import BatchBuilder, decode_records

NOW = 1_700_000_000_000
SIZES = (0, 1, 3, 4, 63, 64, 127, 128, 200, 8191, 8192)


def some_rows(seed, count):
    dice = random.Random(seed)

    def some_bytes():
        return None if dice.random() < 0.2 else dice.randbytes(dice.choice(SIZES))

    def some_headers():
        if dice.random() < 0.5:
            return dice.choice([None, []])
        return [(dice.choice(["", "h", "ü" * 70]), some_bytes()) for _ in range(dice.randrange(3))]

    return [(some_bytes(), some_bytes(), some_headers()) for _ in range(count)]


def as_batch(rows):
    headers = [
        None if each is None else [{"key": k, "value": v} for k, v in each] for _, _, each in rows
    ]
    columns = [
        pa.array([key for key, _, _ in rows], pa.binary()),
        pa.array([value for _, value, _ in rows], pa.binary()),
        pa.array(headers, HEADERS_TYPE),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["key", "value", "headers"])


class Recorder(Producer):
    """A producer that keeps what it would send."""

    def __init__(self, *, batch_bytes_max=4000, partitions=3, **options):
        given = ClientOptions(
            bootstrap_servers=(), client_id="", request_timeout_ms=1,
            batch_bytes_max=batch_bytes_max, **options,
        )  # fmt: skip
        super().__init__(type("Nowhere", (), {"options": given})())
        self._producer = (7, 0)
        self._partition_counts = {"t": partitions}
        self.sent = {number: [] for number in range(partitions)}

    def _dispatch(self):
        for (_, number), batch in self._full.items():
            self.sent[number].append(batch)
        self._full, self._full_bytes = {}, 0

    def records_of(self, number):
        return [
            (record.key, record.value, list(record.headers))
            for batch in self.sent[number]
            for record in decode_records(batch)
        ]


@pytest.mark.parametrize("seed", range(20))
def test_columns_become_the_bytes_of_the_same_records(seed):
    rows = some_rows(seed, 300)
    partitions = [number * number % 3 for number in range(len(rows))]
    one_by_one, at_once = Recorder(), Recorder()
    for (key, value, headers), partition in zip(rows, partitions, strict=True):
        one_by_one.send(
            "t", key, value, partition=partition, timestamp_ms=NOW, headers=headers or []
        )
    # Spark hands out slices of larger arrays, and a batch continues over several of them.
    batch, at = as_batch(some_rows(99, 7) + rows), 7
    for size in (1, 130, 169):
        at_once.send_rows(
            "t",
            encode.rows_of(batch.slice(at, size)),
            partitions=pa.array(partitions[at - 7 : at - 7 + size], pa.int32()),
            timestamp_ms=NOW,
        )
        at += size
    for each in (one_by_one, at_once):
        for open_batch in list(each._open):
            each._close_batch(open_batch)
        each._dispatch()
    assert at_once.sent == one_by_one.sent
    assert at_once.records == one_by_one.records == 300


def test_timestamps_are_relative_to_the_first_record_of_their_batch():
    producer = Recorder(partitions=1, batch_bytes_max=100)
    rows = encode.rows_of(as_batch([(b"k", b"v", None)] * 4))
    for later in (0, 500, 1_000_000):
        producer.send_rows("t", rows, timestamp_ms=NOW + later)
    producer._dispatch()
    records = [record for batch in producer.sent[0] for record in decode_records(batch)]
    times = [record.timestamp - NOW for record in records]
    assert times == [0] * 4 + [500] * 4 + [1_000_000] * 4


def test_rows_without_a_key_fill_one_partition_after_another():
    producer = Recorder(partitions=3, batch_bytes_max=1000)
    rows = encode.rows_of(as_batch([(None, b"x" * 84, None)] * 10))
    for _ in range(6):
        producer.send_rows("t", rows, timestamp_ms=NOW)
    for each in list(producer._open):
        producer._close_batch(each)
    producer._dispatch()
    assert [len(producer.records_of(number)) for number in range(3)] == [20, 20, 20]


@pytest.mark.parametrize("at_once", [True, False])
def test_a_record_above_the_size_of_a_batch_is_alone_in_its_batch(at_once):
    """Else the broker could refuse it because of its neighbors, or them because of it."""
    producer = Recorder(partitions=1, batch_bytes_max=1000)
    sizes = [10, 1100, 10, 10, 1200, 1300, 10]
    values = [bytes([number]) * size for number, size in enumerate(sizes)]
    for part in (values[:1], values[1:]):
        if at_once:
            rows = encode.rows_of(as_batch([(None, value, None) for value in part]))
            producer.send_rows("t", rows, timestamp_ms=NOW)
            continue
        for value in part:
            producer.send("t", None, value, partition=0, timestamp_ms=NOW)
    producer._close_batch(("t", 0))
    producer._dispatch()
    batches = [[record.value[0] for record in decode_records(each)] for each in producer.sent[0]]
    assert batches == [[0], [1], [2, 3], [4], [5], [6]]


def test_a_given_partition_has_priority_and_null_means_the_keys():
    producer = Recorder(partitions=8)
    keys = [b"key-%d" % number for number in range(50)]
    rows = encode.rows_of(as_batch([(key, b"v", None) for key in keys]))
    given = pa.array([5 if number % 2 else None for number in range(50)], pa.int32())
    producer.send_rows("t", rows, partitions=given, timestamp_ms=NOW)
    for each in list(producer._open):
        producer._close_batch(each)
    producer._dispatch()
    for number in range(8):
        wanted = [
            key
            for row, key in enumerate(keys)
            if (5 if row % 2 else (murmur2(key) & 0x7FFFFFFF) % 8) == number
        ]
        assert [key for key, _, _ in producer.records_of(number)] == wanted


def test_null_elements_of_headers_are_left_out_and_null_keys_refused():
    headers = pa.array([[None, {"key": "a", "value": None}, None], [None]], HEADERS_TYPE)
    batch = pa.RecordBatch.from_arrays(
        [pa.array([b"v", b"w"], pa.binary()), headers], names=["value", "headers"]
    )
    builder = BatchBuilder()
    (span,) = encode.encode(
        encode.rows_of(batch), None, [encode.Piece(0, 0, 2, 0, 0, 0)], np.array([0])
    )
    builder.extend(span, count=2, timestamp=NOW)
    assert [list(each.headers) for each in decode_records(builder.build())] == [[("a", None)], []]
    broken = pa.array([[{"key": None, "value": b""}], None], HEADERS_TYPE)
    with pytest.raises(ValueError, match="a header has no key"):
        encode.rows_of(batch.set_column(1, "headers", broken))


def test_large_batches_are_cut_in_halves():
    batch = pa.RecordBatch.from_arrays([pa.array([b"x" * (1 << 20)] * 130)], names=["value"])
    parts = list(encode.chunks(batch))
    assert max(part.nbytes for part in parts) <= 64 << 20
    assert sum(part.num_rows for part in parts) == 130


# From org.apache.kafka.common.utils.UtilsTest.testMurmur2 of Kafka 4.3.
JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def test_the_hash_of_a_column_is_java_s():
    hashed = partition_keys.hashes_of(pa.array(list(JAVA), pa.binary()))
    assert hashed.astype(np.int32).tolist() == list(JAVA.values())


@pytest.mark.parametrize("seed", range(5))
def test_the_hash_of_a_column_is_that_of_each_key(seed):
    dice = random.Random(seed)
    keys = [dice.randbytes(dice.choice([*range(20), 255, 256, 257, 1000])) for _ in range(500)]
    column = pa.array([b"left out", *keys, None], pa.binary()).slice(1)
    assert partition_keys.hashes_of(column)[:-1].tolist() == list(map(murmur2, keys))
    assert partition_keys.null_rows(column).tolist() == [False] * 500 + [True]
