"""Kafka's producer and consumer configs, by name, as our clients' settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkraft.cli.client_login import LOGIN_KEYS
from sparkraft.cli.errors import CommandError
from sparkraft.cli.session import warn
from sparkraft.client.consumer import ConsumerSettings
from sparkraft.client.producer import Producer, ProducerSettings
from sparkraft.client.security import protocol_of
from sparkraft.client.subscription import CLASSIC, CONSUMER, GroupSettings
from sparkraft.client.transactional_producer import TransactionalProducer
from sparkraft.records.compression import Codec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkraft.client.cluster import Cluster

_ACKS = {"all": -1, "-1": -1, "0": 0, "1": 1}
_ISOLATION = ("read_uncommitted", "read_committed")
_RESETS = ("earliest", "latest", "none")
_ASSIGNORS = {
    "range": "range",
    "roundrobin": "roundrobin",
    "sticky": "sticky",
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.StickyAssignor": "sticky",
}
_OF_ANY_CLIENT = {
    "bootstrap.servers",
    "client.id",
    "request.timeout.ms",
    "default.api.timeout.ms",
    *LOGIN_KEYS,
    "key.serializer",
    "value.serializer",
    "key.deserializer",
    "value.deserializer",
}


class _Reader:
    """Takes settings out of properties and remembers which it took."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.properties = properties
        self.taken = set(_OF_ANY_CLIENT)

    def text(self, name: str, default: str) -> str:
        self.taken.add(name)
        return self.properties.get(name, default)

    def number(self, name: str, default: int) -> int:
        text = self.text(name, str(default))
        try:
            return int(text)
        except ValueError:
            raise CommandError(f"{name} is a number, not {text!r}") from None

    def flag(self, name: str, *, default: bool) -> bool:
        text = self.text(name, str(default)).strip().lower()
        if text not in {"true", "false"}:
            raise CommandError(f"{name} is true or false, not {text!r}")
        return text == "true"

    def one_of(self, name: str, default: str, known: tuple[str, ...]) -> str:
        text = self.text(name, default).strip().lower()
        if text not in known:
            raise CommandError(f"{name} is one of {', '.join(known)}, not {text!r}")
        return text

    def report_others(self) -> None:
        others = sorted(set(self.properties) - self.taken)
        if protocol_of(self.properties).uses_tls:
            others = [key for key in others if not key.startswith("ssl.")]
        if others:
            warn(f"these configs have no effect here: {', '.join(others)}")


def producer_settings(properties: Mapping[str, str]) -> ProducerSettings:
    """A producer's settings; `CommandError` for values that make no sense."""
    reader = _Reader(properties)
    acks = reader.one_of("acks", "all", tuple(_ACKS))
    codecs = tuple(codec.name.lower() for codec in Codec)
    codec = Codec[reader.one_of("compression.type", "none", codecs).upper()]
    transactional_id = reader.text("transactional.id", "") or None
    level = None
    if codec is not Codec.NONE and codec is not Codec.SNAPPY:
        name = f"compression.{codec.name.lower()}.level"
        level = reader.number(name, 0) if name in properties else None
    settings = ProducerSettings(
        acks=_ACKS[acks],
        idempotence=reader.flag("enable.idempotence", default=True),
        batch_bytes=reader.number("batch.size", 16_384),
        linger_ms=reader.number("linger.ms", 5),
        codec=codec,
        level=level,
        buffer_bytes=reader.number("buffer.memory", 32 << 20),
        request_timeout_ms=reader.number("request.timeout.ms", 30_000),
        delivery_timeout_ms=reader.number("delivery.timeout.ms", 120_000),
        max_block_ms=reader.number("max.block.ms", 60_000),
        retry_backoff_ms=reader.number("retry.backoff.ms", 100),
        transactional_id=transactional_id,
        transaction_timeout_ms=reader.number("transaction.timeout.ms", 60_000),
    )
    if transactional_id is not None and not settings.is_idempotent:
        raise CommandError("transactional.id needs acks=all and enable.idempotence=true")
    reader.report_others()
    return settings


def producer_of(cluster: Cluster, settings: ProducerSettings) -> Producer:
    """The producer that the settings ask for: a transactional one if they name an id."""
    if settings.transactional_id is None:
        return Producer(cluster, settings)
    return TransactionalProducer(cluster, settings)


def consumer_settings(properties: Mapping[str, str]) -> ConsumerSettings:
    """A consumer's settings; in a group if `group.id` is set."""
    reader = _Reader(properties)
    group_id = reader.text("group.id", "")
    auto_commit = reader.flag("enable.auto.commit", default=True)
    interval = reader.number("auto.commit.interval.ms", 5_000)
    settings = ConsumerSettings(
        group=_group_settings(reader, group_id) if group_id else None,
        auto_offset_reset=reader.one_of("auto.offset.reset", "latest", _RESETS),
        read_committed=reader.one_of("isolation.level", _ISOLATION[0], _ISOLATION) == _ISOLATION[1],
        max_poll_records=reader.number("max.poll.records", 500),
        fetch_bytes_min=reader.number("fetch.min.bytes", 1),
        fetch_bytes_max=reader.number("fetch.max.bytes", 50 << 20),
        partition_bytes_max=reader.number("max.partition.fetch.bytes", 1 << 20),
        fetch_wait_ms_max=reader.number("fetch.max.wait.ms", 500),
        auto_commit_interval_ms=interval if auto_commit and group_id else 0,
        check_crcs=reader.flag("check.crcs", default=True),
        client_rack=reader.text("client.rack", ""),
    )
    if not group_id:
        reader.taken.add("group.protocol")
    reader.report_others()
    return settings


_OF_CLASSIC_GROUPS = (
    "partition.assignment.strategy",
    "session.timeout.ms",
    "heartbeat.interval.ms",
)
"""Configs that Kafka's consumer refuses with group.protocol=consumer: the group has them."""


def _group_settings(reader: _Reader, group_id: str) -> GroupSettings:
    if reader.one_of("group.protocol", CLASSIC, (CLASSIC, CONSUMER)) == CONSUMER:
        return _new_group_settings(reader, group_id)
    defaults = GroupSettings(group_id=group_id)
    names = reader.text("partition.assignment.strategy", ",".join(defaults.assignors)).split(",")
    assignors = []
    for name in names:
        known = _ASSIGNORS.get(name.strip())
        if known is None:
            raise CommandError(f"no assignor {name.strip()!r}; there are range, roundrobin, sticky")
        assignors.append(known)
    if "group.remote.assignor" in reader.properties:
        raise CommandError("group.remote.assignor needs group.protocol=consumer")
    return GroupSettings(
        group_id=group_id,
        instance_id=reader.text("group.instance.id", "") or None,
        session_timeout_ms=reader.number("session.timeout.ms", defaults.session_timeout_ms),
        rebalance_timeout_ms=reader.number("max.poll.interval.ms", defaults.rebalance_timeout_ms),
        heartbeat_interval_ms=reader.number(
            "heartbeat.interval.ms", defaults.heartbeat_interval_ms
        ),
        assignors=tuple(assignors),
    )


def _new_group_settings(reader: _Reader, group_id: str) -> GroupSettings:
    """Settings of the protocol of KIP-848."""
    for name in _OF_CLASSIC_GROUPS:
        if name in reader.properties:
            raise CommandError(f"{name} cannot be set with group.protocol=consumer")
    defaults = GroupSettings(group_id=group_id)
    return GroupSettings(
        group_id=group_id,
        protocol=CONSUMER,
        instance_id=reader.text("group.instance.id", "") or None,
        rebalance_timeout_ms=reader.number("max.poll.interval.ms", defaults.rebalance_timeout_ms),
        remote_assignor=reader.text("group.remote.assignor", "") or None,
        rack=reader.text("client.rack", ""),
    )
