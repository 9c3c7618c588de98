"""A node starts on the keys and values of Kafka's own config/server.properties as they are.

Only ports and the directory are given with `--override`, because the defaults may be taken.
"""

import sys
from collections.abc import Iterator

import pytest

from tests.support.nodes import SparkraftNode
from tests.support.ports import wait_until

pytestmark = pytest.mark.real_clients

PROPERTIES = """\
# The keys and values of a fresh Kafka 4.3 download.
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,\
SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600

log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=2

offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1

#log.flush.interval.messages=10000
#log.flush.interval.ms=1000

log.retention.hours=168
#log.retention.bytes=1073741824
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


class DefaultNode(SparkraftNode):
    """A node that is started on `PROPERTIES` and a few overrides."""

    def write_properties(self) -> None:
        """The properties as they are, and a copy with the overrides for `storage format`."""
        client, controller = f"localhost:{self.port}", f"localhost:{self.controller_port}"
        self.overrides = {
            "listeners": f"PLAINTEXT://:{self.port},CONTROLLER://:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://{client},CONTROLLER://{controller}",
            "controller.quorum.bootstrap.servers": controller,
            "log.dirs": str(self.log_dir),
        }
        (self.directory / "default.properties").write_text(PROPERTIES)
        changed = "".join(f"{key}={value}\n" for key, value in self.overrides.items())
        self.properties_path.write_text(PROPERTIES + changed)

    def start_command(self) -> list[str]:
        """`server-start default.properties --override …`."""
        pairs = [f"{key}={value}" for key, value in self.overrides.items()]
        options = [word for pair in pairs for word in ("--override", pair)]
        file = str(self.directory / "default.properties")
        return [sys.executable, "-m", "sparkraft.cli.main", "server-start", file, *options]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DefaultNode]:
    with DefaultNode(tmp_path_factory.mktemp("default")) as started:
        yield started
        assert started.stop() == 0


def test_it_serves_with_topics_made_on_demand(node: DefaultNode) -> None:
    from confluent_kafka import Consumer, Producer

    producer = Producer({"bootstrap.servers": f"localhost:{node.port}"})
    producer.produce("first", b"hello")
    assert producer.flush(30) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": f"localhost:{node.port}",
            "group.id": "readers",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["first"])
    read: list[bytes | None] = []

    def is_read() -> bool:
        read.extend(m.value() for m in consumer.consume(1, timeout=1) if m.error() is None)
        return bool(read)

    # First its topic of 50 partitions is made, and then the group waits 3 s for others.
    wait_until(is_read, "the record is read", 120)
    assert read == [b"hello"]
    consumer.close()


def test_every_key_of_the_file_is_known_and_told_to_clients(node: DefaultNode) -> None:
    from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

    assert "Unknown config" not in node.output_path.read_text()
    admin = AdminClient({"bootstrap.servers": f"localhost:{node.port}"})
    resource = ConfigResource(ResourceType.BROKER, "1")
    told = admin.describe_configs([resource])[resource].result(30)
    given = dict(
        line.split("=", 1) for line in PROPERTIES.splitlines() if line and not line.startswith("#")
    )
    for key, value in (given | node.overrides).items():
        assert told[key].value == value, key
        assert told[key].source == 4, f"{key} comes from the file"
