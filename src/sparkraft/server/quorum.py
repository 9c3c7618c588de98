"""Makes this node's controller, and registers it with the active one.

Not here: the raft member (`server.raft.setup`), what a controller does (`server.controller`).
"""

import logging
from typing import TYPE_CHECKING, Any

from sparkraft.base.env import random_uuid
from sparkraft.base.errors import KafkaError
from sparkraft.controller.controller import Controller
from sparkraft.controller.decision_context import ControllerConfig
from sparkraft.metadata.features import CONTROLLER_REGISTRATION_LEVEL, SUPPORTED_FEATURES
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.framing import decode_metadata_record
from sparkraft.server.controller.driver import ControllerDriver, Intervals
from sparkraft.server.controller.processes import ProcessWatch
from sparkraft.server.controller.services import ControllerServices
from sparkraft.storage.snapshot_files import BOOTSTRAP_CHECKPOINT, open_snapshot

if TYPE_CHECKING:
    from sparkraft.server.broker.controller_channel import ControllerChannel
    from sparkraft.server.broker.metadata_publisher import MetadataPublisher
    from sparkraft.server.config import ListenerAddress, NodeConfig
    from sparkraft.server.env import Env
    from sparkraft.server.identity import Identity
    from sparkraft.server.raft.driver import RaftDriver

log = logging.getLogger(__name__)

FENCE_REFUSED = "broker.refused.connection.fence.enable"
"""Ours: whether a broker whose process is certainly gone is fenced at once."""

REGISTRATION_MS_MAX = 60_000
"""How long a controller tries to register with the active one, each time."""


def make_controller(
    config: "NodeConfig", env: "Env", identity: "Identity", raft: "RaftDriver"
) -> ControllerServices:
    """The controller of this node, on `raft`; not started."""
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
        ),
        env.entropy,
    )
    driver = ControllerDriver(
        raft,
        core,
        env.clock,
        bootstrap=_bootstrap_records(config, env),
        intervals=_intervals(config),
        fault_point=env.fault_point,
    )
    services = ControllerServices(
        cluster_id=identity.cluster_id,
        node_id=config.node_id,
        config=config,
        env=env,
        raft=raft,
        controller=driver,
    )
    if config.flag(FENCE_REFUSED):
        services.processes = ProcessWatch(
            driver, env.clock, heartbeat_interval_ms=config.number("broker.heartbeat.interval.ms")
        )
        driver.on_role = services.processes.on_role
    return services


def _intervals(config: "NodeConfig") -> Intervals:
    balance_ms = config.number("leader.imbalance.check.interval.seconds") * 1000
    return Intervals(
        idle_ms=config.number("metadata.max.idle.interval.ms"),
        balance_ms=balance_ms if config.flag("auto.leader.rebalance.enable") else None,
        unclean_ms=config.number("unclean.leader.election.interval.ms"),
    )


def _bootstrap_records(config: "NodeConfig", env: "Env") -> list[tuple[Any, int]] | None:
    """What `bootstrap.checkpoint` of the formatted directory asks for; None without one."""
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
    """Tell the active controller where this one listens and what it supports (KIP-919).

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
            answer = await channel.send(
                request, ApiKey.CONTROLLER_REGISTRATION, timeout_ms=REGISTRATION_MS_MAX
            )
        except KafkaError as error:
            log.warning("This controller is not registered yet: %s", error)
            continue
        if answer.error_code:
            log.error("The active controller refuses this one: %s", answer.error_message)
        return
