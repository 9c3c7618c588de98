"""`storage format|info|random-uuid`: Kafka's files from Kafka's options."""

import hmac
import json
from base64 import b64decode, b64encode
from hashlib import sha256
from pathlib import Path

import pytest

from sparkraft.base.ids import Uuid
from sparkraft.cli.main import main
from sparkraft.protocol.framing import decode_metadata_record
from sparkraft.records.batch import iter_batches
from sparkraft.server.raft.records import read_snapshot_controls
from sparkraft.storage.disk import OsDisk
from sparkraft.storage.format import read_checkpoint
from sparkraft.storage.meta_properties import read_meta_properties
from sparkraft.storage.snapshot_files import open_snapshot
from tests.support.kafka_tools import run_kafka_tool

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"
SALT = "W22ZaJ0SNY7soEsUEjb6gQ=="
ZERO = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"


def properties(root: Path, **more: str) -> str:
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": "localhost:9093",
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": f"{root}/a,{root}/b",
        **{key.replace("_", "."): value for key, value in more.items()},
    }
    path = root / "server.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items() if value))
    return str(path)


def format_with(path: str, *options: str) -> int:
    return main(["storage", "format", "-c", path, "-t", CLUSTER, *options])


def features(log_dir: Path) -> dict[str, int]:
    records = [decode_metadata_record(raw)[0] for raw in read_checkpoint(OsDisk(), str(log_dir))]
    return {record.name: record.feature_level for record in records}


def test_standalone_writes_all_that_a_dynamic_quorum_starts_from(tmp_path, capsys):
    assert format_with(properties(tmp_path), "--standalone") == 0
    out = capsys.readouterr().out
    assert f"dynamic metadata voter directory {tmp_path}/a with metadata.version 4.3-IV0" in out
    metas = [read_meta_properties(OsDisk(), f"{tmp_path}/{name}") for name in "ab"]
    assert [meta.cluster_id for meta in metas] == [CLUSTER, CLUSTER]
    assert metas[0].directory_id != metas[1].directory_id
    assert features(tmp_path / "b") == {
        "metadata.version": 30,
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "share.version": 1,
        "streams.version": 1,
        "transaction.version": 2,
    }
    content = open_snapshot(OsDisk(), f"{tmp_path}/a/{ZERO}").content()
    level, voters = read_snapshot_controls(content)
    assert level == 1
    assert [voter.key.directory_id for voter in voters.voters] == [metas[0].directory_id]
    assert not (tmp_path / "b" / ZERO).exists()


def test_initial_controllers_are_the_voters(tmp_path):
    ids = ["JEXY6aqzQY-32P5TStzaFg", "MvDxzVmcRsaTz33bUuRU6A"]
    text = f"1@localhost:9093:{ids[0]},2@[::1]:9094:{ids[1]}"
    assert format_with(properties(tmp_path), "--initial-controllers", text) == 0
    assert read_meta_properties(OsDisk(), f"{tmp_path}/a").directory_id == Uuid.parse(ids[0])
    content = open_snapshot(OsDisk(), f"{tmp_path}/a/{ZERO}").content()
    voters = read_snapshot_controls(content)[1]
    assert [(v.key.id, str(v.key.directory_id)) for v in voters.voters] == [
        (1, ids[0]),
        (2, ids[1]),
    ]
    assert voters.voters[1].endpoints[0].host == "::1"


def test_a_static_quorum_has_no_zero_checkpoint(tmp_path):
    path = properties(
        tmp_path,
        controller_quorum_voters="1@localhost:9093",
        controller_quorum_bootstrap_servers="",
    )
    assert format_with(path) == 0
    assert not (tmp_path / "a" / "__cluster_metadata-0").exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ([], "you must specify one of the following"),
        (["--standalone", "--feature", "nothing.version=1"], "Unsupported feature"),
        (["--standalone", "--feature", "group.version=9"], "group.version"),
        (["--standalone", "--feature", "metadata.version=30", "-r", "4.1"], "ambiguity"),
        (["--standalone", "--feature", "kraft.version=0"], "kraft.version to 0"),
        (["--standalone", "-r", "9.9"], "Unknown metadata.version"),
        (["--initial-controllers", "1@localhost"], "id@host:port:directory-id"),
        (["--initial-controllers", "1@localhost:9093:short"], "--initial-controllers"),
        (["--standalone", "--add-scram", "MD5=[name=a]"], "neither"),
        (["--standalone", "--no-initial-controllers"], "not allowed"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(tmp_path, capsys, options, sentence):
    assert format_with(properties(tmp_path), *options) != 0
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "a").exists()


def test_a_formatted_directory_is_left_alone(tmp_path, capsys):
    path = properties(tmp_path)
    assert format_with(path, "--standalone") == 0
    before = (tmp_path / "a" / "meta.properties").read_bytes()
    assert format_with(path, "--standalone") == 1
    assert "already formatted" in capsys.readouterr().err
    assert format_with(path, "--standalone", "--ignore-formatted") == 0
    assert (tmp_path / "a" / "meta.properties").read_bytes() == before
    assert main(["storage", "format", "-c", path, "-t", "other", "--standalone", "-g"]) == 1
    assert f"belongs to cluster {CLUSTER}" in capsys.readouterr().err


def test_older_releases_and_features_of_choice(tmp_path):
    options = ["--standalone", "-r", "3.9", "--feature", "group.version=0"]
    assert format_with(properties(tmp_path), *options) == 0
    assert features(tmp_path / "a") == {"metadata.version": 21}


def test_scram_credentials_are_derived_as_rfc_7677_says(tmp_path):
    # RFC 7677's example: user, pencil, 4096 rounds.
    argument = f'SCRAM-SHA-256=[name=user,salt="{SALT}",password=pencil]'
    assert format_with(properties(tmp_path), "--standalone", "--add-scram", argument) == 0
    *_, last = read_checkpoint(OsDisk(), f"{tmp_path}/a")
    record = decode_metadata_record(last)[0]
    assert (record.name, record.mechanism, record.iterations) == ("user", 1, 4096)
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    exchange = f"n=user,r={nonce[:20]},r={nonce},s={SALT},i=4096,c=biws,r={nonce}"
    signature = hmac.digest(record.server_key, exchange.encode(), "sha256")
    assert b64encode(signature) == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    proof = b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    client_signature = hmac.digest(record.stored_key, exchange.encode(), "sha256")
    client_key = bytes(a ^ b for a, b in zip(proof, client_signature, strict=True))
    assert sha256(client_key).digest() == record.stored_key


def test_info_tells_what_is_there_and_what_is_wrong(tmp_path, capsys):
    path = properties(tmp_path)
    assert main(["storage", "info", "-c", path]) == 1
    assert f"{tmp_path}/a does not exist" in capsys.readouterr().out
    format_with(path, "--standalone")
    capsys.readouterr()
    assert main(["storage", "info", "-c", path]) == 0
    out = capsys.readouterr().out
    assert "Found log directories:" in out
    assert f"cluster.id={CLUSTER}" in out
    assert main(["storage", "info", "-c", path, "--output", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["directories"] == [f"{tmp_path}/a", f"{tmp_path}/b"]
    assert told["metadata"]["cluster.id"] == CLUSTER
    assert told["problems"] == []
    (tmp_path / "b" / "meta.properties").unlink()
    assert main(["storage", "info", "-c", path]) == 1
    assert f"{tmp_path}/b is not formatted." in capsys.readouterr().out


def test_random_uuid_prints_one(capsys):
    assert main(["storage", "random-uuid"]) == 0
    assert len(Uuid.parse(capsys.readouterr().out.strip())) == 16


def without_times(raw: bytes) -> list[bytes]:
    """Batches as bytes with times, CRC and directory ids, which differ by nature, blanked out."""
    found = []
    for header, view in iter_batches(raw):
        batch = bytearray(view)
        batch[17:21] = bytes(4)
        batch[27:43] = bytes(16)
        found.append(bytes(batch) + repr(header.records_count).encode())
    return found


@pytest.mark.java
def test_the_bytes_are_those_of_kafkas_storage_tool(tmp_path, kafka_jars):
    directory = "JEXY6aqzQY-32P5TStzaFg"
    options = ["--initial-controllers", f"1@localhost:9093:{directory}"]
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for root in (ours, theirs):
        root.mkdir()
    assert format_with(properties(ours), *options) == 0
    argv = ["format", "-c", properties(theirs), "-t", CLUSTER, *options]
    done = run_kafka_tool(kafka_jars, "kafka.tools.StorageTool", *argv)
    assert done.returncode == 0, done.stdout + done.stderr
    files = sorted(str(path.relative_to(theirs)) for path in theirs.rglob("*") if path.is_file())
    assert files == sorted(str(p.relative_to(ours)) for p in ours.rglob("*") if p.is_file())
    bootstrap = "a/bootstrap.checkpoint"
    assert without_times((ours / bootstrap).read_bytes()) == without_times(
        (theirs / bootstrap).read_bytes()
    )
    mine, kafkas = (open_snapshot(OsDisk(), f"{root}/a/{ZERO}") for root in (ours, theirs))
    assert mine.content().controls == kafkas.content().controls
    assert mine._size == kafkas._size
    disk = OsDisk()
    assert read_meta_properties(disk, f"{ours}/a") == read_meta_properties(disk, f"{theirs}/a")
