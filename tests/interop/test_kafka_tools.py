"""Kafka's own tools on our node and on our files, and our commands beside Kafka's.

Where a command of ours has the name of one of Kafka's, both are run against our node with the same
options and must print the same columns and values.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkraft.metadata.features import SUPPORTED_FEATURES
from tests.support import groups
from tests.support.kafka_tools import run_kafka_tool
from tests.support.nodes import SparkraftNode

pytestmark = [pytest.mark.real_clients, pytest.mark.java]

TOOLS = {
    "topics": "org.apache.kafka.tools.TopicCommand",
    "configs": "kafka.admin.ConfigCommand",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "storage": "kafka.tools.StorageTool",
    "cluster": "org.apache.kafka.tools.ClusterTool",
}
_NOISE = re.compile(r"^SLF4J|^WARN|^OpenJDK|^$|log4j", re.IGNORECASE)


@pytest.fixture(scope="module")
def node(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkraftNode]:
    started = SparkraftNode(tmp_path_factory.mktemp("tools"), jars=kafka_jars)
    with started:
        fill(started.bootstrap)
        yield started


@pytest.fixture(scope="module")
def stopped(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> SparkraftNode:
    """A filled node that has stopped: its indexes are on disk, its files hold still."""
    node = SparkraftNode(tmp_path_factory.mktemp("stopped"), jars=kafka_jars)
    with node:
        fill(node.bootstrap)
        assert node.stop() == 0
    return node


def fill(bootstrap: str) -> None:
    """Two topics, records in each codec, a config and a group with lag."""
    from confluent_kafka import Consumer, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = [
        NewTopic("tools", 3, 1, config={"retention.ms": "86400000", "segment.bytes": "1048576"}),
        NewTopic("second", 1, 1),
    ]
    for future in admin.create_topics(wanted).values():
        future.result(30)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec})
        for number in range(200):
            producer.produce("tools", key=f"{number}", value="v" * number, partition=number % 3,
                             headers=[("codec", codec.encode())])  # fmt: skip
        assert producer.flush(90) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "lagging"})
    places = [TopicPartition("tools", partition, 10 * partition) for partition in range(3)]
    groups.commit(consumer, places)
    consumer.close()


def ours(command: str, *arguments: str) -> list[str]:
    """Run our command; its lines."""
    done = subprocess.run(
        [sys.executable, "-m", "sparkraft.cli.main", command, *arguments],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{command} {arguments}: {done.stdout}{done.stderr}"
    return lines(done.stdout)


def kafkas(node: SparkraftNode, command: str, *arguments: str) -> list[str]:
    """Run Kafka's command of that name; its lines."""
    assert node.jars is not None
    done = run_kafka_tool(node.jars, TOOLS[command], *arguments)
    assert done.returncode == 0, f"{command} {arguments}: {done.stdout}{done.stderr}"
    return lines(done.stdout)


def lines(text: str) -> list[str]:
    """The lines that count, each with single spaces."""
    return [" ".join(line.split()) for line in text.splitlines() if not _NOISE.search(line)]


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("topics", ["--list"]),
        ("topics", ["--describe"]),
        ("topics", ["--describe", "--topic", "tools"]),
        ("topics", ["--describe", "--topics-with-overrides"]),
        ("topics", ["--describe", "--under-replicated-partitions"]),
        ("configs", ["--describe", "--entity-type", "topics", "--entity-name", "tools"]),
        ("configs", ["--describe", "--entity-type", "topics", "--entity-name", "tools", "--all"]),
        ("consumer-groups", ["--list"]),
        ("consumer-groups", ["--describe", "--group", "lagging"]),
        ("consumer-groups", ["--describe", "--group", "lagging", "--state"]),
        ("get-offsets", []),
        ("get-offsets", ["--topic", "tools", "--time", "-2"]),
        ("get-offsets", ["--topic", "tools", "--time", "max-timestamp"]),
        ("metadata-quorum", ["describe", "--status"]),
        ("features", ["describe"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "_".join(value).replace("--", ""),
)
def test_our_command_prints_what_kafkas_prints(
    command: str, arguments: list[str], node: SparkraftNode
) -> None:
    full = ["--bootstrap-server", node.bootstrap, *arguments]
    assert neutral(ours(command, *full)) == neutral(kafkas(node, command, *full))


@pytest.mark.parametrize("what", ["cluster-id", "list-endpoints"])
def test_our_cluster_command_prints_what_kafkas_prints(what: str, node: SparkraftNode) -> None:
    full = [what, "--bootstrap-server", node.bootstrap]
    assert ours("cluster", *full) == kafkas(node, "cluster", *full)


@pytest.mark.parametrize("of", [[], ["--topic-list", "tools", "--broker-list", "1"]])
def test_our_log_dirs_command_tells_what_kafkas_tells(of: list[str], node: SparkraftNode) -> None:
    full = ["--bootstrap-server", node.bootstrap, "--describe", *of]
    *head, told = ours("log-dirs", *full)
    *kafkas_head, kafkas_told = kafkas(node, "log-dirs", *full)
    assert head == kafkas_head
    assert _in_order(json.loads(told)) == _in_order(json.loads(kafkas_told))


def _in_order(told: Any) -> Any:
    """Kafka prints partitions in the order of a hash map."""
    for broker in told["brokers"]:
        for directory in broker["logDirs"]:
            directory["partitions"].sort(key=lambda replica: replica["partition"])
    return told


EVERY_LEVEL = [
    part
    for name, (lowest, highest) in sorted(SUPPORTED_FEATURES.items())
    for level in range(lowest, highest + 1)
    for part in ("-f", f"{name}={level}")
]


@pytest.mark.parametrize(
    "arguments",
    [
        ["version-mapping"],
        ["version-mapping", "-r", "3.7"],
        ["version-mapping", "--release-version", "4.0-IV1"],
        ["version-mapping", "-r", "4.1"],
        ["feature-dependencies", *EVERY_LEVEL],
    ],
    ids=lambda arguments: "_".join(arguments[:3]),
)
def test_our_storage_tool_knows_the_levels_that_kafkas_knows(
    arguments: list[str], kafka_jars: Path
) -> None:
    theirs = run_kafka_tool(kafka_jars, TOOLS["storage"], *arguments)
    assert theirs.returncode == 0, theirs.stderr
    assert ours("storage", *arguments) == lines(theirs.stdout)


def neutral(printed: list[str]) -> list[str]:
    """Lines in an order of their own, without what moves on between two runs."""
    moving = re.compile(r"(HighWatermark|LeaderEpoch|MaxFollowerLag\w*|Epoch): *-?\d+")
    configs = re.compile(r"(?<=Configs: )\S+")  # Kafka prints them in the order of a hash map.
    return sorted(
        configs.sub(lambda found: ",".join(sorted(found[0].split(","))), moving.sub(r"\1: N", line))
        for line in printed
    )


def test_kafkas_topic_command_creates_alters_and_deletes(node: SparkraftNode) -> None:
    base = ("--bootstrap-server", node.bootstrap)
    made = kafkas(node, "topics", *base, "--create", "--topic", "by-java", "--partitions", "2")
    assert made == ["Created topic by-java."]
    kafkas(node, "topics", *base, "--alter", "--topic", "by-java", "--partitions", "4")
    described = kafkas(node, "topics", *base, "--describe", "--topic", "by-java")
    assert len(described) == 5
    kafkas(node, "configs", *base, "--alter", "--entity-type", "topics", "--entity-name", "by-java",
           "--add-config", "retention.ms=12345")  # fmt: skip
    configs = kafkas(node, "configs", *base, "--describe", "--entity-type", "topics",
                     "--entity-name", "by-java")  # fmt: skip
    assert any("retention.ms=12345" in line for line in configs)
    kafkas(node, "topics", *base, "--delete", "--topic", "by-java")
    assert "by-java" not in kafkas(node, "topics", *base, "--list")


def test_kafkas_group_command_resets_and_deletes(node: SparkraftNode) -> None:
    base = ("--bootstrap-server", node.bootstrap)
    reset = ("--group", "lagging", "--topic", "second", "--reset-offsets", "--to-earliest")
    kafkas(node, "consumer-groups", *base, *reset, "--execute")
    described = kafkas(node, "consumer-groups", *base, "--describe", "--group", "lagging")
    assert any(line.startswith("lagging second 0 0 0 0") for line in described), described
    kafkas(node, "consumer-groups", *base, "--delete-offsets", "--group", "lagging",
           "--topic", "second")  # fmt: skip
    described = kafkas(node, "consumer-groups", *base, "--describe", "--group", "lagging")
    assert not any(" second " in line for line in described), described


def dumped(node: SparkraftNode, *arguments: str) -> str:
    """What DumpLogSegments says of files of ours."""
    assert node.jars is not None
    done = run_kafka_tool(node.jars, TOOLS["dump-log"], *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_dump_log_segments_reads_our_files_without_complaint(stopped: SparkraftNode) -> None:
    for kind in ("*.log", "*.index", "*.timeindex"):
        files = sorted(str(path) for path in (stopped.log_dir / "tools-0").glob(kind))
        assert files
        text = dumped(stopped, "--deep-iteration", "--files", ",".join(files))
        for complaint in ("mismatch", "not found", "isvalid: false", "Exception", "corrupt"):
            assert complaint not in text, text[:2000]
    metadata = stopped.log_dir / "__cluster_metadata-0" / f"{0:020}.log"
    text = dumped(stopped, "--cluster-metadata-decoder", "--files", str(metadata))
    for record in ("REGISTER_BROKER_RECORD", "TOPIC_RECORD", "PARTITION_RECORD", "CONFIG_RECORD"):
        assert record in text
    assert "isvalid: false" not in text
    offsets = sorted(stopped.log_dir.glob("__consumer_offsets-*/*.log"))
    text = dumped(stopped, "--offsets-decoder", "--files", ",".join(str(path) for path in offsets))
    assert '"group":"lagging"' in text


def test_our_dump_log_prints_what_kafkas_prints(stopped: SparkraftNode) -> None:
    path = str(stopped.log_dir / "tools-0" / f"{0:020}.log")
    options = ("--deep-iteration", "--print-data-log", "--files", path)
    assert ours("dump-log", *options) == kafkas(stopped, "dump-log", *options)
    metadata = str(stopped.log_dir / "__cluster_metadata-0" / f"{0:020}.log")
    options = ("--cluster-metadata-decoder", "--files", metadata)
    assert ours("dump-log", *options) == kafkas(stopped, "dump-log", *options)
