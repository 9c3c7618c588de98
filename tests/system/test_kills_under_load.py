"""kill -9 again and again under an idempotent producer: each record is there once and in order.

The moments are drawn from a seed and counted in acknowledgements, so that always some batches are
under way: written and not answered, or half written.
"""

import random
from pathlib import Path
from typing import Any

import pytest

from tests.support.nodes import SparkraftNode
from tests.support.ports import wait_until

pytestmark = pytest.mark.real_clients

KILLS = 5
PARTITIONS = 3
SECONDS_MAX = 120
UNDER_WAY_MAX = 1000


class Load:
    """Numbers 0, 1, 2 … into each partition, values of many sizes; knows what was acknowledged."""

    def __init__(self, bootstrap: str, topic: str, dice: random.Random) -> None:
        from confluent_kafka import Producer

        self._topic = topic
        self._dice = dice
        self.sent = [0] * PARTITIONS
        self.acknowledged = 0
        self.refused: list[Any] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 1,
                "batch.num.messages": 20,
                "message.timeout.ms": SECONDS_MAX * 1000,
                "reconnect.backoff.max.ms": 200,
                "error_cb": lambda error: self.refused.append(error) if error.fatal() else None,
                "log_level": 0,
            }
        )

    def _on_delivery(self, error: Any, _: Any) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.refused.append(error)

    def send_some(self) -> None:
        """A few records more, unless enough are under way."""
        if len(self._producer) > UNDER_WAY_MAX:
            self._producer.poll(0.01)
            return
        for _ in range(self._dice.randrange(1, 50)):
            partition = self._dice.randrange(PARTITIONS)
            value = b"%d:" % self.sent[partition] + bytes(self._dice.randrange(2000))
            self._producer.produce(
                self._topic, value, partition=partition, on_delivery=self._on_delivery
            )
            self.sent[partition] += 1
        self._producer.poll(0)

    def finish(self) -> None:
        """Wait until everything is answered."""
        assert self._producer.flush(SECONDS_MAX) == 0


def numbers_in(bootstrap: str, topic: str, partition: int) -> list[int]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "c", "check.crcs": True})
    place = TopicPartition(topic, partition, 0)
    end = consumer.get_watermark_offsets(place, timeout=30)[1]
    consumer.assign([place])
    seen: list[int] = []

    def more() -> bool:
        for message in consumer.consume(1000, timeout=0.2):
            assert message.error() is None, message.error()
            seen.append(int(message.value().partition(b":")[0]))
        return len(seen) >= end

    wait_until(more, f"all {end} records of {topic}-{partition} are read")
    consumer.close()
    return seen


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_acknowledged_is_lost_doubled_or_out_of_order(seed: int, tmp_path: Path) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    dice = random.Random(seed)
    with SparkraftNode(tmp_path, overrides={"log.segment.bytes": "1048576"}) as node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result(30)
        load = Load(node.bootstrap, "t", dice)
        for _ in range(KILLS):
            moment = load.acknowledged + dice.randrange(200, 2000)

            def reached(moment: int = moment) -> bool:
                load.send_some()
                some_under_way = sum(load.sent) > load.acknowledged
                return (load.acknowledged >= moment and some_under_way) or bool(load.refused)

            what = f"{moment} records are acknowledged, and some more are under way"
            wait_until(reached, what, SECONDS_MAX, pause=0)
            assert not load.refused, load.refused
            node.kill()
            node.start()
        load.finish()
        assert not load.refused, load.refused
        assert load.acknowledged == sum(load.sent)
        for partition, count in enumerate(load.sent):
            assert numbers_in(node.bootstrap, "t", partition) == list(range(count))
        assert node.stop() == 0
