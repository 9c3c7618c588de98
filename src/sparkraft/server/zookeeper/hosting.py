"""The replicas of a broker in ZooKeeper mode, as LeaderAndIsr and StopReplica assign them.

The `ReplicaManager` follows an image of these partitions only: brokers and configs are those of the
published image, leaders and replicas those of LeaderAndIsr, which may be older or newer than
UpdateMetadata. Kafka 3.9: `ReplicaManager.becomeLeaderOrFollower`, `stopReplicas`.

Results of LeaderAndIsr for a partition:
    KAFKA_STORAGE_ERROR (56)         its log directory is offline
    INCONSISTENT_TOPIC_ID (103)      its log belongs to another topic of the same name
    STALE_CONTROLLER_EPOCH (11)      the leader epoch is not newer than the known one; that of a
                                     KRaft controller may be the same (KIP-866)
    UNKNOWN_TOPIC_OR_PARTITION (3)   this broker is not one of the replicas

A topic is hosted under the id that the controller names; a topic without an id under a placeholder
(inter.broker.protocol.version below 2.8). LeaderAndIsr may bring the id of a known topic, with the
leader epoch that is known; or a controller of an older version may not know it. The replicas keep
their roles then, and a log keeps its id once it has one.

Results of StopReplica:
    KAFKA_STORAGE_ERROR (56)         its log directory is offline
    FENCED_LEADER_EPOCH (74)         the leader epoch is older than the known one
"""

import asyncio
import logging
from typing import TYPE_CHECKING, NamedTuple

from immutables import Map

from sparkraft.base.errors import ErrorCode
from sparkraft.base.ids import Uuid
from sparkraft.base.loop_work import LoopBound
from sparkraft.base.placeholder_ids import is_same_topic, placeholder_id
from sparkraft.metadata.image import (
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
    EMPTY_IMAGE,
    ClusterImage,
    Topic,
)
from sparkraft.metadata.partition_state import NO_LEADER, PartitionState
from sparkraft.server.broker.stray_logs import set_strays_aside

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from sparkraft.base.ids import TopicPartition
    from sparkraft.protocol.messages.k04_leader_and_isr import LeaderAndIsrPartitionState
    from sparkraft.server.broker.replica_manager import ReplicaManager
    from sparkraft.server.broker.stray_logs import IsAssigned
    from sparkraft.storage.log import PartitionLog

log = logging.getLogger(__name__)

EPOCH_DURING_DELETE = -2
"""Leader epoch in StopReplica of a topic that is being deleted: newer than all others."""

NO_EPOCH = -1
"""Leader epoch of a StopReplica that has none."""

AT_ONCE: LoopBound = 200
"""Partitions decided between two chances to interrupt."""


class Assigned(NamedTuple):
    """One partition of a LeaderAndIsr request."""

    topic: str
    topic_id: Uuid
    """Zero if the topic has none, as far as the controller knows."""
    state: "LeaderAndIsrPartitionState"

    @property
    def partition(self) -> int:
        return self.state.partition_index


class Stop(NamedTuple):
    """One partition of a StopReplica request."""

    topic: str
    partition: int
    leader_epoch: int
    delete: bool


class Hosting:
    """Decides about one request at a time; the caller holds a lock."""

    def __init__(self, replicas: "ReplicaManager", *, node_id: int) -> None:
        self._replicas = replicas
        self._logs = replicas.log_manager
        self._node_id = node_id
        self._topics = EMPTY_IMAGE
        """Only its topics are used: those with a partition here."""

    def on_image(self, image: ClusterImage, changed: "Iterable[Uuid] | None") -> None:
        """Follow the configs and brokers of a published image."""
        self._publish(image, changed)

    def _publish(self, image: ClusterImage, changed: "Iterable[Uuid] | None") -> None:
        hosted = self._topics.topics_by_id
        merged = image._replace(topics_by_id=hosted, topics_by_name=self._topics.topics_by_name)
        ids = None if changed is None else sorted(each for each in changed if each in hosted)
        self._replicas.on_image(merged, ids)

    def _known(self, topic: str, index: int) -> PartitionState | None:
        found = self._topics.topic(topic)
        return None if found is None else found.partitions.get(index)

    # ---- LeaderAndIsr

    async def set_strays_aside(self, assigned: "Sequence[Assigned]") -> None:
        """Stop all other partitions, and rename all other logs; nothing is deleted.

        A log of another topic of the same name is one of them (`LogManager.findStrayReplicas`).
        """
        is_assigned = assigned_in({(one.topic, one.partition): one.topic_id for one in assigned})
        for number, known in enumerate(list(self._logs.logs())):
            if number % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)
            if not is_assigned(known):
                hosted = self._replicas.hosted(known.topic, known.partition)
                if hosted is not None:
                    self._replicas.forget(hosted)
                self._remove(known.topic, known.partition)
        self._publish(self._replicas.image, ())
        await set_strays_aside(self._replicas, is_assigned)

    def _identified(self, one: Assigned) -> Assigned:
        """The same, with a placeholder if the topic has no id."""
        if one.topic_id != Uuid.ZERO:
            return one
        return one._replace(topic_id=placeholder_id(one.topic))

    def _follow_ids(
        self, assigned: "Iterable[Assigned]"
    ) -> "tuple[set[Uuid], set[TopicPartition]]":
        """Host known topics under the ids of a request.

        Returns the ids before and after, and the partitions whose log got its id.
        """
        changed: set[Uuid] = set()
        learned: set[TopicPartition] = set()
        for one in assigned:
            known = self._topics.topic(one.topic)
            if known is None or known.id == one.topic_id:
                continue
            if not is_same_topic(known.id, one.topic_id) or self._is_of_other_topic(one):
                continue
            for index in known.partitions:
                if self._replicas.identify(one.topic, index, one.topic_id):
                    learned.add((one.topic, index))
            changed |= {known.id, one.topic_id}
            self._topics = self._topics._replace(
                topics_by_id=self._topics.topics_by_id.delete(known.id).set(
                    one.topic_id, known._replace(id=one.topic_id)
                ),
                topics_by_name=self._topics.topics_by_name.set(one.topic, one.topic_id),
            )
        return changed, learned

    async def lead_and_follow(
        self, assigned: "Sequence[Assigned]", *, sender: str, is_kraft: bool = False
    ) -> dict[tuple[str, int], ErrorCode]:
        """Host partitions; returns the result of each.

        Args:
            assigned: the partitions.
            sender: the controller that assigns them, for log messages.
            is_kraft: whether it is a KRaft controller.
        """
        results: dict[tuple[str, int], ErrorCode] = {}
        assigned = [self._identified(one) for one in assigned]
        changed, learned = self._follow_ids(assigned)
        accepted: list[Assigned] = []
        for number, one in enumerate(assigned):
            if number % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)
            error = self._objection(one, is_kraft=is_kraft)
            if error is ErrorCode.STALE_CONTROLLER_EPOCH and self._is_repeated(one, learned):
                error = None
            elif error is ErrorCode.STALE_CONTROLLER_EPOCH:
                self._log_ignored(one, sender)
            results[one.topic, one.partition] = ErrorCode.NONE if error is None else error
            if error is None and not self._is_newer_here(one):
                accepted.append(one)
                self._put(one.topic, one.topic_id, one.partition, _state_of(one, self._node_id))
        changed |= {one.topic_id for one in accepted}
        if not changed:
            return results
        self._publish(self._replicas.image, changed)
        await self._replicas.settle()
        for number, one in enumerate(accepted):
            if number % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)
            if self._replicas.hosted(one.topic, one.partition) is None:
                self._remove(one.topic, one.partition)
                results[one.topic, one.partition] = ErrorCode.KAFKA_STORAGE_ERROR
        return results

    def _log_ignored(self, one: Assigned, sender: str) -> None:
        """Log a leader epoch that is not newer, as Kafka does.

        A new controller repeats the known epoch of each partition, so that is not worth a line.
        """
        known = self._known(one.topic, one.partition)
        if known is not None and one.state.leader_epoch < known.leader_epoch:
            log.warning(
                "Ignoring LeaderAndIsr of %s for %s-%d: its leader epoch %d is smaller than the "
                "current leader epoch %d",
                sender,
                one.topic,
                one.partition,
                one.state.leader_epoch,
                known.leader_epoch,
            )

    def _is_repeated(self, one: Assigned, learned: "Collection[TopicPartition]") -> bool:
        """Whether a request has the known leader epoch, and brought the topic's id."""
        known = self._known(one.topic, one.partition)
        same = known is not None and known.leader_epoch == one.state.leader_epoch
        return same and (one.topic, one.partition) in learned

    def _is_newer_here(self, one: Assigned) -> bool:
        """Whether only the request's partition epoch is old: it changes nothing, as in Kafka."""
        known = self._known(one.topic, one.partition)
        return (
            known is not None
            and one.state.leader_epoch == known.leader_epoch
            and one.state.partition_epoch < known.partition_epoch
        )

    def _objection(self, one: Assigned, *, is_kraft: bool = False) -> ErrorCode | None:
        if self._is_offline(one.topic, one.topic_id, one.partition):
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self._is_of_other_topic(one):
            log.error(
                "The log of %s-%d has another topic id than the controller: %s",
                one.topic,
                one.partition,
                one.topic_id,
            )
            return ErrorCode.INCONSISTENT_TOPIC_ID
        known = self._known(one.topic, one.partition)
        if known is not None and one.state.leader_epoch < known.leader_epoch + (not is_kraft):
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if self._node_id not in one.state.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return None

    def _is_of_other_topic(self, one: Assigned) -> bool:
        """Whether the log here has another topic id (`UnifiedLog.topicId`, KIP-516)."""
        present = self._logs.get(one.topic, one.partition)
        if present is None or present.topic_id is None:
            return False
        return not is_same_topic(present.topic_id, one.topic_id)

    def _is_offline(self, topic: str, topic_id: "Uuid | None", index: int) -> bool:
        """Whether its directory has failed; a damaged log in a sound one may be fetched again."""
        if (topic, index) in self._logs.damaged:
            return False
        if self._logs.is_offline(topic, index):
            return True
        return bool(self._logs.offline_directories) and (
            topic_id is not None and self._replicas.is_lost(topic_id, index)
        )

    # ---- StopReplica

    async def stop(
        self, stops: "Sequence[Stop]", *, sender: str
    ) -> dict[tuple[str, int], ErrorCode]:
        """Stop partitions, and delete the logs of those marked; returns the result of each.

        Args:
            stops: the partitions.
            sender: the controller that stops them, for log messages.
        """
        results: dict[tuple[str, int], ErrorCode] = {}
        changed: set[Uuid] = set()
        deleted: list[tuple[Stop, asyncio.Future[bool]]] = []
        for number, one in enumerate(stops):
            if number % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)
            known = self._known(one.topic, one.partition)
            topic_id = self._topics.topics_by_name.get(one.topic)
            if self._is_offline(one.topic, topic_id, one.partition):
                results[one.topic, one.partition] = ErrorCode.KAFKA_STORAGE_ERROR
                continue
            if known is not None and not _may_stop(one.leader_epoch, known.leader_epoch):
                log.warning(
                    "Ignoring StopReplica (delete=%s) of %s for %s-%d: its leader epoch %d is "
                    "smaller than the current leader epoch %d",
                    str(one.delete).lower(),
                    sender,
                    one.topic,
                    one.partition,
                    one.leader_epoch,
                    known.leader_epoch,
                )
                results[one.topic, one.partition] = ErrorCode.FENCED_LEADER_EPOCH
                continue
            results[one.topic, one.partition] = ErrorCode.NONE
            if one.delete:
                self._remove(one.topic, one.partition)
                deleted.append((one, self._replicas.delete(one.topic, one.partition)))
            elif known is not None and topic_id is not None:
                # It neither fetches nor leads until the next LeaderAndIsr; its log stays.
                self._put(one.topic, topic_id, one.partition, known._replace(leader=NO_LEADER))
                changed.add(topic_id)
        if changed:
            self._publish(self._replicas.image, changed)
            await self._replicas.settle()
        for one, done in deleted:
            if not await done:
                results[one.topic, one.partition] = ErrorCode.KAFKA_STORAGE_ERROR
        return results

    # ---- the partitions here

    def _put(self, topic: str, topic_id: Uuid, index: int, state: PartitionState) -> None:
        topics = self._topics
        found = topics.topics_by_id.get(topic_id) or Topic(topic, topic_id, Map())
        found = found._replace(partitions=found.partitions.set(index, state))
        self._topics = topics._replace(
            topics_by_id=topics.topics_by_id.set(topic_id, found),
            topics_by_name=topics.topics_by_name.set(topic, topic_id),
        )

    def _remove(self, topic: str, index: int) -> None:
        topics = self._topics
        found = topics.topic(topic)
        if found is None or index not in found.partitions:
            return
        partitions = found.partitions.delete(index)
        if partitions:
            by_id = topics.topics_by_id.set(found.id, found._replace(partitions=partitions))
            self._topics = topics._replace(topics_by_id=by_id)
        else:
            self._topics = topics._replace(
                topics_by_id=topics.topics_by_id.delete(found.id),
                topics_by_name=topics.topics_by_name.delete(topic),
            )


def assigned_in(kept: "Mapping[TopicPartition, Uuid]") -> "IsAssigned":
    """The logs of some partitions, which have the topic ids given."""

    def is_assigned(known: "PartitionLog") -> bool:
        topic_id = kept.get((known.topic, known.partition))
        return topic_id is not None and known.topic_id in {None, topic_id}

    return is_assigned


def _may_stop(requested: int, known: int) -> bool:
    return requested in {EPOCH_DURING_DELETE, NO_EPOCH} or requested >= known


def _state_of(one: Assigned, node_id: int) -> PartitionState:
    """The partition as the `ReplicaManager` follows it.

    A log that is neither new nor present may be in an offline directory. Kafka does not create it
    then (`LogManager.getOrCreateLog`, `isNew`). Nor does the log manager here for the id MIGRATING,
    which no directory has.
    """
    state = one.state
    own = DIRECTORY_UNASSIGNED if state.is_new else DIRECTORY_MIGRATING
    return PartitionState(
        replicas=tuple(state.replicas),
        isr=tuple(state.isr),
        elr=(),
        last_known_elr=(),
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        directories=tuple(
            own if replica == node_id else DIRECTORY_UNASSIGNED for replica in state.replicas
        ),
        adding_replicas=tuple(state.adding_replicas),
        removing_replicas=tuple(state.removing_replicas),
        leader_recovery_state=state.leader_recovery_state,
    )
