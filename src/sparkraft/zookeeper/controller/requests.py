"""Requests of the controller to brokers as values, and the batch that collects them.

Rules of Kafka 3.9's ControllerBrokerRequestBatch:
    * A batch contains at most one LeaderAndIsr and one StopReplica request per broker. `is_new` and
      `delete` of a partition stay true once they are set.
    * All UpdateMetadata requests of a batch have the same partitions and go to the union of its
      brokers. A partition without leadership is left out; one whose topic is being deleted has
      leader -2.
    * Each broker receives LeaderAndIsr, then UpdateMetadata, then StopReplica, with its own epoch.
    * Requests go to registered brokers only, those that shut down included.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum

from sparkraft.base.ids import TopicPartition, Uuid
from sparkraft.zookeeper.controller.context import ControllerContext
from sparkraft.zookeeper.controller.values import Broker, Leadership, ReplicaAssignment


class Scope(IntEnum):
    """The `type` of a request of a KRaft controller (KIP-866); others leave it unknown."""

    UNKNOWN = 0
    INCREMENTAL = 1
    FULL = 2
    """It has all partitions: the broker removes replicas that are not in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrPartition:
    """A partition in LeaderAndIsr."""

    leadership: Leadership
    assignment: ReplicaAssignment
    is_new: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataPartition:
    """A partition in UpdateMetadata."""

    leadership: Leadership
    replicas: tuple[int, ...]
    offline: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaPartition:
    """A partition in StopReplica; the epoch is -2 if its topic is queued for deletion."""

    leader_epoch: int
    delete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlRequest:
    """The fields of all three requests: the receiver, its epoch and the controller's epoch."""

    broker: int
    broker_epoch: int
    controller_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrRequest(ControlRequest):
    """Lead or follow partitions."""

    partitions: dict[TopicPartition, LeaderAndIsrPartition]
    topic_ids: dict[str, Uuid]
    live_leaders: tuple[Broker, ...]
    scope: Scope = Scope.UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataRequest(ControlRequest):
    """Brokers, and partitions that changed."""

    partitions: dict[TopicPartition, MetadataPartition]
    topic_ids: dict[str, Uuid]
    live_brokers: tuple[Broker, ...]
    scope: Scope = Scope.UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaRequest(ControlRequest):
    """Stop replicas, or delete them."""

    partitions: dict[TopicPartition, StopReplicaPartition]


@dataclass(slots=True)
class RequestBatch:
    """Collects the requests of one decision; see the module's docstring."""

    _context: ControllerContext
    _leader_and_isr: dict[int, dict[TopicPartition, LeaderAndIsrPartition]] = field(
        default_factory=dict
    )
    _stop_replica: dict[int, dict[TopicPartition, StopReplicaPartition]] = field(
        default_factory=dict
    )
    _metadata_brokers: set[int] = field(default_factory=set)
    _metadata: dict[TopicPartition, MetadataPartition] = field(default_factory=dict)

    def add_leader_and_isr(
        self, brokers: Iterable[int], at: TopicPartition, leadership: Leadership, *, is_new: bool
    ) -> None:
        """Send a partition's leadership to `brokers`, and UpdateMetadata of it to all brokers."""
        assignment = self._context.assignment(at)
        for broker in brokers:
            if broker >= 0:
                partitions = self._leader_and_isr.setdefault(broker, {})
                was_new = at in partitions and partitions[at].is_new
                partitions[at] = LeaderAndIsrPartition(
                    leadership=leadership, assignment=assignment, is_new=is_new or was_new
                )
        self.add_update_metadata(self._context.live_or_shutting_down, [at])

    def add_stop_replica(self, broker: int, at: TopicPartition, *, delete: bool) -> None:
        """Stop the replica of a broker, and delete it if `delete` is set."""
        partitions = self._stop_replica.setdefault(broker, {})
        was_delete = at in partitions and partitions[at].delete
        partitions[at] = StopReplicaPartition(
            leader_epoch=self._context.leader_epoch(at), delete=delete or was_delete
        )

    def add_update_metadata(
        self, brokers: Iterable[int], partitions: Iterable[TopicPartition] = ()
    ) -> None:
        """Send the live brokers, and the present state of `partitions`, to `brokers`."""
        self._metadata_brokers.update(broker for broker in brokers if broker >= 0)
        for at in partitions:
            leadership = self._context.leaderships.get(at)
            if leadership is not None:
                self._metadata[at] = self._metadata_partition(at, leadership)

    def _metadata_partition(self, at: TopicPartition, leadership: Leadership) -> MetadataPartition:
        context = self._context
        if at[0] in context.topics_to_be_deleted:
            leadership = leadership._replace(state=leadership.state.during_delete())
        replicas = context.assignment(at).replicas
        offline = tuple(replica for replica in replicas if not context.is_online(replica, at))
        return MetadataPartition(leadership=leadership, replicas=replicas, offline=offline)

    @property
    def is_empty(self) -> bool:
        """Whether all requests were sent or discarded."""
        return not (self._leader_and_isr or self._stop_replica or self._metadata_brokers)

    def drain(self) -> tuple[ControlRequest, ...]:
        """Return the requests in the order of sending, and empty the batch."""
        requests = (
            *self._leader_and_isr_requests(),
            *self._update_metadata_requests(),
            *self._stop_replica_requests(),
        )
        self.clear()
        return requests

    def clear(self) -> None:
        """Discard all requests."""
        self._leader_and_isr.clear()
        self._stop_replica.clear()
        self._metadata_brokers.clear()
        self._metadata.clear()

    def _receivers(self, brokers: Iterable[int]) -> list[Broker]:
        registered = self._context.brokers
        return [registered[broker] for broker in sorted(brokers) if broker in registered]

    def _topic_ids(self, partitions: Iterable[TopicPartition]) -> dict[str, Uuid]:
        known = self._context.topic_ids
        return {topic: known[topic] for topic, _ in partitions if topic in known}

    def _leader_and_isr_requests(self) -> list[ControlRequest]:
        requests: list[ControlRequest] = []
        for broker in self._receivers(self._leader_and_isr):
            partitions = self._leader_and_isr[broker.id]
            leaders = {each.leadership.state.leader for each in partitions.values()}
            request = LeaderAndIsrRequest(
                broker=broker.id,
                broker_epoch=broker.epoch,
                controller_epoch=self._context.epoch,
                partitions=partitions,
                topic_ids=self._topic_ids(partitions),
                live_leaders=tuple(self._receivers(leaders)),
            )
            requests.append(request)
        return requests

    def _update_metadata_requests(self) -> list[ControlRequest]:
        partitions = dict(self._metadata)
        topic_ids = self._topic_ids(partitions)
        live = tuple(self._receivers(self._context.brokers))
        return [
            UpdateMetadataRequest(
                broker=broker.id,
                broker_epoch=broker.epoch,
                controller_epoch=self._context.epoch,
                partitions=partitions,
                topic_ids=topic_ids,
                live_brokers=live,
            )
            for broker in self._receivers(self._metadata_brokers)
        ]

    def _stop_replica_requests(self) -> list[ControlRequest]:
        return [
            StopReplicaRequest(
                broker=broker.id,
                broker_epoch=broker.epoch,
                controller_epoch=self._context.epoch,
                partitions=self._stop_replica[broker.id],
            )
            for broker in self._receivers(self._stop_replica)
        ]
