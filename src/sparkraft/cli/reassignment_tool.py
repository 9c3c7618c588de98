"""The shared parts of `reassign-partitions`: the admin client, the options and the output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkraft.client import reassignment_plans as plans
from sparkraft.client.reassignments import alter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sparkraft.base.ids import TopicPartition
    from sparkraft.cli.options import Values
    from sparkraft.client.leadership import LeadershipAdmin


class Tool:
    """Shared by the actions: the admin client, the options, and output for people."""

    def __init__(self, admin: LeadershipAdmin, values: Values) -> None:
        """Work for one command."""
        self.admin = admin
        self.values = values
        self._is_text = values.output == "text"

    def say(self, text: str, end: str = "\n") -> None:
        """Print it, unless the output is JSON."""
        if self._is_text:
            print(text, end=end)

    async def clear_throttles(self, replicas: Mapping[TopicPartition, list[int]]) -> None:
        """Remove all throttles: those of every broker, and of the topics of these partitions."""
        nodes = {node.id for node in (await self.admin.describe_cluster()).nodes}
        brokers = sorted(nodes | {b for ids in replicas.values() for b in ids})
        names = ",".join(map(str, brokers))
        self.say(f"Clearing broker-level throttles on broker{plural(brokers)} {names}")
        await alter(self.admin, plans.cleared_brokers(brokers))
        topics = sorted({topic for topic, _ in replicas})
        self.say(f"Clearing topic-level throttles on topic{plural(topics)} {','.join(topics)}")
        await alter(self.admin, plans.cleared_topics(topics))


def plural(things: Iterable[Any]) -> str:
    """An s, but for one of them."""
    return "" if len(list(things)) == 1 else "s"
