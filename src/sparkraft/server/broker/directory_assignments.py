"""Reports to the controller which log directory each replica is in (KIP-858).

A broker with several log dirs chooses one for each replica, and the controller must know it: when a
directory fails, it moves the leaderships of the replicas there. Assignments are gathered for a
moment and sent in one request; refused ones are sent again until the image shows them. There may be
one for each replica of the broker, so they are examined in slices.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.base.loop_work import LoopBound
from sparkraft.metadata.features import DIRECTORIES_LEVEL
from sparkraft.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from sparkraft.server.broker.broker_epoch import BrokerEpoch
    from sparkraft.server.broker.controller_channel import ControllerChannel
    from sparkraft.server.broker.metadata_cache import MetadataCache
    from sparkraft.server.broker.partition import HostedPartition
    from sparkraft.server.config import NodeConfig
    from sparkraft.server.env import Env
    from sparkraft.server.loop_turns import Turn

log = logging.getLogger(__name__)

GATHER_MS = 20
"""How long assignments are gathered: a topic's partitions are made one after another."""

ASSIGNMENTS_MAX: LoopBound = 2_250
"""Replicas in one request, Kafka's bound; a request takes 3 ms to make, as does its response."""

RETRY_MS = 1_000
"""Pause after a failed request."""


class DirectoryAssignments:
    """Replicas whose directory the controller does not know yet."""

    def __init__(
        self,
        config: "NodeConfig",
        env: "Env",
        metadata: "MetadataCache",
        channel: "ControllerChannel",
        broker_epoch: "BrokerEpoch",
    ) -> None:
        self._node_id = config.node_id
        self._timeout_ms = config.number("request.timeout.ms")
        self._env = env
        self._metadata = metadata
        self._channel = channel
        self._broker_epoch = broker_epoch
        self._pending: dict[tuple[bytes, int], Uuid] = {}
        self._wake = asyncio.Event()

    def note(self, hosted: "HostedPartition", known: bytes, actual: "Uuid | None") -> None:
        """Report `actual` as the directory of `hosted`, unless the image has it as `known`."""
        key = (hosted.topic_id, hosted.index)
        if actual is None or actual == known:
            self._pending.pop(key, None)
        elif self._pending.get(key) != actual:
            self._pending[key] = actual
            self._wake.set()

    async def run(self) -> None:
        """Report until cancelled; starts once the broker is registered."""
        while True:
            await self._wake.wait()
            await asyncio.sleep(GATHER_MS / 1000)
            self._wake.clear()
            if self._metadata.image.metadata_version < DIRECTORIES_LEVEL:
                continue  # no record holds directories yet; the next change of a replica wakes us
            batch = await self._next_batch(self._env.turn(self._env.work_max.partitions))
            if batch and not await self._report(batch):
                await asyncio.sleep(RETRY_MS / 1000)
            if self._pending:
                self._wake.set()

    async def _next_batch(self, turn: "Turn") -> "dict[tuple[bytes, int], Uuid]":
        """The assignments of the next request, examined in slices.

        Forgets replicas that are not assigned to this broker any more. A replica whose directory
        failed stays: only the report makes the controller elect others.
        """
        batch: dict[tuple[bytes, int], Uuid] = {}
        for key in list(self._pending):
            if len(batch) == ASSIGNMENTS_MAX:
                break
            directory = self._pending.get(key)  # it may have changed since the last slice
            if directory is not None and self._is_assigned(*key):
                batch[key] = directory
            else:
                self._pending.pop(key, None)
            if turn.is_over(1):
                await turn.next()
        return batch

    def _is_assigned(self, topic_id: bytes, index: int) -> bool:
        known = self._metadata.image.partition(Uuid(topic_id), index)
        return known is not None and self._node_id in known.replicas

    async def _report(self, batch: "dict[tuple[bytes, int], Uuid]") -> bool:
        """Whether the controller accepted all of `batch`."""
        try:
            response = await self._channel.send(
                self._request(batch), ApiKey.ASSIGN_REPLICAS_TO_DIRS, timeout_ms=self._timeout_ms
            )
        except KafkaError as error:
            log.warning("AssignReplicasToDirs failed: %s", error)
            return False
        if response.error_code:
            log.warning("AssignReplicasToDirs was refused: %d", response.error_code)
            return False
        accepted = 0
        for directory in response.directories:
            for topic in directory.topics:
                for partition in topic.partitions:
                    key = (topic.topic_id, partition.partition_index)
                    if not partition.error_code and self._pending.get(key) == directory.id:
                        del self._pending[key]
                        accepted += 1
        return accepted == len(batch)

    def _request(self, batch: "dict[tuple[bytes, int], Uuid]") -> Any:
        from sparkraft.protocol.messages import k73_assign_replicas_to_dirs as k73

        by_directory: dict[Uuid, dict[Any, list[int]]] = {}
        for (topic_id, index), directory in sorted(batch.items()):
            by_directory.setdefault(directory, {}).setdefault(topic_id, []).append(index)
        return k73.AssignReplicasToDirsRequest(
            broker_id=self._node_id,
            broker_epoch=self._broker_epoch.value,
            directories=[
                k73.AssignReplicasToDirsRequestDirectoryData(
                    id=directory,
                    topics=[
                        k73.AssignReplicasToDirsRequestTopicData(
                            topic_id=topic_id,
                            partitions=[
                                k73.AssignReplicasToDirsRequestPartitionData(partition_index=index)
                                for index in indexes
                            ],
                        )
                        for topic_id, indexes in topics.items()
                    ],
                )
                for directory, topics in by_directory.items()
            ],
        )
