"""Records of the metadata log are decoded as the protocol's decoder does, with fewer steps."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkraft.base.errors import DecodeError
from sparkraft.base.ids import Uuid
from sparkraft.client.past import decoding
from sparkraft.client.past.decoding import TEXT_BYTES_MAX, metadata_record
from sparkraft.protocol import framing
from sparkraft.protocol.framing import decode_metadata_record, encode_metadata_record
from sparkraft.protocol.messages.metadata_records import PartitionChangeRecord
from tests.client.test_past_state import every_kind

ids = st.none() | st.lists(st.integers(0, 9), max_size=4)


@st.composite
def changes(draw):
    """A change of a partition with its version."""
    version = draw(st.integers(0, 2))
    change = PartitionChangeRecord(
        partition_id=draw(st.integers(-1, 1 << 20)),
        topic_id=Uuid(draw(st.binary(min_size=16, max_size=16))),
        isr=draw(ids),
        leader=draw(st.integers(-2, 5)),
        replicas=draw(ids),
        removing_replicas=draw(ids),
        adding_replicas=draw(ids),
        leader_recovery_state=draw(st.integers(-1, 1)),
    )
    if version >= 1 and draw(st.booleans()):
        change.directories = [Uuid(bytes([n] * 16)) for n in range(draw(st.integers(0, 20)))]
    if version >= 2:
        change.eligible_leader_replicas, change.last_known_elr = draw(ids), draw(ids)
    return change, version


@given(changes())
def test_a_change_of_a_partition_is_decoded_as_it_was_encoded(made):
    change, version = made
    value = encode_metadata_record(change, version)
    assert metadata_record(value) == change == decode_metadata_record(value)[0]


def test_every_kind_is_decoded_as_it_was_encoded():
    for record in every_kind():
        version = record.SCHEMA.versions.last
        value = encode_metadata_record(record, version)
        assert metadata_record(value) == decode_metadata_record(value)[0]


@given(changes(), st.data())
@settings(max_examples=200)
def test_damaged_values_are_decoded_alike_or_refused(made, data):
    value = bytearray(encode_metadata_record(*made))
    for _ in range(data.draw(st.integers(0, 2))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(value[: data.draw(st.integers(0, len(value)))])
    try:
        expected = decode_metadata_record(damaged)[0]
    except DecodeError:
        with pytest.raises(DecodeError):
            metadata_record(damaged)
    else:
        assert metadata_record(damaged) == expected


def test_the_tagged_fields_are_decoded_once(monkeypatch):
    """A million changes of a cluster have some hundred texts of them."""
    decoded = []

    def counting(value):
        decoded.append(bytes(value))
        return framing.decode_metadata_record(value)

    monkeypatch.setattr(decoding, "decode_metadata_record", counting)
    decoding._tagged.cache_clear()
    for number in range(1_000):
        topic = Uuid(number.to_bytes(16, "big"))
        change = PartitionChangeRecord(
            partition_id=number, topic_id=topic, isr=[1, 2], leader=number % 3
        )
        assert metadata_record(encode_metadata_record(change, 2)) == change
    assert len(decoded) == 3
    # Long texts are not kept.
    long = PartitionChangeRecord(topic_id=topic, directories=[topic] * (TEXT_BYTES_MAX // 16))
    value = encode_metadata_record(long, 2)
    assert metadata_record(value) == metadata_record(value) == long
    assert decoded[3:] == [value, value]
