"""Varints, headers, and the frames of records."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkraft.base.errors import DecodeError
from sparkraft.base.ids import Uuid
from sparkraft.protocol import framing
from sparkraft.protocol.api_keys import API_INFO, ApiKey
from sparkraft.protocol.headers import request_header_version, response_header_version
from sparkraft.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from sparkraft.protocol.messages.group_records import GROUP_RECORDS, OffsetCommitKey
from sparkraft.protocol.messages.metadata_records import TopicRecord
from sparkraft.protocol.varint import decode_unsigned, encode_unsigned


@given(st.integers(0, 2**32 - 1), st.binary(max_size=3))
def test_unsigned_varints_survive(value, before):
    written = encode_unsigned(value)
    assert len(written) == max(1, (value.bit_length() + 6) // 7)
    assert decode_unsigned(before + written + b"x", len(before)) == (
        value,
        len(before) + len(written),
    )


@pytest.mark.parametrize("bad", [b"", b"\x80", b"\xff" * 6, b"\xff\xff\xff\xff\x10"])
def test_bad_varints_are_refused(bad):
    with pytest.raises(DecodeError):
        decode_unsigned(bad, 0)


def test_api_versions_always_has_response_header_zero():
    assert [request_header_version(ApiKey.API_VERSIONS, v) for v in range(5)] == [1, 1, 1, 2, 2]
    assert {response_header_version(ApiKey.API_VERSIONS, v) for v in range(5)} == {0}


def test_headers_are_flexible_where_the_body_is():
    for key, info in API_INFO.items():
        for version in range(info.min_version, info.max_version + 1):
            flexible = version in info.request_class().SCHEMA.flexible
            has_client_id = (key, version) != (ApiKey.CONTROLLED_SHUTDOWN, 0)
            assert request_header_version(key, version) == has_client_id + flexible
            if key != ApiKey.API_VERSIONS:
                assert response_header_version(key, version) == int(flexible)


def test_a_metadata_record_is_framed_by_three_varints():
    record = TopicRecord(name="t", topic_id=Uuid(bytes(range(16))))
    written = framing.encode_metadata_record(record, 0)
    assert written[:3] == b"\x01\x02\x00"
    assert framing.decode_metadata_record(written) == (record, 0)


@pytest.mark.parametrize("bad", ["", "01", "0102", "00020000", "01630000", "01026300", "010200"])
def test_bad_metadata_frames_are_refused(bad):
    with pytest.raises(DecodeError):
        framing.decode_metadata_record(bytes.fromhex(bad))


def test_coordinator_records_open_with_an_int16():
    key = OffsetCommitKey(group="g", topic="t", partition=3)
    written = framing.encode_record_key(key)
    assert written.hex() == "0001" + "000167" + "000174" + "00000003"
    assert framing.decode_record_key(GROUP_RECORDS, written) == (key, GROUP_RECORDS[1][1])
    assert framing.decode_record_key(GROUP_RECORDS, b"\x7f\x00rest") is None
    with pytest.raises(DecodeError):
        framing.decode_record_key(GROUP_RECORDS, b"\x00")


def test_consumer_protocol_messages_open_with_their_version():
    subscription = ConsumerProtocolSubscription(topics=["a"], rack_id="r")
    written = framing.encode_versioned(subscription, 3)
    assert written[:2] == b"\x00\x03"
    assert framing.decode_versioned(ConsumerProtocolSubscription, written) == subscription
