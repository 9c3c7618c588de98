"""Requests of a KRaft controller to brokers in ZooKeeper mode, made from images.

Rules of Kafka 3.9's MigrationPropagator:
    * Receivers are the migrating brokers that are not fenced. All registered brokers are live in
      UpdateMetadata, fenced ones and those in KRaft mode included.
    * At the takeover each gets UpdateMetadata with everything, then LeaderAndIsr with the scope
      FULL, and UpdateMetadata with it.
    * A broker that registered again gets everything, too. The others get the changed partitions,
      and the live brokers if those changed.
    * Replicas that were removed, and those of deleted topics, are deleted (StopReplica).
    * The controller epoch of a request is that of ZooKeeper, that of a partition KRaft's.
      `is_new` is always set.

Differs from Kafka: the scope of a broker that registered again is FULL. With Kafka's INCREMENTAL it
would keep, and lead, partitions whose topics were deleted while it was away.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain

from sparkraft.base.ids import TopicPartition, Uuid
from sparkraft.metadata.image import BrokerRegistration, ClusterImage, Topic
from sparkraft.metadata.partition_state import PartitionState
from sparkraft.security.protocols import SecurityProtocol
from sparkraft.zookeeper.controller.requests import (
    ControlRequest,
    LeaderAndIsrContent,
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    MetadataPartition,
    Scope,
    StopReplicaPartition,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from sparkraft.zookeeper.controller.steps import PIECE_MAX
from sparkraft.zookeeper.controller.values import (
    EPOCH_DURING_DELETE,
    Broker,
    Endpoint,
    LeaderAndIsr,
    Leadership,
    ReplicaAssignment,
)

Requests = Iterator[tuple[ControlRequest, ...] | None]
"""Requests in the order of sending; None after each piece of work."""

Partitions = Iterable[tuple[Topic, int, PartitionState]]


def broker_of(registration: BrokerRegistration) -> Broker:
    """A registered broker as the requests name it."""
    return Broker(
        id=registration.id,
        epoch=registration.epoch,
        endpoints=tuple(
            Endpoint(each.name, each.host, each.port, SecurityProtocol(each.security_protocol).name)
            for each in registration.endpoints
        ),
        rack=registration.rack,
    )


def receivers_of(image: ClusterImage) -> dict[int, Broker]:
    """Brokers in ZooKeeper mode that act on requests."""
    return {
        broker: broker_of(each)
        for broker, each in sorted(image.brokers.items())
        if each.is_migrating_zk_broker and not each.fenced
    }


def full_requests(image: ClusterImage, epoch: int) -> Requests:
    """Everything, for all receivers; `epoch` is the controller epoch in ZooKeeper."""
    batch = _Batch(image, epoch, Scope.FULL)
    receivers = receivers_of(image)
    yield from batch.add_all(_all_partitions(image), receivers)
    yield tuple(batch.update_metadata(receivers, Scope.UNKNOWN))
    yield tuple(batch.drain(receivers))


def changed_requests(
    before: ClusterImage, image: ClusterImage, topics: Collection[Uuid] | None, epoch: int
) -> Requests:
    """The changes from one image to another.

    Args:
        before: as the receivers know it.
        image: as they shall know it.
        topics: ids of topics that may differ; None: all.
        epoch: the controller epoch in ZooKeeper.
    """
    known, receivers = receivers_of(before), receivers_of(image)
    returned = {each: broker for each, broker in receivers.items() if known.get(each) != broker}
    others = {each: broker for each, broker in receivers.items() if each not in returned}
    if before.brokers is not image.brokers:
        live = _Batch(image, epoch, Scope.UNKNOWN)
        yield tuple(live.update_metadata(others, Scope.UNKNOWN))
    if returned:
        batch = _Batch(image, epoch, Scope.FULL)
        yield from batch.add_all(_all_partitions(image), returned)
        yield tuple(batch.update_metadata(returned, Scope.UNKNOWN))
        yield tuple(batch.drain(returned))
    if before.topics_by_id is not image.topics_by_id:
        yield from _changed_topics(before, image, topics, epoch)


def _changed_topics(
    before: ClusterImage, image: ClusterImage, topics: Collection[Uuid] | None, epoch: int
) -> Requests:
    receivers = receivers_of(image)
    batch = _Batch(image, epoch, Scope.INCREMENTAL)
    some = {*before.topics_by_id, *image.topics_by_id} if topics is None else topics
    for topic_id in sorted(some):
        old, new = before.topics_by_id.get(topic_id), image.topics_by_id.get(topic_id)
        if old is not None and new is None:
            yield from batch.add_deleted(old)
        elif new is not None and new is not old:
            kept = {} if old is None else old.partitions
            changed = (
                (new, index, each) for index, each in new.in_order() if kept.get(index) != each
            )
            yield from batch.add_all(changed, receivers)
            for index, each in new.in_order():
                if index in kept:
                    batch.add_removed(new.name, index, kept[index], each)
    yield tuple(batch.drain(receivers))


def _all_partitions(image: ClusterImage) -> Partitions:
    return chain.from_iterable(
        ((topic, index, each) for index, each in topic.in_order())
        for topic in image.topics_in_order()
    )


def _state_of(partition: PartitionState) -> LeaderAndIsr:
    return LeaderAndIsr(
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=partition.isr,
        recovery_state=partition.leader_recovery_state,
        partition_epoch=partition.partition_epoch,
    )


@dataclass(slots=True)
class _Batch:
    """Partitions of requests, as they are collected."""

    image: ClusterImage
    epoch: int
    scope: Scope
    leader_and_isr: dict[int, LeaderAndIsrContent] = field(default_factory=dict)
    metadata: dict[TopicPartition, MetadataPartition] = field(default_factory=dict)
    stopped: dict[int, dict[TopicPartition, StopReplicaPartition]] = field(default_factory=dict)
    topic_ids: dict[str, Uuid] = field(default_factory=dict)

    def add_all(self, partitions: Partitions, receivers: Collection[int]) -> Iterator[None]:
        """Add partitions, in LeaderAndIsr to the receivers that have replicas of them."""
        for count, (topic, index, each) in enumerate(partitions, 1):
            self._add(topic, index, each, receivers)
            if count % PIECE_MAX == 0:
                yield None

    def _add(
        self, topic: Topic, index: int, each: PartitionState, receivers: Collection[int]
    ) -> None:
        at = (topic.name, index)
        self.topic_ids[topic.name] = topic.id
        leadership = Leadership(_state_of(each), self.image.epoch)
        assignment = ReplicaAssignment(each.replicas, each.adding_replicas, each.removing_replicas)
        for broker in each.replicas:
            if broker in receivers:
                content = self.leader_and_isr.setdefault(broker, LeaderAndIsrContent())
                content.add(at, LeaderAndIsrPartition(leadership, assignment, is_new=True))
                content.topic_ids[topic.name] = topic.id
        self.metadata[at] = self._metadata_partition(leadership, each.replicas)

    def _metadata_partition(
        self, leadership: Leadership, replicas: tuple[int, ...]
    ) -> MetadataPartition:
        registered = self.image.brokers
        offline = tuple(each for each in replicas if each not in registered)
        return MetadataPartition(leadership=leadership, replicas=replicas, offline=offline)

    def add_deleted(self, topic: Topic) -> Iterator[None]:
        """Delete the replicas of a deleted topic, and let brokers forget it."""
        self.topic_ids[topic.name] = topic.id
        for count, (index, each) in enumerate(topic.in_order(), 1):
            at = (topic.name, index)
            deleted = Leadership(_state_of(each).during_delete(), self.image.epoch)
            self.metadata[at] = self._metadata_partition(deleted, each.replicas)
            for broker in each.replicas:
                self._stop(broker, at, EPOCH_DURING_DELETE)
            if count % PIECE_MAX == 0:
                yield None

    def add_removed(
        self, name: str, index: int, before: PartitionState, after: PartitionState
    ) -> None:
        """Delete replicas that a partition no longer has."""
        for broker in before.replicas:
            if broker not in after.replicas:
                self._stop(broker, (name, index), after.leader_epoch)

    def _stop(self, broker: int, at: TopicPartition, leader_epoch: int) -> None:
        self.stopped.setdefault(broker, {})[at] = StopReplicaPartition(
            leader_epoch=leader_epoch, delete=True
        )

    def update_metadata(
        self, receivers: dict[int, Broker], scope: Scope
    ) -> Iterator[UpdateMetadataRequest]:
        """UpdateMetadata with all that was added, and with all registered brokers."""
        live = tuple(broker_of(each) for _, each in sorted(self.image.brokers.items()))
        for broker in receivers.values():
            yield UpdateMetadataRequest(
                broker=broker.id,
                broker_epoch=broker.epoch,
                controller_epoch=self.epoch,
                partitions=self.metadata,
                topic_ids=self.topic_ids,
                live_brokers=live,
                scope=scope,
            )

    def drain(self, receivers: dict[int, Broker]) -> Iterator[ControlRequest]:
        """Requests of all kinds: LeaderAndIsr, UpdateMetadata, StopReplica."""
        for broker in receivers.values():
            content = self.leader_and_isr.get(broker.id)
            if content is not None:
                yield LeaderAndIsrRequest(
                    broker=broker.id,
                    broker_epoch=broker.epoch,
                    controller_epoch=self.epoch,
                    partitions=content.partitions,
                    topic_ids=content.topic_ids,
                    live_leaders=self._live(content.leaders),
                    scope=self.scope,
                )
        if self.metadata:
            yield from self.update_metadata(receivers, self.scope)
        for broker in receivers.values():
            stopped = self.stopped.get(broker.id)
            if stopped:
                yield StopReplicaRequest(
                    broker=broker.id,
                    broker_epoch=broker.epoch,
                    controller_epoch=self.epoch,
                    partitions=stopped,
                )

    def _live(self, leaders: Iterable[int]) -> tuple[Broker, ...]:
        registered = self.image.brokers
        return tuple(broker_of(registered[each]) for each in leaders if each in registered)
