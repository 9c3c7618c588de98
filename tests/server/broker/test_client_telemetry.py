"""The rules of client telemetry (KIP-714): who may push when, and what is kept."""

from types import SimpleNamespace
from typing import Any

import pytest
from immutables import Map

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.metadata.client_subscriptions import check_subscription, subscription_of
from sparkraft.metadata.image import ResourceType
from sparkraft.records.compression import Codec, compress
from sparkraft.server.broker.client_telemetry import (
    INSTANCES_MAX,
    POINTS_MAX,
    SERIES_MAX,
    ClientTelemetry,
    Payload,
    read_payload,
)
from sparkraft.server.broker.otlp_points import Point
from sparkraft.server.client_metrics import client_metrics
from sparkraft.server.env import SystemEntropy
from tests.server.broker.test_otlp_points import gauge, integer, payload
from tests.server.test_loop_turns import Clock

SENT = "org.apache.kafka.producer.record.send.total"
KINDS = {"metrics": "org.apache.kafka.producer.", "interval.ms": "1000"}


class World:
    """A broker's telemetry, with subscriptions that tests change."""

    def __init__(self, **subscriptions: dict[str, str]) -> None:
        self.clock = Clock()
        self.image = SimpleNamespace(configs=Map())
        self.subscribe(**subscriptions)
        self.telemetry = ClientTelemetry(
            self.clock,
            SystemEntropy(),
            is_enabled=True,
            bytes_max=10_000,
            image=lambda: self.image,
        )

    def subscribe(self, **subscriptions: dict[str, str]) -> None:
        self.image.configs = Map(
            {(ResourceType.CLIENT_METRICS, name): Map(each) for name, each in subscriptions.items()}
        )

    def get(self, instance_id: Uuid = Uuid.ZERO, **client: str):
        return self.telemetry.subscribe(instance_id, lambda found: client_of(found, **client))

    def push(self, instance: Any, **changes: Any):
        given = {
            "client_instance_id": instance.id,
            "subscription_id": instance.subscription_id,
            "terminating": False,
            "compression_type": Codec.NONE,
            "metrics": b"",
        }
        request = SimpleNamespace(**given | changes)
        return self.telemetry.begin_push(request, client_of)


def client_of(instance_id: Uuid, **given: str) -> dict[str, str]:
    return {
        "client_instance_id": str(instance_id),
        "client_id": "app",
        "client_software_name": "librdkafka",
        "client_software_version": "2.16.0",
        "client_source_address": "127.0.0.1",
        "client_source_port": "4711",
    } | given


def refused(code: ErrorCode):
    return pytest.raises(KafkaError, check=lambda error: error.code == code)


def test_matching_subscriptions_are_merged():
    world = World(
        one=KINDS,
        other={"metrics": "a.,b.", "interval.ms": "500", "match": "client_id=app"},
        foreign={"metrics": "c.", "interval.ms": "100", "match": "client_id=app,client_id=no.*"},
    )
    instance = world.get()
    assert instance.metrics == ["a.", "b.", "org.apache.kafka.producer."]
    assert instance.interval_ms == 500
    assert instance.id != Uuid.ZERO
    assert World().get().metrics == []
    assert World(all={"metrics": "x,*"}).get().metrics == ["*"]


def test_a_pattern_must_match_the_whole_value():
    match = {"match": "client_software_name=librd.*,client_software_version=2\\.16"}
    assert not subscription_of(match).matches(client_of(Uuid.ZERO))
    match = {"match": "client_software_name=librd.*,client_software_version=2\\.16.*"}
    assert subscription_of(match).matches(client_of(Uuid.ZERO))


@pytest.mark.parametrize(
    ("configs", "code"),
    [
        ({"interval.ms": "99"}, ErrorCode.INVALID_REQUEST),
        ({"interval.ms": "3600001"}, ErrorCode.INVALID_REQUEST),
        ({"match": "client_id"}, ErrorCode.INVALID_CONFIG),
        ({"match": "client_id=a=b"}, ErrorCode.INVALID_CONFIG),
        ({"match": "host=a"}, ErrorCode.INVALID_CONFIG),
        ({"match": "client_id=("}, ErrorCode.INVALID_CONFIG),
    ],
)
def test_subscriptions_that_brokers_could_not_use_are_refused(configs, code):
    with refused(code):
        check_subscription(configs)


def test_the_interval_is_kept():
    world = World(one=KINDS)
    instance = world.get()
    world.push(instance)  # the first one may come at once
    with refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED):
        world.push(instance)
    with refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED):
        world.get(instance.id)
    assert world.telemetry.throttled == 2
    world.clock.now += 1000
    world.push(instance)
    world.clock.now += 1000
    assert world.get(instance.id) is instance


def test_a_client_that_ends_pushes_once_more_and_then_never_again():
    world = World(one=KINDS)
    instance = world.get()
    world.push(instance)
    world.push(instance, terminating=True)
    with refused(ErrorCode.INVALID_REQUEST):
        world.push(instance)


def test_the_order_of_refusals():
    world = World(one=KINDS)
    instance = world.get()
    odd = {"subscription_id": 1, "compression_type": 9, "metrics": bytes(10_001)}
    with refused(ErrorCode.INVALID_REQUEST):
        world.push(instance, client_instance_id=Uuid.ZERO)
    with refused(ErrorCode.UNKNOWN_SUBSCRIPTION_ID):
        world.push(instance, **odd)
    assert world.get(instance.id) is instance, "its subscription may have changed"
    del odd["subscription_id"]
    world.clock.now += 1000
    with refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE):
        world.push(instance, **odd)
    world.clock.now += 1000
    with refused(ErrorCode.TELEMETRY_TOO_LARGE):
        world.push(instance, metrics=bytes(10_001))
    assert world.telemetry.unknown_subscriptions == 1


def test_changed_subscriptions_make_the_client_ask_again():
    world = World(one=KINDS)
    before = world.get()
    before.take([Point(SENT, (), 5, True, True)])
    world.subscribe(one=KINDS, unrelated={"metrics": "x", "match": "client_id=other"})
    assert world.get(before.id).subscription_id == before.subscription_id
    world.subscribe(one=KINDS | {"metrics": "*"})
    with refused(ErrorCode.UNKNOWN_SUBSCRIPTION_ID):
        world.push(before)
    after = world.get(before.id)
    assert after.subscription_id != before.subscription_id
    assert after.series == before.series


def test_another_broker_gives_the_same_subscription_id():
    first = World(one=KINDS).get()
    assert World(one=KINDS).get(first.id).subscription_id == first.subscription_id


def test_payloads_are_bounded_before_and_after_decompression():
    data = payload(gauge(SENT, integer(5)))
    for codec in (Codec.NONE, Codec.GZIP, Codec.ZSTD, Codec.LZ4, Codec.SNAPPY):
        packed = bytes(compress(codec, data, None)) if codec else data
        assert [point.value for point in read_payload(codec, packed, 1000).points] == [5]
    with refused(ErrorCode.TELEMETRY_TOO_LARGE):
        read_payload(Codec.ZSTD, bytes(compress(Codec.ZSTD, bytes(100_000), None)), 10_000)
    with refused(ErrorCode.INVALID_RECORD):
        read_payload(Codec.GZIP, b"not gzip", 10_000)
    with refused(ErrorCode.INVALID_RECORD):
        read_payload(Codec.NONE, data[:-1], 10_000)


def test_points_with_other_or_long_names_are_dropped():
    metrics = [gauge(name, integer(1)) for name in ("not.ours", SENT, SENT + "x" * 200)]
    found = read_payload(Codec.NONE, payload(*metrics), 1_000)
    assert [point.name for point in found.points] == [SENT]
    assert found.dropped == 2
    many = payload(gauge(SENT, *[integer(1)] * (POINTS_MAX + 1)))
    assert len(read_payload(Codec.NONE, many, 1 << 20).points) == POINTS_MAX


def test_instances_and_series_are_bounded():
    world = World(one=KINDS)
    for _ in range(INSTANCES_MAX + 5):
        instance = world.get()
    assert len(world.telemetry) == INSTANCES_MAX
    points = [Point(f"{SENT}.{n}", (), n, False, False) for n in range(SERIES_MAX + 3)]
    assert instance.take(points) == 3
    world.clock.now += 60_001
    assert list(world.telemetry.instances()) == []


def samples(telemetry: ClientTelemetry) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in client_metrics(telemetry)
        for sample in family.samples
    }


def test_values_of_clients_are_exported():
    world = World(one=KINDS)
    latency = "org.apache.kafka.producer.node.request.latency.avg"
    for value in (3, 4):
        instance = world.get()
        points = [
            Point(SENT, (), value, True, True),
            Point(latency, (("node.id", "1"),), value, False, False),
        ]
        world.telemetry.end_push(instance, Payload(points))
        world.telemetry.end_push(instance, Payload(points))
    found = samples(world.telemetry)
    assert found["org_apache_kafka_producer_record_send_total", "app"] == 14, "deltas add up"
    assert found["org_apache_kafka_producer_node_request_latency_avg", "app", "1"] == 4
    assert found["kafka_server_client_metrics_instance_count",] == 2
    assert found["sparkraft_client_telemetry_pushes_total",] == 4
