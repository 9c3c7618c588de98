"""A consumer's settings for its group, its subscription, and its rebalance listener."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection

    from sparkraft.base.ids import TopicPartition

CLASSIC = "classic"
CONSUMER = "consumer"
"""Values of `group.protocol`: the classic protocol, and that of KIP-848."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Kafka's consumer configs about groups."""

    group_id: str
    protocol: str = CLASSIC
    """`group.protocol`: `classic` or `consumer` (KIP-848)."""
    instance_id: str | None = None
    session_timeout_ms: int = 45_000
    """Of the classic protocol; with `consumer` it is the group's."""
    rebalance_timeout_ms: int = 300_000
    """`max.poll.interval.ms`."""
    heartbeat_interval_ms: int = 3_000
    """Of the classic protocol; with `consumer` it is the group's."""
    assignors: tuple[str, ...] = ("range", "sticky", "roundrobin")
    """Of the classic protocol, in order of preference; the group takes one that all know."""
    remote_assignor: str | None = None
    """`group.remote.assignor`, of the protocol `consumer`; None leaves it to the group."""
    rack: str = ""
    """`client.rack`, of the protocol `consumer`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """Topics by name, or by a pattern of their whole names."""

    topics: frozenset[str] = frozenset()
    pattern: str | None = None

    @property
    def is_empty(self) -> bool:
        return not self.topics and self.pattern is None


class RebalanceListener(Protocol):
    """Called within `Consumer.poll` when the group assigns partitions or takes them away."""

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """They are still owned: the last moment to commit their offsets."""

    async def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        """They may be owned by others already: uncommitted records are read again."""

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """They are owned from now on; nothing of them has been read yet."""


class NoListener:
    """A listener that does nothing."""

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        pass

    async def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        pass

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        pass
