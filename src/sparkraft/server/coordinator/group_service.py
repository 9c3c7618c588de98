"""The group coordinator of this broker: groups and committed offsets."""

from typing import TYPE_CHECKING

from sparkraft.coordinator.internal_topics import GROUP_METADATA_TOPIC
from sparkraft.server.coordinator.coordinator_service import CoordinatorService, HostFactory
from sparkraft.server.coordinator.shard_runtime import ShardRuntime, ShardSpec

if TYPE_CHECKING:
    from typing import TypeAlias

    from sparkraft.base.env import Entropy
    from sparkraft.coordinator.group.config import GroupConfig
    from sparkraft.coordinator.group.journal import JournalEntry
    from sparkraft.coordinator.group.records import GroupRecord
    from sparkraft.coordinator.group.shard import GroupShard
    from sparkraft.protocol.messages.k19_create_topics import CreatableTopic
    from sparkraft.server.config import NodeConfig
    from sparkraft.server.coordinator.host import ImageSource

    GroupShardRuntime: TypeAlias = ShardRuntime[GroupShard, GroupRecord]


class GroupCoordinatorService(CoordinatorService["GroupShard", "GroupRecord"]):
    """The groups whose partitions of `__consumer_offsets` this broker leads."""

    def __init__(
        self,
        config: "NodeConfig",
        entropy: "Entropy",
        *,
        metadata: "ImageSource",
        host_of: HostFactory,
    ) -> None:
        """Lead no partition yet; see `CoordinatorService`."""
        super().__init__(
            GROUP_METADATA_TOPIC,
            metadata=metadata,
            host_of=host_of,
            partition_count=config.number("offsets.topic.num.partitions"),
        )
        self._config = config
        self._entropy = entropy
        self._group_config: GroupConfig | None = None

    def new_spec(self) -> "ShardSpec[GroupShard, GroupRecord]":
        """The core and its messages are imported with the first partition led."""
        from sparkraft.coordinator.group.records import decode_record, encode_record
        from sparkraft.coordinator.group.shard import GroupShard, as_group_error

        return ShardSpec(
            topic=GROUP_METADATA_TOPIC,
            new_shard=lambda: GroupShard(self.group_config, self._entropy),
            encode=encode_record,
            decode=decode_record,
            translate_error=as_group_error,
            write_timeout_ms=self._config.number("offsets.commit.timeout.ms"),
            compression=self._config.number("offsets.topic.compression.codec"),
        )

    def journal(self, group_id: str | None = None) -> "list[JournalEntry]":
        """The recent choices of leaders and assignors, of one group or of all."""
        return [
            entry
            for index in sorted(self.runtimes)
            for entry in self.runtimes[index].shard.journal.entries(group_id)
        ]

    @property
    def group_config(self) -> "GroupConfig":
        """The settings of groups, read once."""
        if self._group_config is None:
            self._group_config = group_config_of(self._config)
        return self._group_config

    def topic_to_create(self) -> "CreatableTopic":
        """The offsets topic for a CreateTopics request."""
        from sparkraft.protocol.messages.k19_create_topics import (
            CreatableTopic,
            CreatableTopicConfig,
        )

        config = self._config
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
    """The group settings of `server.properties`."""
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
