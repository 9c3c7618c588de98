"""Builds a broker's parts in the order of their dependencies."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from sparkraft.coordinator.internal_topics import (
    GROUP_METADATA_TOPIC,
    TRANSACTION_STATE_TOPIC,
    KeyType,
)
from sparkraft.server.broker.active_brokers import ActiveBrokers
from sparkraft.server.broker.alter_partition import AlterPartitionQueue
from sparkraft.server.broker.auto_topic_creation import AutoTopicCreation
from sparkraft.server.broker.background import Background
from sparkraft.server.broker.broker_epoch import BrokerEpoch
from sparkraft.server.broker.client_telemetry import ClientTelemetry
from sparkraft.server.broker.cold_reads import ColdReads
from sparkraft.server.broker.compaction import Compaction
from sparkraft.server.broker.directory_assignments import DirectoryAssignments
from sparkraft.server.broker.dynamic_configs import DynamicConfigs
from sparkraft.server.broker.fetch_sessions import FetchSessions
from sparkraft.server.broker.fetchers import ReplicaFetchers
from sparkraft.server.broker.follower_client import FollowerClient
from sparkraft.server.broker.forwarding import Forwarding
from sparkraft.server.broker.inter_broker_versions import InterBrokerVersions, at_metadata_version
from sparkraft.server.broker.isr_expiration import expire_isrs
from sparkraft.server.broker.isr_journal import IsrJournal
from sparkraft.server.broker.isr_withdrawal import IsrWithdrawal
from sparkraft.server.broker.lifecycle import BrokerLifecycle
from sparkraft.server.broker.log_dir_moves import LogDirMoves
from sparkraft.server.broker.metadata_cache import MetadataCache
from sparkraft.server.broker.produce_shapes import ProduceShapes
from sparkraft.server.broker.producer_ids import ProducerIds
from sparkraft.server.broker.replica_manager import ReplicaManager
from sparkraft.server.broker.replication_throttles import ReplicationThrottle
from sparkraft.server.broker.shared_reads import SharedReads
from sparkraft.server.broker_services import BrokerServices
from sparkraft.server.config import RACK_AWARE_SELECTOR, TELEMETRY_ENABLE
from sparkraft.server.config_pieces import ConfigPieces
from sparkraft.server.coordinator.broker_batches import BrokerConnections
from sparkraft.server.coordinator.directory import CoordinatorDirectory
from sparkraft.server.coordinator.external_coordinators import ExternalCoordinators
from sparkraft.server.coordinator.group_service import GroupCoordinatorService
from sparkraft.server.coordinator.host import LedPartition
from sparkraft.server.coordinator.marker_log import MarkerLog
from sparkraft.server.coordinator.marker_sender import MarkerSender
from sparkraft.server.coordinator.transaction_service import TransactionCoordinatorService
from sparkraft.server.coordinator.transaction_verification import TransactionVerification

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping

    from sparkraft.base.ids import Uuid
    from sparkraft.metadata.image import ClusterImage
    from sparkraft.security.client_quotas import ClientQuotas
    from sparkraft.server.broker.controller_channel import ControllerChannel, RequestSender
    from sparkraft.server.broker.dynamic_configs import Advertised, ConnectionConfigs
    from sparkraft.server.broker.lifecycle import Lifecycle
    from sparkraft.server.broker.metadata_publisher import MetadataPublisher
    from sparkraft.server.config import ListenerAddress, NodeConfig
    from sparkraft.server.controller.driver import ControllerDriver
    from sparkraft.server.env import Env
    from sparkraft.server.node_tls import NodeTls
    from sparkraft.server.raft.driver import RaftDriver
    from sparkraft.server.supervisor import Supervisor
    from sparkraft.server.zookeeper.control import ControllerRequests
    from sparkraft.server.zookeeper.features import FinalizedFeatures
    from sparkraft.server.zookeeper.forwarding import ZooKeeperForwarding
    from sparkraft.server.zookeeper.own_controller import OwnControllerServices
    from sparkraft.storage.log_manager import LogManager
    from sparkraft.tls.dialing import Connect


class Publisher(Protocol):
    """Publishes images."""

    @property
    def image(self) -> "ClusterImage":
        """The newest."""

    def subscribe(self, subscriber: Any) -> None:
        """Call `subscriber` with every new image; see `MetadataPublisher.subscribe`."""

    def follow(self, follower: "Callable[[ClusterImage], None]") -> None:
        """Call `follower` with every new image; see `MetadataPublisher.follow`."""


class Joined(NamedTuple):
    """The parts of a broker that depend on how it takes part in its cluster.

    Attributes:
        lifecycle: registers, and leaves.
        follow_image: called with each image and the ids of changed topics, for the replicas.
        forwarding: sends clients' requests to the controller.
        reports_directories: whether the controller needs the log directory of each replica.
        controller_requests: serves the ZooKeeper controller; None in KRaft mode.
        own_controller: this node's candidate for that controller; None in KRaft mode.
        advertised: follows changes of advertised.listeners; None in KRaft mode.
        finalized_features: those in ZooKeeper; None in KRaft mode.
    """

    lifecycle: "Lifecycle"
    follow_image: "Callable[[ClusterImage, Iterable[Uuid] | None], None]"
    forwarding: "Forwarding | ZooKeeperForwarding"
    reports_directories: bool
    controller_requests: "ControllerRequests | None"
    own_controller: "OwnControllerServices | None" = None
    advertised: "Advertised | None" = None
    finalized_features: "FinalizedFeatures | None" = None


class Membership(Protocol):
    """Joins a broker to its cluster.

    Attributes:
        broker_epoch: of the broker, as the controller knows it.
        versions: highest versions of requests between brokers now.
    """

    @property
    def broker_epoch(self) -> BrokerEpoch: ...
    @property
    def versions(self) -> InterBrokerVersions: ...
    def requests(self, base: "BrokerFoundation") -> "RequestSender":
        """Return what decides ISR changes and allocates producer ids."""

    def join(self, base: "BrokerFoundation", replicas: ReplicaManager) -> Joined:
        """Make the parts; nothing is sent yet."""


class KRaftMembership:
    """Follows the metadata log."""

    def __init__(self, publisher: "MetadataPublisher", heartbeats: "ControllerChannel") -> None:
        """Prepare.

        Args:
            publisher: publishes images.
            heartbeats: to the active controller, for registration and heartbeats.
        """
        self._publisher = publisher
        self._heartbeats = heartbeats
        self.broker_epoch = BrokerEpoch()

    @property
    def versions(self) -> InterBrokerVersions:
        """See `Membership`."""
        return at_metadata_version(self._publisher.image.metadata_version)

    def requests(self, base: "BrokerFoundation") -> "RequestSender":
        """See `Membership`: the controller does."""
        return base.channel

    def join(self, base: "BrokerFoundation", replicas: ReplicaManager) -> Joined:
        """See `Membership`."""
        lifecycle = BrokerLifecycle(
            base.config,
            base.env,
            cluster_id=base.cluster_id,
            advertised=base.advertised,
            broker_epoch=self.broker_epoch,
            channel=self._heartbeats,
            on_heartbeat_lost=base.channel.reconnect,
            publisher=self._publisher,
            replicas=replicas,
            log_manager=base.log_manager,
        )
        return Joined(
            lifecycle=lifecycle,
            follow_image=replicas.on_image,
            forwarding=Forwarding(base.config, base.channel),
            reports_directories=True,
            controller_requests=None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFoundation:
    """The parts that a node opens before its broker.

    Attributes:
        config: static configs of the node.
        env: clock, disk, network, executor, entropy.
        cluster_id: as in meta.properties.
        advertised: the broker listeners that clients and brokers connect to, ports filled in.
        log_manager: has loaded the logs of earlier runs.
        raft: the node's member of the metadata quorum; None in ZooKeeper mode.
        controller: the node's controller, None without that role.
        publisher: publishes images.
        channel: to the active controller, for everything but heartbeats.
        membership: joins the broker to its cluster.
        supervisor: runs tasks and handles failures.
        quotas: of clients; those of the controller's listeners, too, if the node has that role.
        limit_connections: applies dynamic connection limits to the node's listeners.
        connect: opens connections to the inter-broker listeners of other nodes.
        stores: the key and trust stores of the node's listeners.
    """

    config: "NodeConfig"
    env: "Env"
    cluster_id: str
    advertised: "tuple[ListenerAddress, ...]"
    log_manager: "LogManager"
    raft: "RaftDriver | None"
    controller: "ControllerDriver | None"
    publisher: "Publisher"
    channel: "ControllerChannel"
    membership: "Membership"
    supervisor: "Supervisor"
    quotas: "ClientQuotas"
    limit_connections: "Callable[[ConnectionConfigs, Mapping[str, int]], None]"
    connect: "Connect"
    stores: "NodeTls"


def assemble(base: BrokerFoundation) -> BrokerServices:
    """A broker that is not registered yet."""
    config, env, supervisor = base.config, base.env, base.supervisor
    metadata = MetadataCache(base.publisher.image)
    broker_epoch = base.membership.broker_epoch
    requests = base.membership.requests(base)
    isr_journal = IsrJournal(env.clock)
    isr_changes = AlterPartitionQueue(
        requests, isr_journal, node_id=config.node_id, broker_epoch=broker_epoch
    )
    replicas = ReplicaManager(
        config,
        env,
        base.log_manager,
        brokers=ActiveBrokers(metadata),
        isr_changes=isr_changes,
        supervisor=supervisor,
        cluster=lambda: metadata.image,
    )
    joined = base.membership.join(base, replicas)
    lifecycle = joined.lifecycle
    assignments = DirectoryAssignments(config, env, metadata, base.channel, broker_epoch)
    moves = LogDirMoves(
        config,
        env,
        metadata=metadata,
        log_manager=base.log_manager,
        replica_manager=replicas,
        assignments=assignments,
        reports_directories=joined.reports_directories,
    )
    fetchers = _follow_leaders(base, metadata, broker_epoch, replicas, moves)
    producer_ids = ProducerIds(config, requests, broker_epoch, fault_point=env.fault_point)
    dynamic_configs = DynamicConfigs(
        config, base.log_manager, base.limit_connections, base.stores, joined.advertised
    )
    coordinators = _coordinators(base, metadata, replicas, producer_ids, dynamic_configs)
    replicas.placement_listeners.append(moves.on_placement)
    compaction = Compaction(
        env,
        base.log_manager,
        setting=dynamic_configs.value,
        settled=lifecycle.settled,
        off_loop=replicas.off_loop,
        on_storage_fault=supervisor.on_storage_fault,
    )
    _subscribe(base, metadata, dynamic_configs, fetchers, joined.follow_image, coordinators)
    if joined.reports_directories:
        supervisor.spawn(assignments.run(), "directory assignments")
    for work, name in (
        (moves.run(), "moves between log directories"),
        (coordinators.external.run(), "external coordinators"),
        (isr_changes.run(), "ISR changes"),
        (_expire_isrs(env, replicas), "ISR expiration"),
        (compaction.run(), "compaction"),
        (_background(base, replicas, lifecycle).run(), "background"),
    ):
        supervisor.spawn(work, name)
    return BrokerServices(
        cluster_id=base.cluster_id,
        node_id=config.node_id,
        config=config,
        config_pieces=ConfigPieces(),
        env=env,
        clock=env.clock,
        metadata=metadata,
        log_manager=base.log_manager,
        replica_manager=replicas,
        isr_changes=isr_changes,
        isr_journal=isr_journal,
        groups=coordinators.groups,
        transactions=coordinators.transactions,
        raft=base.raft,
        controller=base.controller,
        channel=base.channel,
        coordinators=coordinators.directory,
        verification=coordinators.verification,
        marker_log=coordinators.marker_log,
        broker_connections=coordinators.connections,
        log_dir_moves=moves,
        fetch_sessions=FetchSessions(
            env.clock,
            env.entropy,
            slots=config.number("max.incremental.fetch.session.cache.slots"),
            partitions_max=config.number("sparkraft.fetch.session.partitions.max"),
        ),
        shared_reads=SharedReads(replicas.wheel),
        cold_reads=ColdReads(replicas.off_loop, env.disk.warm),
        fetchers=fetchers,
        reads_by_rack=config.text("replica.selector.class") == RACK_AWARE_SELECTOR,
        produce_shapes=ProduceShapes(),
        forwarding=joined.forwarding,
        auto_topic_creation=coordinators.topic_creation,
        producer_ids=producer_ids,
        leader_throttle=ReplicationThrottle("leader", config, metadata, env.clock),
        lifecycle=lifecycle,
        compaction=compaction,
        dynamic_configs=dynamic_configs,
        client_quotas=base.quotas,
        telemetry=ClientTelemetry(
            env.clock,
            env.entropy,
            is_enabled=config.flag(TELEMETRY_ENABLE),
            bytes_max=config.number("telemetry.max.bytes"),
            image=lambda: metadata.image,
        ),
        controller_requests=joined.controller_requests,
        own_controller=joined.own_controller,
        finalized_features=joined.finalized_features,
    )


def _follow_leaders(
    base: BrokerFoundation,
    metadata: MetadataCache,
    broker_epoch: BrokerEpoch,
    replicas: ReplicaManager,
    moves: LogDirMoves,
) -> ReplicaFetchers:
    """Fetchers, and the withdrawal of damaged followers, as listeners of `replicas`."""
    config, env, spawn = base.config, base.env, base.supervisor.spawn
    client = FollowerClient(
        config,
        base.connect,
        metadata,
        broker_epoch,
        versions=lambda: base.membership.versions,
        turn=lambda: env.turn(env.work_max.partitions),
    )
    fetchers = ReplicaFetchers(
        config,
        env.clock,
        client,
        throttle=ReplicationThrottle("follower", config, metadata, env.clock),
        on_truncated=moves.on_truncated,
        spawn=spawn,
    )
    withdrawal = IsrWithdrawal(
        metadata, client, node_id=config.node_id, lag_ms_max=replicas.lag_ms_max, spawn=spawn
    )
    replicas.fetcher_listeners.append(fetchers.on_following)
    replicas.damage_listeners.append(withdrawal.start)
    return fetchers


@dataclass(frozen=True, slots=True, kw_only=True)
class _Coordinators:
    groups: GroupCoordinatorService
    transactions: TransactionCoordinatorService
    marker_log: MarkerLog
    connections: BrokerConnections
    topic_creation: AutoTopicCreation
    external: ExternalCoordinators
    directory: CoordinatorDirectory
    verification: TransactionVerification


def _coordinators(
    base: BrokerFoundation,
    metadata: MetadataCache,
    replicas: ReplicaManager,
    producer_ids: ProducerIds,
    dynamic_configs: DynamicConfigs,
) -> _Coordinators:
    config, spawn = base.config, base.supervisor.spawn
    host_of = partial(LedPartition, replicas, metadata, spawn)
    external = ExternalCoordinators(
        config,
        base.connect,
        metadata,
        base.channel,
        own_topics={GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC},
    )
    groups = GroupCoordinatorService(
        config,
        base.env.entropy,
        metadata=metadata,
        host_of=host_of,
        disk=base.env.disk,
        move_leader=external.move_leader,
    )
    marker_log = MarkerLog(replicas, groups, base.env)
    connections = BrokerConnections(metadata, external)
    transactions = TransactionCoordinatorService(
        config,
        metadata=metadata,
        host_of=host_of,
        producer_ids=producer_ids,
        markers=MarkerSender(
            config,
            metadata,
            connections,
            marker_log,
            base.env,
            spawn,
            versions=lambda: base.membership.versions,
        ),
    )
    replicas.leadership_listeners.extend((groups.on_leadership, transactions.on_leadership))
    replicas.placement_listeners.append(external.on_placement)
    topic_creation = AutoTopicCreation(
        config,
        base.channel,
        internal_topics={one.topic: one.topic_to_create for one in (groups, transactions)},
        spawn=spawn,
    )
    directory = CoordinatorDirectory(
        metadata,
        node_id=config.node_id,
        services={KeyType.GROUP: groups, KeyType.TRANSACTION: transactions},
        external=external,
        create_topic=topic_creation.create,
    )
    return _Coordinators(
        groups=groups,
        transactions=transactions,
        marker_log=marker_log,
        connections=connections,
        topic_creation=topic_creation,
        external=external,
        directory=directory,
        verification=TransactionVerification(
            config, dynamic_configs.value, directory, transactions, connections, spawn
        ),
    )


def _background(
    base: BrokerFoundation, replicas: ReplicaManager, lifecycle: "Lifecycle"
) -> Background:
    return Background(
        base.config,
        base.env,
        base.log_manager,
        settled=lifecycle.settled,
        off_loop=replicas.off_loop,
        on_storage_fault=base.supervisor.on_storage_fault,
    )


def _expire_isrs(env: "Env", replicas: ReplicaManager) -> "Coroutine[Any, Any, None]":
    return expire_isrs(
        env.clock, lag_ms_max=replicas.lag_ms_max, maybe_shrink_isrs=replicas.maybe_shrink_isrs
    )


def _subscribe(
    base: BrokerFoundation,
    metadata: MetadataCache,
    dynamic_configs: DynamicConfigs,
    fetchers: ReplicaFetchers,
    follow_image: "Callable[[ClusterImage, Iterable[Uuid] | None], None]",
    coordinators: _Coordinators,
) -> None:
    """Pass every image to the parts, in the order in which they need each other's changes."""

    def on_image(
        before: "ClusterImage", image: "ClusterImage", changed: "Iterable[Uuid] | None"
    ) -> None:
        metadata.on_image(image)
        dynamic_configs.on_image(image)
        fetchers.resize(dynamic_configs.number("num.replica.fetchers"))
        follow_image(image, changed)
        coordinators.groups.on_image(before, image, changed)
        coordinators.transactions.on_image(before, image, changed)

    base.publisher.subscribe(on_image)
