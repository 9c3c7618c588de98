"""Records of internal topics as JSON, and control records as text, without files."""

import pytest

from sparkraft.client.decoders.batches import batch_json, record_json, record_text
from sparkraft.client.decoders.control import control_text
from sparkraft.client.decoders.internal_topics import DECODERS, text_decoder
from sparkraft.protocol.framing import encode_metadata_record
from sparkraft.protocol.messages.metadata_records import NoOpRecord
from sparkraft.records.batch import parse_header
from sparkraft.records.control import ControlType, EndTransaction, end_transaction_batch
from sparkraft.records.record import BatchBuilder, decode_records


def batch_of(key, value) -> bytes:
    builder = BatchBuilder(base_offset=5, leader_epoch=2)
    builder.append(99, key, value)
    return builder.build()


def record_of(key, value):
    (record,) = decode_records(batch_of(key, value))
    return record


def test_a_metadata_record_has_its_type_and_its_data():
    record = record_of(None, encode_metadata_record(NoOpRecord(), 0))
    decoded = DECODERS["cluster-metadata-decoder"].decode(record)
    assert decoded == (None, {"type": "NO_OP_RECORD", "version": 0, "data": {}})


@pytest.mark.parametrize("name", ["offsets", "transaction-log", "share-group-state"])
def test_a_record_of_an_unknown_type_is_reported_as_its_key(name):
    decoded = DECODERS[f"{name}-decoder"].decode(record_of(b"\x00\x63", b"x"))
    assert decoded == ("Unknown record type 99 at offset 5, skipping.", None)


def test_bytes_that_are_no_metadata_record_are_reported():
    _, payload = DECODERS["cluster-metadata-decoder"].decode(record_of(None, b"\xff"))
    assert payload.startswith("Error at 5, skipping. ")


def test_a_transaction_marker_names_its_kind_and_epoch():
    end = EndTransaction(ControlType.ABORT, 7)
    batch = end_transaction_batch(end, timestamp=1, producer_id=3, producer_epoch=0)
    (record,) = decode_records(batch)
    assert control_text(record) == "endTxnMarker: ABORT coordinatorEpoch: 7"
    assert record_json(parse_header(batch), record, None)["control"] == control_text(record)


def test_a_batch_and_its_records_as_json_and_text():
    batch = batch_of(b"k", b"v")
    header = parse_header(batch)
    record = record_of(b"k", b"v")
    as_text = text_decoder(lambda message: message, is_metadata=False)
    shown = batch_json("f.log", header, 12, is_valid=True)
    assert (shown["file"], shown["baseOffset"], shown["position"]) == ("f.log", 5, 12)
    assert record_json(header, record, as_text)["payload"] == "v"
    assert record_text(header, record, as_text, skip_metadata=True) == "| key: k payload: v"
