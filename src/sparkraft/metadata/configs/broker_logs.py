"""Broker configs of logs, compaction and tiered storage; many are the defaults of topic configs."""

from sparkraft.metadata.configs.definition import (
    BOOLEAN,
    CLUSTER_WIDE,
    DOUBLE,
    DOUBLE_MAX,
    HIGH,
    INT,
    LIST,
    LONG,
    LONG_MAX,
    LOW,
    PER_BROKER,
    STRING,
    ConfigDef,
    at_least,
    between,
    gzip_level,
    list_of,
    not_empty,
    one_of,
)

LOGS: tuple[ConfigDef, ...] = (
    ConfigDef(
        "background.threads",
        INT,
        default=10,
        check=at_least(1),
        importance=HIGH,
        dynamic=CLUSTER_WIDE,
    ),
    ConfigDef("compression.gzip.level", INT, default=-1, check=gzip_level, dynamic=CLUSTER_WIDE),
    ConfigDef("compression.lz4.level", INT, default=9, check=between(1, 17), dynamic=CLUSTER_WIDE),
    ConfigDef(
        "compression.type",
        STRING,
        default="producer",
        check=one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        importance=HIGH,
        dynamic=CLUSTER_WIDE,
    ),
    ConfigDef(
        "compression.zstd.level", INT, default=3, check=between(-131_072, 22), dynamic=CLUSTER_WIDE
    ),
    ConfigDef("cordoned.log.dirs", LIST, default=(), check=list_of(null=True), dynamic=PER_BROKER),
    ConfigDef(
        "follower.fetch.last.tiered.offset.enable", BOOLEAN, default=False, dynamic=CLUSTER_WIDE
    ),
    ConfigDef(
        "log.cleaner.backoff.ms", LONG, default=15000, check=at_least(0), dynamic=CLUSTER_WIDE
    ),
    ConfigDef("log.cleaner.dedupe.buffer.size", LONG, default=134_217_728, dynamic=CLUSTER_WIDE),
    ConfigDef(
        "log.cleaner.delete.retention.ms",
        LONG,
        default=86_400_000,
        check=at_least(0),
        dynamic=CLUSTER_WIDE,
    ),
    ConfigDef("log.cleaner.enable", BOOLEAN, default=True),
    ConfigDef("log.cleaner.io.buffer.load.factor", DOUBLE, default=0.9, dynamic=CLUSTER_WIDE),
    ConfigDef(
        "log.cleaner.io.buffer.size", INT, default=524_288, check=at_least(0), dynamic=CLUSTER_WIDE
    ),
    ConfigDef(
        "log.cleaner.io.max.bytes.per.second", DOUBLE, default=DOUBLE_MAX, dynamic=CLUSTER_WIDE
    ),
    ConfigDef(
        "log.cleaner.max.compaction.lag.ms",
        LONG,
        default=LONG_MAX,
        check=at_least(1),
        dynamic=CLUSTER_WIDE,
    ),
    ConfigDef(
        "log.cleaner.min.cleanable.ratio",
        DOUBLE,
        default=0.5,
        check=between(0, 1),
        dynamic=CLUSTER_WIDE,
    ),
    ConfigDef(
        "log.cleaner.min.compaction.lag.ms",
        LONG,
        default=0,
        check=at_least(0),
        dynamic=CLUSTER_WIDE,
    ),
    ConfigDef("log.cleaner.threads", INT, default=1, check=at_least(0), dynamic=CLUSTER_WIDE),
    ConfigDef(
        "log.cleanup.policy",
        LIST,
        default=("delete",),
        check=list_of("compact", "delete"),
        dynamic=CLUSTER_WIDE,
    ),
    ConfigDef(
        "log.dir", LIST, default=("/tmp/kafka-logs",), check=list_of(empty=False), importance=HIGH
    ),
    ConfigDef("log.dir.failure.timeout.ms", LONG, default=30000, check=at_least(1), importance=LOW),
    ConfigDef(
        "log.dirs", LIST, default=None, check=list_of(empty=False, null=True), importance=HIGH
    ),
    ConfigDef(
        "log.flush.interval.messages",
        LONG,
        default=LONG_MAX,
        check=at_least(1),
        importance=HIGH,
        dynamic=CLUSTER_WIDE,
    ),
    ConfigDef("log.flush.interval.ms", LONG, default=None, importance=HIGH, dynamic=CLUSTER_WIDE),
    ConfigDef(
        "log.flush.offset.checkpoint.interval.ms",
        INT,
        default=60000,
        check=at_least(0),
        importance=HIGH,
    ),
    ConfigDef("log.flush.scheduler.interval.ms", LONG, default=LONG_MAX, importance=HIGH),
    ConfigDef(
        "log.flush.start.offset.checkpoint.interval.ms",
        INT,
        default=60000,
        check=at_least(0),
        importance=HIGH,
    ),
    ConfigDef(
        "log.index.interval.bytes", INT, default=4096, check=at_least(0), dynamic=CLUSTER_WIDE
    ),
    ConfigDef(
        "log.index.size.max.bytes", INT, default=10_485_760, check=at_least(4), dynamic=CLUSTER_WIDE
    ),
    ConfigDef(
        "log.initial.task.delay.ms",
        LONG,
        default=30000,
        check=at_least(0),
        importance=LOW,
        internal=True,
    ),
    ConfigDef(
        "log.local.retention.bytes", LONG, default=-2, check=at_least(-2), dynamic=CLUSTER_WIDE
    ),
    ConfigDef("log.local.retention.ms", LONG, default=-2, check=at_least(-2), dynamic=CLUSTER_WIDE),
    ConfigDef(
        "log.message.timestamp.after.max.ms",
        LONG,
        default=3_600_000,
        check=at_least(0),
        dynamic=CLUSTER_WIDE,
    ),
    ConfigDef(
        "log.message.timestamp.before.max.ms",
        LONG,
        default=LONG_MAX,
        check=at_least(0),
        dynamic=CLUSTER_WIDE,
    ),
    ConfigDef(
        "log.message.timestamp.type",
        STRING,
        default="CreateTime",
        check=one_of("CreateTime", "LogAppendTime"),
        dynamic=CLUSTER_WIDE,
    ),
    ConfigDef("log.preallocate", BOOLEAN, default=False, dynamic=CLUSTER_WIDE),
    ConfigDef("log.retention.bytes", LONG, default=-1, importance=HIGH, dynamic=CLUSTER_WIDE),
    ConfigDef("log.retention.check.interval.ms", LONG, default=300_000, check=at_least(1)),
    ConfigDef("log.retention.hours", INT, default=168, importance=HIGH),
    ConfigDef("log.retention.minutes", INT, default=None, importance=HIGH),
    ConfigDef("log.retention.ms", LONG, default=None, importance=HIGH, dynamic=CLUSTER_WIDE),
    ConfigDef("log.roll.hours", INT, default=168, check=at_least(1), importance=HIGH),
    ConfigDef("log.roll.jitter.hours", INT, default=0, check=at_least(0), importance=HIGH),
    ConfigDef("log.roll.jitter.ms", LONG, default=None, importance=HIGH, dynamic=CLUSTER_WIDE),
    ConfigDef("log.roll.ms", LONG, default=None, importance=HIGH, dynamic=CLUSTER_WIDE),
    ConfigDef(
        "log.segment.bytes",
        INT,
        default=1_073_741_824,
        check=at_least(1_048_576),
        importance=HIGH,
        dynamic=CLUSTER_WIDE,
    ),
    ConfigDef(
        "log.segment.delete.delay.ms",
        LONG,
        default=60000,
        check=at_least(0),
        importance=HIGH,
        dynamic=CLUSTER_WIDE,
    ),
    ConfigDef(
        "message.max.bytes",
        INT,
        default=1_048_588,
        check=at_least(0),
        importance=HIGH,
        dynamic=CLUSTER_WIDE,
    ),
    ConfigDef(
        "min.insync.replicas",
        INT,
        default=1,
        check=at_least(1),
        importance=HIGH,
        dynamic=CLUSTER_WIDE,
    ),
    ConfigDef(
        "num.recovery.threads.per.data.dir",
        INT,
        default=2,
        check=at_least(1),
        importance=HIGH,
        dynamic=CLUSTER_WIDE,
    ),
    ConfigDef(
        "remote.fetch.max.wait.ms", INT, default=500, check=at_least(1), dynamic=CLUSTER_WIDE
    ),
    ConfigDef(
        "remote.list.offsets.request.timeout.ms",
        LONG,
        default=30000,
        check=at_least(1),
        dynamic=CLUSTER_WIDE,
    ),
    ConfigDef(
        "remote.log.index.file.cache.total.size.bytes",
        LONG,
        default=1_073_741_824,
        check=at_least(1),
        importance=LOW,
        dynamic=CLUSTER_WIDE,
    ),
    ConfigDef(
        "remote.log.index.file.cache.ttl.ms",
        LONG,
        default=900_000,
        check=at_least(-1),
        importance=LOW,
        internal=True,
    ),
    ConfigDef(
        "remote.log.manager.copier.thread.pool.size",
        INT,
        default=10,
        check=at_least(1),
        dynamic=CLUSTER_WIDE,
    ),
    ConfigDef(
        "remote.log.manager.copy.max.bytes.per.second",
        LONG,
        default=LONG_MAX,
        check=at_least(1),
        dynamic=CLUSTER_WIDE,
    ),
    ConfigDef("remote.log.manager.copy.quota.window.num", INT, default=11, check=at_least(1)),
    ConfigDef(
        "remote.log.manager.copy.quota.window.size.seconds", INT, default=1, check=at_least(1)
    ),
    ConfigDef(
        "remote.log.manager.expiration.thread.pool.size",
        INT,
        default=10,
        check=at_least(1),
        dynamic=CLUSTER_WIDE,
    ),
    ConfigDef(
        "remote.log.manager.fetch.max.bytes.per.second",
        LONG,
        default=LONG_MAX,
        check=at_least(1),
        dynamic=CLUSTER_WIDE,
    ),
    ConfigDef("remote.log.manager.fetch.quota.window.num", INT, default=11, check=at_least(1)),
    ConfigDef(
        "remote.log.manager.fetch.quota.window.size.seconds", INT, default=1, check=at_least(1)
    ),
    ConfigDef(
        "remote.log.manager.follower.thread.pool.size",
        INT,
        default=2,
        check=at_least(1),
        dynamic=CLUSTER_WIDE,
    ),
    ConfigDef(
        "remote.log.manager.task.interval.ms",
        LONG,
        default=30000,
        check=at_least(1),
        importance=LOW,
    ),
    ConfigDef(
        "remote.log.manager.task.retry.backoff.max.ms",
        LONG,
        default=30000,
        check=at_least(1),
        importance=LOW,
        internal=True,
    ),
    ConfigDef(
        "remote.log.manager.task.retry.backoff.ms",
        LONG,
        default=500,
        check=at_least(1),
        importance=LOW,
        internal=True,
    ),
    ConfigDef(
        "remote.log.manager.task.retry.jitter",
        DOUBLE,
        default=0.2,
        check=between(0, 0.5),
        importance=LOW,
        internal=True,
    ),
    ConfigDef("remote.log.manager.thread.pool.size", INT, default=2, check=at_least(1)),
    ConfigDef(
        "remote.log.metadata.custom.metadata.max.bytes",
        INT,
        default=128,
        check=at_least(0),
        importance=LOW,
    ),
    ConfigDef(
        "remote.log.metadata.manager.class.name",
        STRING,
        default="org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
        check=not_empty,
    ),
    ConfigDef("remote.log.metadata.manager.class.path", STRING, default=None),
    ConfigDef(
        "remote.log.metadata.manager.impl.prefix", STRING, default="rlmm.config.", check=not_empty
    ),
    ConfigDef("remote.log.metadata.manager.listener.name", STRING, default=None, check=not_empty),
    ConfigDef("remote.log.reader.max.pending.tasks", INT, default=100, check=at_least(1)),
    ConfigDef(
        "remote.log.reader.threads", INT, default=10, check=at_least(1), dynamic=CLUSTER_WIDE
    ),
    ConfigDef("remote.log.storage.manager.class.name", STRING, default=None, check=not_empty),
    ConfigDef("remote.log.storage.manager.class.path", STRING, default=None),
    ConfigDef(
        "remote.log.storage.manager.impl.prefix", STRING, default="rsm.config.", check=not_empty
    ),
    ConfigDef("remote.log.storage.system.enable", BOOLEAN, default=False),
)
"""The keys, sorted."""
