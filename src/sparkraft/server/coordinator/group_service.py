"""The group coordinator of this broker: groups and committed offsets."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.coordinator.internal_topics import GROUP_METADATA_TOPIC
from sparkraft.coordinator.steps import pieces
from sparkraft.server.coordinator.coordinator_service import CoordinatorService, HostFactory
from sparkraft.server.coordinator.member_memory import MemberMemory
from sparkraft.server.coordinator.shard_spec import ShardSpec

if TYPE_CHECKING:
    from typing import TypeAlias

    from sparkraft.base.env import Entropy
    from sparkraft.coordinator.group.config import Bounded, ConsumerConfig, GroupConfig
    from sparkraft.coordinator.group.consumer_regex import MatchingTopics, ResolveRegexes
    from sparkraft.coordinator.group.decision import HandOver
    from sparkraft.coordinator.group.journal import Journal
    from sparkraft.coordinator.group.records import GroupRecord
    from sparkraft.coordinator.group.shard import GroupShard
    from sparkraft.protocol.messages.k19_create_topics import CreatableTopic
    from sparkraft.server.config import NodeConfig
    from sparkraft.server.coordinator.host import ImageSource
    from sparkraft.server.coordinator.shard_runtime import ShardRuntime
    from sparkraft.storage.disk import Disk

    GroupShardRuntime: TypeAlias = ShardRuntime[GroupShard, GroupRecord]


MoveLeader: "TypeAlias" = Callable[[str, int, frozenset[str]], Awaitable[None]]
"""(topic, partition, group types) → request once that a broker leads it that serves these types."""

HAND_OVER_MS = 500
"""Between two such requests."""


class GroupCoordinatorService(CoordinatorService["GroupShard", "GroupRecord"]):
    """The groups whose partitions of `__consumer_offsets` this broker leads.

    Attributes:
        member_memory: bounds the metadata and assignments of members.
    """

    def __init__(
        self,
        config: "NodeConfig",
        entropy: "Entropy",
        *,
        metadata: "ImageSource",
        host_of: HostFactory,
        disk: "Disk | None" = None,
        move_leader: "MoveLeader | None" = None,
    ) -> None:
        """Lead no partition yet; see `CoordinatorService`.

        Args:
            config: of this broker.
            entropy: for member ids.
            metadata: holds the current image.
            host_of: opens a partition that this broker leads.
            disk: keeps the journal.
            move_leader: hands partitions over to brokers that serve more types of groups.
        """
        super().__init__(
            GROUP_METADATA_TOPIC,
            metadata=metadata,
            host_of=host_of,
            partition_count=config.number("offsets.topic.num.partitions"),
        )
        self._config = config
        self._entropy = entropy
        self._disk = disk
        self._move_leader = move_leader
        self._journal: Journal | None = None
        self._group_config: GroupConfig | None = None
        self.member_memory = MemberMemory(
            config.number("sparkraft.group.members.max.bytes"), self._member_bytes
        )

    def _member_bytes(self) -> int:
        return sum(runtime.shard.member_bytes for runtime in self.runtimes.values())

    def new_spec(self) -> "ShardSpec[GroupShard, GroupRecord]":
        """The core and its messages are imported with the first partition led."""
        from sparkraft.coordinator.group import records
        from sparkraft.coordinator.group.consumer_regex import ResolveRegexes
        from sparkraft.coordinator.group.decision import HandOver
        from sparkraft.coordinator.group.shard import GroupShard, as_group_error

        return ShardSpec(
            topic=GROUP_METADATA_TOPIC,
            new_shard=lambda _epoch: GroupShard(self.group_config, self._entropy, self.journal),
            encode=records.encode_record,
            encode_in_steps=records.encode_record_in_steps,
            decode=records.decode_record,
            decode_in_steps=records.decode_record_in_steps,
            translate_error=as_group_error,
            write_timeout_ms=self._config.number("offsets.commit.timeout.ms"),
            compression=self._config.number("offsets.topic.compression.codec"),
            executors={ResolveRegexes: self._resolve_regexes, HandOver: self._hand_over},
        )

    async def _hand_over(self, effect: "HandOver") -> None:
        """Let an able broker lead the partition; repeated while this one leads such groups.

        It leads them only while no able broker is in sync.
        """
        index = self.partition_for(effect.group_id)
        runtime = self.runtimes.get(index)
        while runtime is not None and runtime is self.runtimes.get(index):
            types = runtime.shard.foreign_types
            if not types or self._move_leader is None:
                return
            await self._move_leader(self.topic, index, types)
            await asyncio.sleep(HAND_OVER_MS / 1000)

    async def _resolve_regexes(self, effect: "ResolveRegexes") -> "MatchingTopics":
        """Match all topics, in pieces."""
        from sparkraft.coordinator.group.consumer_regex import MatchingTopics, matching

        runtime = self.runtimes.get(self.partition_for(effect.group_id))
        if runtime is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        turn = runtime.turn()
        image = self._metadata.image
        names = list(image.topics_by_name)
        found = {}
        for pattern in effect.patterns:
            topics: list[str] = []
            for piece in pieces(names):
                topics += filter(effect.may_describe, matching(pattern, piece))
                if turn.is_over(len(piece)):
                    await turn.next()
            found[pattern] = frozenset(topics)
        return MatchingTopics(image.offset, found)

    @property
    def journal(self) -> "Journal":
        """The recent decisions about all groups, also those of earlier runs."""
        if self._journal is None:
            from sparkraft.coordinator.group.journal import Journal
            from sparkraft.server.coordinator.group_journal import group_journal_file

            entries_max = self.group_config.journal_entries_max
            if self._disk is None:
                self._journal = Journal(entries_max)
                return self._journal
            file = group_journal_file(self._disk, self._config.metadata_log_dir, entries_max)
            self._journal = Journal(entries_max, earlier=file.read(), sink=file.append)
        return self._journal

    @property
    def group_config(self) -> "GroupConfig":
        """The settings of groups, read once."""
        if self._group_config is None:
            self._group_config = group_config_of(self._config)
        return self._group_config

    @property
    def serves_consumer_protocol(self) -> bool:
        """Whether group.coordinator.rebalance.protocols allows consumer groups."""
        return "consumer" in self._config.words("group.coordinator.rebalance.protocols")

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
    from sparkraft.coordinator.group.config import (
        OFFSET_COMMIT_VALUE_VERSION,
        OFFSET_COMMIT_VALUE_VERSION_WITHOUT_IDS,
        GroupConfig,
    )

    return GroupConfig(
        min_session_timeout_ms=config.number("group.min.session.timeout.ms"),
        max_session_timeout_ms=config.number("group.max.session.timeout.ms"),
        initial_rebalance_delay_ms=config.number("group.initial.rebalance.delay.ms"),
        max_size=config.number("group.max.size"),
        offset_metadata_max_chars=config.number("offset.metadata.max.bytes"),
        offset_commit_value_version=OFFSET_COMMIT_VALUE_VERSION_WITHOUT_IDS
        if config.is_zookeeper
        else OFFSET_COMMIT_VALUE_VERSION,
        needs_offsets=config.is_zookeeper,
        offsets_retention_ms=config.number("offsets.retention.minutes") * 60_000,
        offsets_retention_check_interval_ms=config.number("offsets.retention.check.interval.ms"),
        foreign_session_timeout_ms=config.number("group.consumer.session.timeout.ms"),
        consumer=_consumer_config_of(config),
    )


def _consumer_config_of(config: "NodeConfig") -> "ConsumerConfig":
    from sparkraft.coordinator.group.config import Bounded, ConsumerConfig

    def bounded(name: str) -> "Bounded":
        return Bounded(
            value=config.number(f"group.consumer.{name}"),
            lowest=config.number(f"group.consumer.min.{name}"),
            highest=config.number(f"group.consumer.max.{name}"),
        )

    policy = config.text("group.consumer.migration.policy").lower()
    return ConsumerConfig(
        session_timeout_ms=bounded("session.timeout.ms"),
        heartbeat_interval_ms=bounded("heartbeat.interval.ms"),
        assignment_interval_ms=bounded("assignment.interval.ms"),
        max_size=config.number("group.consumer.max.size"),
        assignors=config.words("group.consumer.assignors"),
        allows_upgrade=policy in {"upgrade", "bidirectional"},
        allows_downgrade=policy in {"downgrade", "bidirectional"},
        regex_refresh_interval_ms=config.number("group.consumer.regex.refresh.interval.ms"),
    )
