"""Read-only views of a running node, for /health, /metrics and other observers."""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkraft.base.env import Clock
    from sparkraft.metadata.image import ClusterImage
    from sparkraft.security.client_quotas import ClientQuotas
    from sparkraft.server.broker.alter_partition import AlterPartitionQueue
    from sparkraft.server.broker.client_telemetry import ClientTelemetry
    from sparkraft.server.broker.compaction import Compaction
    from sparkraft.server.broker.controller_channel import ControllerChannel
    from sparkraft.server.broker.fetch_sessions import FetchSessions
    from sparkraft.server.broker.fetchers import ReplicaFetchers
    from sparkraft.server.broker.isr_journal import IsrJournal
    from sparkraft.server.broker.lifecycle import Lifecycle
    from sparkraft.server.broker.log_dir_moves import LogDirMoves
    from sparkraft.server.broker.replica_manager import ReplicaManager
    from sparkraft.server.broker.replication_throttles import ReplicationThrottle
    from sparkraft.server.config import NodeConfig
    from sparkraft.server.controller.services import ControllerServices
    from sparkraft.server.coordinator.group_service import GroupCoordinatorService
    from sparkraft.server.coordinator.transaction_service import TransactionCoordinatorService
    from sparkraft.server.identity import Identity
    from sparkraft.server.loop_monitor import LoopMonitor
    from sparkraft.server.network.listener import Listener
    from sparkraft.server.raft.driver import RaftDriver
    from sparkraft.server.zookeeper.status import ZooKeeperStatus
    from sparkraft.storage.log_manager import LogManager


class BrokerStatus(Protocol):
    """The observable parts of a broker."""

    @property
    def image(self) -> "ClusterImage": ...
    @property
    def clock(self) -> "Clock": ...
    @property
    def lifecycle(self) -> "Lifecycle": ...
    @property
    def log_manager(self) -> "LogManager": ...
    @property
    def replica_manager(self) -> "ReplicaManager": ...
    @property
    def isr_changes(self) -> "AlterPartitionQueue": ...
    @property
    def isr_journal(self) -> "IsrJournal": ...
    @property
    def fetch_sessions(self) -> "FetchSessions": ...
    @property
    def fetchers(self) -> "ReplicaFetchers": ...
    @property
    def leader_throttle(self) -> "ReplicationThrottle": ...
    @property
    def log_dir_moves(self) -> "LogDirMoves": ...
    @property
    def groups(self) -> "GroupCoordinatorService": ...
    @property
    def transactions(self) -> "TransactionCoordinatorService": ...
    @property
    def telemetry(self) -> "ClientTelemetry": ...
    @property
    def client_quotas(self) -> "ClientQuotas": ...
    @property
    def compaction(self) -> "Compaction": ...


class NodeStatus(Protocol):
    """The observable parts of a node; those not started yet are None or empty."""

    @property
    def config(self) -> "NodeConfig": ...
    @property
    def identity(self) -> "Identity | None": ...
    @property
    def failure(self) -> BaseException | None:
        """Why the node stops; None while it runs."""

    @property
    def listeners(self) -> "Sequence[Listener]": ...
    @property
    def loop_monitor(self) -> "LoopMonitor": ...
    @property
    def raft(self) -> "RaftDriver | None": ...
    @property
    def controller_services(self) -> "ControllerServices | None": ...
    @property
    def zookeeper(self) -> "ZooKeeperStatus | None":
        """None in KRaft mode, and before the node has opened its session."""

    @property
    def channel(self) -> "ControllerChannel | None": ...
    @property
    def broker(self) -> BrokerStatus | None: ...
