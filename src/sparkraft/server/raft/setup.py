"""Builds a node's quorum member from its configuration and directories."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from sparkraft.base.ids import BrokerId, Uuid
from sparkraft.raft.events import QuorumConfig
from sparkraft.raft.voters import Endpoint, Node, ReplicaKey, Voter, VoterSet
from sparkraft.server.config import ConfigError, NodeConfig
from sparkraft.server.raft.driver import RaftDriver
from sparkraft.server.sasl_config import controller_login
from sparkraft.storage.raft_log import RaftLog, RaftLogConfig

if TYPE_CHECKING:
    from sparkraft.server.env import Env
    from sparkraft.tls.dialing import Connect

_FIRST_BOOTSTRAP_ID = -2

LINGER = "controller.quorum.append.linger.ms"
"""Used only if set. Under load records share an fsync anyway, so by default they do not wait."""


def open_raft(  # noqa: PLR0913 (made in one place)
    config: NodeConfig,
    env: "Env",
    *,
    cluster_id: str,
    directory_id: Uuid,
    recovery_point: int = 0,
    on_fatal: Callable[[BaseException], None],
    connect: "Connect | None" = None,
) -> RaftDriver:
    """Recover the metadata log of `config.metadata_log_dir` and create its driver; blocks.

    Args:
        config: the node's.
        env: the outside world.
        cluster_id: from `meta.properties` of that directory.
        directory_id: likewise; identifies the voter (KIP-853).
        recovery_point: `RaftDriver.recovery_point` of an earlier run; 0 if unknown.
        on_fatal: called once if a disk fails, or if the log has a record that is not understood.
        connect: opens connections to other members; those of `env` by default.

    Raises:
        StorageFault: the log cannot be read.
        ConfigError: an address of the quorum is invalid.
    """
    log = RaftLog.open(
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
        recovery_point=recovery_point,
    )
    return RaftDriver(
        quorum_config(config, cluster_id=cluster_id, directory_id=directory_id),
        env,
        log,
        static_voters=static_voters(config),
        on_fatal=on_fatal,
        connect=connect,
        linger_ms=config.number(LINGER) if LINGER in config.properties else 0,
        login=controller_login(config),
    )


def quorum_config(config: NodeConfig, *, cluster_id: str, directory_id: Uuid) -> QuorumConfig:
    return QuorumConfig(
        cluster_id=cluster_id,
        local=ReplicaKey(BrokerId(config.node_id), directory_id),
        listener=config.controller_listener_names[0],
        endpoints=controller_endpoints(config),
        bootstrap=bootstrap_nodes(config),
        can_become_voter=config.is_controller,
        election_timeout_ms=config.number("controller.quorum.election.timeout.ms"),
        fetch_timeout_ms=config.number("controller.quorum.fetch.timeout.ms"),
        election_backoff_max_ms=config.number("controller.quorum.election.backoff.max.ms"),
        request_timeout_ms=config.number("controller.quorum.request.timeout.ms"),
        retry_backoff_ms=config.number("controller.quorum.retry.backoff.ms"),
        auto_join=config.flag("controller.quorum.auto.join.enable"),
    )


def controller_endpoints(config: NodeConfig) -> tuple[Endpoint, ...]:
    """This node's controller endpoints; none on a node that is only a broker."""
    if not config.is_controller:
        return ()
    return tuple(
        Endpoint(address.name, address.host, address.port)
        for address in config.advertised_listeners
        if address.name in config.controller_listener_names
    )


def static_voters(config: NodeConfig) -> VoterSet:
    """`controller.quorum.voters`, entries `id@host:port`; empty for a dynamic quorum."""
    listener = config.controller_listener_names[0]
    voters = []
    for entry in config.words("controller.quorum.voters"):
        node_id, _, address = entry.partition("@")
        host, port = _address("controller.quorum.voters", address)
        key = ReplicaKey(BrokerId(int(node_id)))
        voters.append(Voter(key=key, endpoints=(Endpoint(listener, host, port),)))
    try:
        return VoterSet.of(voters)
    except ValueError as error:
        raise ConfigError(f"controller.quorum.voters: {error}") from error


def bootstrap_nodes(config: NodeConfig) -> tuple[Node, ...]:
    """`controller.quorum.bootstrap.servers`, with ids from -2 downwards as Kafka gives them."""
    key = "controller.quorum.bootstrap.servers"
    addresses = [_address(key, entry) for entry in config.words(key)]
    return tuple(
        Node(BrokerId(_FIRST_BOOTSTRAP_ID - place), host, port)
        for place, (host, port) in enumerate(addresses)
    )


def _address(key: str, entry: str) -> tuple[str, int]:
    host, colon, port = entry.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit():
        raise ConfigError(f"{key}: {entry!r} is not of the form host:port")
    if not 0 < int(port) <= 65535:  # noqa: PLR2004 (TCP's largest port)
        raise ConfigError(f"{key}: {entry!r} has no usable port")
    return host.strip("[]"), int(port)
