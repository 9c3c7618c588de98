"""What a leader takes, refuses and rewrites; the codes are LogValidator's."""

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.loop_work import LOOP_WORK_MAX
from sparkraft.records import validate
from sparkraft.records.batch import (
    HEAD_PATCH,
    HEADER,
    BatchHeader,
    crc_ok,
    parse_header,
    with_timestamps,
)
from sparkraft.records.compression import Codec
from sparkraft.records.crc import crc32c
from sparkraft.records.errors import RefusedRecords
from sparkraft.records.record import BatchBuilder, decode_records
from sparkraft.records.validate import (
    Origin,
    Rules,
    check_produced,
    check_request_records,
    is_heavy,
)

NOW = 1_700_000_000_000
USUAL = Rules()
FULL = Rules(walk_records=True)


def built(*timestamps, key=b"k", **options):
    builder = BatchBuilder(**options)
    for timestamp in timestamps or (NOW,):
        builder.append(timestamp, key, b"value")
    return builder.build()


def forged(data, **fields):
    """The batch with other header fields and the CRC to match."""
    header = BatchHeader._make(HEADER.unpack_from(data))._replace(**fields)
    changed = bytearray(HEADER.pack(*header) + data[61:])
    changed[17:21] = crc32c(changed[21:]).to_bytes(4, "big")
    return bytes(changed)


def refusal(data, rules=USUAL, origin=Origin.CLIENT):
    with pytest.raises(KafkaError) as caught:
        check_produced(data, rules, NOW, origin)
    return caught.value


def whole(prepared):
    head = HEAD_PATCH.pack(0, prepared.header.batch_length, 0)
    return head + bytes(prepared.rest)


@pytest.mark.parametrize("rules", [Rules(), FULL])
@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"base_offset": 5}, ErrorCode.INVALID_RECORD),
        ({"last_offset_delta": -1}, ErrorCode.INVALID_RECORD),
        ({"last_offset_delta": 7}, ErrorCode.INVALID_RECORD),
        ({"records_count": 0}, ErrorCode.INVALID_RECORD),
        ({"records_count": -1}, ErrorCode.INVALID_RECORD),
        ({"attributes": 0x20}, ErrorCode.INVALID_RECORD),
        ({"attributes": 6}, ErrorCode.INVALID_RECORD),
        ({"producer_id": 4, "base_sequence": -1}, ErrorCode.INVALID_RECORD),
        ({"max_timestamp": NOW + 3_600_001}, ErrorCode.INVALID_TIMESTAMP),
        ({"attributes": 8, "max_timestamp": -1}, ErrorCode.INVALID_TIMESTAMP),
        ({"magic": 1}, ErrorCode.CORRUPT_MESSAGE),
        ({"batch_length": 20}, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_a_header_at_odds_with_itself_is_refused(fields, code, rules):
    if rules is FULL and fields == {"max_timestamp": NOW + 3_600_001}:
        prepared = check_produced(forged(built(), **fields), rules, NOW)
        assert prepared.header.max_timestamp == NOW, "the records' own times count, as in Kafka"
        return
    assert refusal(forged(built(), **fields), rules).code == code


def test_a_wrong_crc_is_corrupt():
    data = bytearray(built())
    data[-1] ^= 1
    assert refusal(data).code == ErrorCode.CORRUPT_MESSAGE


def test_the_size_is_checked_before_the_crc():
    data = bytearray(built())
    data[-1] ^= 1
    small = Rules(max_message_bytes=len(data) - 1)
    assert refusal(data, small).code == ErrorCode.MESSAGE_TOO_LARGE


def test_nothing_and_several_batches_are_refused():
    assert refusal(b"").code == ErrorCode.CORRUPT_MESSAGE
    assert refusal(built() + built()).code == ErrorCode.INVALID_RECORD


def test_a_cut_off_second_batch_is_ignored():
    data = built()
    assert whole(check_produced(data + data[:20], Rules(), NOW))[16:] == data[16:]


def test_a_coordinator_may_write_control_records_and_no_sequences():
    data = forged(built(), attributes=0x20)
    assert check_produced(data, Rules(), NOW, Origin.COORDINATOR).header.is_control


@pytest.mark.parametrize("rules", [Rules(plain=True), FULL._replace(plain=True)])
def test_a_transactional_batch_is_checked_in_one_pass(rules, monkeypatch):
    data = built(NOW, NOW, producer_id=4, producer_epoch=1, base_sequence=9, transactional=True)
    fully = check_produced(data, rules._replace(plain=False), NOW)
    monkeypatch.setattr(validate, "_check_whole", None)
    in_one_pass = check_produced(data, rules, NOW)
    assert (in_one_pass.header, bytes(in_one_pass.rest)) == (fully.header, bytes(fully.rest))


def test_a_coordinators_batch_is_believed_but_obeys_the_topics_configs():
    """It has just been built by this broker: its CRC is right, and its records have keys."""
    own = Origin.COORDINATOR
    data = built(NOW, codec=Codec.NONE)
    compacted = Rules(compacted=True, walk_records=True)
    prepared = check_produced(data, compacted, NOW, own)
    assert (prepared.header, bytes(prepared.rest)) == (parse_header(data), data[16:])
    with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
        check_produced(data, Rules(max_message_bytes=len(data) - 1), NOW, own)
    zipped = check_produced(data, Rules(codec=Codec.GZIP), NOW, own)
    assert zipped.header.codec is Codec.GZIP
    assert check_produced(whole(zipped), Rules(codec=Codec.GZIP), NOW, own).rest == zipped.rest
    stamped = check_produced(built(NOW - 5), Rules(log_append_time=True), NOW, own)
    assert stamped.header.max_timestamp == NOW
    with pytest.raises(KafkaError, match="CORRUPT_MESSAGE"):
        check_produced(data[:-1], Rules(), NOW, own)


def test_compacted_topics_need_keys_and_say_which_record_lacks_one():
    builder = BatchBuilder()
    builder.append(NOW, b"k", b"v")
    builder.append(NOW, None, b"v")
    error = refusal(builder.build(), Rules(compacted=True))
    assert isinstance(error, RefusedRecords)
    assert error.code == ErrorCode.INVALID_RECORD
    assert error.record_errors == [(1, "Compacted topic cannot accept message without key")]
    assert check_produced(builder.build(), Rules(), NOW).header.records_count == 2


@pytest.mark.parametrize("codec", list(Codec))
def test_full_validation_counts_the_records(codec):
    data = forged(built(NOW, NOW, codec=codec), records_count=3, last_offset_delta=2)
    assert refusal(data, FULL).code == ErrorCode.INVALID_RECORD
    assert check_produced(data, Rules(), NOW).header.records_count == 3, "the header is believed"


def test_times_out_of_bounds_name_their_records():
    error = refusal(built(NOW, NOW + 3_600_001), FULL)
    assert error.code == ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in error.record_errors] == [1]
    old = Rules(walk_records=True, timestamp_before_max_ms=10)
    assert refusal(built(NOW - 11), old).code == ErrorCode.INVALID_TIMESTAMP
    assert refusal(built(NOW - 11), Rules(timestamp_before_max_ms=10)).code == (
        ErrorCode.INVALID_TIMESTAMP
    )


def test_records_without_a_time_are_welcome():
    assert check_produced(built(-1), FULL, NOW).header.max_timestamp == -1


def test_log_append_time_stamps_the_batch():
    rules = Rules(log_append_time=True)
    stamped = whole(check_produced(built(5), rules, NOW))
    assert crc_ok(stamped)
    assert [record.timestamp for record in decode_records(stamped)] == [NOW]
    head, rest = with_timestamps(built(), log_append_time=True, max_timestamp=NOW)
    assert refusal(head + bytes(rest), rules).code == ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("source", list(Codec))
@pytest.mark.parametrize("target", list(Codec))
def test_the_topics_codec_wins(source, target):
    data = built(NOW, NOW + 1, codec=source, producer_id=4, producer_epoch=1, base_sequence=9)
    changed = whole(check_produced(data, Rules(codec=target), NOW))
    header = parse_header(changed)
    assert header.codec is target
    assert crc_ok(changed)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4, 1, 9)
    assert [r.value for r in decode_records(changed)] == [b"value", b"value"]
    if source is target:
        assert changed[16:] == data[16:], "nothing is rewritten without need"


def test_recompression_may_make_a_batch_too_large():
    data = BatchBuilder(codec=Codec.ZSTD)
    data.append(NOW, b"k", bytes(5000))
    rules = Rules(codec=Codec.NONE, max_message_bytes=1000)
    assert refusal(data.build(), rules).code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize(
    ("records", "version", "code"),
    [
        (None, 9, ErrorCode.INVALID_RECORD),
        (b"", 9, ErrorCode.INVALID_RECORD),
        (built() + built(), 9, ErrorCode.INVALID_RECORD),
        (built(codec=Codec.ZSTD), 6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (built()[:16] + b"\x01" + built()[17:], 9, ErrorCode.INVALID_RECORD),
        (built()[:16] + b"\x09" + built()[17:], 9, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_a_produce_request_carries_one_batch_of_format_two(records, version, code):
    with pytest.raises(KafkaError) as caught:
        check_request_records(records, version)
    assert caught.value.code == code


def test_usual_requests_pass():
    check_request_records(built(), 3)
    check_request_records(built(codec=Codec.ZSTD), 7)


WALKED = (FULL, Rules(compacted=True), Rules(codec=Codec.SNAPPY))


def bomb(codec, *, value_bytes=0, records=1):
    """A batch that is small on the wire: one value of zeros, or many records of next to nothing."""
    builder = BatchBuilder(codec=codec)
    builder.append(NOW, b"k", bytes(value_bytes))
    record = bytes(builder._records)
    builder._records += record * (records - 1)
    builder.count = records
    builder.last_offset_delta = records - 1
    return builder.build()


@pytest.mark.parametrize("rules", WALKED)
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD])
def test_a_batch_may_not_inflate_without_measure_where_it_is_walked(rules, codec):
    data = bomb(codec, value_bytes=20 << 20)
    assert len(data) * 100 < 20 << 20
    error = refusal(data, rules._replace(max_message_bytes=1 << 30))
    assert error.code == ErrorCode.INVALID_RECORD
    assert "inflates to more than" in str(error)
    assert check_produced(data, USUAL, NOW).header.records_count == 1, "not looked into: as it is"


@pytest.mark.parametrize("rules", WALKED)
def test_what_inflates_to_little_may_do_so_at_any_ratio(rules):
    data = bomb(Codec.ZSTD, value_bytes=10 << 20)
    assert len(data) * 1000 < 10 << 20
    assert check_produced(data, rules._replace(max_message_bytes=1 << 30), NOW)


def test_a_compressed_batch_has_a_bounded_number_of_records_where_it_is_walked():
    data = bomb(Codec.ZSTD, records=500_001)
    assert len(data) < 1 << 16
    error = refusal(data, FULL)
    assert error.code == ErrorCode.INVALID_RECORD
    assert "500001 records" in str(error)


def test_a_thread_checks_batches_that_may_have_many_records():
    rules = Rules(walk_records=True, plain=True)
    small = forged(built(NOW), records_count=(1 << 31) - 1, last_offset_delta=(1 << 31) - 2)
    assert not is_heavy(small, rules, LOOP_WORK_MAX)  # 75 bytes
    assert refusal(small, rules).code == ErrorCode.INVALID_RECORD
    assert is_heavy(built(*[NOW] * 5_001), rules, LOOP_WORK_MAX)
    assert not is_heavy(built(*[NOW] * 5_000), rules, LOOP_WORK_MAX)
    zipped = built(*[NOW] * 5_001, codec=Codec.ZSTD)
    assert is_heavy(zipped, rules, LOOP_WORK_MAX)
    assert not is_heavy(zipped, Rules(plain=True), LOOP_WORK_MAX)
