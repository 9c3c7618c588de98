"""Everything a request handler on a broker listener may use."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkraft.base.env import Clock
    from sparkraft.base.ids import Uuid
    from sparkraft.metadata.image import BrokerRegistration, ClusterImage
    from sparkraft.security.client_quotas import ClientQuotas
    from sparkraft.server.broker.alter_partition import AlterPartitionQueue
    from sparkraft.server.broker.auto_topic_creation import AutoTopicCreation
    from sparkraft.server.broker.client_telemetry import ClientTelemetry
    from sparkraft.server.broker.cold_reads import ColdReads
    from sparkraft.server.broker.compaction import Compaction
    from sparkraft.server.broker.controller_channel import ControllerChannel
    from sparkraft.server.broker.dynamic_configs import DynamicConfigs
    from sparkraft.server.broker.fetch_sessions import FetchSessions
    from sparkraft.server.broker.fetchers import ReplicaFetchers
    from sparkraft.server.broker.forwarding import Forwarding
    from sparkraft.server.broker.isr_journal import IsrJournal
    from sparkraft.server.broker.lifecycle import Lifecycle
    from sparkraft.server.broker.log_dir_moves import LogDirMoves
    from sparkraft.server.broker.metadata_cache import MetadataCache
    from sparkraft.server.broker.produce_shapes import ProduceShapes
    from sparkraft.server.broker.producer_ids import ProducerIds
    from sparkraft.server.broker.replica_manager import ReplicaManager
    from sparkraft.server.broker.replication_throttles import ReplicationThrottle
    from sparkraft.server.broker.shared_reads import SharedReads
    from sparkraft.server.config import NodeConfig
    from sparkraft.server.config_pieces import ConfigPieces
    from sparkraft.server.controller.driver import ControllerDriver
    from sparkraft.server.coordinator.broker_batches import BrokerConnections
    from sparkraft.server.coordinator.directory import CoordinatorDirectory
    from sparkraft.server.coordinator.group_service import GroupCoordinatorService
    from sparkraft.server.coordinator.marker_log import MarkerLog
    from sparkraft.server.coordinator.transaction_service import TransactionCoordinatorService
    from sparkraft.server.coordinator.transaction_verification import TransactionVerification
    from sparkraft.server.env import Env
    from sparkraft.server.raft.driver import RaftDriver
    from sparkraft.server.zookeeper.control import ControllerRequests
    from sparkraft.server.zookeeper.features import FinalizedFeatures
    from sparkraft.server.zookeeper.forwarding import ZooKeeperForwarding
    from sparkraft.server.zookeeper.own_controller import OwnControllerServices
    from sparkraft.storage.log_manager import LogManager
    from sparkraft.zookeeper.controller.journal import ControllerJournal


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerServices:
    """A broker's services, built in one call by `broker_assembly.assemble`.

    Attributes:
        metadata: holds the current image.
        raft: this node's member (voter or observer) of the metadata quorum; None in ZooKeeper mode.
        controller: the local controller if this node has that role, else None.
        controller_requests: serves the ZooKeeper controller; None in KRaft mode.
        own_controller: this node's candidate for the ZooKeeper controller; None in KRaft mode.
        finalized_features: those in ZooKeeper; None in KRaft mode.
        reads_by_rack: whether consumers are directed to followers in their rack (KIP-392).
    """

    cluster_id: str
    node_id: int
    config: "NodeConfig"
    config_pieces: "ConfigPieces"
    env: "Env"
    clock: "Clock"
    metadata: "MetadataCache"
    log_manager: "LogManager"
    replica_manager: "ReplicaManager"
    isr_changes: "AlterPartitionQueue"
    isr_journal: "IsrJournal"
    groups: "GroupCoordinatorService"
    transactions: "TransactionCoordinatorService"
    raft: "RaftDriver | None"
    controller: "ControllerDriver | None"
    channel: "ControllerChannel"
    coordinators: "CoordinatorDirectory"
    verification: "TransactionVerification"
    marker_log: "MarkerLog"
    broker_connections: "BrokerConnections"
    log_dir_moves: "LogDirMoves"
    fetch_sessions: "FetchSessions"
    shared_reads: "SharedReads"
    cold_reads: "ColdReads"
    fetchers: "ReplicaFetchers"
    reads_by_rack: bool
    produce_shapes: "ProduceShapes"
    forwarding: "Forwarding | ZooKeeperForwarding"
    auto_topic_creation: "AutoTopicCreation"
    producer_ids: "ProducerIds"
    leader_throttle: "ReplicationThrottle"
    lifecycle: "Lifecycle"
    compaction: "Compaction"
    dynamic_configs: "DynamicConfigs"
    client_quotas: "ClientQuotas"
    telemetry: "ClientTelemetry"
    controller_requests: "ControllerRequests | None" = None
    own_controller: "OwnControllerServices | None" = None
    finalized_features: "FinalizedFeatures | None" = None

    @property
    def image(self) -> "ClusterImage":
        """The cluster as of the last committed record applied here; replaced, never changed."""
        return self.metadata.image

    @property
    def controlled(self) -> "ControllerRequests":
        """Serves the ZooKeeper controller; only in ZooKeeper mode."""
        assert self.controller_requests is not None
        return self.controller_requests

    @property
    def controller_journal(self) -> "ControllerJournal | None":
        """Of this node as the ZooKeeper controller; None in KRaft mode."""
        return None if self.own_controller is None else self.own_controller.controller.journal

    def controller_for_clients(self, live: "Sequence[BrokerRegistration]") -> int:
        """The controller's id in Metadata: a random live broker for a KRaft controller, by design.

        Args:
            live: the brokers in the response.
        """
        requests = self.controller_requests
        if requests is not None and not requests.has_kraft_controller:
            return requests.controller_id
        if not live:
            return -1
        return live[self.env.entropy.below(len(live)) if len(live) > 1 else 0].id

    def topic_id(self, name: str) -> "Uuid | None":
        """The id of the topic called `name`; None if there is none."""
        return self.metadata.image.topics_by_name.get(name)
