"""Options of source and sink, with the names of the official Kafka connector.

Spark hands option names over in lower case, so they are matched without regard to case. An
official option that is not supported is refused by name; an unknown one is refused with the
nearest name, because a misspelt `startingOffsets` would otherwise read from the end in silence.

Ours, beyond the official ones: `maxBytesPerTrigger`, `alignTimestamps`, `maxPartitions`,
`publishGroupId`, `columns`, `transactionalIdPrefix`, and in the offset options a word or number for
a whole topic (`{"flights": "earliest"}`).

With `metadata`, a reader reads tables of the metadata log instead of topics.

Not here: places in topics (`sparkraft.pipeline.places`); looking anything up in a cluster
(`sparkraft.pipeline.offsets`, `.source`).
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import Enum
from typing import Any, Final

from sparkraft.client.security import (
    SASL_KEYS,
    SecurityConfigError,
    login_of_properties,
    tls_settings_of,
)
from sparkraft.pipeline.places import (
    EARLIEST,
    LATEST,
    Bound,
    ByOffset,
    OptionError,
    Subscription,
    read_bound,
    read_subscription,
)
from sparkraft.security.login import Credentials
from sparkraft.security.tls_settings import CLIENT_KEYS, TlsSettings


class Isolation(Enum):
    """`kafka.isolation.level`: whether records of open and aborted transactions are seen."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """How to talk to the cluster; the same for source and sink."""

    bootstrap_servers: tuple[tuple[str, int], ...]
    client_id: str
    request_timeout_ms: int
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    fetch_wait_ms_max: int = 500
    fetch_bytes_max: int = 16 << 20
    partition_fetch_bytes_max: int = 4 << 20
    retries_max: int = 10
    retry_pause_ms: int = 100
    compression: str = "none"
    batch_bytes_max: int = 256 << 10
    request_bytes_max: int = 1 << 20
    auto_create_topics: bool = False
    tls: TlsSettings | None = None
    """None: connections are not encrypted."""
    login: Credentials | None = None
    """None: connections do not authenticate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """Everything a reader needs to know, checked."""

    client: ClientOptions
    subscription: Subscription
    starting: Bound | None
    ending: Bound | None
    columns: tuple[str, ...]
    fail_on_data_loss: bool
    offsets_per_trigger_max: int | None
    offsets_per_trigger_min: int | None
    bytes_per_trigger_max: int | None
    trigger_delay_ms_max: int
    partitions_min: int | None
    partitions_max: int | None
    records_per_partition_max: int | None
    no_data_timeout_ms: int
    align_timestamps: bool
    publish_group_id: str | None
    push_down_filters: bool


class MetadataTable(Enum):
    """`metadata`: the table to read instead of topics."""

    ELECTIONS = "elections"
    ISR = "isr"
    PARTITIONS = "partitions"
    RECORDS = "records"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataOptions:
    """The checked options of a metadata table's reader.

    Attributes:
        subscription: the topics; None for all, internal ones included.
        starting: an offset of the metadata log, or `EARLIEST` or `LATEST`.
        ending: exclusive; None for the present end.
    """

    client: ClientOptions
    table: MetadataTable
    subscription: Subscription | None
    starting: int
    ending: int | None
    fail_on_data_loss: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """Everything a writer needs to know, checked."""

    client: ClientOptions
    topic: str | None
    transactional_id_prefix: str | None
    transaction_timeout_ms: int
    publish_group_id: str | None
    checkpoint: str | None


_SOURCE_NAMES: Final = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "failOnDataLoss",
    "includeHeaders",
    "minPartitions",
    "maxPartitions",
    "maxRecordsPerPartition",
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "alignTimestamps",
    "publishGroupId",
    "columns",
    "pushDownFilters",
)
_SINK_NAMES: Final = (
    "topic",
    "includeHeaders",
    "transactionalIdPrefix",
    "kafka.transaction.timeout.ms",
    "publishGroupId",
)

_METADATA_NAMES: Final = (
    "metadata",
    "subscribe",
    "subscribePattern",
    "startingOffsets",
    "endingOffsets",
    "failOnDataLoss",
    "groupIdPrefix",
)

NOT_SUPPORTED: Final[Mapping[str, str]] = {
    "partition.metadata.cache.ttl.ms": "partitions are looked up once a batch, with the offsets",
    "kafka.sasl.": "it is for a mechanism or a source of tokens that is missing here",
    "kafka.ssl.": "it names a Java class, a provider or an algorithm",
    "kafka.transactional.id": "each task needs its own; set transactionalIdPrefix",
    "kafka.transaction.two.phase.commit.enable": "transactions have a timeout so far",
    "kafka.partitioner.class": "Kafka's default partitioner, or a column partition, decides",
    "kafka.security.providers": "Java security providers cannot be loaded",
    "kafka.config.providers": "values are taken as they are",
    "kafka.client.rack": "records are always fetched from leaders so far",
}
"""Options the official connector takes and this one refuses, and why.

A name that ends in a dot stands for all that begin with it. docs/beyond-apis.md lists them too.
"""

_SET_BY_SPARK: Final = frozenset(
    {
        "kafka.auto.offset.reset",
        "kafka.key.deserializer",
        "kafka.value.deserializer",
        "kafka.key.serializer",
        "kafka.value.serializer",
        "kafka.enable.auto.commit",
        "kafka.interceptor.classes",
    }
)
"""Refused by the official connector too: the offsets are Spark's, keys and values are bytes."""

_HONOURED: Final = frozenset(
    {
        "kafka.bootstrap.servers",
        "kafka.client.id",
        "kafka.security.protocol",
        "kafka.isolation.level",
        "kafka.request.timeout.ms",
        "kafka.fetch.max.wait.ms",
        "kafka.fetch.max.bytes",
        "kafka.max.partition.fetch.bytes",
        "kafka.retries",
        "kafka.retry.backoff.ms",
        "kafka.acks",
        "kafka.enable.idempotence",
        "kafka.compression.type",
        "kafka.batch.size",
        "kafka.max.request.size",
        *(f"kafka.{key}" for key in (*CLIENT_KEYS, *SASL_KEYS)),
    }
)

_WITHOUT_EFFECT: Final = frozenset(
    "kafka." + name.strip()
    for name in """
        group.id, check.crcs, fetch.min.bytes, max.poll.records, max.poll.interval.ms,
        session.timeout.ms, heartbeat.interval.ms, linger.ms, delivery.timeout.ms, buffer.memory,
        max.block.ms, max.in.flight.requests.per.connection, send.buffer.bytes,
        receive.buffer.bytes, metadata.max.age.ms, connections.max.idle.ms, reconnect.backoff.ms,
        reconnect.backoff.max.ms, retry.backoff.max.ms, default.api.timeout.ms, client.dns.lookup,
        socket.connection.setup.timeout.ms, socket.connection.setup.timeout.max.ms,
        metric.reporters, metrics.num.samples, metrics.sample.window.ms, metrics.recording.level,
        enable.metrics.push, allow.auto.create.topics, partitioner.ignore.keys,
        partitioner.adaptive.partitioning.enable, partitioner.availability.timeout.ms,
        compression.gzip.level, compression.lz4.level, compression.zstd.level,
        exclude.internal.topics, auto.commit.interval.ms, group.protocol, group.remote.assignor,
        group.instance.id, partition.assignment.strategy, share.acknowledgement.mode,
        share.acquire.mode, metadata.max.idle.ms, metadata.recovery.strategy,
        metadata.recovery.rebootstrap.trigger.ms""".split(",")  # noqa: SIM905 (thirty quoted lines say no more)
)
"""Settings of Kafka's clients that have nothing to tune here; taken so that a job can switch."""

_FOR_SPARK: Final = frozenset({"checkpointlocation", "queryname"})
"""Spark's own options, which it hands to sources and sinks as well."""


def source_options(options: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Check and read the options of a reader; `OptionError` for the first that is wrong."""
    given = _Given(options, _SOURCE_NAMES, "source")
    read = SourceOptions(
        client=_client_options(given, "sparkraft-source", prefix=given.text("groupIdPrefix")),
        subscription=read_subscription(given),
        starting=read_bound(given, "starting"),
        ending=read_bound(given, "ending"),
        columns=_columns(given),
        fail_on_data_loss=given.flag("failOnDataLoss", default=True),
        offsets_per_trigger_max=given.positive("maxOffsetsPerTrigger"),
        offsets_per_trigger_min=given.positive("minOffsetsPerTrigger"),
        bytes_per_trigger_max=given.size("maxBytesPerTrigger"),
        trigger_delay_ms_max=given.duration_ms("maxTriggerDelay", default=15 * 60_000),
        partitions_min=given.positive("minPartitions"),
        partitions_max=given.positive("maxPartitions"),
        records_per_partition_max=given.positive("maxRecordsPerPartition"),
        no_data_timeout_ms=given.positive("kafkaConsumer.pollTimeoutMs") or 120_000,
        align_timestamps=given.flag("alignTimestamps", default=False),
        publish_group_id=given.text("publishGroupId"),
        push_down_filters=given.flag("pushDownFilters", default=False),
    )
    _check_together(given, read, streaming=streaming)
    return read


def metadata_table(options: Mapping[str, str]) -> MetadataTable | None:
    """The table that `metadata` names; None if topics are read."""
    name = {key.lower(): value for key, value in options.items()}.get("metadata")
    if name is None:
        return None
    try:
        return MetadataTable(name.strip().lower())
    except ValueError:
        known = ", ".join(table.value for table in MetadataTable)
        raise OptionError(f"metadata must be one of {known}, not {name!r}") from None


def metadata_options(options: Mapping[str, str], *, streaming: bool) -> MetadataOptions:
    """Check and read the options of a metadata table's reader."""
    given = _Given(options, _METADATA_NAMES, "source of metadata tables")
    table = metadata_table(options)
    assert table is not None
    if streaming and given.text("endingOffsets"):
        raise OptionError("endingOffsets means nothing in a streaming query, which has no end")
    default = LATEST if streaming else EARLIEST
    ending = _log_offset(given, "endingOffsets", {"latest": LATEST}, LATEST)
    named = given.text("subscribe") or given.text("subscribePattern")
    if named and table is MetadataTable.RECORDS:
        raise OptionError("metadata = records has no topics to subscribe to: filter its rows")
    return MetadataOptions(
        client=_client_options(given, "sparkraft-source", prefix=given.text("groupIdPrefix")),
        table=table,
        subscription=read_subscription(given) if named else None,
        starting=_log_offset(
            given, "startingOffsets", {"earliest": EARLIEST, "latest": LATEST}, default
        ),
        ending=None if ending == LATEST else ending,
        fail_on_data_loss=given.flag("failOnDataLoss", default=True),
    )


def _log_offset(given: "_Given", name: str, words: Mapping[str, int], default: int) -> int:
    """An offset of the metadata log: one of `words` or a number."""
    text = given.text(name)
    if text is None:
        return default
    if text.lower() in words:
        return words[text.lower()]
    if not (text.isascii() and text.isdigit()):
        raise OptionError(
            f"{name} must be {' or '.join(words)} or an offset of the metadata log, not {text!r}"
        )
    return int(text)


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Check and read the options of a writer; `OptionError` for the first that is wrong."""
    given = _Given(options, _SINK_NAMES, "sink")
    # Validated but ignored, as in the official connector: a column headers is written wherever
    # there is one.
    given.flag("includeHeaders", default=False)
    acks = given.text("kafka.acks") or "all"
    if acks not in {"all", "-1"}:
        raise OptionError(f"kafka.acks is {acks}: the sink is idempotent and needs acks=all")
    if not given.flag("kafka.enable.idempotence", default=True):
        raise OptionError("kafka.enable.idempotence=false: the sink is always idempotent")
    return SinkOptions(
        client=replace(
            _client_options(given, "sparkraft-sink", prefix=None), auto_create_topics=True
        ),
        topic=given.text("topic"),
        transactional_id_prefix=given.text("transactionalIdPrefix"),
        transaction_timeout_ms=given.positive("kafka.transaction.timeout.ms") or 900_000,
        publish_group_id=given.text("publishGroupId"),
        checkpoint=given.text("checkpointLocation"),
    )


COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
"""The official connector's columns; with `includeHeaders`, also `headers`."""


def source_columns(options: Mapping[str, str]) -> tuple[str, ...]:
    """The columns that a reader returns."""
    return _columns(_Given(options, _SOURCE_NAMES, "source"))


def _columns(given: "_Given") -> tuple[str, ...]:
    """Return the columns of the option `columns`, in the official order, else all."""
    with_headers = given.flag("includeHeaders", default=False)
    known = (*COLUMNS, "headers") if with_headers else COLUMNS
    text = given.text("columns")
    if text is None:
        return known
    lower = {name.lower(): name for name in (*COLUMNS, "headers")}
    wanted = set()
    for each in filter(None, (part.strip() for part in text.split(","))):
        if each.lower() not in lower:
            raise OptionError(
                f"columns: unknown column {each}; expected one of {', '.join(lower.values())}"
            )
        wanted.add(lower[each.lower()])
    if not wanted:
        raise OptionError(f"columns names no column: {text!r}")
    return tuple(name for name in lower.values() if name in wanted)


class _Given:
    """The options as Spark gave them, read one by one and converted with good errors."""

    def __init__(self, options: Mapping[str, str], names: Iterable[str], place: str) -> None:
        """Refuse unknown and unsupported names at once."""
        known = {name.lower(): name for name in (*names, *_HONOURED, *_WITHOUT_EFFECT)}
        for name in options:
            _check_name(name.lower(), known, place)
        self._values = {name.lower(): str(value).strip() for name, value in options.items()}

    def text(self, name: str) -> str | None:
        """The value, None if it is absent or empty."""
        return self._values.get(name.lower()) or None

    def flag(self, name: str, *, default: bool) -> bool:
        """`true` or `false`."""
        text = (self.text(name) or str(default)).lower()
        if text not in {"true", "false"}:
            raise OptionError(f"{name} must be true or false, not {text!r}")
        return text == "true"

    def positive(self, name: str) -> int | None:
        """A whole number above 0."""
        text = self.text(name)
        if text is None:
            return None
        if not (text.isascii() and text.isdigit() and int(text) > 0):
            raise OptionError(f"{name} must be a whole number above 0, not {text!r}")
        return int(text)

    def millis(self, name: str) -> int | None:
        """Milliseconds since 1970."""
        text = self.text(name)
        if text is None:
            return None
        if not (text.isascii() and text.isdigit()):
            raise OptionError(f"{name} must be milliseconds since 1970, not {text!r}")
        return int(text)

    def size(self, name: str) -> int | None:
        """Bytes, as a number or with one of Spark's suffixes: `64m`, `1g`, `512kb`."""
        text = self.text(name)
        if text is None:
            return None
        return _with_unit(name, text, _BYTE_UNITS, "bytes, such as 67108864 or 64m")

    def duration_ms(self, name: str, *, default: int) -> int:
        """Milliseconds, from a number or Spark's suffixes: `15m`, `10s`, `500ms`."""
        text = self.text(name)
        if text is None:
            return default
        return _with_unit(name, text, _TIME_UNITS, "a time, such as 500ms, 10s or 15m")

    def security(self) -> tuple[TlsSettings | None, Credentials | None]:
        """`kafka.security.protocol`, `kafka.ssl.*` and `kafka.sasl.*`; None for what is off."""
        configs = {name.removeprefix("kafka."): text for name, text in self._values.items()}
        try:
            return tls_settings_of(configs), login_of_properties(configs)
        except SecurityConfigError as error:
            raise OptionError(f"with the prefix kafka.: {error}") from error

    def json(self, name: str) -> Any:
        """A JSON value."""
        text = self.text(name)
        try:
            return json.loads(text or "null")
        except ValueError as error:
            raise OptionError(f"{name} is not valid JSON: {error}: {text}") from error


_BYTE_UNITS: Final = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_TIME_UNITS: Final = {
    "": 1,
    "ms": 1,
    "s": 1000,
    "sec": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}


def _with_unit(name: str, text: str, units: Mapping[str, int], wanted: str) -> int:
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
    unit = text[len(digits) :].strip().lower()
    if unit not in units and unit.endswith("b"):
        unit = unit[:-1]
    if not (digits.isascii() and digits.isdigit() and unit in units and int(digits) > 0):
        raise OptionError(f"{name} must be {wanted}, not {text!r}")
    return int(digits) * units[unit]


def _check_name(name: str, known: Mapping[str, str], place: str) -> None:
    if name in known or name in _FOR_SPARK:
        return
    for refused, why in NOT_SUPPORTED.items():
        if name == refused or (refused.endswith(".") and name.startswith(refused)):
            raise OptionError(f"option {name} is not supported by sparkraft: {why}")
    if name in _SET_BY_SPARK:
        raise OptionError(
            f"option {name} can't be set: Spark keeps the offsets and hands out bytes"
        )
    others = {each.lower(): each for each in (*_SOURCE_NAMES, *_SINK_NAMES, *_METADATA_NAMES)}
    if name in others:
        raise OptionError(f"option {others[name]} means nothing to a {place}")
    near = get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"; did you mean {known[near[0]]}?" if near else ""
    raise OptionError(f"unknown option {name} for the sparkraft {place}{hint}")


def _client_options(given: _Given, client_id: str, *, prefix: str | None) -> ClientOptions:
    servers = given.text("kafka.bootstrap.servers")
    if servers is None:
        raise OptionError("option kafka.bootstrap.servers is missing: host:port,host:port")
    compression = (given.text("kafka.compression.type") or "none").lower()
    if compression not in {"none", "gzip", "snappy", "lz4", "zstd"}:
        raise OptionError(
            f"kafka.compression.type: none, gzip, snappy, lz4 or zstd, not {compression}"
        )
    defaults = ClientOptions(bootstrap_servers=(), client_id="", request_timeout_ms=30_000)
    tls, login = given.security()
    read = given.positive
    return ClientOptions(
        bootstrap_servers=parse_servers(servers),
        client_id=given.text("kafka.client.id") or prefix or client_id,
        request_timeout_ms=read("kafka.request.timeout.ms") or defaults.request_timeout_ms,
        isolation=_isolation(given.text("kafka.isolation.level")),
        fetch_wait_ms_max=read("kafka.fetch.max.wait.ms") or defaults.fetch_wait_ms_max,
        fetch_bytes_max=read("kafka.fetch.max.bytes") or defaults.fetch_bytes_max,
        partition_fetch_bytes_max=read("kafka.max.partition.fetch.bytes")
        or defaults.partition_fetch_bytes_max,
        retries_max=min(
            read("kafka.retries") or read("fetchOffset.numRetries") or defaults.retries_max,
            _RETRIES_MAX,
        ),
        retry_pause_ms=read("kafka.retry.backoff.ms")
        or read("fetchOffset.retryIntervalMs")
        or defaults.retry_pause_ms,
        compression=compression,
        batch_bytes_max=read("kafka.batch.size") or defaults.batch_bytes_max,
        request_bytes_max=read("kafka.max.request.size") or defaults.request_bytes_max,
        tls=tls,
        login=login,
    )


_RETRIES_MAX = 1000
"""Kafka's own default is 2^31-1 with a deadline beside it; a task should fail and be retried."""


def _isolation(text: str | None) -> Isolation:
    try:
        return Isolation[(text or "read_uncommitted").upper()]
    except KeyError:
        raise OptionError(
            f"kafka.isolation.level must be read_committed or read_uncommitted, not {text!r}"
        ) from None


_PORT_MAX = 0xFFFF


def parse_servers(text: str) -> tuple[tuple[str, int], ...]:
    """Parse `host:port,[::1]:port` as pairs; `OptionError` if it is invalid."""
    servers = []
    for each in filter(None, (part.strip() for part in text.split(","))):
        host, _, port = each.rpartition(":")
        if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) <= _PORT_MAX:
            raise OptionError(f"kafka.bootstrap.servers: {each!r} is not host:port")
        servers.append((host.removeprefix("[").removesuffix("]"), int(port)))
    if not servers:
        raise OptionError("kafka.bootstrap.servers is empty: host:port,host:port")
    return tuple(servers)


def _check_together(given: _Given, read: SourceOptions, *, streaming: bool) -> None:
    low, high = read.offsets_per_trigger_min, read.offsets_per_trigger_max
    if low and high and low > high:
        raise OptionError(f"minOffsetsPerTrigger {low} is above maxOffsetsPerTrigger {high}")
    if (read.partitions_min or 0) > (read.partitions_max or read.partitions_min or 0):
        raise OptionError("minPartitions is above maxPartitions")
    if streaming:
        for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
            if given.text(name):
                raise OptionError(f"{name} means nothing in a streaming query, which has no end")
        if read.push_down_filters:
            raise OptionError("pushDownFilters is for batch reads: Spark filters a streaming query")
        return
    if _mentions(read.starting, LATEST):
        raise OptionError("startingOffsets can't be latest in a batch query: it would read nothing")
    if _mentions(read.ending, EARLIEST):
        raise OptionError("endingOffsets can't be earliest in a batch query: it would read nothing")


def _mentions(bound: Bound | None, place: int) -> bool:
    if not isinstance(bound, ByOffset):
        return False
    if bound.everywhere == place:
        return True
    values = bound.by_topic.values()
    return any(v == place if isinstance(v, int) else place in v.values() for v in values)
