"""Puts a broker together out of its parts, in the order in which they need each other."""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from sparkraft.server.broker.auto_topic_creation import AutoTopicCreation
from sparkraft.server.broker.background import Background
from sparkraft.server.broker.compaction import Compaction
from sparkraft.server.broker.coordinators_elsewhere import CoordinatorsElsewhere
from sparkraft.server.broker.directory_assignments import DirectoryAssignments
from sparkraft.server.broker.dynamic_configs import DynamicConfigs
from sparkraft.server.broker.fetch_sessions import FetchSessions
from sparkraft.server.broker.fetchers import ReplicaFetchers
from sparkraft.server.broker.forwarding import Forwarding
from sparkraft.server.broker.isr_changes import IsrChanges
from sparkraft.server.broker.leaving_isr import LeavingIsr
from sparkraft.server.broker.lifecycle import BrokerLifecycle
from sparkraft.server.broker.log_dir_moves import LogDirMoves
from sparkraft.server.broker.produce_shapes import ProduceShapes
from sparkraft.server.broker.producer_ids import ProducerIds
from sparkraft.server.broker.replica_manager import ReplicaManager
from sparkraft.server.broker.replication_throttles import ReplicationThrottle
from sparkraft.server.broker.services import BrokerServices
from sparkraft.server.broker.verification import TransactionVerification
from sparkraft.server.config import RACK_AWARE_SELECTOR
from sparkraft.server.coordinator.group_driver import GroupDriver
from sparkraft.server.limits import connections_max

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sparkraft.base.ids import Uuid
    from sparkraft.metadata.image import ClusterImage
    from sparkraft.server.broker.metadata_publisher import MetadataPublisher
    from sparkraft.server.identity import Identity
    from sparkraft.server.node import Node
    from sparkraft.storage.log_manager import LogManager


def assemble(
    node: "Node", *, log_manager: "LogManager", identity: "Identity", publisher: "MetadataPublisher"
) -> BrokerServices:
    """A broker that follows the metadata log, and isn't registered yet."""
    config, env, raft = node.config, node.env, node.raft
    assert raft is not None
    broker = BrokerServices()
    broker.cluster_id = identity.cluster_id
    broker.node_id = config.node_id
    broker.config = config
    broker.env = env
    broker.clock = env.clock
    broker.image = publisher.image
    broker.log_manager = log_manager
    broker.raft = raft
    broker.controller = (
        node.controller_services.controller if node.controller_services is not None else None
    )
    broker.replica_manager = ReplicaManager(
        config,
        env,
        log_manager,
        spawn=node.spawn,
        on_storage_fault=node.on_storage_fault,
    )
    broker.replica_manager.isr_changes = isr_changes = IsrChanges(broker)
    broker.directory_assignments = DirectoryAssignments(broker)
    broker.log_dir_moves = LogDirMoves(broker)
    broker.coordinators_elsewhere = CoordinatorsElsewhere(broker)
    broker.verification = TransactionVerification(broker)
    broker.fetchers = ReplicaFetchers(broker, node.spawn)
    broker.leader_throttle = ReplicationThrottle(broker, "leader")
    _listen_to_replicas(broker, LeavingIsr(broker, node.spawn))
    broker.groups = GroupDriver(broker)
    assert node.channel is not None
    assert node.heartbeats is not None
    broker.channel = node.channel
    broker.fetch_sessions = FetchSessions(
        env.clock,
        env.entropy,
        slots=config.number("max.incremental.fetch.session.cache.slots"),
    )
    broker.reads_by_rack = config.text("replica.selector.class") == RACK_AWARE_SELECTOR
    broker.produce_shapes = ProduceShapes()
    broker.forwarding = Forwarding(config, broker.channel)
    broker.auto_topic_creation = AutoTopicCreation(broker, node.spawn)
    broker.producer_ids = ProducerIds(broker)
    broker.lifecycle = BrokerLifecycle(
        broker,
        node.heartbeats,
        publisher,
        advertised=node.advertised(controller=False),
        directories=_online(log_manager),
        previous_epoch=log_manager.previous_broker_epoch,
    )
    broker.dynamic_configs = DynamicConfigs(config, log_manager, partial(_limit_connections, node))
    _follow(broker, publisher)
    for work, name in (
        (broker.directory_assignments.run(), "directory assignments"),
        (broker.log_dir_moves.run(), "moves between log directories"),
        (broker.coordinators_elsewhere.run(), "coordinators elsewhere"),
        (isr_changes.run(), "ISR changes"),
        (isr_changes.shrink(), "ISR shrinking"),
    ):
        node.spawn(work, name)
    broker.compaction = Compaction(broker, broker.dynamic_configs.value, node.on_storage_fault)
    node.spawn(broker.compaction.run(), "compaction")
    node.spawn(Background(broker, node.on_storage_fault).run(), "background")
    return broker


def _listen_to_replicas(broker: BrokerServices, leaving: LeavingIsr) -> None:
    """Let the broker's parts hear of replicas that come, go, and follow somebody."""
    manager = broker.replica_manager
    manager.placement_listeners += [
        broker.log_dir_moves.note,
        broker.directory_assignments.note,
        broker.coordinators_elsewhere.note,
    ]
    manager.fetcher_listeners.append(broker.fetchers.on_following)
    manager.given_up_listeners.append(leaving.leave)


def _online(log_manager: "LogManager") -> "list[Uuid]":
    return [
        directory.directory_id
        for directory in log_manager.directories
        if directory.fault is None and directory.directory_id is not None
    ]


def _limit_connections(
    node: "Node", dynamic: DynamicConfigs, overrides: "Mapping[str, int]"
) -> None:
    node.connection_rates.limit(dynamic.number, dynamic.number_of)
    connections = dynamic.number("max.connections")
    for listener in node.listeners:
        listener.limits = replace(
            listener.limits,
            connections_max=connections_max(connections, listeners=len(node.listeners)),
            connections_per_ip_max=dynamic.number("max.connections.per.ip"),
            per_ip_overrides=overrides,
        )


def _follow(broker: BrokerServices, publisher: "MetadataPublisher") -> None:
    """Let every image reach the broker's parts."""
    dynamic = broker.dynamic_configs

    def on_image(
        before: "ClusterImage", image: "ClusterImage", changed: "Iterable[Uuid] | None"
    ) -> None:
        broker.image = image
        dynamic.on_image(image)
        broker.fetchers.resize(dynamic.number("num.replica.fetchers"))
        broker.replica_manager.on_image(image, changed)
        broker.groups.on_image(before, image, changed)

    publisher.subscribe(on_image)
