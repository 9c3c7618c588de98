"""Broker configs of roles, quorum, controller, replication and topic creation."""

from sparkraft.metadata.configs.definition import (
    BOOLEAN,
    CLASS,
    CLUSTER_WIDE,
    HIGH,
    INT,
    LIST,
    LONG,
    LONG_MAX,
    LOW,
    REQUIRED,
    STRING,
    ConfigDef,
    at_least,
    list_of,
)

CLUSTER: tuple[ConfigDef, ...] = (
    ConfigDef("alter.config.policy.class.name", CLASS, default=None, importance=LOW),
    ConfigDef(
        "alter.log.dirs.replication.quota.window.num",
        INT,
        default=11,
        check=at_least(1),
        importance=LOW,
    ),
    ConfigDef(
        "alter.log.dirs.replication.quota.window.size.seconds",
        INT,
        default=1,
        check=at_least(1),
        importance=LOW,
    ),
    ConfigDef("auto.create.topics.enable", BOOLEAN, default=True, importance=HIGH),
    ConfigDef("auto.leader.rebalance.enable", BOOLEAN, default=True, importance=HIGH),
    ConfigDef("broker.heartbeat.interval.ms", INT, default=2000),
    ConfigDef("broker.id", INT, default=-1, importance=HIGH),
    ConfigDef("broker.rack", STRING, default=None),
    ConfigDef("broker.session.timeout.ms", INT, default=9000),
    ConfigDef("controlled.shutdown.enable", BOOLEAN, default=True),
    ConfigDef(
        "controller.listener.names",
        LIST,
        default=REQUIRED,
        check=list_of(empty=False),
        importance=HIGH,
    ),
    ConfigDef(
        "controller.performance.always.log.threshold.ms",
        LONG,
        default=2000,
        check=at_least(0),
        internal=True,
    ),
    ConfigDef(
        "controller.performance.sample.period.ms",
        LONG,
        default=60000,
        check=at_least(100),
        internal=True,
    ),
    ConfigDef("controller.quorum.append.linger.ms", INT, default=25, check=at_least(0)),
    ConfigDef("controller.quorum.auto.join.enable", BOOLEAN, default=False, importance=LOW),
    ConfigDef("controller.quorum.bootstrap.servers", LIST, default=(), importance=HIGH),
    ConfigDef(
        "controller.quorum.election.backoff.max.ms",
        INT,
        default=1000,
        check=at_least(0),
        importance=HIGH,
    ),
    ConfigDef(
        "controller.quorum.election.timeout.ms",
        INT,
        default=1000,
        check=at_least(0),
        importance=HIGH,
    ),
    ConfigDef(
        "controller.quorum.fetch.max.bytes",
        INT,
        default=1_048_576,
        check=at_least(1),
        importance=LOW,
    ),
    ConfigDef(
        "controller.quorum.fetch.snapshot.max.bytes",
        INT,
        default=1_048_576,
        check=at_least(1),
        importance=LOW,
    ),
    ConfigDef(
        "controller.quorum.fetch.timeout.ms", INT, default=2000, check=at_least(0), importance=HIGH
    ),
    ConfigDef("controller.quorum.request.timeout.ms", INT, default=2000, check=at_least(0)),
    ConfigDef(
        "controller.quorum.retry.backoff.ms", INT, default=20, check=at_least(0), importance=LOW
    ),
    ConfigDef("controller.quorum.voters", LIST, default=(), importance=HIGH),
    ConfigDef("controller.quota.window.num", INT, default=11, check=at_least(1), importance=LOW),
    ConfigDef(
        "controller.quota.window.size.seconds", INT, default=1, check=at_least(1), importance=LOW
    ),
    ConfigDef("controller.socket.timeout.ms", INT, default=30000),
    ConfigDef("create.topic.policy.class.name", CLASS, default=None, importance=LOW),
    ConfigDef("default.replication.factor", INT, default=1),
    ConfigDef("delete.topic.enable", BOOLEAN, default=True, importance=HIGH),
    ConfigDef(
        "early.start.listeners", LIST, default=None, check=list_of(null=True), importance=HIGH
    ),
    ConfigDef("initial.broker.registration.timeout.ms", INT, default=60000),
    ConfigDef(
        "internal.metadata.delete.delay.millis", LONG, default=60000, importance=LOW, internal=True
    ),
    ConfigDef(
        "internal.metadata.log.segment.bytes", INT, default=None, importance=LOW, internal=True
    ),
    ConfigDef(
        "internal.metadata.max.batch.size.in.bytes",
        INT,
        default=8_388_608,
        importance=LOW,
        internal=True,
    ),
    ConfigDef(
        "leader.imbalance.check.interval.seconds",
        LONG,
        default=300,
        check=at_least(1),
        importance=HIGH,
    ),
    ConfigDef("metadata.log.dir", STRING, default=None, importance=HIGH),
    ConfigDef(
        "metadata.log.max.record.bytes.between.snapshots",
        LONG,
        default=20_971_520,
        check=at_least(1),
        importance=HIGH,
    ),
    ConfigDef(
        "metadata.log.max.snapshot.interval.ms",
        LONG,
        default=3_600_000,
        check=at_least(0),
        importance=HIGH,
    ),
    ConfigDef(
        "metadata.log.segment.bytes",
        INT,
        default=1_073_741_824,
        check=at_least(8_388_608),
        importance=HIGH,
    ),
    ConfigDef("metadata.log.segment.ms", LONG, default=604_800_000, importance=HIGH),
    ConfigDef("metadata.max.idle.interval.ms", INT, default=500, check=at_least(0), importance=LOW),
    ConfigDef("metadata.max.retention.bytes", LONG, default=104_857_600, importance=HIGH),
    ConfigDef("metadata.max.retention.ms", LONG, default=604_800_000, importance=HIGH),
    ConfigDef("node.id", INT, default=REQUIRED, check=at_least(0), importance=HIGH),
    ConfigDef("num.partitions", INT, default=1, check=at_least(1)),
    ConfigDef("num.replica.alter.log.dirs.threads", INT, default=None, importance=HIGH),
    ConfigDef(
        "num.replica.fetchers",
        INT,
        default=1,
        check=at_least(1),
        importance=HIGH,
        dynamic=CLUSTER_WIDE,
    ),
    ConfigDef(
        "process.roles",
        LIST,
        default=REQUIRED,
        check=list_of("broker", "controller", empty=False),
        importance=HIGH,
    ),
    ConfigDef("replica.fetch.backoff.ms", INT, default=1000, check=at_least(0)),
    ConfigDef("replica.fetch.max.bytes", INT, default=1_048_576, check=at_least(0)),
    ConfigDef("replica.fetch.min.bytes", INT, default=1, importance=HIGH),
    ConfigDef("replica.fetch.response.max.bytes", INT, default=10_485_760, check=at_least(0)),
    ConfigDef("replica.fetch.wait.max.ms", INT, default=500, importance=HIGH),
    ConfigDef("replica.high.watermark.checkpoint.interval.ms", LONG, default=5000, importance=HIGH),
    ConfigDef("replica.lag.time.max.ms", LONG, default=30000, importance=HIGH),
    ConfigDef("replica.selector.class", STRING, default=None),
    ConfigDef("replica.socket.receive.buffer.bytes", INT, default=65536, importance=HIGH),
    ConfigDef("replica.socket.timeout.ms", INT, default=30000, importance=HIGH),
    ConfigDef("replication.quota.window.num", INT, default=11, check=at_least(1), importance=LOW),
    ConfigDef(
        "replication.quota.window.size.seconds", INT, default=1, check=at_least(1), importance=LOW
    ),
    ConfigDef(
        "server.max.startup.time.ms", LONG, default=LONG_MAX, check=at_least(0), internal=True
    ),
    ConfigDef(
        "unclean.leader.election.enable",
        BOOLEAN,
        default=False,
        importance=HIGH,
        dynamic=CLUSTER_WIDE,
    ),
    ConfigDef(
        "unclean.leader.election.interval.ms",
        LONG,
        default=300_000,
        check=at_least(1),
        internal=True,
    ),
    ConfigDef(
        "unstable.api.versions.enable", BOOLEAN, default=False, importance=HIGH, internal=True
    ),
    ConfigDef(
        "unstable.feature.versions.enable", BOOLEAN, default=False, importance=HIGH, internal=True
    ),
)
"""The keys, sorted."""
