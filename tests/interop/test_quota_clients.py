"""Byte quotas with confluent-kafka: its throttle callback is called, and no record is lost."""

import time
from pathlib import Path
from typing import Any

import pytest

from sparkraft.cli import main as cli
from tests.support.nodes import SparkraftNode

pytestmark = pytest.mark.real_clients

RATE, RECORDS, RECORD_BYTES = 100_000, 115, 10_000
WAIT_SECONDS = 60


def test_a_throttled_producer_and_consumer_get_everything_through(tmp_path: Path) -> None:
    from confluent_kafka import Consumer, Producer

    with SparkraftNode(tmp_path) as node:
        at = ["--bootstrap-server", node.bootstrap]
        assert cli.main(["topics", *at, "--create", "--topic", "t"]) == 0
        limits = f"producer_byte_rate={RATE},consumer_byte_rate={RATE}"
        assert cli.main(["configs", *at, "--alter", "--client", "c", "--add-config", limits]) == 0
        throttles: list[float] = []
        common: dict[str, Any] = {
            "bootstrap.servers": node.bootstrap,
            "client.id": "c",
            "throttle_cb": lambda event: throttles.append(event.throttle_time),
        }
        producer = Producer(common | {"batch.size": RECORD_BYTES})
        begun = time.monotonic()
        for number in range(RECORDS):
            producer.produce("t", number.to_bytes(2, "big") + bytes(RECORD_BYTES))
            producer.poll(0)
        assert producer.flush(WAIT_SECONDS) == 0
        took = time.monotonic() - begun
        producer.poll(0)
        assert throttles, "the throttle callback was not called"
        idle_burst_s = 10
        assert took >= RECORDS * RECORD_BYTES / RATE - idle_burst_s - 1
        throttles.clear()
        more = {"group.id": "g", "auto.offset.reset": "earliest", "check.crcs": True}
        consumer = Consumer(common | more)
        consumer.subscribe(["t"])
        found: list[int] = []
        deadline = time.monotonic() + WAIT_SECONDS
        while len(found) < RECORDS and time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                found.append(int.from_bytes(message.value()[:2], "big"))
        consumer.close()
        assert found == list(range(RECORDS))
        assert throttles
        assert node.stop() == 0
