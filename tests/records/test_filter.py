"""Taking records out of batches: what stays of them, and how damaged ones are refused."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkraft.base.errors import DecodeError
from sparkraft.records.batch import BATCH_OVERHEAD, crc_ok, parse_header
from sparkraft.records.compression import Codec
from sparkraft.records.filter import delete_horizon, places, with_records, without_records
from sparkraft.records.record import BatchBuilder, decode_records, decompressed

BYTES = st.none() | st.binary(max_size=200)
RECORDS = st.lists(
    st.tuples(
        st.integers(0, 2_000_000_000_000),
        BYTES,
        BYTES,
        st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=2),
    ),
    min_size=1,
    max_size=12,
)


def built(records, **given):
    builder = BatchBuilder(base_offset=100, leader_epoch=3, **given)
    for timestamp, key, value, headers in records:
        builder.append(timestamp, key, value, headers)
    return builder.build()


def parts(batch):
    header = parse_header(batch)
    data = bytes(decompressed(batch))
    return header, data, list(places(data, header.records_count))


@given(RECORDS, st.sampled_from(list(Codec)), st.data(), st.none() | st.integers(0, 1 << 42))
def test_what_is_kept_reads_as_before(records, codec, data, horizon):
    batch = built(records, codec=codec, producer_id=9, producer_epoch=1, base_sequence=5)
    header, plain, found = parts(batch)
    kept = sorted(data.draw(st.sets(st.sampled_from(range(len(found))), min_size=1)))
    made = with_records(header, plain, [found[index] for index in kept], horizon)
    assert crc_ok(made)
    before = list(decode_records(batch))
    assert list(decode_records(made)) == [before[index] for index in kept]
    after = parse_header(made)
    assert after.size_in_bytes == len(made)
    assert (after.base_offset, after.last_offset) == (header.base_offset, header.last_offset)
    assert (after.base_sequence, after.last_sequence) == (5, header.last_sequence)
    assert after.max_timestamp == max(before[index].timestamp for index in kept)
    assert delete_horizon(after) == horizon
    again = with_records(after, bytes(decompressed(made)), parts(made)[2], None)
    assert delete_horizon(parse_header(again)) == horizon
    assert list(decode_records(again)) == list(decode_records(made))


@given(RECORDS, st.booleans(), st.booleans())
def test_an_emptied_batch_remembers_offsets_and_sequences(records, transactional, control):
    batch = built(
        records, producer_id=9, producer_epoch=1, base_sequence=5, codec=Codec.GZIP,
        transactional=transactional, control=control,
    )  # fmt: skip
    header = parse_header(batch)
    made = without_records(header)
    assert crc_ok(made)
    assert len(made) == BATCH_OVERHEAD
    after = parse_header(made)
    assert list(decode_records(made)) == []
    names = """base_offset last_offset last_sequence producer_id producer_epoch
        partition_leader_epoch max_timestamp is_transactional is_control"""
    for name in names.split():
        assert getattr(after, name) == getattr(header, name), name
    assert without_records(after) == made


@given(RECORDS, st.data())
def test_damaged_records_are_refused_or_read(records, data):
    _, plain, found = parts(built(records))
    broken = bytearray(plain)
    broken[data.draw(st.integers(0, len(plain) - 1))] ^= data.draw(st.integers(1, 255))
    with suppress(DecodeError):
        assert len(list(places(bytes(broken), len(found)))) == len(found)
    with pytest.raises(DecodeError):
        list(places(plain[:-1], len(found)))
    with pytest.raises(DecodeError):
        list(places(plain, len(found) + 1))
    with pytest.raises(DecodeError):
        list(places(plain + b"\0", len(found)))
