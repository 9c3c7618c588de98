"""The numpy decoder hands out exactly what the plain one reads, and nothing from bad bytes."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkraft.base.errors import DecodeError
from sparkraft.pipeline import decode
from sparkraft.pipeline.options import COLUMNS
from sparkraft.records import control
from sparkraft.records.batch import CRC_AT
from sparkraft.records.compression import Codec
from sparkraft.records.crc import crc32c
from sparkraft.records.errors import CorruptRecords
from sparkraft.records.record import BatchBuilder, decode_records

small_bytes = st.one_of(st.none(), st.binary(max_size=12), st.binary(min_size=60, max_size=300))
header = st.tuples(st.text(max_size=8), st.one_of(st.none(), st.binary(max_size=80)))
record = st.tuples(
    st.integers(min_value=0, max_value=1 << 42),
    small_bytes,
    small_bytes,
    st.lists(header, max_size=3),
)
batch_of_records = st.lists(record, min_size=1, max_size=40)


def build(records, *, codec=Codec.NONE, base_offset=0, **more):
    builder = BatchBuilder(codec=codec, base_offset=base_offset, **more)
    for timestamp, key, value, headers in records:
        builder.append(timestamp, key, value, headers)
    return builder.build()


def build_all(lists, codecs, base_offset=0):
    """Batches one behind the other, and the records that plainly are in them."""
    pieces, plain = [], []
    for records, codec in zip(lists, codecs, strict=True):
        piece = build(records, codec=codec, base_offset=base_offset)
        pieces.append(piece)
        plain += decode_records(piece)
        base_offset += len(records)
    return b"".join(pieces), plain


def read(data, start=0, end=1 << 60, *, columns=(*COLUMNS, "headers"), aborted=None, hidden=False):
    decoder = decode.PartitionDecoder("t", 3, columns=columns, aborted_hidden=hidden)
    view = memoryview(data)
    pieces = decoder.decode(view, decode.scan(view), start=start, end=end, aborted=aborted)
    rows = []
    for piece in pieces:
        piece.validate(full=True)
        rows += piece.to_pylist()
    return rows


def as_row(record):
    headers = [{"key": key, "value": value} for key, value in record.headers]
    return (record.offset, record.timestamp, record.key, record.value, headers or None)


def from_row(row):
    assert row["topic"] == "t"
    assert row["partition"] == 3
    timestamp = row["timestamp"].timestamp() * 1000
    return (row["offset"], round(timestamp), row["key"], row["value"], row["headers"])


@settings(deadline=None)
@given(data=st.data(), lists=st.lists(batch_of_records, min_size=1, max_size=4))
def test_it_reads_what_the_plain_decoder_reads(data, lists):
    codecs = [data.draw(st.sampled_from(list(Codec))) for _ in lists]
    encoded, plain = build_all(lists, codecs)
    assert [from_row(row) for row in read(encoded)] == [as_row(each) for each in plain]


@settings(deadline=None)
@given(data=st.data(), lists=st.lists(batch_of_records, min_size=1, max_size=4))
def test_only_the_asked_offsets_come_out(data, lists):
    encoded, plain = build_all(lists, [Codec.NONE] * len(lists), base_offset=5)
    start = data.draw(st.integers(0, len(plain) + 8))
    end = data.draw(st.integers(0, len(plain) + 8))
    rows = read(encoded, start, end)
    assert [row["offset"] for row in rows] == [r.offset for r in plain if start <= r.offset < end]


@pytest.mark.parametrize("size", [0, 1, 62, 63, 64, 100, 8190, 20_000, 2_100_000])
@pytest.mark.parametrize("count", [1, 15, 16, 200])
def test_records_of_one_size_are_read_by_their_stride(size, count):
    if size * count > 5_000_000:
        count = 2
    records = [(7 + i, b"k%05d" % i, bytes([i % 251]) * size, []) for i in range(count)]
    encoded, plain = build_all([records], [Codec.NONE])
    assert [from_row(row) for row in read(encoded)] == [as_row(each) for each in plain]


def test_sizes_that_change_in_the_middle_are_followed():
    sizes = [10] * 300 + list(range(200)) + [70] * 500 + [3, 900] * 40 + [128] * 20
    records = [(i, None, b"x" * size, []) for i, size in enumerate(sizes)]
    encoded, plain = build_all([records], [Codec.NONE])
    assert [len(row["value"]) for row in read(encoded)] == sizes == [len(r.value) for r in plain]


def test_a_cut_off_last_batch_is_left_out():
    first = build([(1, b"a", b"b", [])])
    second = build([(2, b"c", b"d", [])], base_offset=1)
    for cut in range(1, len(second)):
        view = memoryview(first + second[:cut])
        assert [batch.base_offset for batch in decode.scan(view)] == [0]


def test_a_wrong_crc_is_refused_whatever_byte_is_bad():
    encoded = build([(1, b"key", b"value", [("h", b"x")])])
    for at in range(CRC_AT, len(encoded)):
        broken = bytearray(encoded)
        broken[at] ^= 0x10
        with pytest.raises(CorruptRecords):
            read(bytes(broken))


def resealed(encoded):
    """The batch with a CRC that fits its bytes, as a hostile producer would send it."""
    sealed = bytearray(encoded)
    struct.pack_into(">I", sealed, CRC_AT, crc32c(bytes(sealed[21:])))
    return bytes(sealed)


@settings(deadline=None, max_examples=400)
@given(records=batch_of_records, data=st.data())
def test_hostile_bytes_give_an_error_or_records_but_never_another_failure(records, data):
    broken = bytearray(build(records))
    for _ in range(data.draw(st.integers(1, 3))):
        broken[data.draw(st.integers(61, len(broken) - 1))] = data.draw(st.integers(0, 255))
    sealed = resealed(broken)
    try:
        plain = [as_row(each) for each in decode_records(sealed)]
    except DecodeError:
        plain = None
    try:
        rows = read(sealed)
    except DecodeError:
        return
    assert plain is None or len(rows) == len(plain)


def test_other_formats_are_refused_in_words():
    encoded = bytearray(build([(1, None, b"v", [])]))
    encoded[16] = 1
    with pytest.raises(CorruptRecords, match="format 1"):
        decode.scan(memoryview(bytes(encoded)))


def test_log_append_time_is_every_records_time():
    encoded = bytearray(build([(1, None, b"v", []), (2, None, b"w", [])]))
    encoded[22] |= 0x08
    struct.pack_into(">q", encoded, 35, 77_000)
    rows = read(resealed(encoded))
    assert [row["timestamp"].timestamp() for row in rows] == [77, 77]
    assert [row["timestampType"] for row in rows] == [1, 1]


def test_without_the_headers_column_headers_are_passed_over():
    rows = read(build([(1, None, b"v", [("a", b"1"), ("b", None)])]), columns=COLUMNS)
    assert [row["value"] for row in rows] == [b"v"]
    assert "headers" not in rows[0]


def test_only_the_columns_asked_for_are_made():
    data = build([(1, b"k", b"v", [("a", b"1")]), (2, None, None, [])], base_offset=5)
    names = (*COLUMNS, "headers")
    whole = read(data, columns=names)
    for name in names:
        assert read(data, columns=[name]) == [{name: row[name]} for row in whole]


def test_header_keys_that_are_no_utf8_become_replacement_characters():
    encoded = bytearray(build([(1, None, b"v", [("abc", b"1")])]))
    encoded[encoded.index(b"abc")] = 0xFF
    assert read(resealed(encoded))[0]["headers"] == [{"key": "�bc", "value": b"1"}]


def transaction(producer_id, base_offset, *values):
    records = [(1, None, value, []) for value in values]
    return build(
        records,
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )


def marker(producer_id, base_offset, kind):
    return control.end_transaction_batch(
        control.EndTransaction(kind, 0),
        timestamp=1,
        producer_id=producer_id,
        producer_epoch=0,
        base_offset=base_offset,
    )


@pytest.fixture
def transactions():
    """Offsets: 0 and 1 aborted (producer 5), 2 open then committed (6), 3 abort, 4 after it, …."""
    return b"".join(
        [
            transaction(5, 0, b"a0", b"a1"),
            transaction(6, 2, b"c2"),
            marker(5, 3, control.ControlType.ABORT),
            transaction(5, 4, b"c4"),
            marker(6, 5, control.ControlType.COMMIT),
            build([(1, None, b"p6", [])], base_offset=6),
            marker(5, 7, control.ControlType.COMMIT),
        ]
    )


class Reported:
    def __init__(self, producer_id, first_offset):
        self.producer_id = producer_id
        self.first_offset = first_offset


def test_control_batches_are_never_rows(transactions):
    rows = read(transactions)
    assert [row["value"] for row in rows] == [b"a0", b"a1", b"c2", b"c4", b"p6"]


def test_read_committed_leaves_out_aborted_transactions_only(transactions):
    aborted = decode.AbortedTransactions.of([Reported(5, 0)])
    rows = read(transactions, aborted=aborted, hidden=True)
    assert [row["value"] for row in rows] == [b"c2", b"c4", b"p6"]


def test_the_columns_are_the_official_connectors():
    from pyspark.sql.pandas.types import to_arrow_schema

    from sparkraft.pipeline.source import source_schema

    for columns in (COLUMNS, (*COLUMNS, "headers"), ("value", "offset")):
        ours = decode.arrow_schema(columns)
        spark = to_arrow_schema(source_schema(columns), timezone="UTC")
        assert spark.equals(ours)
