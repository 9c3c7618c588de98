"""Broker configs of listeners, sockets, request handling, quotas and metrics."""

from sparkraft.metadata.configs.definition import (
    CLASS,
    CLUSTER_WIDE,
    HIGH,
    INT,
    INT_MAX,
    LIST,
    LONG,
    LOW,
    PER_BROKER,
    STRING,
    ConfigDef,
    at_least,
    list_of,
)

NETWORK: tuple[ConfigDef, ...] = (
    ConfigDef(
        "advertised.listeners",
        LIST,
        default=None,
        check=list_of(empty=False, null=True),
        importance=HIGH,
    ),
    ConfigDef("client.quota.callback.class", CLASS, default=None, importance=LOW),
    ConfigDef(
        "config.providers", LIST, default=(), check=list_of(), importance=LOW, dynamic=CLUSTER_WIDE
    ),
    ConfigDef("connections.max.idle.ms", LONG, default=600_000),
    ConfigDef("delete.records.purgatory.purge.interval.requests", INT, default=1),
    ConfigDef("fetch.max.bytes", INT, default=57_671_680, check=at_least(1024)),
    ConfigDef("fetch.purgatory.purge.interval.requests", INT, default=1000),
    ConfigDef("inter.broker.listener.name", STRING, default=None),
    ConfigDef(
        "kafka.metrics.polling.interval.secs", INT, default=10, check=at_least(1), importance=LOW
    ),
    ConfigDef("kafka.metrics.reporters", LIST, default=(), check=list_of(), importance=LOW),
    ConfigDef(
        "listener.security.protocol.map",
        STRING,
        default="SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        importance=LOW,
        dynamic=PER_BROKER,
    ),
    ConfigDef(
        "listeners",
        LIST,
        default=("PLAINTEXT://:9092",),
        check=list_of(empty=False),
        importance=HIGH,
        dynamic=PER_BROKER,
    ),
    ConfigDef(
        "max.connection.creation.rate",
        INT,
        default=INT_MAX,
        check=at_least(0),
        dynamic=CLUSTER_WIDE,
    ),
    ConfigDef("max.connections", INT, default=INT_MAX, check=at_least(0), dynamic=CLUSTER_WIDE),
    ConfigDef(
        "max.connections.per.ip", INT, default=INT_MAX, check=at_least(0), dynamic=CLUSTER_WIDE
    ),
    ConfigDef("max.connections.per.ip.overrides", STRING, default="", dynamic=CLUSTER_WIDE),
    ConfigDef("max.incremental.fetch.session.cache.slots", INT, default=1000, check=at_least(0)),
    ConfigDef("max.request.partition.size.limit", INT, default=2000, check=at_least(1)),
    ConfigDef(
        "metric.reporters",
        LIST,
        default=("org.apache.kafka.common.metrics.JmxReporter",),
        check=list_of(),
        importance=LOW,
        dynamic=CLUSTER_WIDE,
    ),
    ConfigDef("metrics.num.samples", INT, default=2, check=at_least(1), importance=LOW),
    ConfigDef("metrics.recording.level", STRING, default="INFO", importance=LOW),
    ConfigDef("metrics.sample.window.ms", LONG, default=30000, check=at_least(1), importance=LOW),
    ConfigDef(
        "num.io.threads", INT, default=8, check=at_least(1), importance=HIGH, dynamic=CLUSTER_WIDE
    ),
    ConfigDef(
        "num.network.threads",
        INT,
        default=3,
        check=at_least(1),
        importance=HIGH,
        dynamic=CLUSTER_WIDE,
    ),
    ConfigDef("producer.purgatory.purge.interval.requests", INT, default=1000),
    ConfigDef("queued.max.request.bytes", LONG, default=-1),
    ConfigDef("queued.max.requests", INT, default=500, check=at_least(1), importance=HIGH),
    ConfigDef("quota.window.num", INT, default=11, check=at_least(1), importance=LOW),
    ConfigDef("quota.window.size.seconds", INT, default=1, check=at_least(1), importance=LOW),
    ConfigDef("request.timeout.ms", INT, default=30000, importance=HIGH),
    ConfigDef("socket.connection.setup.timeout.max.ms", LONG, default=30000),
    ConfigDef("socket.connection.setup.timeout.ms", LONG, default=10000),
    ConfigDef("socket.listen.backlog.size", INT, default=50, check=at_least(1)),
    ConfigDef("socket.receive.buffer.bytes", INT, default=102_400, importance=HIGH),
    ConfigDef(
        "socket.request.max.bytes", INT, default=104_857_600, check=at_least(1), importance=HIGH
    ),
    ConfigDef("socket.send.buffer.bytes", INT, default=102_400, importance=HIGH),
    ConfigDef("telemetry.max.bytes", INT, default=1_048_576, check=at_least(1), importance=LOW),
)
"""The keys, sorted."""
