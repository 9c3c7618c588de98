"""Every record of the internal topics of an Apache Kafka node is decoded, share groups included."""

import http.client
import json
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from confluent_kafka import Consumer, Producer

from sparkraft.client.decoders.internal_topics import DECODERS
from tests.support.console import ConsoleProcess
from tests.support.kafka_tools import kafka_tool_command
from tests.support.nodes import KafkaNode
from tests.support.ports import wait_until

pytestmark = [pytest.mark.real_clients, pytest.mark.java, pytest.mark.long]

ONE_REPLICA = {
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
SECONDS = 90.0


def send_in_a_transaction(node: KafkaNode) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap, "transactional.id": "moves"})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    producer.produce("t", b"x")
    producer.commit_transaction(SECONDS)


def read_in_a_group(node: KafkaNode, protocol: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": f"{protocol}-group",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["t"])
    wait_until(lambda: consumer.poll(0.5) is not None, f"{protocol} group reads", SECONDS)
    consumer.commit(asynchronous=False)
    consumer.close()


def read_in_a_share_group(node: KafkaNode, jars: Path) -> None:
    """It begins at the end of the log, so it is sent records until it has one."""
    command = kafka_tool_command(jars, "org.apache.kafka.tools.consumer.ConsoleShareConsumer")
    words = ["--bootstrap-server", node.bootstrap, "--topic", "t", "--group", "share-group"]
    reading = subprocess.Popen([*command, *words, "--max-messages", "1"], stdout=subprocess.DEVNULL)
    try:

        def has_ended() -> bool:
            send_in_a_transaction(node)
            return reading.poll() is not None

        wait_until(has_ended, "the share group reads", SECONDS)
    finally:
        reading.kill()
        reading.wait(60)


def records(console: ConsoleProcess, topic: str) -> list[dict[str, Any]]:
    host = console.address.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=60)
    query = urlencode({"topic": topic, "mode": "earliest", "count": 1000})
    connection.request("GET", f"/api/messages?{query}", headers={"Host": host})
    lines = [json.loads(line) for line in connection.getresponse().read().splitlines()]
    return [line["record"] for line in lines if "record" in line]


def test_each_record_is_decoded(kafka_jars: Path, tmp_path: Path) -> None:
    with KafkaNode(tmp_path / "node", overrides=ONE_REPLICA, jars=kafka_jars) as node:
        send_in_a_transaction(node)
        for protocol in ("classic", "consumer"):
            read_in_a_group(node, protocol)
        read_in_a_share_group(node, kafka_jars)
        with ConsoleProcess(node.bootstrap, tmp_path) as console:
            types: dict[str, set[str]] = {}
            for topic in sorted(choice.about for choice in DECODERS.values()):
                if not topic.startswith("__"):
                    continue  # `__cluster_metadata` is read from the node's files
                found = records(console, topic)
                for one in found:
                    decoded = one["decoded"]
                    assert isinstance(decoded["key"], dict), (topic, decoded)
                    assert decoded["value"] == "<DELETE>" or "data" in decoded["value"], decoded
                types[topic] = {one["decoded"]["key"]["type"] for one in found}
    # Offsets and the metadata of groups, members and assignments of all three kinds.
    expected = {"1", "2", "3", "5", "6", "7", "8", "10", "11", "12", "13", "14", "15"}
    assert types["__consumer_offsets"] >= expected
    assert types["__transaction_state"] == {"0"}
    assert "0" in types["__share_group_state"]
