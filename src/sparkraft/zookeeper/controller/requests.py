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
from typing import NamedTuple

from sparkraft.base.ids import TopicPartition, Uuid
from sparkraft.zookeeper.controller.context import ControllerContext
from sparkraft.zookeeper.controller.values import Broker, Leadership, ReplicaAssignment


class Scope(IntEnum):
    """The `type` of a request of a KRaft controller (KIP-866); others leave it unknown."""

    UNKNOWN = 0
    INCREMENTAL = 1
    FULL = 2
    """It has all partitions: the broker removes replicas that are not in it."""


class LeaderAndIsrPartition(NamedTuple):
    """A partition in LeaderAndIsr."""

    leadership: Leadership
    assignment: ReplicaAssignment
    is_new: bool


class MetadataPartition(NamedTuple):
    """A partition in UpdateMetadata."""

    leadership: Leadership
    replicas: tuple[int, ...]
    offline: tuple[int, ...]


class StopReplicaPartition(NamedTuple):
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
class LeaderAndIsrContent:
    """The contents of a LeaderAndIsr request to one broker, while they are collected."""

    partitions: dict[TopicPartition, LeaderAndIsrPartition] = field(default_factory=dict)
    topic_ids: dict[str, Uuid] = field(default_factory=dict)
    _led: dict[int, int] = field(default_factory=dict)
    """Number of partitions by leader; it may be 0."""

    def add(self, at: TopicPartition, partition: LeaderAndIsrPartition) -> None:
        """Add or replace a partition; it stays new."""
        before = self.partitions.get(at)
        if before is not None:
            self._led[before.leadership.state.leader] -= 1
            partition = partition._replace(is_new=partition.is_new or before.is_new)
        self.partitions[at] = partition
        leader = partition.leadership.state.leader
        self._led[leader] = self._led.get(leader, 0) + 1

    @property
    def leaders(self) -> list[int]:
        """The leaders of the partitions, in order; -1 or -2 may be among them."""
        return sorted(leader for leader, count in self._led.items() if count)


@dataclass(slots=True)
class RequestBatch:
    """Collects the requests of one decision; see the module's docstring.

    `drain` does not look at partitions, so it is short for any number of them.
    """

    _context: ControllerContext
    _leader_and_isr: dict[int, LeaderAndIsrContent] = field(default_factory=dict)
    _stop_replica: dict[int, dict[TopicPartition, StopReplicaPartition]] = field(
        default_factory=dict
    )
    _metadata_brokers: set[int] = field(default_factory=set)
    _metadata: dict[TopicPartition, MetadataPartition] = field(default_factory=dict)
    _metadata_topic_ids: dict[str, Uuid] = field(default_factory=dict)

    def add_leader_and_isr(
        self, brokers: Iterable[int], at: TopicPartition, leadership: Leadership, *, is_new: bool
    ) -> None:
        """Send a partition's leadership to `brokers`, and UpdateMetadata of it to all brokers."""
        partition = LeaderAndIsrPartition(leadership, self._context.assignment(at), is_new)
        for broker in brokers:
            if broker >= 0:
                content = self._leader_and_isr.get(broker)
                if content is None:
                    content = self._leader_and_isr[broker] = LeaderAndIsrContent()
                content.add(at, partition)
                self._add_topic_id(content.topic_ids, at[0])
        self._metadata_brokers.update(self._context.brokers)
        self._add_metadata(at)

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
            self._add_metadata(at)

    def _add_metadata(self, at: TopicPartition) -> None:
        context = self._context
        leadership = context.leaderships.get(at)
        if leadership is None:
            return
        if at[0] in context.topics_to_be_deleted:
            leadership = leadership._replace(state=leadership.state.during_delete())
        replicas = context.assignment(at).replicas
        self._metadata[at] = MetadataPartition(leadership, replicas, context.offline(replicas, at))
        self._add_topic_id(self._metadata_topic_ids, at[0])

    def _add_topic_id(self, topic_ids: dict[str, Uuid], topic: str) -> None:
        if topic not in topic_ids and topic in self._context.topic_ids:
            topic_ids[topic] = self._context.topic_ids[topic]

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
        self._leader_and_isr = {}
        self._stop_replica = {}
        self._metadata_brokers = set()
        self._metadata = {}
        self._metadata_topic_ids = {}

    def _receivers(self, brokers: Iterable[int]) -> list[Broker]:
        registered = self._context.brokers
        return [registered[broker] for broker in sorted(brokers) if broker in registered]

    def _leader_and_isr_requests(self) -> list[ControlRequest]:
        requests: list[ControlRequest] = []
        for broker in self._receivers(self._leader_and_isr):
            content = self._leader_and_isr[broker.id]
            request = LeaderAndIsrRequest(
                broker=broker.id,
                broker_epoch=broker.epoch,
                controller_epoch=self._context.epoch,
                partitions=content.partitions,
                topic_ids=content.topic_ids,
                live_leaders=tuple(self._receivers(content.leaders)),
            )
            requests.append(request)
        return requests

    def _update_metadata_requests(self) -> list[ControlRequest]:
        live = tuple(self._receivers(self._context.brokers))
        return [
            UpdateMetadataRequest(
                broker=broker.id,
                broker_epoch=broker.epoch,
                controller_epoch=self._context.epoch,
                partitions=self._metadata,
                topic_ids=self._metadata_topic_ids,
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
