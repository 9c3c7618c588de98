"""The cluster as the active controller sees it (Kafka's ControllerContext).

Filled at a failover and changed by events; empty while another node is the controller.

Invariants:
    * `topics_with_deletion_started` is a subset of `topics_to_be_deleted`.
    * Partitions and replicas change their states through `put_partition_status` and
      `put_replica_status` only, which enforce the tables of `states`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from sparkraft.base.ids import TopicPartition, Uuid
from sparkraft.zookeeper.controller.states import (
    PARTITION_NEXT_STATES,
    REPLICA_NEXT_STATES,
    PartitionStatus,
    ReplicaStatus,
)
from sparkraft.zookeeper.controller.values import (
    EPOCH_DURING_DELETE,
    NO_EPOCH,
    Broker,
    Leadership,
    Replica,
    ReplicaAssignment,
)

_UNKNOWN = ReplicaAssignment(())
"""Of an unknown partition."""


@dataclass(slots=True)
class ControllerContext:
    """The cluster as the controller sees it.

    Attributes:
        epoch: this controller's epoch, the number in /controller_epoch; 0 while not active.
        epoch_version: version of that znode, which every write checks.
        brokers: registered brokers, those that shut down included.
        shutting_down: brokers whose controlled shutdown is in progress.
        topic_ids: ids by name; a topic of an old cluster may have none.
        assignments: replicas by topic and partition.
        leaderships: leader and ISR by partition; none for a partition without a state znode.
        being_reassigned: partitions with a reassignment in progress.
        offline_replicas: partitions on failed log directories, by broker.
        topics_to_be_deleted: topics queued for deletion.
        topics_with_deletion_started: topics whose replicas are being deleted.
        topics_ineligible_for_deletion: topics whose deletion waits for a broker or a reassignment.
    """

    epoch: int = 0
    epoch_version: int = 0
    brokers: dict[int, Broker] = field(default_factory=dict)
    shutting_down: set[int] = field(default_factory=set)
    topics: set[str] = field(default_factory=set)
    topic_ids: dict[str, Uuid] = field(default_factory=dict)
    assignments: dict[str, dict[int, ReplicaAssignment]] = field(default_factory=dict)
    leaderships: dict[TopicPartition, Leadership] = field(default_factory=dict)
    being_reassigned: set[TopicPartition] = field(default_factory=set)
    partition_statuses: dict[TopicPartition, PartitionStatus] = field(default_factory=dict)
    replica_statuses: dict[Replica, ReplicaStatus] = field(default_factory=dict)
    offline_replicas: dict[int, set[TopicPartition]] = field(default_factory=dict)
    topics_to_be_deleted: set[str] = field(default_factory=set)
    topics_with_deletion_started: set[str] = field(default_factory=set)
    topics_ineligible_for_deletion: set[str] = field(default_factory=set)

    # Brokers

    @property
    def live_brokers(self) -> list[int]:
        """Ids of brokers that may lead."""
        return sorted(self.brokers.keys() - self.shutting_down)

    @property
    def live_or_shutting_down(self) -> list[int]:
        """Ids of brokers that receive requests."""
        return sorted(self.brokers)

    def why_not(self, broker: int, at: TopicPartition) -> str | None:
        """Return the reason that a replica is not online; None for one that is."""
        if broker not in self.brokers:
            return "broker not registered"
        if broker in self.shutting_down:
            return "broker shutting down"
        if at in self.offline_replicas.get(broker, ()):
            return "log directory offline"
        return None

    def is_online(self, broker: int, at: TopicPartition) -> bool:
        """Whether a replica may lead."""
        return self.why_not(broker, at) is None

    def offline(self, replicas: Iterable[int], at: TopicPartition) -> tuple[int, ...]:
        """Return those of a partition's `replicas` that are not online."""
        return tuple([replica for replica in replicas if self.why_not(replica, at)])

    def is_online_or_shutting_down(self, broker: int, at: TopicPartition) -> bool:
        return broker in self.brokers and at not in self.offline_replicas.get(broker, ())

    # Partitions and replicas

    def assignment(self, at: TopicPartition) -> ReplicaAssignment:
        """Return the replicas of a partition; none for an unknown one."""
        partitions = self.assignments.get(at[0])
        return _UNKNOWN if partitions is None else partitions.get(at[1], _UNKNOWN)

    def assign(self, at: TopicPartition, assignment: ReplicaAssignment) -> None:
        self.assignments.setdefault(at[0], {})[at[1]] = assignment

    def partitions(self, topics: Iterable[str] | None = None) -> Iterator[TopicPartition]:
        """Yield the partitions of `topics`, by default of all, in order."""
        for topic in sorted(self.assignments if topics is None else topics):
            for partition in sorted(self.assignments.get(topic, {})):
                yield topic, partition

    def replicas(self, topics: Iterable[str] | None = None) -> Iterator[Replica]:
        """Yield the assigned replicas of `topics`, by default of all, in order."""
        for at in self.partitions(topics):
            for broker in self.assignment(at).replicas:
                yield Replica(*at, broker)

    def leader_epoch(self, at: TopicPartition) -> int:
        """Return the leader epoch for StopReplica (KIP-570)."""
        if at[0] in self.topics_to_be_deleted:
            return EPOCH_DURING_DELETE
        leadership = self.leaderships.get(at)
        return NO_EPOCH if leadership is None else leadership.state.leader_epoch

    def partition_status(self, at: TopicPartition) -> PartitionStatus:
        return self.partition_statuses.get(at, PartitionStatus.NON_EXISTENT)

    def replica_status(self, replica: Replica) -> ReplicaStatus:
        return self.replica_statuses.get(replica, ReplicaStatus.NON_EXISTENT)

    def may_become(self, at: TopicPartition, status: PartitionStatus) -> bool:
        return status in PARTITION_NEXT_STATES[self.partition_status(at)]

    def replica_may_become(self, replica: Replica, status: ReplicaStatus) -> bool:
        return status in REPLICA_NEXT_STATES[self.replica_status(replica)]

    def put_partition_status(self, at: TopicPartition, status: PartitionStatus) -> None:
        """Change a partition's state; the table must allow it."""
        assert self.may_become(at, status), (at, self.partition_status(at), status)
        self.partition_statuses[at] = status

    def put_replica_status(self, replica: Replica, status: ReplicaStatus) -> None:
        """Change a replica's state; the table must allow it."""
        assert self.replica_may_become(replica, status), (replica, status)
        if status is ReplicaStatus.NON_EXISTENT:
            del self.replica_statuses[replica]
        else:
            self.replica_statuses[replica] = status

    # Topics

    def is_eligible_for_deletion(self, topic: str) -> bool:
        return (
            topic in self.topics_to_be_deleted and topic not in self.topics_ineligible_for_deletion
        )

    def mark_ineligible(self, topics: Iterable[str]) -> None:
        """Suspend the deletion of those of `topics` that are queued for deletion."""
        self.topics_ineligible_for_deletion |= self.topics_to_be_deleted & set(topics)

    def remove_topic(self, topic: str) -> None:
        """Forget a topic that no longer exists."""
        for known in (
            self.topics_to_be_deleted,
            self.topics_with_deletion_started,
            self.topics_ineligible_for_deletion,
            self.topics,
        ):
            known.discard(topic)
        self.topic_ids.pop(topic, None)
        for replica in self.replicas([topic]):
            self.replica_statuses.pop(replica, None)
        for partition in self.assignments.pop(topic, {}):
            self.leaderships.pop((topic, partition), None)
            self.partition_statuses.pop((topic, partition), None)

    # Gauges

    def offline_partition_count(self) -> int:
        """Count partitions whose leader is not online; OfflinePartitionsCount.

        Topics whose deletion has started do not count.
        """
        return sum(
            status is PartitionStatus.OFFLINE and at[0] not in self.topics_with_deletion_started
            for at, status in self.partition_statuses.items()
        )

    def preferred_imbalance_count(self) -> int:
        """Count partitions not led by their preferred replica; PreferredReplicaImbalanceCount.

        A preferred replica that a reassignment adds counts once it is in the ISR. Topics queued
        for deletion do not count.
        """
        return sum(
            self._is_imbalanced(at)
            for at in self.partitions()
            if at[0] not in self.topics_to_be_deleted
        )

    def _is_imbalanced(self, at: TopicPartition) -> bool:
        assignment, leadership = self.assignment(at), self.leaderships.get(at)
        if leadership is None or not assignment.replicas:
            return False
        preferred = assignment.replicas[0]
        if preferred in assignment.adding and preferred not in leadership.state.isr:
            return False
        return leadership.state.leader != preferred
