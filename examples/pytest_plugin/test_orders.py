"""Tests that use a real node. The fixtures come with sparkraft; nothing has to be imported."""

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer

if TYPE_CHECKING:
    from sparkraft.testing.pytest_plugin import SparkraftCluster


def write_order(bootstrap: str, order: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce("orders", value=order)
    assert producer.flush(30) == 0


def read_order(bootstrap: str) -> str:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "test", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    message = consumer.poll(30)
    consumer.close()
    assert message is not None
    return message.value().decode()


@pytest.fixture(scope="session")
def sparkraft_cluster_overrides() -> dict[str, str]:
    """Configs of the node that all tests of a session share."""
    return {"num.partitions": "3"}


def test_an_order_is_written(sparkraft_cluster: "SparkraftCluster") -> None:
    write_order(sparkraft_cluster.bootstrap, "3 apples")
    assert read_order(sparkraft_cluster.bootstrap) == "3 apples"


def test_an_order_survives_a_crash(fresh_sparkraft_cluster: "SparkraftCluster") -> None:
    write_order(fresh_sparkraft_cluster.bootstrap, "2 pears")
    fresh_sparkraft_cluster.kill()
    fresh_sparkraft_cluster.restart()
    assert read_order(fresh_sparkraft_cluster.bootstrap) == "2 pears"
