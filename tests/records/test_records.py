"""Batches and records: round trips, Kafka's own layout, broken bytes, bounds."""

import struct
from contextlib import suppress

import pytest
from crc32c import crc32c as reference_crc
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record import MemoryRecords, MemoryRecordsBuilder

from sparkraft.base.errors import DecodeError, KafkaError
from sparkraft.records import crc
from sparkraft.records.batch import (
    BATCH_OVERHEAD,
    HEAD_PATCH,
    BatchHeader,
    crc_ok,
    iter_batches,
    parse_header,
    with_timestamps,
)
from sparkraft.records.compression import Codec, compress, decompress
from sparkraft.records.control import (
    ControlType,
    EndTransaction,
    control_batch,
    control_key,
    end_transaction_batch,
    parse_control_key,
    parse_end_transaction,
)
from sparkraft.records.errors import CorruptRecords
from sparkraft.records.record import (
    BatchBuilder,
    Record,
    decode_records,
    read_varint,
    scan_records,
    write_varint,
)
from tests.support.batches import patch_in_place

maybe_bytes = st.none() | st.binary(max_size=40)
record_parts = st.tuples(
    st.integers(0, 1 << 45),
    maybe_bytes,
    maybe_bytes,
    st.lists(st.tuples(st.text(max_size=8), maybe_bytes), max_size=3),
)


def build(parts, **options):
    builder = BatchBuilder(**options)
    for timestamp, key, value, headers in parts:
        builder.append(timestamp, key, value, headers)
    return builder.build()


@given(parts=st.lists(record_parts, min_size=1, max_size=20), codec=st.sampled_from(list(Codec)))
@settings(max_examples=60, deadline=None)
def test_what_is_built_is_read_back(parts, codec):
    data = build(parts, codec=codec, base_offset=500)
    assert crc_ok(data)
    assert parse_header(data).records_count == len(parts)
    read = list(decode_records(data))
    expected = [
        Record(500 + index, timestamp, key, value, headers or ())
        for index, (timestamp, key, value, headers) in enumerate(parts)
    ]
    assert [record._replace(headers=list(record.headers)) for record in read] == [
        record._replace(headers=list(record.headers)) for record in expected
    ]
    shapes = list(scan_records(data))
    assert [shape.has_key for shape in shapes] == [key is not None for _, key, _, _ in parts]
    assert [shape.timestamp for shape in shapes] == [timestamp for timestamp, *_ in parts]


@pytest.mark.parametrize("codec", list(Codec))
def test_kafka_python_reads_what_we_write(codec):
    data = build([(1000 + i, b"k%d" % i, b"v" * i, [("h", b"x")]) for i in range(50)], codec=codec)
    theirs = MemoryRecords(data).next_batch()
    assert theirs.validate_crc()
    assert [(record.key, record.value, record.timestamp, record.headers) for record in theirs] == [
        (b"k%d" % i, b"v" * i, 1000 + i, [("h", b"x")]) for i in range(50)
    ]


@pytest.mark.parametrize("codec", list(Codec))
def test_we_read_what_kafka_python_writes(codec):
    builder = MemoryRecordsBuilder(magic=2, compression_type=int(codec), batch_size=1 << 20)
    for index in range(50):
        builder.append(timestamp=1000 + index, key=None, value=b"v" * index, headers=[("a", b"b")])
    builder.close()
    records = list(decode_records(builder.buffer()))
    assert [(r.offset, r.timestamp, r.value, r.headers) for r in records] == [
        (i, 1000 + i, b"v" * i, [("a", b"b")]) for i in range(50)
    ]


@given(value=st.integers(-(1 << 63), (1 << 63) - 1))
def test_varints_round_trip(value):
    out = bytearray()
    write_varint(out, value)
    assert read_varint(out, 0) == (value, len(out))
    assert len(out) <= 10


@pytest.mark.parametrize(
    ("value", "written"), [(0, "00"), (-1, "01"), (1, "02"), (-64, "7f"), (64, "8001")]
)
def test_zigzag_varints_are_those_of_kafka(value, written):
    out = bytearray()
    write_varint(out, value)
    assert out.hex() == written


def test_an_overlong_varint_is_refused():
    with pytest.raises(DecodeError):
        read_varint(b"\xff" * 11, 0)


def test_our_crc_is_crc32c():
    assert crc.crc32c(b"123456789") == reference_crc(b"123456789") == 0xE3069283
    assert crc.crc32c(b"789", crc.crc32c(b"123456")) == 0xE3069283


def test_every_cut_off_batch_is_noticed():
    data = build([(1, b"key", b"value", [("h", b"v")])] * 3)
    for size in range(len(data)):
        with pytest.raises((DecodeError, CorruptRecords)):
            list(decode_records(data[:size]))


@given(at=st.integers(BATCH_OVERHEAD, 200), value=st.integers(0, 255))
@settings(max_examples=200, deadline=None)
def test_mutated_records_decode_or_are_refused(at, value):
    data = bytearray(build([(1, b"key", b"value", [("h", b"v")])] * 8))
    data[at % len(data)] = value
    try:
        list(decode_records(bytes(data)))
        list(scan_records(bytes(data)))
    except (DecodeError, CorruptRecords):
        pass


def outcome(read):
    """The shapes of the records; None if they are refused."""
    try:
        return list(read())
    except DecodeError:
        return None


def shape_of(record, base_offset):
    return (record.offset - base_offset, record.timestamp, record.key is not None)


sizes = st.sampled_from([0, 1, 62, 63, 64, 65, 200, 8191, 8192])
"""Around the lengths whose varints have one, two and three bytes."""


@given(
    keys=st.lists(st.tuples(st.none() | sizes, st.none() | sizes), min_size=1, max_size=4),
    damage=st.lists(st.tuples(st.integers(0, 80), st.integers(0, 255)), max_size=3),
)
@settings(max_examples=300, deadline=None)
def test_damaged_records_are_read_and_refused_as_by_the_plain_walk(keys, damage):
    """Decoding reads varints of one byte in place, and the scan by a call each."""
    data = bytearray(
        build(
            [
                (1, None if k is None else bytes(k), None if v is None else bytes(v), [("h", b"v")])
                for k, v in keys
            ],
            base_offset=70,
        )
    )
    for at, value in damage:
        data[BATCH_OVERHEAD + at % (len(data) - BATCH_OVERHEAD)] = value
    decoded = outcome(lambda: (shape_of(each, 70) for each in decode_records(bytes(data))))
    assert decoded == outcome(lambda: map(tuple, scan_records(bytes(data))))


@pytest.mark.parametrize("count", [-1, 0, 2, 1 << 30])
def test_a_lying_record_count_is_refused(count):
    data = bytearray(build([(1, b"key", b"value", [])]))
    data[57:61] = struct.pack(">i", count)
    with pytest.raises(DecodeError):
        list(decode_records(data))
    with pytest.raises(DecodeError):
        list(scan_records(data))


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_a_batch_inflates_only_to_its_bound(codec):
    bomb = compress(codec, bytes(1 << 22))
    assert len(decompress(codec, bomb, 1 << 22)) == 1 << 22
    with pytest.raises(DecodeError, match="inflates"):
        decompress(codec, bomb, (1 << 22) - 1)


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
@given(garbage=st.binary(max_size=60))
@settings(max_examples=60, deadline=None)
def test_garbage_in_any_codec_is_a_decode_error(codec, garbage):
    for data in (garbage, compress(codec, b"some bytes")[:-3] + garbage):
        with suppress(DecodeError):
            decompress(codec, data, 1 << 16)


def test_snappy_is_framed_as_java_does_and_read_without_the_frame():
    import cramjam

    data = bytes(range(256)) * 300
    framed = compress(Codec.SNAPPY, data)
    assert framed.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    assert decompress(Codec.SNAPPY, framed) == data
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(data))) == data


def test_a_batch_walk_stops_at_a_cut_and_at_damage():
    one = build([(1, b"k", b"v", [])])
    assert [view.nbytes for _, view in iter_batches(one + one + one[:30])] == [len(one)] * 2
    with pytest.raises(CorruptRecords):
        list(iter_batches(one + one[:30], partial_tail=False))
    with pytest.raises(CorruptRecords):
        list(iter_batches(one + bytes(100)))
    negative = one[:8] + struct.pack(">i", -5) + one[12:]
    with pytest.raises(CorruptRecords):
        list(iter_batches(negative))


def test_the_leaders_patch_leaves_the_crc_right():
    data = bytearray(build([(1, b"k", b"v", [])]))
    head = HEAD_PATCH.pack(77, parse_header(data).batch_length, 5)
    patch_in_place(data, base_offset=77, leader_epoch=5)
    assert head == data[:16]
    assert crc_ok(data)
    assert parse_header(data).base_offset == 77


def test_new_timestamps_get_a_new_crc():
    data = build([(1, b"k", b"v", [])])
    head, rest = with_timestamps(data, log_append_time=True, max_timestamp=99)
    changed = head + bytes(rest)
    assert crc_ok(changed)
    assert parse_header(changed).is_log_append_time
    assert [record.timestamp for record in decode_records(changed)] == [99]


def test_a_header_knows_its_derived_fields():
    header = BatchHeader(10, 100, 3, 2, 0, 0b0110011, 4, 1, 9, 7, 0, (1 << 31) - 2, 5)
    assert header.size_in_bytes == 112
    assert (header.last_offset, header.next_offset) == (14, 15)
    assert header.last_sequence == 2
    assert header.codec is Codec.LZ4
    assert header.is_transactional
    assert header.is_control
    with pytest.raises(KafkaError):
        _ = header._replace(attributes=5).codec


def test_a_transaction_marker_round_trips():
    data = end_transaction_batch(
        EndTransaction(ControlType.ABORT, 12), timestamp=5, producer_id=9, producer_epoch=2
    )
    header = parse_header(data)
    assert header.is_control
    assert header.is_transactional
    assert parse_end_transaction(data) == EndTransaction(ControlType.ABORT, 12)


def marker_by_records(key, value, *, codec=Codec.NONE, headers=()):
    """A marker that is built record by record."""
    builder = BatchBuilder(
        codec=codec, producer_id=9, producer_epoch=2, transactional=True, control=True
    )
    builder.append(5, key, value, headers)
    return builder.build()


@pytest.mark.parametrize("kind", [ControlType.ABORT, ControlType.COMMIT])
def test_a_transaction_marker_is_a_batch_of_one_record(kind):
    value = struct.pack(">hi", 0, 12)
    built = marker_by_records(control_key(kind), value)
    end = EndTransaction(kind, 12)
    assert end_transaction_batch(end, timestamp=5, producer_id=9, producer_epoch=2) == built
    others = [
        marker_by_records(control_key(kind), value + b"more"),
        marker_by_records(control_key(kind) + b"more", value),
        marker_by_records(control_key(kind), value, headers=[("a", b"b")]),
        marker_by_records(control_key(kind), value, codec=Codec.GZIP),
        marker_by_records(struct.pack(">hh", 1, kind), value),
    ]
    assert [parse_end_transaction(one) for one in others] == [end] * len(others)
    assert parse_end_transaction(memoryview(built)) == end


def test_a_changed_transaction_marker_is_read_as_its_record():
    def outcome(read, data):
        try:
            return read(data)
        except DecodeError:
            return None

    def end_in_record(data):
        record = next(decode_records(data))
        kind = parse_control_key(record.key)
        if kind not in {ControlType.ABORT, ControlType.COMMIT}:
            raise DecodeError(kind.name)
        if record.value is None or len(record.value) < 6:
            raise DecodeError("too short")
        return EndTransaction(kind, struct.unpack_from(">i", record.value, 2)[0])

    end = EndTransaction(ControlType.COMMIT, 12)
    good = end_transaction_batch(end, timestamp=5, producer_id=9, producer_epoch=2)
    assert end_in_record(good) == end
    for at in range(57, len(good)):
        for byte in (0, 1, 0x0E, 0x10, 0x7F, 0xFF):
            changed = bytearray(good)
            changed[at] = byte
            if changed[57:61] != bytes(4):  # else compaction has emptied it
                wanted = outcome(end_in_record, changed)
                assert outcome(parse_end_transaction, changed) == wanted, (at, byte)


def test_control_keys_of_the_future_are_unknown_not_errors():
    assert parse_control_key(control_key(ControlType.KRAFT_VOTERS)) is ControlType.KRAFT_VOTERS
    assert parse_control_key(struct.pack(">hh", 0, 99)) is ControlType.UNKNOWN
    with pytest.raises(DecodeError):
        parse_control_key(b"\x00")
    with pytest.raises(DecodeError):
        parse_control_key(struct.pack(">hh", -1, 0))


def test_raft_control_batches_keep_their_records():
    data = control_batch(
        [(ControlType.SNAPSHOT_HEADER, b"one"), (ControlType.KRAFT_VERSION, b"two")],
        timestamp=3,
        leader_epoch=8,
    )
    records = list(decode_records(data))
    assert [parse_control_key(record.key) for record in records] == [
        ControlType.SNAPSHOT_HEADER,
        ControlType.KRAFT_VERSION,
    ]
