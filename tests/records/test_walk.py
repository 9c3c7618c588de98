"""The quick walk agrees with the one that takes records apart, whatever the bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkraft.base.errors import DecodeError, ErrorCode, KafkaError
from sparkraft.records.batch import BATCH_OVERHEAD, parse_header
from sparkraft.records.compression import Codec
from sparkraft.records.record import BatchBuilder, decode_records, scan_records
from sparkraft.records.validate import Rules, check_produced
from sparkraft.records.walk import walk
from tests.records.test_validate import FULL, NOW, built, forged, refusal, whole

SIZES = st.sampled_from([0, 1, 5, 62, 63, 64, 65, 200, 8190, 8191, 8192, 9000])
CONTENT = st.one_of(st.none(), SIZES.map(bytes))
RECORD = st.tuples(
    st.integers(-(1 << 40), 1 << 40),
    CONTENT,
    CONTENT,
    st.lists(st.tuples(st.text(max_size=3), CONTENT), max_size=2),
)


def built_of(records):
    builder = BatchBuilder()
    for timestamp, key, value, headers in records:
        builder.append(timestamp, key, value, headers)
    return builder.build()


def slow(batch):
    """What `walk` should return, from the careful walk."""
    shapes = list(scan_records(batch))
    if any(shape.offset_delta != index for index, shape in enumerate(shapes)):
        return None
    base = parse_header(batch).base_timestamp
    deltas = [shape.timestamp - base for shape in shapes]
    keyless = sum(not shape.has_key for shape in shapes)
    return (min(deltas), max(deltas), keyless)


@given(st.lists(RECORD, min_size=1, max_size=80))
def test_usual_records_are_walked(records):
    batch = built_of(records)
    assert walk(batch[BATCH_OVERHEAD:], len(records)) == slow(batch)


@given(st.lists(RECORD, min_size=1, max_size=4), st.data())
def test_what_passes_the_quick_walk_passes_the_careful_one(records, data):
    batch = bytearray(built_of(records))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(BATCH_OVERHEAD, min(len(batch), BATCH_OVERHEAD + 60) - 1))
        batch[at] = data.draw(st.integers(0, 255))
    quick = walk(bytes(batch[BATCH_OVERHEAD:]), len(records))
    if quick is not None:
        assert quick == slow(batch)
        list(decode_records(batch))


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_false_count_is_refused(count):
    batch = built(NOW, NOW)
    assert walk(batch[BATCH_OVERHEAD:], count) is None


def test_every_cut_is_refused():
    data = built_of([(NOW, b"k", b"v" * 70, [("h", b"x")])])[BATCH_OVERHEAD:]
    for end in range(len(data)):
        assert walk(data[:end], 1) is None


def test_a_conversion_keeps_the_bytes_of_the_records():
    batch = built(NOW, NOW + 5, NOW + 2)
    prepared = check_produced(batch, Rules(codec=Codec.ZSTD), NOW)
    assert prepared.header.max_timestamp == NOW + 5
    assert prepared.header.codec is Codec.ZSTD
    assert list(decode_records(whole(prepared))) == list(decode_records(batch))
    back = check_produced(whole(prepared), Rules(codec=Codec.NONE), NOW)
    assert bytes(back.rest)[BATCH_OVERHEAD - 16 :] == batch[BATCH_OVERHEAD:]


def test_a_conversion_stamps_the_append_time():
    batch = built(NOW - 9, NOW - 5)
    rules = Rules(codec=Codec.GZIP, log_append_time=True)
    prepared = check_produced(batch, rules, NOW)
    assert prepared.header.is_log_append_time
    assert [record.timestamp for record in decode_records(whole(prepared))] == [NOW, NOW]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_garbage_that_claims_a_codec_is_an_unknown_server_error(codec):
    batch = forged(built(), attributes=int(codec))
    assert refusal(batch, FULL).code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_garbage_without_a_codec_is_an_invalid_record():
    batch = bytearray(built(NOW, NOW))
    batch[BATCH_OVERHEAD:] = bytes(range(200, 200 + len(batch) - BATCH_OVERHEAD))
    error = refusal(forged(bytes(batch)), FULL)
    assert error.code == ErrorCode.INVALID_RECORD
    with pytest.raises((DecodeError, KafkaError)):
        list(decode_records(bytes(batch)))
