"""The actions of `reassign-partitions`: requests to the cluster and their output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.cli.errors import CommandError
from sparkraft.cli.reassignment_plans import name_of
from sparkraft.client.values import ConfigOperation, ResourceType

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sparkraft.base.ids import TopicPartition
    from sparkraft.cli.options import Values
    from sparkraft.cli.reassignment_plans import Replica
    from sparkraft.client.leadership import LeadershipAdmin
    from sparkraft.client.values import Resource

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
DIRECTORY_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"


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

    async def current(self, topics: Iterable[str]) -> dict[TopicPartition, list[int]]:
        """Replicas of all partitions of topics."""
        found: dict[TopicPartition, list[int]] = {}
        for name, info in (await self.admin.describe_topics(topics)).items():
            if isinstance(info, KafkaError):
                if info.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise CommandError(f"Topic {name} not found.")
                raise info
            for index, partition in info.partitions.items():
                found[name, index] = list(partition.replicas)
        return found

    async def directories(self, replicas: Mapping[TopicPartition, list[int]]) -> dict[Replica, str]:
        """Return the directories of replicas; brokers that do not respond are left out."""
        paths = await self._paths(replicas, {b for ids in replicas.values() for b in ids})
        return {replica: path for (replica, future), path in paths.items() if not future}

    async def _paths(
        self, partitions: Iterable[TopicPartition], brokers: Iterable[int]
    ) -> dict[tuple[Replica, bool], str]:
        """(replica, whether it is on its way there) → directory."""
        topics = {topic for topic, _ in partitions}
        found: dict[tuple[Replica, bool], str] = {}
        told = await self.admin.describe_log_dirs(sorted(brokers), topics=topics)
        for broker, dirs in told.items():
            for log_dir in () if isinstance(dirs, KafkaError) else dirs:
                for r in log_dir.replicas:
                    found[((r.topic, r.partition), broker), r.is_future] = log_dir.path
        return found

    async def move_states(self, wanted: Mapping[Replica, str]) -> dict[Replica, tuple[str, str]]:
        """Replica → (state, sentence) of its move to a directory."""
        if not wanted:
            return {}
        paths = await self._paths([tp for tp, _ in wanted], {broker for _, broker in wanted})
        return {
            replica: _move_state(
                replica, target, paths.get((replica, False)), paths.get((replica, True))
            )
            for replica, target in sorted(wanted.items(), key=lambda e: (e[0][1], e[0][0]))
        }

    async def alter(self, changes: Mapping[Resource, list[tuple[str, str | None]]]) -> None:
        """Set configs, or delete those given None."""
        wanted = {
            resource: [
                (key, ConfigOperation.DELETE if value is None else ConfigOperation.SET, value)
                for key, value in entries
            ]
            for resource, entries in changes.items()
        }
        for error in (await self.admin.alter_configs(wanted)).values():
            if error is not None:
                raise error

    async def clear_throttles(self, replicas: Mapping[TopicPartition, list[int]]) -> None:
        """Take all throttles away: of every broker, and of the topics of these partitions."""
        nodes = {node.id for node in (await self.admin.describe_cluster()).nodes}
        brokers = sorted(nodes | {b for ids in replicas.values() for b in ids})
        rates = (LEADER_RATE, FOLLOWER_RATE, DIRECTORY_RATE)
        names = ",".join(map(str, brokers))
        self.say(f"Clearing broker-level throttles on broker{plural(brokers)} {names}")
        await self.alter(
            {(ResourceType.BROKER, str(b)): [(key, None) for key in rates] for b in brokers}
        )
        topics = sorted({topic for topic, _ in replicas})
        self.say(f"Clearing topic-level throttles on topic{plural(topics)} {','.join(topics)}")
        keys = (LEADER_REPLICAS, FOLLOWER_REPLICAS)
        await self.alter({(ResourceType.TOPIC, t): [(key, None) for key in keys] for t in topics})


def plural(things: Iterable[Any]) -> str:
    """An s, but for one of them."""
    return "" if len(list(things)) == 1 else "s"


def _move_state(
    replica: Replica, target: str, now: str | None, future: str | None
) -> tuple[str, str]:
    tp, broker = replica
    name = f"{name_of(tp)}-{broker}"
    partition = f"Partition {name_of(tp)} on broker {broker}"
    if now is None:
        return "missing", (
            f"Partition {name_of(tp)} cannot be found in any live log directory on broker {broker}."
        )
    if future == target:
        return "active", f"Reassignment of replica {name} is still in progress."
    if future is not None:
        return "active", f"{partition} is being moved to log dir {future} instead of {target}."
    if now == target:
        return "completed", f"Reassignment of replica {name} completed successfully."
    return "cancelled", f"{partition} is not being moved from log dir {now} to {target}."
