"""Snapshots of the metadata log: made while topics are, the log cut to them, read by us and Kafka.

A node that snapshots after some hundred bytes and rolls its log after some milliseconds soon has a
log that begins above 0: what was before is in the snapshot only, so a restart needs both.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.kafka_tools import run_kafka_tool
from tests.support.nodes import KafkaFormattedNode, KafkaNode, NodeProcess, SparkraftNode
from tests.support.ports import wait_until

pytestmark = [pytest.mark.real_clients, pytest.mark.java]

KINDS: dict[str, type[NodeProcess]] = {"sparkraft": SparkraftNode, "kafka": KafkaFormattedNode}
OFTEN = {
    "metadata.log.max.record.bytes.between.snapshots": "500",
    "metadata.log.segment.ms": "100",
    "metadata.max.retention.bytes": "0",
    "offsets.topic.num.partitions": "1",
}
TOPICS_AT_A_TIME, TOPICS_MAX = 10, 500


@dataclass(frozen=True)
class Topic:
    """What a client sees of a topic's metadata."""

    id: str
    partitions: int
    retention_ms: str


def topics_of(node: NodeProcess) -> dict[str, Topic]:
    """All topics, as told by the node."""
    from confluent_kafka import TopicCollection
    from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    names = sorted(admin.list_topics(timeout=30).topics)
    found = {}
    resources = {name: ConfigResource(ResourceType.TOPIC, name) for name in names}
    described = admin.describe_topics(TopicCollection(names)) if names else {}
    for name in names:
        topic = described[name].result(30)
        configs = admin.describe_configs([resources[name]])[resources[name]].result(30)
        retention = configs["retention.ms"].value
        found[name] = Topic(str(topic.topic_id), len(topic.partitions), retention)
    return found


def change(node: NodeProcess, first: int, count: int) -> None:
    """Create topics and delete the first of them; Kafka shows both a little after its answers."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    new = [
        NewTopic(f"t{n}", 1 + n % 3, 1, config={"retention.ms": str(86_400_000 + n)})
        for n in range(first, first + count)
    ]
    for future in admin.create_topics(new).values():
        future.result(30)
    gone, made = f"t{first}", {f"t{n}" for n in range(first + 1, first + count)}
    admin.delete_topics([gone])[gone].result(30)

    def follows() -> bool:
        listed = admin.list_topics(timeout=30).topics
        return gone not in listed and made <= set(listed)

    wait_until(follows, "the broker shows the changes")


def metadata_files(node: NodeProcess, pattern: str) -> list[int]:
    """The offsets in the names of files of the metadata log."""
    folder = node.log_dir / "__cluster_metadata-0"
    return sorted(int(path.name[:20]) for path in folder.glob(pattern))


def change_until_the_log_is_cut(node: NodeProcess) -> None:
    """Change topics until the log's first segments are gone."""
    for first in range(0, TOPICS_MAX, TOPICS_AT_A_TIME):
        change(node, first, TOPICS_AT_A_TIME)
        if metadata_files(node, "*.log")[0] > 0:
            return
    raise AssertionError(f"not cut after {TOPICS_MAX} topics: {metadata_files(node, '*')}")


def test_a_cut_log_and_its_snapshot_restart_and_move_to_kafka_and_back(
    kafka_jars: Path, tmp_path: Path
) -> None:
    with SparkraftNode(tmp_path, overrides=OFTEN) as node:
        change_until_the_log_is_cut(node)
        before = topics_of(node)
        node.kill()
        log_start, snapshot = (
            metadata_files(node, "*.log")[0],
            metadata_files(node, "*-*.checkpoint"),
        )
        assert snapshot[-1] >= log_start > 0, "what the log lacks is in the snapshot"
        node.start()
        assert topics_of(node) == before
        assert node.stop() == 0
        node.start()
        assert topics_of(node) == before
        node.kill()
    with KafkaNode(tmp_path, overrides=OFTEN, jars=kafka_jars) as kafka:
        assert topics_of(kafka) == before
        change(kafka, TOPICS_MAX, TOPICS_AT_A_TIME)
        both = topics_of(kafka)
        kafka.kill()
    with SparkraftNode(tmp_path, overrides=OFTEN) as node:
        assert topics_of(node) == both


def test_our_node_starts_on_kafkas_snapshots(kafka_jars: Path, tmp_path: Path) -> None:
    node: NodeProcess = KafkaNode(tmp_path, overrides=OFTEN, jars=kafka_jars)
    with node:
        for first in range(0, TOPICS_MAX, TOPICS_AT_A_TIME):
            change(node, first, TOPICS_AT_A_TIME)
            if len(metadata_files(node, "*-*.checkpoint")) >= 3:
                break
        before = topics_of(node)
        node.stop()
    snapshots = metadata_files(node, "*-*.checkpoint")
    assert snapshots[-1] > 0
    # Kafka cuts its log once a minute; what it would remove then, goes now.
    folder = node.log_dir / "__cluster_metadata-0"
    for base in metadata_files(node, "*.log")[:-1]:
        following = next(b for b in metadata_files(node, "*.log") if b > base)
        if following <= snapshots[-1]:
            for path in folder.glob(f"{base:020}.*"):
                path.unlink()
    assert metadata_files(node, "*.log")[0] > 0
    for old in snapshots[:-1]:
        for path in folder.glob(f"{old:020}-*.checkpoint"):
            path.unlink()
    with SparkraftNode(tmp_path, overrides=OFTEN, jars=kafka_jars) as node:
        assert topics_of(node) == before
        change(node, TOPICS_MAX, TOPICS_AT_A_TIME)
        both = topics_of(node)
        node.stop()
    with KafkaNode(tmp_path, overrides=OFTEN, jars=kafka_jars) as node:
        assert topics_of(node) == both


TOOLS = {
    "acls": "org.apache.kafka.tools.AclCommand",
    "configs": "kafka.admin.ConfigCommand",
}
CONFIGS = {
    "users": "SCRAM-SHA-256=[iterations=8192,password=pw]",
    "clients": "request_percentage=50,consumer_byte_rate=2048",
    "ips": "connection_creation_rate=77",
    "client-metrics": "interval.ms=1000",
    "groups": "consumer.session.timeout.ms=47000",
}
NAMES = {"ips": "10.0.0.1"}
SHOWN = ["User:a", "iterations=8192", "2048", "77", "interval.ms=1000", "47000"]
"""What Kafka's tools say of each: ACLs, then `CONFIGS`."""


def test_what_we_do_not_serve_yet_comes_through_our_snapshots(
    kafka_jars: Path, tmp_path: Path
) -> None:
    """ACLs, SCRAM, quotas, configs of clients and groups: to us, snapshot, cut log, and back."""

    def tool(name: str, *arguments: str) -> str:
        done = run_kafka_tool(
            kafka_jars, TOOLS[name], "--bootstrap-server", kafka.bootstrap, *arguments
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def all_of_it() -> list[str]:
        described = [tool("configs", "--describe", "--entity-type", kind) for kind in CONFIGS]
        return [tool("acls", "--list"), *described]

    secured = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    kafka: KafkaNode = KafkaFormattedNode(tmp_path, overrides=secured, jars=kafka_jars)
    with kafka:
        tool("acls", "--add", "--allow-principal", "User:a", "--operation", "Read", "--topic", "t")
        for kind, config in CONFIGS.items():
            named = ("--entity-type", kind, "--entity-name", NAMES.get(kind, "alice"))
            tool("configs", "--alter", "--add-config", config, *named)
        before = all_of_it()
        for shown, told in zip(SHOWN, before, strict=True):
            assert shown in told
        kafka.stop()
    ports = kafka.port, kafka.controller_port
    with SparkraftNode(tmp_path, overrides=OFTEN, ports=ports) as node:
        change_until_the_log_is_cut(node)
        assert node.stop() == 0
    kafka = KafkaFormattedNode(tmp_path, overrides=secured, jars=kafka_jars, ports=ports)
    with kafka:
        assert all_of_it() == before
