"""The config/server.properties of Kafka 3.9.2 starts a cluster of one broker of ours."""

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from sparkraft.server.config import NodeConfig
from sparkraft.server.properties import parse_properties
from tests.support.ports import wait_until
from tests.support.zookeeper import Ensemble, controller_of
from tests.support.zookeeper_brokers import OurBroker

STOCK = """\
broker.id=0
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kafka-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.retention.check.interval.ms=300000
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
"""
"""All of its lines but comments."""


class StockBroker(OurBroker):
    """A broker with this file; its port, directory and ensemble are the test's."""

    def write_properties(self) -> None:
        text = STOCK.replace("/tmp/kafka-logs", str(self.log_dir))
        text = text.replace("localhost:2181", self.ensemble)
        listeners = f"listeners=PLAINTEXT://127.0.0.1:{self.port}\n"
        self.properties_path.write_text(text + listeners)


def test_each_line_has_its_meaning() -> None:
    config = NodeConfig(parse_properties(STOCK))
    assert config.is_zookeeper
    assert config.unknown == []
    (listener,) = config.listeners
    assert (listener.name, listener.host, listener.port) == ("PLAINTEXT", "", 9092)
    assert config.node_id == 0
    assert config.flag("sparkraft.controllership.enable")


@pytest.mark.java
@pytest.mark.real_clients
def test_a_lone_broker_is_the_controller_and_serves_clients(
    ensemble: Ensemble, tmp_path: Path
) -> None:
    """Clients find a topic that is created for them, a group and a transaction."""
    connect = f"{ensemble.connect}/stock"
    with StockBroker(tmp_path, 0, connect) as broker:
        wait_until(lambda: controller_of(connect)[0] == 0, "it is the controller", 30)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        wait_until(lambda: list(admin.list_topics(timeout=10).brokers) == [0], "it is live", 20)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "p"})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce("t", b"v")
        producer.commit_transaction(60)
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        consumer.subscribe(["t"])
        message = consumer.poll(60)
        assert message is not None
        assert (message.error(), message.value()) == (None, b"v")
        consumer.commit(asynchronous=False)
        consumer.close()
        assert broker.stop() == 0
