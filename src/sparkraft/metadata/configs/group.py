"""Configs of groups, client-metrics subscriptions, and the quotas of users, clients and IPs."""

from sparkraft.metadata.configs.definition import (
    BOOLEAN,
    DOUBLE,
    INT,
    INT_MAX,
    LIST,
    LONG,
    LONG_MAX,
    STRING,
    ConfigDef,
    at_least,
    by_name,
    list_of,
    one_of,
    share_auto_offset_reset,
)

_GROUP: tuple[ConfigDef, ...] = (
    ConfigDef("consumer.assignment.interval.ms", INT, default=1000, check=at_least(0)),
    ConfigDef("consumer.heartbeat.interval.ms", INT, default=5000, check=at_least(1)),
    ConfigDef("consumer.session.timeout.ms", INT, default=45000, check=at_least(1)),
    ConfigDef("share.assignment.interval.ms", INT, default=1000, check=at_least(0)),
    ConfigDef("share.auto.offset.reset", STRING, default="latest", check=share_auto_offset_reset),
    ConfigDef("share.delivery.count.limit", INT, default=5, check=at_least(2)),
    ConfigDef("share.heartbeat.interval.ms", INT, default=5000, check=at_least(1)),
    ConfigDef(
        "share.isolation.level",
        STRING,
        default="read_uncommitted",
        check=one_of("read_committed", "read_uncommitted"),
    ),
    ConfigDef("share.partition.max.record.locks", INT, default=2000, check=at_least(100)),
    ConfigDef("share.record.lock.duration.ms", INT, default=30000, check=at_least(1000)),
    ConfigDef("share.renew.acknowledge.enable", BOOLEAN, default=True),
    ConfigDef("share.session.timeout.ms", INT, default=45000, check=at_least(1)),
    ConfigDef("streams.assignment.interval.ms", INT, default=1000, check=at_least(0)),
    ConfigDef("streams.heartbeat.interval.ms", INT, default=5000, check=at_least(1)),
    ConfigDef("streams.initial.rebalance.delay.ms", INT, default=3000, check=at_least(0)),
    ConfigDef("streams.num.standby.replicas", INT, default=0, check=at_least(0)),
    ConfigDef("streams.session.timeout.ms", INT, default=45000, check=at_least(1)),
)
"""Keys of a group resource."""

_CLIENT_METRICS: tuple[ConfigDef, ...] = (
    ConfigDef("interval.ms", INT, default=300_000),
    ConfigDef("match", LIST, default=(), check=list_of()),
    ConfigDef("metrics", LIST, default=(), check=list_of()),
)
"""Keys of a client-metrics subscription (KIP-714)."""

_CLIENT_QUOTA: tuple[ConfigDef, ...] = (
    ConfigDef("consumer_byte_rate", LONG, default=LONG_MAX),
    ConfigDef("controller_mutation_rate", DOUBLE, default=2147483647.0),
    ConfigDef("producer_byte_rate", LONG, default=LONG_MAX),
    ConfigDef("request_percentage", DOUBLE, default=2147483647.0),
)
"""Quotas of users and clients."""

_IP_QUOTA: tuple[ConfigDef, ...] = (
    ConfigDef("connection_creation_rate", INT, default=INT_MAX, check=at_least(0)),
)
"""Quotas of an IP address."""

GROUP_CONFIGS = by_name(_GROUP)
CLIENT_METRICS_CONFIGS = by_name(_CLIENT_METRICS)
CLIENT_QUOTA_CONFIGS = by_name(_CLIENT_QUOTA)
IP_QUOTA_CONFIGS = by_name(_IP_QUOTA)

GROUP_SYNONYMS: dict[str, str] = {
    "consumer.assignment.interval.ms": "group.consumer.assignment.interval.ms",
    "consumer.heartbeat.interval.ms": "group.consumer.heartbeat.interval.ms",
    "consumer.session.timeout.ms": "group.consumer.session.timeout.ms",
    "share.assignment.interval.ms": "group.share.assignment.interval.ms",
    "share.delivery.count.limit": "group.share.delivery.count.limit",
    "share.heartbeat.interval.ms": "group.share.heartbeat.interval.ms",
    "share.partition.max.record.locks": "group.share.partition.max.record.locks",
    "share.record.lock.duration.ms": "group.share.record.lock.duration.ms",
    "share.session.timeout.ms": "group.share.session.timeout.ms",
    "streams.assignment.interval.ms": "group.streams.assignment.interval.ms",
    "streams.heartbeat.interval.ms": "group.streams.heartbeat.interval.ms",
    "streams.initial.rebalance.delay.ms": "group.streams.initial.rebalance.delay.ms",
    "streams.num.standby.replicas": "group.streams.num.standby.replicas",
    "streams.session.timeout.ms": "group.streams.session.timeout.ms",
}
"""Group keys whose default is a broker key."""
