"""The Kafka node configs that have an effect here; others are logged at the start if they are set.

A config belongs here if code reads it; `tests/server/test_config.py` compares.
"""

from collections.abc import Iterable

from sparkraft.metadata.configs.topic import TOPIC_SYNONYMS

_READ = frozenset(
    """
    add.partitions.to.txn.retry.backoff.max.ms add.partitions.to.txn.retry.backoff.ms
    advertised.listeners auto.create.topics.enable auto.leader.rebalance.enable broker.id
    broker.heartbeat.interval.ms broker.rack broker.session.timeout.ms
    connection.failed.authentication.delay.ms connections.max.idle.ms connections.max.reauth.ms
    controlled.shutdown.enable controller.listener.names controller.quorum.append.linger.ms
    controller.quorum.auto.join.enable
    controller.quorum.bootstrap.servers cordoned.log.dirs
    controller.quorum.election.backoff.max.ms controller.quorum.election.timeout.ms
    controller.quorum.fetch.timeout.ms controller.quorum.request.timeout.ms
    controller.quota.window.num controller.quota.window.size.seconds
    controller.quorum.retry.backoff.ms controller.quorum.voters controller.socket.timeout.ms
    default.replication.factor
    delegation.token.expiry.check.interval.ms delegation.token.expiry.time.ms
    delegation.token.max.lifetime.ms delegation.token.secret.key
    delete.topic.enable fetch.max.bytes group.consumer.assignors group.consumer.max.size
    group.consumer.assignment.interval.ms group.consumer.heartbeat.interval.ms
    group.consumer.max.assignment.interval.ms group.consumer.max.heartbeat.interval.ms
    group.consumer.max.session.timeout.ms group.consumer.min.assignment.interval.ms
    group.consumer.min.heartbeat.interval.ms group.consumer.min.session.timeout.ms
    group.consumer.migration.policy group.consumer.regex.refresh.interval.ms
    group.consumer.session.timeout.ms group.coordinator.rebalance.protocols
    group.initial.rebalance.delay.ms group.max.session.timeout.ms group.max.size
    group.min.session.timeout.ms initial.broker.registration.timeout.ms inter.broker.listener.name
    leader.imbalance.check.interval.seconds
    listener.security.protocol.map listeners log.dir log.dir.failure.timeout.ms log.dirs
    log.cleaner.backoff.ms log.cleaner.dedupe.buffer.size log.cleaner.enable
    log.cleaner.io.buffer.load.factor log.cleaner.io.buffer.size
    log.cleaner.io.max.bytes.per.second log.cleaner.threads log.flush.scheduler.interval.ms
    log.initial.task.delay.ms
    log.retention.check.interval.ms max.connection.creation.rate max.connections
    max.connections.per.ip max.connections.per.ip.overrides
    max.incremental.fetch.session.cache.slots max.request.partition.size.limit metadata.log.dir
    metadata.log.max.record.bytes.between.snapshots metadata.log.max.snapshot.interval.ms
    metadata.log.segment.bytes metadata.log.segment.ms metadata.max.idle.interval.ms
    metadata.max.retention.bytes metadata.max.retention.ms node.id num.partitions
    num.recovery.threads.per.data.dir
    num.replica.fetchers
    offset.metadata.max.bytes offsets.commit.timeout.ms offsets.retention.check.interval.ms
    offsets.retention.minutes offsets.topic.compression.codec offsets.topic.num.partitions
    offsets.topic.replication.factor offsets.topic.segment.bytes process.roles
    producer.id.expiration.ms queued.max.request.bytes quota.window.num
    quota.window.size.seconds replica.fetch.backoff.ms
    replica.fetch.max.bytes replica.fetch.min.bytes replica.fetch.response.max.bytes
    replica.fetch.wait.max.ms replica.high.watermark.checkpoint.interval.ms
    replica.lag.time.max.ms replica.selector.class replica.socket.timeout.ms
    replication.quota.window.num replication.quota.window.size.seconds
    request.timeout.ms sasl.enabled.mechanisms sasl.jaas.config
    sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin
    sasl.kerberos.principal.to.local.rules sasl.kerberos.service.name
    sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
    sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.retry.backoff.max.ms
    sasl.login.retry.backoff.ms sasl.oauthbearer.assertion.algorithm
    sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds
    sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include
    sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub
    sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file
    sasl.oauthbearer.assertion.private.key.passphrase
    sasl.oauthbearer.assertion.template.file sasl.oauthbearer.jwt.retriever.class
    sasl.oauthbearer.client.credentials.client.id
    sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.scope
    sasl.oauthbearer.token.endpoint.url
    sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience
    sasl.oauthbearer.expected.issuer sasl.oauthbearer.jwks.endpoint.refresh.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url
    sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope.claim.name
    sasl.oauthbearer.sub.claim.name sasl.server.callback.handler.class
    sasl.mechanism.controller.protocol sasl.mechanism.inter.broker.protocol
    sasl.server.max.receive.size
    security.inter.broker.protocol socket.request.max.bytes telemetry.max.bytes
    ssl.cipher.suites ssl.client.auth ssl.enabled.protocols
    ssl.endpoint.identification.algorithm ssl.key.password
    ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password
    ssl.keystore.type ssl.principal.mapping.rules ssl.protocol ssl.truststore.certificates
    ssl.truststore.location ssl.truststore.password ssl.truststore.type
    transaction.abort.timed.out.transaction.cleanup.interval.ms transaction.max.timeout.ms
    transaction.partition.verification.enable
    transaction.remove.expired.transaction.cleanup.interval.ms
    transaction.state.log.min.isr transaction.state.log.num.partitions
    transaction.state.log.replication.factor transaction.state.log.segment.bytes
    transactional.id.expiration.ms unclean.leader.election.interval.ms
    """.split()  # noqa: SIM905 (a list of sixty quoted names is harder to read)
)

_DYNAMIC_ONLY = frozenset(
    {
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)
"""Configs that can only be set dynamically."""

SUPPORTED_CONFIGS = (
    _READ | _DYNAMIC_ONLY | {s.name for synonyms in TOPIC_SYNONYMS.values() for s in synonyms}
)
"""Kafka's node configs that change what this node does."""


def without_effect(known_keys: Iterable[str]) -> list[str]:
    """The `known_keys` that have no effect here yet, sorted."""
    return sorted(key for key in known_keys if key not in SUPPORTED_CONFIGS)
