"""Tells the controller in which directory each replica lies (KIP-858).

A broker with several log dirs chooses for itself, and the controller must know: when a directory
fails, it moves the leaderships of what lay there. Replicas are gathered for a moment and sent in
one request; what is refused is asked again, until the image shows it.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.metadata.features import DIRECTORIES_LEVEL
from sparkraft.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from sparkraft.server.broker.partition import HostedPartition
    from sparkraft.server.broker.services import BrokerServices

log = logging.getLogger(__name__)

GATHER_MS = 20
"""How long assignments are gathered: a topic's partitions are made one after another."""

ASSIGNMENTS_MAX = 2_250
"""Replicas in one request, Kafka's bound."""

RETRY_MS = 1_000
"""Between tries after a failure."""


class DirectoryAssignments:
    """Replicas whose directory the controller doesn't know yet."""

    def __init__(self, broker: "BrokerServices") -> None:
        """Nothing to tell yet."""
        self._broker = broker
        self._pending: dict[tuple[bytes, int], Uuid] = {}
        self._wake = asyncio.Event()

    def note(self, hosted: "HostedPartition", known: bytes) -> None:
        """The image says `hosted` lies in `known`; remember to correct that where it's wrong."""
        actual = self._directory_of(hosted)
        key = (hosted.topic_id, hosted.index)
        if actual is None or actual == known:
            self._pending.pop(key, None)
        elif self._pending.get(key) != actual:
            self._pending[key] = actual
            self._wake.set()

    def _directory_of(self, hosted: "HostedPartition") -> "Uuid | None":
        """Where it lies, or where a move that has caught up is about to put it."""
        target = self._broker.log_dir_moves.told_directory(hosted)
        if target is not None:
            return target
        for directory in self._broker.log_manager.directories:
            if directory.path == hosted.log.log_dir:
                return directory.directory_id
        return None

    async def run(self) -> None:
        """Tell until cancelled; begins once the broker is registered."""
        while True:
            await self._wake.wait()
            await asyncio.sleep(GATHER_MS / 1000)
            self._wake.clear()
            if self._broker.replica_manager.image.metadata_version < DIRECTORIES_LEVEL:
                continue  # no record holds directories yet; the next change of a replica tells all
            self._forget_those_gone()
            part = dict(list(self._pending.items())[:ASSIGNMENTS_MAX])
            if part and not await self._tell(part):
                await asyncio.sleep(RETRY_MS / 1000)
            if self._pending:
                self._wake.set()

    def _forget_those_gone(self) -> None:
        """Nobody needs to know where a replica was that is deleted.

        One whose directory failed is still to be told: only so the controller elects others.
        """
        image, node_id = self._broker.replica_manager.image, self._broker.node_id
        for topic_id, index in list(self._pending):
            known = image.partition(Uuid(topic_id), index)
            if known is None or node_id not in known.replicas:
                del self._pending[topic_id, index]

    async def _tell(self, part: "dict[tuple[bytes, int], Uuid]") -> bool:
        """Whether all of `part` is known now."""
        try:
            answer = await self._broker.channel.send(
                self._request(part),
                ApiKey.ASSIGN_REPLICAS_TO_DIRS,
                timeout_ms=self._broker.config.number("request.timeout.ms"),
            )
        except KafkaError as error:
            log.warning("The controller can't be told of replica directories: %s", error)
            return False
        if answer.error_code:
            log.warning("The controller refused replica directories: %d", answer.error_code)
            return False
        told = 0
        for directory in answer.directories:
            for topic in directory.topics:
                for partition in topic.partitions:
                    key = (topic.topic_id, partition.partition_index)
                    if not partition.error_code and self._pending.get(key) == directory.id:
                        del self._pending[key]
                        told += 1
        return told == len(part)

    def _request(self, part: "dict[tuple[bytes, int], Uuid]") -> Any:
        from sparkraft.protocol.messages import k73_assign_replicas_to_dirs as k73

        by_directory: dict[Uuid, dict[Any, list[int]]] = {}
        for (topic_id, index), directory in sorted(part.items()):
            by_directory.setdefault(directory, {}).setdefault(topic_id, []).append(index)
        return k73.AssignReplicasToDirsRequest(
            broker_id=self._broker.node_id,
            broker_epoch=self._broker.lifecycle.broker_epoch,
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
