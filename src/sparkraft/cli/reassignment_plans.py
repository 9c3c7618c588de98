"""Plans of `reassign-partitions`: the JSON they are kept in, and what they throttle.

{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2],
                               "log_dirs": ["any", "/data/2"]}]}
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkraft.base.ids import TopicPartition
from sparkraft.cli.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkraft.client.values import Reassignment

ANY_DIRECTORY = "any"

Replica = tuple[TopicPartition, int]
"""A partition on a broker."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan from a file: replicas by partition, and directories for some of them."""

    replicas: dict[TopicPartition, list[int]]
    directories: dict[Replica, str]


def name_of(tp: TopicPartition) -> str:
    """`topic-partition`."""
    return f"{tp[0]}-{tp[1]}"


def names_of(partitions: Any) -> str:
    """Between commas, in order."""
    return ",".join(map(name_of, sorted(partitions)))


# ---- files


def _load(path: str) -> Any:
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise CommandError(f"{path} is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise CommandError(f"{path} holds no JSON object")
    version = data.get("version", 1)
    if version != 1:
        raise CommandError(f"Not supported version field value {version}")
    return data


def read_topics(path: str) -> list[str]:
    """The topics of a `--topics-to-move-json-file`."""
    try:
        topics = [str(entry["topic"]) for entry in _load(path).get("topics", [])]
    except (KeyError, TypeError) as error:
        raise CommandError(f'{path} does not hold {{"topics": [{{"topic": …}}]}}') from error
    twice = sorted({name for name in topics if topics.count(name) > 1})
    if twice:
        raise CommandError(f"List of topics to reassign contains duplicate entries: {twice}")
    return topics


def read_plan(path: str) -> Plan:
    """The plan in a `--reassignment-json-file`."""
    replicas: dict[TopicPartition, list[int]] = {}
    directories: dict[Replica, str] = {}
    try:
        entries = [
            (
                (str(entry["topic"]), int(entry["partition"])),
                [int(broker) for broker in entry["replicas"]],
                [str(name) for name in entry.get("log_dirs", ())],
            )
            for entry in _load(path).get("partitions", [])
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise CommandError(f"{path} holds a partition that is not understood: {error!r}") from error
    for tp, brokers, paths in entries:
        if tp in replicas:
            wrong = f"Partition reassignment contains duplicate topic partitions: {name_of(tp)}"
            raise CommandError(wrong)
        if paths and len(paths) != len(brokers):
            raise CommandError(
                f"Size of replicas list {brokers} is different from size of log dirs list "
                f"{paths} for partition {name_of(tp)}"
            )
        replicas[tp] = brokers
        for broker, directory in zip(brokers, paths, strict=False):
            if directory != ANY_DIRECTORY:
                directories[tp, broker] = directory
    return Plan(replicas, directories)


def check_plan(plan: Plan) -> None:
    """Refuse an invalid plan."""
    if not plan.replicas:
        raise CommandError("Partition reassignment list cannot be empty")
    for tp, brokers in plan.replicas.items():
        if not brokers:
            raise CommandError("Partition replica list cannot be empty")
        twice = sorted({broker for broker in brokers if brokers.count(broker) > 1})
        if twice:
            raise CommandError(
                f"Partition replica lists may not contain duplicate entries: {name_of(tp)} "
                f"contains multiple entries for {','.join(map(str, twice))}"
            )


def as_plan_json(
    replicas: Mapping[TopicPartition, list[int]], directories: Mapping[Replica, str]
) -> dict[str, Any]:
    """The content of such a file, partitions in order."""
    return {
        "version": 1,
        "partitions": [
            {
                "topic": tp[0],
                "partition": tp[1],
                "replicas": replicas[tp],
                "log_dirs": [directories.get((tp, b), ANY_DIRECTORY) for b in replicas[tp]],
            }
            for tp in sorted(replicas)
        ],
    }


def one_line(plan: dict[str, Any]) -> str:
    """As Kafka's tool writes it."""
    return json.dumps(plan, separators=(",", ":"))


# ---- throttles


@dataclass(frozen=True, slots=True)
class Move:
    """Brokers that have a partition, and brokers that are to get it."""

    sources: frozenset[int]
    destinations: frozenset[int]


def moves_of(
    ongoing: Mapping[TopicPartition, Reassignment],
    proposed: Mapping[TopicPartition, list[int]],
    current: Mapping[TopicPartition, list[int]],
) -> dict[TopicPartition, Move]:
    """Everything that moves once `proposed` has begun, what moves already included."""
    moves = {
        tp: Move(frozenset(r.replicas) - frozenset(r.adding), frozenset(r.adding))
        for tp, r in ongoing.items()
    }
    for tp, wanted in proposed.items():
        sources = moves[tp].sources if tp in moves else frozenset(current[tp])
        moves[tp] = Move(sources, frozenset(wanted) - sources)
    return moves


def throttled_replicas(moves: Mapping[TopicPartition, Move]) -> dict[str, tuple[str, str]]:
    """Topic → its `leader.` and `follower.replication.throttled.replicas`."""
    leaders: dict[str, set[str]] = {}
    followers: dict[str, set[str]] = {}
    for (topic, index), move in moves.items():
        leaders.setdefault(topic, set()).update(f"{index}:{b}" for b in move.sources)
        followers.setdefault(topic, set()).update(f"{index}:{b}" for b in move.destinations)
    return {
        topic: (",".join(sorted(leaders[topic])), ",".join(sorted(followers[topic])))
        for topic in sorted(leaders)
    }


def moving_brokers(moves: Mapping[TopicPartition, Move]) -> list[int]:
    """All brokers that send or receive."""
    return sorted({b for move in moves.values() for b in (*move.sources, *move.destinations)})
