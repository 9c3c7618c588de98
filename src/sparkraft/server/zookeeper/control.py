"""Serves the requests of the ZooKeeper controller, one at a time (Kafka's replicaStateChangeLock).

A request for an earlier incarnation of this broker (its broker epoch is lower, KIP-380) is refused
with STALE_BROKER_EPOCH; -1 passes. The highest controller epoch of any request is kept, and a
request with a lower one is refused with STALE_CONTROLLER_EPOCH: two controllers may send for a
moment.

A KRaft controller that migrates the cluster (KIP-866) has the broker epoch of this broker's
registration with the quorum. Its first requests are full: topics and replicas that are not in them
do not exist, and logs of such replicas are set aside, because this broker may have missed their
deletion.

Kafka 3.9: `KafkaApis.handleLeaderAndIsrRequest` and the two others, `ZkBrokerEpochManager`.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.server.zookeeper.hosting import AT_ONCE, NO_EPOCH, Assigned, Hosting, Stop
from sparkraft.server.zookeeper.update import updated

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from sparkraft.protocol.messages.k04_leader_and_isr import LeaderAndIsrRequest
    from sparkraft.protocol.messages.k05_stop_replica import StopReplicaRequest
    from sparkraft.protocol.messages.k06_update_metadata import UpdateMetadataRequest
    from sparkraft.server.broker.broker_epoch import BrokerEpoch
    from sparkraft.server.zookeeper.controllers import KnownController
    from sparkraft.server.zookeeper.images import ZooKeeperImages
    from sparkraft.server.zookeeper.update import Update

log = logging.getLogger(__name__)

_FULL = 2
"""`type` of a request that has all partitions (KIP-866)."""

Results = dict[tuple[str, int], ErrorCode]
"""(topic, partition) → its result."""


class ControlRequest(Protocol):
    """The fields that all requests of the controller have."""

    controller_id: int
    is_kraft_controller: bool
    controller_epoch: int
    broker_epoch: int


class TopicConfigReader(Protocol):
    """Reads the configs of topics, once for each."""

    async def learn(self, topics: "Iterable[str]") -> None:
        """Read those of topics that are seen for the first time."""

    def forget(self, topics: "Iterable[str]") -> None:
        """Read those of these topics again when they are seen again."""


class ControllerRequests:
    """See the module docstring.

    Attributes:
        controller_epoch: the highest of a request so far; -1 before the first.
    """

    def __init__(
        self,
        images: "ZooKeeperImages",
        hosting: Hosting,
        broker_epoch: "BrokerEpoch",
        controller: "KnownController",
        configs: "TopicConfigReader",
        quorum_epoch: "BrokerEpoch | None" = None,
    ) -> None:
        """Serve.

        Args:
            images: takes the images that UpdateMetadata makes.
            hosting: takes the partitions of LeaderAndIsr and StopReplica.
            broker_epoch: of this broker's registration in ZooKeeper.
            controller: learns the controller from UpdateMetadata.
            configs: reads the configs of new topics.
            quorum_epoch: of this broker's registration with a quorum; None unless it migrates.
        """
        self.controller_epoch = -1
        self._images = images
        self._hosting = hosting
        self._broker_epoch = broker_epoch
        self._quorum_epoch = quorum_epoch
        self._controller = controller
        self._configs = configs
        self._lock = asyncio.Lock()

    @property
    def controller_id(self) -> int:
        """The controller of the last UpdateMetadata; -1 if there was none."""
        return self._controller.id

    @property
    def has_kraft_controller(self) -> bool:
        """Whether that is a KRaft controller: clients cannot reach it."""
        return self._controller.is_kraft

    async def lead_and_follow(self, request: "LeaderAndIsrRequest") -> Results:
        """Host the partitions of a LeaderAndIsr; the result of each.

        Raises:
            KafkaError: the request is stale; see the module docstring.
        """
        async with self._lock:
            self._begin(request, "LeaderAndIsr")
            await self._configs.learn(topic.topic_name for topic in request.topic_states)
            assigned = list(_assigned(request))
            if _is_full(request):
                await self._hosting.set_strays_aside(assigned)
            return await self._hosting.lead_and_follow(
                assigned, sender=_sender(request), is_kraft=request.is_kraft_controller
            )

    async def stop(self, request: "StopReplicaRequest") -> Results:
        """Stop the partitions of a StopReplica; the result of each.

        Raises:
            KafkaError: the request is stale; see the module docstring.
        """
        async with self._lock:
            self._begin(request, "StopReplica")
            return await self._hosting.stop(list(_stops(request)), sender=_sender(request))

    async def update(self, request: "UpdateMetadataRequest") -> None:
        """Publish the image that an UpdateMetadata makes.

        Raises:
            KafkaError: the request is stale; see the module docstring.
        """
        async with self._lock:
            self._begin(request, "UpdateMetadata")
            await self._configs.learn(topic.topic_name for topic in request.topic_states)
            steps = updated(self._images.image, request, is_full=_is_full(request))
            update = await _in_pieces(steps)
            # Configs may have changed meanwhile.
            image = self._images.image._replace(
                brokers=update.image.brokers,
                topics_by_id=update.image.topics_by_id,
                topics_by_name=update.image.topics_by_name,
            )
            self._controller.on_update(request.controller_id, is_kraft=request.is_kraft_controller)
            self._images.publish(image, update.changed)
            self._configs.forget(name for name in update.names if name not in image.topics_by_name)

    def _begin(self, request: ControlRequest, name: str) -> None:
        epoch = self._quorum_epoch if request.is_kraft_controller else self._broker_epoch
        if epoch is None:
            wrong = "zookeeper.metadata.migration.enable is false on this broker"
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"{name} of a KRaft controller: {wrong}"
            )
        own = epoch.value
        if request.broker_epoch != NO_EPOCH and request.broker_epoch < own:
            log.info(
                "%s of controller %d has broker epoch %d, but this broker's is %d",
                name,
                request.controller_id,
                request.broker_epoch,
                own,
            )
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
        if request.controller_epoch < self.controller_epoch:
            log.warning(
                "%s of controller %d has controller epoch %d, but %d is known",
                name,
                request.controller_id,
                request.controller_epoch,
                self.controller_epoch,
            )
            raise KafkaError(ErrorCode.STALE_CONTROLLER_EPOCH)
        self.controller_epoch = request.controller_epoch


def _sender(request: ControlRequest) -> str:
    return f"controller {request.controller_id} with epoch {request.controller_epoch}"


def _is_full(request: "LeaderAndIsrRequest | UpdateMetadataRequest") -> bool:
    return request.is_kraft_controller and request.type == _FULL


async def _in_pieces(steps: "Generator[int, None, Update]") -> "Update":
    """Apply an update; the event loop continues after each `AT_ONCE` partitions."""
    done = 0
    while True:
        try:
            done += next(steps)
        except StopIteration as end:
            update: Update = end.value
            return update
        if done >= AT_ONCE:
            done = 0
            await asyncio.sleep(0)


def _assigned(request: "LeaderAndIsrRequest") -> "Iterator[Assigned]":
    for topic in request.topic_states:
        for state in topic.partition_states:
            yield Assigned(topic.topic_name, Uuid(topic.topic_id), state)


def _stops(request: "StopReplicaRequest") -> "Iterator[Stop]":
    """The partitions in the form of any version; before v3 they have no leader epoch (KIP-570)."""
    delete = request.delete_partitions
    for each in request.ungrouped_partitions:
        yield Stop(each.topic_name, each.partition_index, NO_EPOCH, delete)
    for topic in request.topics:
        for index in topic.partition_indexes:
            yield Stop(topic.name, index, NO_EPOCH, delete)
    for states in request.topic_states:
        for state in states.partition_states:
            yield Stop(
                states.topic_name,
                state.partition_index,
                state.leader_epoch,
                state.delete_partition,
            )
