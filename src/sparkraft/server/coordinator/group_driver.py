"""The broker's group coordinator: a shard for every `__consumer_offsets` partition led here.

A shard loads its log when leadership begins and is dropped when it ends; what is asked of it
meanwhile is refused with the code that tells a client where to go, or to wait.

Invariant: a shard is served only by the leader of its partition, and only once it is loaded (G8).
Not here: one shard's life (`led_shard.py`), the requests (`sparkraft.server.api`).
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.coordinator.runtime import MetadataDelta
from sparkraft.server.coordinator.partitions import partition_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sparkraft.base.ids import Uuid
    from sparkraft.coordinator.group.config import GroupConfig
    from sparkraft.coordinator.group.journal import JournalEntry
    from sparkraft.metadata.image import ClusterImage
    from sparkraft.protocol.messages.k19_create_topics import CreatableTopic
    from sparkraft.server.broker.services import BrokerServices
    from sparkraft.server.config import NodeConfig
    from sparkraft.server.coordinator.led_shard import LedShard

log = logging.getLogger(__name__)

GROUP_METADATA_TOPIC = "__consumer_offsets"
"""Kafka's internal topic of groups and committed offsets."""

LOADS_AT_ONCE_MAX = 1
"""Shards load one after another: they share one loop, and clients wait for whole shards."""


class GroupDriver:
    """The groups whose partitions this broker leads."""

    def __init__(self, broker: "BrokerServices") -> None:
        """Serve groups on top of `broker.replica_manager`, which must be there already."""
        self._broker = broker
        self._shards: dict[int, LedShard] = {}
        self._loads = asyncio.Semaphore(LOADS_AT_ONCE_MAX)
        self._group_config: GroupConfig | None = None
        broker.replica_manager.leadership_listeners.append(self.on_leadership)

    # Leadership and metadata

    def on_leadership(self, topic: str, index: int, epoch: int | None) -> None:
        """Leadership of a partition here began or moved on or, without an epoch, ended."""
        if topic != GROUP_METADATA_TOPIC:
            return
        shard = self._shards.pop(index, None)
        if shard is not None:
            shard.close()
        if epoch is None:
            return
        # The core and its messages load with the first partition led, not with the node.
        from sparkraft.server.coordinator.led_shard import LedShard

        led = LedShard(self._broker, index, epoch, self.group_config)
        self._shards[index] = led
        if led.must_load:
            self._broker.replica_manager.spawn(self._load(led), f"load of {topic}-{index}")
        else:
            led.start()

    async def _load(self, shard: "LedShard") -> None:
        async with self._loads:
            await shard.load()

    def on_image(
        self, before: "ClusterImage", image: "ClusterImage", changed: "Iterable[Uuid] | None"
    ) -> None:
        """Pass new metadata to every shard.

        Args:
            before: the image so far.
            image: what holds from now on.
            changed: ids of topics changed since `before`; None: any of them.
        """
        delta = MetadataDelta(before, image, changed)
        for index in sorted(self._shards):
            self._shards[index].on_image(delta)

    def close(self) -> None:
        """The node stops: everything parked is told to go elsewhere."""
        for index in sorted(self._shards):
            self._shards[index].close()
        self._shards.clear()

    # Finding

    @property
    def partition_count(self) -> int:
        """Partitions of the offsets topic; as configured until the topic is there."""
        topic = self._broker.image.topic(GROUP_METADATA_TOPIC)
        if topic is not None:
            return len(topic.partitions)
        return self._broker.config.number("offsets.topic.num.partitions")

    def partition_for(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that holds a group."""
        return partition_of(group_id, self.partition_count)

    def shard_of(self, group_id: str) -> "LedShard":
        """The loaded shard of a group.

        Raises:
            KafkaError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
        """
        shard = self._shards.get(self.partition_for(group_id))
        if shard is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"group {group_id} is not led here")
        shard.check_loaded()
        return shard

    async def end_transaction(
        self, index: int, marker: bytes, producer_id: int, *, committed: bool
    ) -> None:
        """Append a transaction's marker to the offsets partition `index`; returns when durable.

        Raises:
            KafkaError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, or it could not be written.
        """
        shard = self._shards.get(index)
        if shard is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        shard.check_loaded()
        await shard.end_transaction(marker, producer_id, committed=committed)

    def loaded_shards(self) -> "Iterator[LedShard]":
        """Every shard led here, by partition.

        Raises:
            KafkaError: COORDINATOR_LOAD_IN_PROGRESS, when it comes to one that is loading.
        """
        for index in sorted(self._shards):
            self._shards[index].check_loaded()
            yield self._shards[index]

    def decisions(self, group_id: str | None = None) -> "list[JournalEntry]":
        """Who was chosen as leader or assignor lately, when, among whom and why (D8)."""
        return [
            decision
            for index in sorted(self._shards)
            for decision in self._shards[index].decisions(group_id)
        ]

    # Settings

    @property
    def group_config(self) -> "GroupConfig":
        """The settings of groups, read once."""
        if self._group_config is None:
            self._group_config = group_config_of(self._broker.config)
        return self._group_config

    def topic_to_create(self) -> "CreatableTopic":
        """The offsets topic as CreateTopics must be asked for it."""
        from sparkraft.protocol.messages.k19_create_topics import (
            CreatableTopic,
            CreatableTopicConfig,
        )

        config = self._broker.config
        return CreatableTopic(
            name=GROUP_METADATA_TOPIC,
            num_partitions=config.number("offsets.topic.num.partitions"),
            replication_factor=config.number("offsets.topic.replication.factor"),
            configs=[
                CreatableTopicConfig(name="cleanup.policy", value="compact"),
                CreatableTopicConfig(name="compression.type", value="producer"),
                CreatableTopicConfig(
                    name="segment.bytes", value=str(config.number("offsets.topic.segment.bytes"))
                ),
            ],
        )


def group_config_of(config: "NodeConfig") -> "GroupConfig":
    """What `server.properties` says about groups."""
    from sparkraft.coordinator.group.config import GroupConfig

    return GroupConfig(
        min_session_timeout_ms=config.number("group.min.session.timeout.ms"),
        max_session_timeout_ms=config.number("group.max.session.timeout.ms"),
        initial_rebalance_delay_ms=config.number("group.initial.rebalance.delay.ms"),
        max_size=config.number("group.max.size"),
        offset_metadata_max_chars=config.number("offset.metadata.max.bytes"),
        offsets_retention_ms=config.number("offsets.retention.minutes") * 60_000,
        offsets_retention_check_interval_ms=config.number("offsets.retention.check.interval.ms"),
        foreign_session_timeout_ms=config.number("group.consumer.session.timeout.ms"),
    )
