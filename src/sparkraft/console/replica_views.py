"""Log directories with their space, and reassignments with their progress."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client import reassignments
from sparkraft.client.errors import sentence_of
from sparkraft.client.leadership import LeadershipAdmin
from sparkraft.console.recent import RecentAnswers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkraft.base.ids import TopicPartition
    from sparkraft.client.cluster import Cluster
    from sparkraft.client.values import LogDir, Reassignment, Resource

Json = dict[str, Any]

LARGEST_SHOWN = 10
"""Replicas of a log directory."""

MOVES_SHOWN = 500

Sizes = dict[tuple["TopicPartition", int], int]
"""Bytes of each replica: partition and broker."""


class ReplicaViews:
    """See the module docstring; a request raises the `KafkaError` of the cluster."""

    def __init__(self, cluster: Cluster, *, bootstrap: str) -> None:
        """Use `cluster`, which commands name as `bootstrap`."""
        self._admin = LeadershipAdmin(cluster)
        self._bootstrap = bootstrap
        self._recent = RecentAnswers()

    def _command(self, words: str) -> str:
        return f"sparkraft {words} --bootstrap-server {self._bootstrap}"

    def forget(self) -> None:
        """Show what is changed now at once."""
        self._recent.forget()

    async def log_dirs(self) -> Json:
        """The log directories of all brokers."""
        return await self._recent.get("log-dirs", self._log_dirs)

    async def reassignments(self) -> Json:
        """Ongoing reassignments with their progress, and the throttles that are set."""
        return await self._recent.get("reassignments", self._reassignments)

    async def _log_dirs(self) -> Json:
        nodes = (await self._admin.describe_cluster()).nodes
        found = await self._admin.describe_log_dirs([node.id for node in nodes])
        return {
            "brokers": [
                {"broker": broker, "problem": sentence_of(dirs), "dirs": []}
                if isinstance(dirs, KafkaError)
                else {"broker": broker, "problem": "", "dirs": [_dir_json(one) for one in dirs]}
                for broker, dirs in sorted(found.items())
            ],
            "command": self._command("log-dirs --describe"),
        }

    async def _reassignments(self) -> Json:
        ongoing = await self._admin.reassignments()
        sizes = await self._sizes(dict(_shown(ongoing)))
        throttles = await reassignments.throttles(self._admin)
        document = reassignments_json(ongoing, throttles, sizes)
        return {**document, "command": self._command("reassign-partitions --list")}

    async def _sizes(self, moves: Mapping[TopicPartition, Reassignment]) -> Sizes:
        if not moves:
            return {}
        brokers = sorted({broker for move in moves.values() for broker in move.replicas})
        topics = {topic for topic, _ in moves}
        found = await self._admin.describe_log_dirs(brokers, topics=topics)
        return {
            ((replica.topic, replica.partition), broker): replica.size
            for broker, dirs in found.items()
            if not isinstance(dirs, KafkaError)
            for each in dirs
            for replica in each.replicas
            if not replica.is_future
        }


def reassignments_json(
    ongoing: Mapping[TopicPartition, Reassignment],
    throttles: Mapping[Resource, list[tuple[str, str]]],
    sizes: Sizes | None,
) -> Json:
    """The document of reassignments; without `sizes`, their progress is unknown."""
    shown = _shown(ongoing)
    return {
        "moves": [_move_json(tp, move, sizes) for tp, move in shown],
        "moreMoves": len(ongoing) - len(shown),
        "throttles": [
            {"resource": kind.name.lower(), "name": name, "config": config, "value": value}
            for (kind, name), entries in throttles.items()
            for config, value in entries
        ],
    }


def _shown(
    ongoing: Mapping[TopicPartition, Reassignment],
) -> list[tuple[TopicPartition, Reassignment]]:
    return sorted(ongoing.items(), key=lambda each: each[0])[:MOVES_SHOWN]


def _move_json(tp: TopicPartition, move: Reassignment, sizes: Sizes | None) -> Json:
    return {
        "topic": tp[0],
        "partition": tp[1],
        "replicas": list(move.replicas),
        "adding": list(move.adding),
        "removing": list(move.removing),
        "progress": None if sizes is None else _progress_json(tp, move, sizes),
    }


def _progress_json(tp: TopicPartition, move: Reassignment, sizes: Sizes) -> list[Json]:
    """The largest present replica is what the new ones will have."""
    before = [broker for broker in move.replicas if broker not in move.adding]
    most = max((sizes.get((tp, broker), 0) for broker in before), default=0)
    return [
        {"broker": broker, "bytes": sizes.get((tp, broker), 0), "ofBytes": most}
        for broker in move.adding
    ]


def _dir_json(found: LogDir) -> Json:
    present = [replica for replica in found.replicas if not replica.is_future]
    largest = sorted(present, key=lambda r: (-r.size, r.topic, r.partition))[:LARGEST_SHOWN]
    sizes = {(r.topic, r.partition): r.size for r in found.replicas if r.is_future}
    return {
        "path": found.path,
        "error": None if found.error is ErrorCode.NONE else found.error.name,
        "totalBytes": found.total_bytes,
        "usableBytes": found.usable_bytes,
        "replicas": len(present),
        "bytes": sum(replica.size for replica in present),
        "largest": [
            {"topic": one.topic, "partition": one.partition, "bytes": one.size} for one in largest
        ],
        "arriving": [
            {"topic": topic, "partition": partition, "bytes": size}
            for (topic, partition), size in sorted(sizes.items())[:MOVES_SHOWN]
        ],
    }
