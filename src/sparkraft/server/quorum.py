"""Opens this node's member of the metadata quorum and everything that follows its log.

Not here: how a member is opened (`server.raft.setup`), what a controller does
(`server.controller`), what a broker does (`server.broker`).
"""

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkraft.base.env import random_uuid
from sparkraft.base.errors import KafkaError
from sparkraft.controller.activation import (
    MigrationRefusedError,
    check_levels,
    default_bootstrap,
)
from sparkraft.controller.controller import Controller
from sparkraft.controller.decision_context import ControllerConfig
from sparkraft.metadata.features import CONTROLLER_REGISTRATION_LEVEL, SUPPORTED_FEATURES
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.framing import decode_metadata_record
from sparkraft.protocol.messages.metadata_records import FeatureLevelRecord
from sparkraft.security.mutation_quotas import MutationQuotas
from sparkraft.server.broker.controller_channel import ControllerChannel, QuorumTarget
from sparkraft.server.broker.metadata_publisher import MetadataPublisher
from sparkraft.server.controller.driver import ControllerDriver, Intervals
from sparkraft.server.controller.processes import ProcessWatch
from sparkraft.server.controller.services import ControllerServices
from sparkraft.server.controller.snapshots import MetadataSnapshots
from sparkraft.server.identity import StartRefused
from sparkraft.server.metadata_checkpoint import MetadataRecoveryPoint
from sparkraft.server.raft.setup import open_raft
from sparkraft.server.sasl_config import controller_login
from sparkraft.storage.names import BOOTSTRAP_CHECKPOINT, METADATA_DIR
from sparkraft.storage.snapshot_files import open_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkraft.server.config import ListenerAddress, NodeConfig
    from sparkraft.server.env import Env
    from sparkraft.server.identity import Identity
    from sparkraft.server.raft.driver import RaftDriver
    from sparkraft.storage.disk import StorageFault
    from sparkraft.storage.log_manager import LogManager
    from sparkraft.tls.dialing import Connect

log = logging.getLogger(__name__)

FENCE_REFUSED = "broker.refused.connection.fence.enable"
"""Ours: whether a broker whose process has certainly ended is fenced at once."""

REGISTRATION_MS_MAX = 60_000
"""Timeout of each attempt to register with the active controller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumFollowers:
    """The components that follow the metadata log on every node.

    Attributes:
        controller_services: of the local controller; None without that role.
        publisher: publishes images to the broker.
        snapshots: writes metadata snapshots.
        target: the active controller.
        channel: to it, for everything but heartbeats.
        heartbeats: to it, for registration and heartbeats.
    """

    controller_services: ControllerServices | None
    publisher: MetadataPublisher
    snapshots: MetadataSnapshots
    target: QuorumTarget
    channel: ControllerChannel
    heartbeats: ControllerChannel


def open_member(
    config: "NodeConfig",
    env: "Env",
    identity: "Identity",
    log_manager: "LogManager",
    *,
    on_fatal: "Callable[[BaseException], None]",
    connect: "Connect",
) -> "RaftDriver":
    """This node's member of the quorum, on the metadata log; not started.

    From now on the metadata log's directory checkpoints how far the log was committed. A broker in
    ZooKeeper mode begins with an empty log: one of an earlier migration that was rolled back may be
    of another quorum (`KafkaRaftManager.maybeDeleteMetadataLogDir`).
    """
    log_dir = log_manager.directory(config.metadata_log_dir)
    known = log_dir.metadata_recovery_point()
    if config.is_migrating_broker:
        env.disk.remove_tree(f"{config.metadata_log_dir}/{METADATA_DIR}")
        known = 0
    raft = open_raft(
        config,
        env,
        cluster_id=identity.cluster_id,
        directory_id=identity.directory_ids[config.metadata_log_dir],
        recovery_point=known,
        on_fatal=on_fatal,
        connect=connect,
    )
    log_dir.set_metadata_recovery_point(lambda: max(known, raft.recovery_point))
    return raft


def follow_quorum(  # noqa: PLR0913 (called in one place)
    config: "NodeConfig",
    env: "Env",
    identity: "Identity",
    raft: "RaftDriver",
    log_manager: "LogManager",
    *,
    on_storage_fault: "Callable[[StorageFault], None]",
    connect: "Connect",
) -> QuorumFollowers:
    """Register every listener of the metadata log: a controller before the publisher it feeds.

    `connect` opens connections to other controllers.
    """
    raft.register(
        MetadataRecoveryPoint(log_manager, config.metadata_log_dir, env.clock, on_storage_fault)
    )
    services = None
    if config.is_controller:
        services = make_controller(config, env, identity, raft)
        raft.register(services.controller)
    publisher = MetadataPublisher(None if services is None else services.controller.core)
    raft.register(publisher)
    snapshots = MetadataSnapshots(
        raft,
        lambda: publisher.image,
        env.clock,
        bytes_between=config.number("metadata.log.max.record.bytes.between.snapshots"),
        interval_ms=config.number("metadata.log.max.snapshot.interval.ms"),
    )
    raft.register(snapshots)
    target = QuorumTarget(raft, connect, controller_login(config))
    channel, heartbeats = (
        ControllerChannel(
            env,
            target,
            node_id=config.node_id,
            local=services,
            controller_listener=config.controller_listener_names[0],
        )
        for _ in range(2)
    )
    publisher.add_leader_listener(channel.on_leader)
    publisher.add_leader_listener(heartbeats.on_leader)
    return QuorumFollowers(
        controller_services=services,
        publisher=publisher,
        snapshots=snapshots,
        target=target,
        channel=channel,
        heartbeats=heartbeats,
    )


def make_controller(
    config: "NodeConfig", env: "Env", identity: "Identity", raft: "RaftDriver"
) -> ControllerServices:
    """The controller of this node, on `raft`; not started."""
    bootstrap = _bootstrap_records(config, env)
    if config.migrates:
        _check_bootstrap(bootstrap or default_bootstrap())
    core = Controller(
        ControllerConfig(
            cluster_id=identity.cluster_id,
            node_id=config.node_id,
            voter_ids=tuple(raft.voters.ids),
            is_broker=config.is_broker,
            static_configs=config.properties,
            session_timeout_ms=config.number("broker.session.timeout.ms"),
            default_partitions=config.number("num.partitions"),
            default_replication_factor=config.number("default.replication.factor"),
            delete_topics=config.flag("delete.topic.enable"),
            migration_enabled=config.migrates,
            inter_broker_listener=config.inter_broker_listener_name,
            token_key=config.token_key,
            token_lifetime_ms_max=config.number("delegation.token.max.lifetime.ms"),
            token_expiry_ms=config.number("delegation.token.expiry.time.ms"),
        ),
        env.entropy,
    )
    driver = ControllerDriver(
        raft,
        core,
        env.clock,
        lambda: env.turn(env.work_max.partitions),
        bootstrap=bootstrap,
        intervals=_intervals(config),
        fault_point=env.fault_point,
    )
    processes = None
    if config.flag(FENCE_REFUSED):
        processes = ProcessWatch(
            driver,
            env.clock,
            env.network,
            heartbeat_interval_ms=config.number("broker.heartbeat.interval.ms"),
        )
        driver.set_role_listener(processes.on_role)
    return ControllerServices(
        cluster_id=identity.cluster_id,
        node_id=config.node_id,
        config=config,
        env=env,
        raft=raft,
        controller=driver,
        processes=processes,
        mutation_quotas=MutationQuotas(
            samples=config.number("controller.quota.window.num"),
            window_ms=config.number("controller.quota.window.size.seconds") * 1000,
        ),
    )


def _intervals(config: "NodeConfig") -> Intervals:
    balance_ms = config.number("leader.imbalance.check.interval.seconds") * 1000
    return Intervals(
        idle_ms=config.number("metadata.max.idle.interval.ms"),
        balance_ms=balance_ms if config.flag("auto.leader.rebalance.enable") else None,
        unclean_ms=config.number("unclean.leader.election.interval.ms"),
        tokens_ms=config.number("delegation.token.expiry.check.interval.ms"),
    )


def _check_bootstrap(bootstrap: "list[tuple[Any, int]]") -> None:
    """Refuse a migration to a log that brokers in ZooKeeper mode could not follow.

    Raises:
        StartRefused: with the reason.
    """
    levels = {
        record.name: record.feature_level
        for record, _ in bootstrap
        if isinstance(record, FeatureLevelRecord)
    }
    try:
        check_levels(levels)
    except MigrationRefusedError as error:
        raise StartRefused(str(error)) from error


def _bootstrap_records(config: "NodeConfig", env: "Env") -> list[tuple[Any, int]] | None:
    """The records of `bootstrap.checkpoint` in a formatted directory; None without one."""
    path = f"{config.metadata_log_dir}/{BOOTSTRAP_CHECKPOINT}"
    try:
        snapshot = open_snapshot(env.disk, path)
    except FileNotFoundError:
        return None
    return [decode_metadata_record(value) for batch in snapshot.records() for value in batch]


async def register_controller(
    config: "NodeConfig",
    env: "Env",
    channel: "ControllerChannel",
    publisher: "MetadataPublisher",
    advertised: "tuple[ListenerAddress, ...]",
) -> None:
    """Register this controller's endpoints and features with the active one (KIP-919).

    Once metadata.version has records for it, as Kafka's ControllerRegistrationManager does.
    """
    from sparkraft.protocol.messages.k70_controller_registration import (
        ControllerRegistrationRequest,
        Feature,
        Listener,
    )

    request = ControllerRegistrationRequest(
        controller_id=config.node_id,
        incarnation_id=random_uuid(env.entropy),
        zk_migration_ready=config.migrates,
        listeners=[
            Listener(name=a.name, host=a.host, port=a.port, security_protocol=a.security_protocol)
            for a in advertised
        ],
        features=[
            Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in sorted(SUPPORTED_FEATURES.items())
        ],
    )
    await publisher.until_metadata_version(CONTROLLER_REGISTRATION_LEVEL)
    while True:
        try:
            response = await channel.send(
                request, ApiKey.CONTROLLER_REGISTRATION, timeout_ms=REGISTRATION_MS_MAX
            )
        except KafkaError as error:
            log.warning("Failed to register this controller; retrying: %s", error)
            continue
        if response.error_code:
            log.error(
                "The active controller refused to register this one: %s", response.error_message
            )
        return
