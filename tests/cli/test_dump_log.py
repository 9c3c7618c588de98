"""`dump-log --print-data-log`: secrets of metadata are hidden, and nothing else is changed."""

import json
from pathlib import Path

import pytest

from sparkraft.cli.dump_log import main
from sparkraft.metadata.redaction import REDACTED
from sparkraft.protocol.framing import encode_metadata_record
from sparkraft.protocol.messages.metadata_records import ConfigRecord
from sparkraft.records.record import BatchBuilder

TOPIC, BROKER = 2, 4
METADATA = "__cluster_metadata-0/00000000000000000000.log"
USERS = "flights-0/00000000000000000000.log"


def config(kind: int, name: str, value: str) -> bytes:
    record = ConfigRecord(resource_type=kind, resource_name="1", name=name, value=value)
    return encode_metadata_record(record, 0)


SECRET = config(BROKER, "ssl.keystore.password", "planted-4417")
HIDDEN = config(BROKER, "ssl.keystore.password", REDACTED)
PLAIN = config(TOPIC, "retention.ms", "planted-4417")
UNKNOWN = b"\x01\x7e\x00planted-4417"
TORN = SECRET[:-1]


@pytest.mark.parametrize(
    ("name", "key", "value", "shown"),
    [
        (METADATA, None, SECRET, HIDDEN),
        (METADATA, None, PLAIN, PLAIN),
        (METADATA, None, UNKNOWN, b"Error at 0, skipping. unknown metadata record type 126"),
        (USERS, None, SECRET, HIDDEN),  # a segment that was copied
        (USERS, b"k", SECRET, SECRET),  # metadata has no keys
        (USERS, None, PLAIN, PLAIN),
        (USERS, None, UNKNOWN, UNKNOWN),
        (USERS, None, TORN, TORN),
        (USERS, None, b"", b""),
    ],
    ids=[
        "secret",
        "no secret",
        "unknown",
        "copied",
        "with a key",
        "copied without a secret",
        "bytes of a user",
        "torn bytes of a user",
        "empty",
    ],
)
def test_values_are_shown_without_secrets_of_metadata(
    name: str, key: bytes | None, value: bytes, shown: bytes, tmp_path: Path, capsys
):
    path = tmp_path / name
    path.parent.mkdir()
    builder = BatchBuilder()
    builder.append(0, key, value)
    path.write_bytes(builder.build())
    for output in ("text", "json"):
        assert main(["--print-data-log", "--output", output, "--files", str(path)]) == 0
        line = capsys.readouterr().out.rstrip("\n").split("\n")[-1]
        if output == "json":
            (record,) = json.loads(line)["records"]
            payload = record["payload"]
        else:
            payload = line.partition("payload: ")[2]
        assert payload.startswith(shown.decode("utf-8", "replace"))
        assert ("planted" in payload) is (b"planted" in shown)
