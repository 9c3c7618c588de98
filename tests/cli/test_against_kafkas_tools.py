"""Our commands print what Kafka's tools print, of the same node and the same files."""

import shutil
from pathlib import Path

import pytest

from sparkraft.cli import main as cli
from tests.support.kafka_tools import run_kafka_tool

pytestmark = [pytest.mark.real_clients, pytest.mark.java]

TOOLS = "org.apache.kafka.tools"


@pytest.fixture(scope="module")
def written(sparkraft_cluster) -> str:
    """A node with a topic, records and a group; its bootstrap."""
    bootstrap = ["--bootstrap-server", sparkraft_cluster.bootstrap]
    topic = ["--topic", "compared"]
    assert cli.main(["topics", *bootstrap, "--create", *topic, "--config", "retention.ms=-1"]) == 0
    sent = ["--num-records", "300", "--record-size", "50", "--throughput", "-1"]
    assert cli.main(["producer-perf-test", *bootstrap, *topic, *sent]) == 0
    reset = ["--reset-offsets", "--group", "compared-group", *topic, "--to-offset", "7"]
    assert cli.main(["consumer-groups", *bootstrap, *reset, "--execute"]) == 0
    return sparkraft_cluster.bootstrap


@pytest.mark.parametrize(
    ("ours", "theirs", "argv"),
    [
        ("topics", "TopicCommand", ["--list"]),
        ("topics", "TopicCommand", ["--describe", "--topic", "compared"]),
        ("get-offsets", "GetOffsetShell", ["--topic", "compared", "--time", "-2"]),
        (
            "consumer-groups",
            "consumer.group.ConsumerGroupCommand",
            ["--describe", "--group", "compared-group"],
        ),
        (
            "consumer-groups",
            "consumer.group.ConsumerGroupCommand",
            ["--describe", "--group", "compared-group", "--state"],
        ),
        (
            "consumer-groups",
            "consumer.group.ConsumerGroupCommand",
            [
                "--reset-offsets",
                "--group",
                "compared-group",
                "--topic",
                "compared",
                "--to-earliest",
            ],
        ),
        ("broker-api-versions", "BrokerApiVersionsCommand", []),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value)[:40],
)
def test_a_command_prints_the_same(ours, theirs, argv, written, kafka_jars, capsys):
    bootstrap = ["--bootstrap-server", written]
    kafka = run_kafka_tool(kafka_jars, f"{TOOLS}.{theirs}", *bootstrap, *argv)
    assert kafka.returncode == 0, kafka.stderr
    assert cli.main([ours, *bootstrap, *argv]) == 0
    assert capsys.readouterr().out == kafka.stdout


def test_configs_print_the_same(written, kafka_jars, capsys):
    argv = ["--bootstrap-server", written, "--describe", "--topic", "compared", "--all"]
    kafka = run_kafka_tool(kafka_jars, "kafka.admin.ConfigCommand", *argv)
    assert cli.main(["configs", *argv]) == 0
    assert capsys.readouterr().out == kafka.stdout


@pytest.fixture(scope="module")
def files(written, sparkraft_cluster, tmp_path_factory) -> Path:
    """Copies of the node's files, so that nothing grows while two tools read it."""
    copy = tmp_path_factory.mktemp("dumped") / "data"
    data = sparkraft_cluster.directory / "node-1" / "data"
    # Only what stays: other files, and folders of other topics, come and go meanwhile.
    wanted = ("compared-0/*.log", "__*/*.log", "bootstrap.checkpoint")
    for path in [path for pattern in wanted for path in data.glob(pattern)]:
        place = copy / path.relative_to(data)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
    return copy


@pytest.mark.parametrize(
    ("name", "decoder"),
    [
        ("compared-0/00000000000000000000.log", "--print-data-log"),
        ("__cluster_metadata-0/00000000000000000000.log", "--cluster-metadata-decoder"),
        ("__cluster_metadata-0/00000000000000000000.log", "--print-data-log"),
        ("bootstrap.checkpoint", "--cluster-metadata-decoder"),
    ],
)
def test_a_dump_is_the_same(name, decoder, files, kafka_jars, capsys):
    argv = ["--files", str(files / name), decoder]
    kafka = run_kafka_tool(kafka_jars, f"{TOOLS}.DumpLogSegments", *argv)
    cli.main(["dump-log", *argv])
    assert capsys.readouterr().out == kafka.stdout
    assert len(kafka.stdout.splitlines()) > 3


def test_a_dump_of_committed_offsets_is_the_same(files, kafka_jars, capsys):
    logs = files.glob("__consumer_offsets-*/*.log")
    (log,) = [path for path in logs if b"compared-group" in path.read_bytes()]
    argv = ["--files", str(log), "--offsets-decoder"]
    kafka = run_kafka_tool(kafka_jars, f"{TOOLS}.DumpLogSegments", *argv)
    cli.main(["dump-log", *argv])
    assert capsys.readouterr().out == kafka.stdout
    assert "compared-group" in kafka.stdout
