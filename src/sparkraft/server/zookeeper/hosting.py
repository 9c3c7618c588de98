"""The replicas of a broker in ZooKeeper mode, as LeaderAndIsr and StopReplica assign them.

The `ReplicaManager` follows an image of these partitions only: brokers and configs are those of the
published image, leaders and replicas those of LeaderAndIsr, which may be older or newer than
UpdateMetadata. Kafka 3.9: `ReplicaManager.becomeLeaderOrFollower`, `stopReplicas`.

Results of LeaderAndIsr for a partition:
    KAFKA_STORAGE_ERROR (56)         its log directory is offline
    INCONSISTENT_TOPIC_ID (103)      its log belongs to another topic of the same name
    STALE_CONTROLLER_EPOCH (11)      the leader epoch is not newer than the known one
    UNKNOWN_TOPIC_OR_PARTITION (3)   this broker is not one of the replicas

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
from sparkraft.metadata.image import (
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
    EMPTY_IMAGE,
    ClusterImage,
    Topic,
)
from sparkraft.metadata.partition_state import NO_LEADER, PartitionState

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sparkraft.protocol.messages.k04_leader_and_isr import LeaderAndIsrPartitionState
    from sparkraft.server.broker.replica_manager import ReplicaManager

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
        ids = None if changed is None else [each for each in changed if each in hosted]
        self._replicas.on_image(merged, ids)

    def _known(self, topic: str, index: int) -> PartitionState | None:
        found = self._topics.topic(topic)
        return None if found is None else found.partitions.get(index)

    # ---- LeaderAndIsr

    async def lead_and_follow(
        self, assigned: "Sequence[Assigned]"
    ) -> dict[tuple[str, int], ErrorCode]:
        """Host partitions; returns the result of each."""
        results: dict[tuple[str, int], ErrorCode] = {}
        accepted: list[Assigned] = []
        for number, one in enumerate(assigned):
            if number % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)
            error = self._objection(one)
            results[one.topic, one.partition] = ErrorCode.NONE if error is None else error
            if error is None:
                accepted.append(one)
                self._put(one.topic, one.topic_id, one.partition, _state_of(one, self._node_id))
        if not accepted:
            return results
        changed = {one.topic_id for one in accepted}
        self._publish(self._replicas.image, changed)
        await self._replicas.settle()
        for number, one in enumerate(accepted):
            if number % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)
            if self._replicas.hosted(one.topic, one.partition) is None:
                self._remove(one.topic, one.partition)
                results[one.topic, one.partition] = ErrorCode.KAFKA_STORAGE_ERROR
        return results

    def _objection(self, one: Assigned) -> ErrorCode | None:
        if self._is_offline(one.topic, one.topic_id, one.partition):
            return ErrorCode.KAFKA_STORAGE_ERROR
        present = self._logs.get(one.topic, one.partition)
        if present is not None and present.topic_id not in {None, one.topic_id}:
            log.error(
                "The log of %s has topic id %s, the controller has %s",
                present.name,
                present.topic_id,
                one.topic_id,
            )
            return ErrorCode.INCONSISTENT_TOPIC_ID
        known = self._known(one.topic, one.partition)
        if known is not None and one.state.leader_epoch <= known.leader_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if self._node_id not in one.state.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return None

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

    async def stop(self, stops: "Sequence[Stop]") -> dict[tuple[str, int], ErrorCode]:
        """Stop partitions, and delete the logs of those marked; returns the result of each."""
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
