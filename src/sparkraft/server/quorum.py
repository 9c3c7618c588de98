"""Opens this node's part of the metadata quorum: its log, its raft member, its controller.

Not here: what they do (`server.raft`, `server.controller`).
"""

import logging
from typing import TYPE_CHECKING, Any

from sparkraft.base.env import random_uuid
from sparkraft.base.errors import KafkaError
from sparkraft.base.ids import BrokerId
from sparkraft.controller.cluster import ControllerConfig
from sparkraft.controller.controller import Controller
from sparkraft.metadata.features import SUPPORTED_FEATURES
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.framing import decode_metadata_record
from sparkraft.raft.events import QuorumConfig
from sparkraft.raft.voters import Endpoint, Node, ReplicaKey, Voter, VoterSet
from sparkraft.server.config import ConfigError, NodeConfig
from sparkraft.server.controller.driver import ControllerDriver
from sparkraft.server.controller.services import ControllerServices
from sparkraft.server.raft.driver import RaftDriver
from sparkraft.storage.raft_log import RaftLog, RaftLogConfig
from sparkraft.storage.snapshot_files import BOOTSTRAP_CHECKPOINT, open_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkraft.server.broker.controller_channel import ControllerChannel
    from sparkraft.server.config import ListenerAddress
    from sparkraft.server.env import Env
    from sparkraft.server.identity import Identity

log = logging.getLogger(__name__)

FIRST_BOOTSTRAP_ID = -2
"""Bootstrap servers have no ids; raft numbers them downwards from here."""

REGISTRATION_MS_MAX = 60_000
"""How long a controller tries to register with the active one, each time."""


def open_raft(
    config: NodeConfig,
    env: "Env",
    identity: "Identity",
    advertised: "tuple[ListenerAddress, ...]",
    on_fatal: "Callable[[BaseException], None]",
) -> RaftDriver:
    """The raft member over the log in `metadata.log.dir`; not started."""
    raft_log = RaftLog.open(
        env.disk,
        config.metadata_log_dir,
        clock=env.clock,
        entropy=env.entropy,
        config=RaftLogConfig(
            segment_bytes=config.number("metadata.log.segment.bytes"),
            segment_ms=config.number("metadata.log.segment.ms"),
            retention_bytes=config.number("metadata.max.retention.bytes"),
            retention_ms=config.number("metadata.max.retention.ms"),
        ),
    )
    return RaftDriver(
        _quorum_config(config, identity, advertised),
        env,
        raft_log,
        static_voters=_static_voters(config),
        on_fatal=on_fatal,
    )


def _quorum_config(
    config: NodeConfig, identity: "Identity", advertised: "tuple[ListenerAddress, ...]"
) -> QuorumConfig:
    return QuorumConfig(
        cluster_id=identity.cluster_id,
        local=ReplicaKey(
            BrokerId(config.node_id), identity.directory_ids.get(config.metadata_log_dir)
        ),
        listener=config.controller_listener_names[0],
        endpoints=tuple(Endpoint(a.name, a.host, a.port) for a in advertised),
        bootstrap=tuple(
            Node(BrokerId(FIRST_BOOTSTRAP_ID - number), *_host_and_port(server))
            for number, server in enumerate(config.words("controller.quorum.bootstrap.servers"))
        ),
        can_become_voter=config.is_controller,
        election_timeout_ms=config.number("controller.quorum.election.timeout.ms"),
        fetch_timeout_ms=config.number("controller.quorum.fetch.timeout.ms"),
        election_backoff_max_ms=config.number("controller.quorum.election.backoff.max.ms"),
        request_timeout_ms=config.number("controller.quorum.request.timeout.ms"),
        retry_backoff_ms=config.number("controller.quorum.retry.backoff.ms"),
        fetch_max_bytes=config.number("controller.quorum.fetch.max.bytes"),
    )


def _static_voters(config: NodeConfig) -> VoterSet:
    """`controller.quorum.voters`; empty for a dynamic quorum, whose log names its voters."""
    listener = config.controller_listener_names[0]
    voters = []
    for entry in config.words("controller.quorum.voters"):
        number, _, server = entry.partition("@")
        endpoint = Endpoint(listener, *_host_and_port(server))
        voters.append(Voter(key=ReplicaKey(BrokerId(int(number))), endpoints=(endpoint,)))
    return VoterSet.of(voters)


def _host_and_port(server: str) -> tuple[str, int]:
    host, colon, port = server.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit():
        raise ConfigError(f"{server!r} is not of the form host:port")
    return host.strip("[]"), int(port)


def make_controller(
    config: NodeConfig, env: "Env", identity: "Identity", raft: RaftDriver
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
        idle_interval_ms=config.number("metadata.max.idle.interval.ms"),
        balance_leaders=config.flag("auto.leader.rebalance.enable"),
    )
    return ControllerServices(
        cluster_id=identity.cluster_id,
        node_id=config.node_id,
        config=config,
        env=env,
        raft=raft,
        controller=driver,
    )


def _bootstrap_records(config: NodeConfig, env: "Env") -> list[tuple[Any, int]] | None:
    """What `bootstrap.checkpoint` of the formatted directory asks for; None without one."""
    path = f"{config.metadata_log_dir}/{BOOTSTRAP_CHECKPOINT}"
    try:
        snapshot = open_snapshot(env.disk, path)
    except FileNotFoundError:
        return None
    return [decode_metadata_record(value) for batch in snapshot.records() for value in batch]


async def register_controller(
    config: NodeConfig,
    env: "Env",
    channel: "ControllerChannel",
    advertised: "tuple[ListenerAddress, ...]",
) -> None:
    """Tell the active controller where this one listens and what it supports (KIP-919)."""
    from sparkraft.protocol.messages.k70_controller_registration import (
        ControllerRegistrationRequest,
        Feature,
        Listener,
    )

    request = ControllerRegistrationRequest(
        controller_id=config.node_id,
        incarnation_id=random_uuid(env.entropy),
        listeners=[
            Listener(name=a.name, host=a.host, port=a.port, security_protocol=0)
            for a in advertised
        ],
        features=[
            Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in sorted(SUPPORTED_FEATURES.items())
        ],
    )
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
