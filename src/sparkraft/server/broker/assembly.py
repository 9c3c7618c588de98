"""Puts a broker together out of its parts, in the order in which they need each other."""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from sparkraft.server.api.k00_produce import ProduceShapes
from sparkraft.server.broker.auto_topic_creation import AutoTopicCreation
from sparkraft.server.broker.background import Background
from sparkraft.server.broker.directory_assignments import DirectoryAssignments
from sparkraft.server.broker.dynamic_configs import DynamicConfigs
from sparkraft.server.broker.fetch_sessions import FetchSessions
from sparkraft.server.broker.forwarding import Forwarding
from sparkraft.server.broker.lifecycle import BrokerLifecycle
from sparkraft.server.broker.producer_ids import ProducerIds
from sparkraft.server.broker.replica_manager import ReplicaManager
from sparkraft.server.broker.services import Broker
from sparkraft.server.coordinator.group_driver import GroupDriver
from sparkraft.server.limits import connections_max

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkraft.base.ids import Uuid
    from sparkraft.metadata.image import ClusterImage
    from sparkraft.server.broker.metadata_publisher import MetadataPublisher
    from sparkraft.server.identity import Identity
    from sparkraft.server.node import Node
    from sparkraft.storage.log_manager import LogManager


def assemble(
    node: "Node", *, log_manager: "LogManager", identity: "Identity", publisher: "MetadataPublisher"
) -> Broker:
    """A broker that follows the metadata log, and isn't registered yet."""
    config, env, raft = node.config, node.env, node.raft
    assert raft is not None
    broker = Broker()
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
    broker.directory_assignments = DirectoryAssignments(broker)
    broker.replica_manager.placement_listeners.append(broker.directory_assignments.note)
    broker.groups = GroupDriver(broker)
    assert node.channel is not None
    broker.channel = node.channel
    broker.fetch_sessions = FetchSessions(
        env.clock,
        env.entropy,
        slots=config.number("max.incremental.fetch.session.cache.slots"),
    )
    broker.produce_shapes = ProduceShapes()
    broker.forwarding = Forwarding(config, broker.channel)
    broker.auto_topic_creation = AutoTopicCreation(broker, node.spawn)
    broker.producer_ids = ProducerIds(broker)
    broker.lifecycle = BrokerLifecycle(
        broker,
        broker.channel,
        publisher,
        advertised=node.advertised(controller=False),
        directories=_online(log_manager),
        previous_epoch=log_manager.previous_broker_epoch,
    )
    dynamic = DynamicConfigs(config, log_manager, partial(_limit_connections, node))
    _follow(broker, publisher, dynamic)
    node.spawn(broker.directory_assignments.run(), "directory assignments")
    node.spawn(Background(broker, node.on_storage_fault).run(), "background")
    return broker


def _online(log_manager: "LogManager") -> "list[Uuid]":
    return [
        directory.directory_id
        for directory in log_manager.directories
        if directory.fault is None and directory.directory_id is not None
    ]


def _limit_connections(node: "Node", connections: int, per_ip: int) -> None:
    for listener in node.listeners:
        listener.limits = replace(
            listener.limits,
            connections_max=connections_max(connections, listeners=len(node.listeners)),
            connections_per_ip_max=per_ip,
        )


def _follow(broker: Broker, publisher: "MetadataPublisher", dynamic: DynamicConfigs) -> None:
    """Let every image reach the broker's parts."""

    def on_image(
        before: "ClusterImage", image: "ClusterImage", changed: "Iterable[Uuid] | None"
    ) -> None:
        broker.image = image
        dynamic.on_image(image)
        broker.replica_manager.on_image(image, changed)
        broker.groups.on_image(before, image, changed)

    publisher.subscribe(on_image)
