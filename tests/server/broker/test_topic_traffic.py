"""Counters per topic: they end with the last partition, and the totals never decrease."""

from dataclasses import dataclass
from typing import Any

from sparkraft.base.errors import ErrorCode
from sparkraft.server.broker.topic_traffic import BrokerTraffic, TopicTraffic


@dataclass
class Partition:
    appends: int = 0
    messages_in: int = 0
    bytes_in: int = 0


def sums(traffic: BrokerTraffic, appends: Any) -> Any:
    steps = traffic.sums(appends)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def counters(traffic: TopicTraffic) -> dict[str, int]:
    return {name: getattr(traffic, name) for name in TopicTraffic.__slots__}


def counted() -> TopicTraffic:
    """Counters that all differ, and none of which is 0."""
    traffic = TopicTraffic()
    for number, name in enumerate(TopicTraffic.__slots__, 1):
        setattr(traffic, name, number)
    return traffic


def test_the_counters_of_a_topic_include_partitions_hosted_now_and_before() -> None:
    traffic = BrokerTraffic()
    one, other = Partition(1, 2, 3), Partition(10, 20, 30)
    assert traffic.join("orders") is traffic.join("orders")
    traffic.leave("orders", other)
    _, topics = sums(traffic, {"orders": one})
    found = topics["orders"]
    assert (found.appends, found.messages_in, found.bytes_in) == (11, 22, 33)


def test_the_total_keeps_the_counters_of_topics_that_have_left() -> None:
    traffic = BrokerTraffic()
    traffic.join("refunds")
    traffic.join("orders").add(counted())
    before = counters(sums(traffic, {})[0])
    assert before == counters(counted())
    traffic.leave("orders", Partition())
    total, topics = sums(traffic, {})
    assert list(topics) == ["refunds"]
    assert counters(total) == before


def test_refusals_are_counted_as_in_kafka() -> None:
    traffic = TopicTraffic()
    traffic.on_refused(7, ErrorCode.MESSAGE_TOO_LARGE, keyless=0)
    traffic.on_refused(7, ErrorCode.CORRUPT_MESSAGE, keyless=0)
    traffic.on_refused(7, ErrorCode.NOT_LEADER_OR_FOLLOWER, keyless=0)
    assert (traffic.refused, traffic.failed) == (3, 0)
    assert (traffic.bytes_rejected, traffic.bad_crc) == (7, 1)
    traffic.on_refused(7, ErrorCode.INVALID_RECORD, keyless=2)
    traffic.on_refused(7, ErrorCode.INVALID_RECORD, keyless=0)
    traffic.on_refused(7, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, keyless=0)
    assert (traffic.refused, traffic.failed) == (6, 3)
    assert (traffic.keyless, traffic.invalid) == (2, 1)
