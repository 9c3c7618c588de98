"""Annotated bytes, read and written, and the same in kio and kafka-python."""

from pathlib import Path

import pytest
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from sparkraft.base.errors import DecodeError
from sparkraft.protocol.codec import decode, encode, encode_parts
from sparkraft.records.batch import parse_header
from sparkraft.records.record import BatchBuilder, decode_records
from tests.protocol.golden_messages import BATCH, GOLDEN
from tests.protocol.kio_bridge import kio_bytes, kio_class, kio_entity, to_kio

FOLDER = Path(__file__).with_name("golden")


def golden(name):
    """The bytes in a file: hex digits, comments after #."""
    lines = (FOLDER / f"{name}.hex").read_text().splitlines()
    return bytes.fromhex("".join(line.partition("#")[0] for line in lines))


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_bytes_are_read_and_written_by_us_and_by_kio(name):
    message, version = GOLDEN[name]
    data = golden(name)
    assert encode(message, version).hex(" ") == data.hex(" ")
    assert b"".join(encode_parts(message, version)) == data
    assert decode(type(message), version, data) == message
    entity = kio_class(type(message), version)
    assert kio_bytes(to_kio(message, entity, version)) == data
    assert kio_entity(entity, data) == to_kio(message, entity, version)


@pytest.mark.parametrize("name", GOLDEN)
def test_every_cut_off_prefix_of_golden_bytes_is_refused(name):
    message, version = GOLDEN[name]
    data = golden(name)
    for size in range(len(data)):
        with pytest.raises(DecodeError):
            decode(type(message), version, data[:size])


def test_every_golden_file_is_tested():
    assert {path.stem for path in FOLDER.glob("*.hex")} == {*GOLDEN, "record_batch"}


RECORDS = [
    (1700000000000, b"UA", b'{"delay":11}', [("trace", b"\x01\x02")]),
    (1700000000250, None, None, []),
]


def test_the_golden_batch_is_read_and_written_by_us():
    data = golden("record_batch")
    builder = BatchBuilder(leader_epoch=0, producer_id=4000, producer_epoch=2, base_sequence=7)
    for timestamp, key, value, headers in RECORDS:
        builder.append(timestamp, key, value, headers)
    assert builder.build().hex(" ") == data.hex(" ")
    header = parse_header(data, 0)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4000, 2, 7)
    read = [(r.timestamp, r.key, r.value, list(r.headers)) for r in decode_records(data)]
    assert read == RECORDS


def test_the_golden_batch_is_read_and_written_by_kafka_python():
    data = golden("record_batch")
    builder = DefaultRecordBatchBuilder(2, 0, 0, 4000, 2, 7, 1 << 16)
    for offset, (timestamp, key, value, headers) in enumerate(RECORDS):
        builder.append(offset, timestamp, key, value, headers)
    assert bytes(builder.build()).hex(" ") == data.hex(" ")
    batch = DefaultRecordBatch(data)
    assert batch.validate_crc()
    assert [(r.timestamp, r.key, r.value, r.headers) for r in batch] == RECORDS


def test_the_batch_inside_golden_messages_is_whole():
    assert DefaultRecordBatch(BATCH).validate_crc()
    assert [(r.key, r.value) for r in decode_records(BATCH)] == [(b"k", b"val")]
