"""Records that no Python library has: written by us, read by Kafka's own DumpLogSegments.

A log segment holds every record type in every version: with every field set, with every nullable
field null, and with defaults. The JSON that Kafka prints must equal `to_json`.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from sparkraft.protocol.codec import encode
from sparkraft.protocol.declare import Message
from sparkraft.protocol.framing import (
    decode_metadata_record,
    decode_record_key,
    decode_versioned,
    encode_metadata_record,
    encode_record_key,
    encode_versioned,
)
from sparkraft.protocol.json_form import to_json
from sparkraft.protocol.messages.group_records import GROUP_RECORDS
from sparkraft.protocol.messages.metadata_records import METADATA_RECORDS
from sparkraft.protocol.messages.raft_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from sparkraft.protocol.messages.share_records import SHARE_RECORDS
from sparkraft.protocol.messages.transaction_records import TRANSACTION_RECORDS
from sparkraft.records.control import ControlType, control_batch
from sparkraft.records.record import BatchBuilder
from tests.protocol.strategies import Fill, versions_of
from tests.support.kafka_tools import run_kafka_tool

pytestmark = pytest.mark.java


def variants(cls: type[Message], version: int) -> list[Message]:
    """Every field set; every nullable field null; all defaults that may be written."""
    made = [Fill(version).message(cls), Fill(version, nulls=True).message(cls), cls()]
    nullable = [f for f in cls.SCHEMA.fields if f.default is None and version not in f.nullable]
    return made if not nullable else made[:2]


def dump(jars: Path, folder: Path, segment: bytes, decoder: str) -> list[str]:
    """The lines that DumpLogSegments prints for records."""
    file = folder / "00000000000000000000.log"
    file.write_bytes(segment)
    done = run_kafka_tool(
        jars, "org.apache.kafka.tools.DumpLogSegments", decoder, "--files", str(file)
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "invalid bytes" not in done.stdout
    assert not re.search(r"isvalid: false", done.stdout), done.stdout[:500]
    return [line for line in done.stdout.splitlines() if line.startswith("| offset:")]


def after(line: str, word: str) -> Any:
    """The JSON that follows `word` in a line."""
    place = line.index(word) + len(word)
    return json.JSONDecoder().raw_decode(line[place:].lstrip())[0]


def as_json(message: Message, version: int) -> Any:
    return json.loads(json.dumps(to_json(message, version)))


def test_every_metadata_record_reads_in_kafka_as_in_ours(kafka_jars, tmp_path):
    sent = [
        (message, version)
        for cls in METADATA_RECORDS.values()
        for version in versions_of(cls)
        for message in variants(cls, version)
    ]
    values = [encode_metadata_record(message, version) for message, version in sent]
    batch = BatchBuilder(leader_epoch=1)
    for value in values:
        batch.append(1000, None, value)
    lines = dump(kafka_jars, tmp_path, batch.build(), "--cluster-metadata-decoder")
    assert len(lines) == len(sent)
    for line, (message, version), value in zip(lines, sent, values, strict=True):
        printed = after(line, "payload:")
        name = type(message).__name__
        assert printed["type"] == re.sub(r"(?<!^)(?=[A-Z])", "_", name).upper()
        assert printed["version"] == version
        assert printed["data"] == as_json(message, version), name
        assert decode_metadata_record(value) == (message, version)


@pytest.mark.parametrize(
    ("types", "decoder"),
    [
        pytest.param(GROUP_RECORDS, "--offsets-decoder", id="groups"),
        pytest.param(TRANSACTION_RECORDS, "--transaction-log-decoder", id="transactions"),
        pytest.param(SHARE_RECORDS, "--share-group-state-decoder", id="share"),
    ],
)
def test_every_coordinator_record_reads_in_kafka_as_in_ours(kafka_jars, tmp_path, types, decoder):
    sent = [
        (Fill(0).message(key), message, version)
        for key, value in types.values()
        for version in versions_of(value)
        for message in variants(value, version)
    ]
    batch = BatchBuilder(leader_epoch=1)
    for key, value, version in sent:
        key_bytes, value_bytes = encode_record_key(key), encode_versioned(value, version)
        assert decode_record_key(types, key_bytes) == (key, type(value))
        assert decode_versioned(type(value), value_bytes) == value
        batch.append(1000, key_bytes, value_bytes)
    lines = dump(kafka_jars, tmp_path, batch.build(), decoder)
    assert len(lines) == len(sent)
    for line, (key, value, version) in zip(lines, sent, strict=True):
        printed_key, printed = after(line, " key:"), after(line, "payload:")
        assert printed_key == {"type": str(key.SCHEMA.key), "data": as_json(key, 0)}
        assert printed == {"version": str(version), "data": as_json(value, version)}


def test_every_control_record_reads_in_kafka_as_in_ours(kafka_jars, tmp_path):
    kinds = [
        (ControlType.LEADER_CHANGE, LeaderChangeMessage, "LeaderChange:"),
        (ControlType.SNAPSHOT_HEADER, SnapshotHeaderRecord, "SnapshotHeader"),
        (ControlType.SNAPSHOT_FOOTER, SnapshotFooterRecord, "SnapshotFooter"),
        (ControlType.KRAFT_VERSION, KRaftVersionRecord, "KRaftVersion"),
        (ControlType.KRAFT_VOTERS, VotersRecord, "KRaftVoters"),
    ]
    sent = []
    for kind, cls, word in kinds:
        # Kafka 4.3 writes and reads version 0 of each, even of LeaderChangeMessage, which has two.
        message: Any = Fill(0).message(cls)
        message.version = 0
        sent.append((kind, message, word))
    batch = control_batch([(kind, encode(message, 0)) for kind, message, _ in sent], timestamp=1000)
    lines = dump(kafka_jars, tmp_path, batch, "--print-data-log")
    assert len(lines) == len(sent)
    for line, (_, message, word) in zip(lines, sent, strict=True):
        assert after(line, word) == as_json(message, 0)
