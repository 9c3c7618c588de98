"""Everything a handler on a broker listener may reach."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparkraft.base.env import Clock
    from sparkraft.base.ids import Uuid
    from sparkraft.metadata.image import ClusterImage
    from sparkraft.server.broker.auto_topic_creation import AutoTopicCreation
    from sparkraft.server.broker.compaction import Compaction
    from sparkraft.server.broker.controller_channel import ControllerChannel
    from sparkraft.server.broker.coordinators_elsewhere import CoordinatorsElsewhere
    from sparkraft.server.broker.directory_assignments import DirectoryAssignments
    from sparkraft.server.broker.dynamic_configs import DynamicConfigs
    from sparkraft.server.broker.fetch_sessions import FetchSessions
    from sparkraft.server.broker.fetchers import ReplicaFetchers
    from sparkraft.server.broker.forwarding import Forwarding
    from sparkraft.server.broker.lifecycle import BrokerLifecycle
    from sparkraft.server.broker.log_dir_moves import LogDirMoves
    from sparkraft.server.broker.produce_shapes import ProduceShapes
    from sparkraft.server.broker.producer_ids import ProducerIds
    from sparkraft.server.broker.replica_manager import ReplicaManager
    from sparkraft.server.broker.replication_throttles import ReplicationThrottle
    from sparkraft.server.broker.verification import TransactionVerification
    from sparkraft.server.config import NodeConfig
    from sparkraft.server.controller.driver import ControllerDriver
    from sparkraft.server.coordinator.group_driver import GroupDriver
    from sparkraft.server.env import Env
    from sparkraft.server.raft.driver import RaftDriver
    from sparkraft.storage.log_manager import LogManager


class BrokerServices:
    """A broker's services; assembled once by `sparkraft.server.node.Node`.

    Attributes:
        image: the cluster as of the last committed record applied here; replaced, never changed.
        raft: this node's member (voter or observer) of the metadata quorum.
        controller: the local controller where this node has that role, else None.
        reads_by_rack: whether consumers are sent to followers in their rack (KIP-392).
    """

    cluster_id: str
    node_id: int
    config: "NodeConfig"
    env: "Env"
    clock: "Clock"
    image: "ClusterImage"
    log_manager: "LogManager"
    replica_manager: "ReplicaManager"
    groups: "GroupDriver"
    raft: "RaftDriver"
    controller: "ControllerDriver | None"
    channel: "ControllerChannel"
    coordinators_elsewhere: "CoordinatorsElsewhere"
    verification: "TransactionVerification"
    directory_assignments: "DirectoryAssignments"
    log_dir_moves: "LogDirMoves"
    fetch_sessions: "FetchSessions"
    fetchers: "ReplicaFetchers"
    reads_by_rack: bool
    produce_shapes: "ProduceShapes"
    forwarding: "Forwarding"
    auto_topic_creation: "AutoTopicCreation"
    producer_ids: "ProducerIds"
    leader_throttle: "ReplicationThrottle"
    lifecycle: "BrokerLifecycle"
    compaction: "Compaction"
    dynamic_configs: "DynamicConfigs"

    def topic_id(self, name: str) -> "Uuid | None":
        """The id of the topic called `name`, None where there is none."""
        return self.image.topics_by_name.get(name)
