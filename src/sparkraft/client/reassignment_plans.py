"""Plans of reassignments: their JSON form, checks, proposals, and the throttles they need.

{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2],
                               "log_dirs": ["any", "/data/2"]}]}
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkraft.base.ids import TopicPartition
from sparkraft.client.errors import PlanError
from sparkraft.client.values import ResourceType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from sparkraft.client.cluster import Node
    from sparkraft.client.values import Reassignment, Resource

    Place = Callable[[list[tuple[int, str | None]], int, int], list[list[int]]]
    """Places new partitions: (broker id, rack), partitions, replication factor → replicas."""
    ConfigChanges = dict[Resource, list[tuple[str, str | None]]]
    """New values of configs; None deletes one."""

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


# ---- JSON


def _load(raw: bytes, source: str) -> Any:
    try:
        data = json.loads(raw.decode())
    except ValueError as error:
        raise PlanError(f"{source} is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise PlanError(f"{source} holds no JSON object")
    version = data.get("version", 1)
    if version != 1:
        raise PlanError(f"Not supported version field value {version}")
    return data


def parse_topics(raw: bytes, *, source: str) -> list[str]:
    """The topics of `{"topics": [{"topic": NAME}]}`; errors name the file `source`."""
    try:
        topics = [str(entry["topic"]) for entry in _load(raw, source).get("topics", [])]
    except (KeyError, TypeError) as error:
        raise PlanError(f'{source} does not hold {{"topics": [{{"topic": …}}]}}') from error
    twice = sorted({name for name in topics if topics.count(name) > 1})
    if twice:
        raise PlanError(f"List of topics to reassign contains duplicate entries: {twice}")
    return topics


def parse_plan(raw: bytes, *, source: str) -> Plan:
    """The plan in the JSON above; errors name the file `source`."""
    replicas: dict[TopicPartition, list[int]] = {}
    directories: dict[Replica, str] = {}
    try:
        entries = [
            (
                (str(entry["topic"]), int(entry["partition"])),
                [int(broker) for broker in entry["replicas"]],
                [str(name) for name in entry.get("log_dirs", ())],
            )
            for entry in _load(raw, source).get("partitions", [])
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise PlanError(f"{source} holds a partition that is not understood: {error!r}") from error
    for tp, brokers, paths in entries:
        if tp in replicas:
            wrong = f"Partition reassignment contains duplicate topic partitions: {name_of(tp)}"
            raise PlanError(wrong)
        if paths and len(paths) != len(brokers):
            raise PlanError(
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
        raise PlanError("Partition reassignment list cannot be empty")
    for tp, brokers in plan.replicas.items():
        if not brokers:
            raise PlanError("Partition replica list cannot be empty")
        twice = sorted({broker for broker in brokers if brokers.count(broker) > 1})
        if twice:
            raise PlanError(
                f"Partition replica lists may not contain duplicate entries: {name_of(tp)} "
                f"contains multiple entries for {','.join(map(str, twice))}"
            )


def check_known(plan: Plan, brokers: Iterable[int]) -> None:
    """`PlanError` unless all brokers of the plan are among `brokers`."""
    unknown = sorted({b for ids in plan.replicas.values() for b in ids} - set(brokers))
    if unknown:
        raise PlanError(f"Unknown broker id {unknown[0]}")


def check_existing(plan: Plan, partitions: Iterable[TopicPartition]) -> None:
    """`PlanError` unless all partitions of the plan are among `partitions`."""
    missing = sorted(set(plan.replicas) - set(partitions))
    if missing:
        raise PlanError(f"Unable to find partition: {', '.join(map(name_of, missing))}")


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


# ---- proposals


def propose(
    current: Mapping[TopicPartition, list[int]],
    nodes: list[Node],
    *,
    place: Place,
    use_racks: bool,
) -> dict[TopicPartition, list[int]]:
    """Place all partitions of each topic on `nodes` with `place`, the rules for new topics."""
    racks = {node.rack if use_racks else None for node in nodes}
    if None in racks and len(racks) > 1:
        raise PlanError(
            "Not all brokers have rack information. Add --disable-rack-aware in command line to "
            "make replica assignment without rack information."
        )
    brokers = [(node.id, node.rack if use_racks else None) for node in nodes]
    proposed: dict[TopicPartition, list[int]] = {}
    for topic in sorted({topic for topic, _ in current}):
        indexes = sorted(index for name, index in current if name == topic)
        placed = place(brokers, len(indexes), len(current[topic, indexes[0]]))
        proposed.update({(topic, i): replicas for i, replicas in zip(indexes, placed, strict=True)})
    return proposed


# ---- throttles

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
DIRECTORY_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"

BROKER_THROTTLES = (LEADER_RATE, FOLLOWER_RATE, DIRECTORY_RATE)
TOPIC_THROTTLES = (LEADER_REPLICAS, FOLLOWER_REPLICAS)
"""The configs of brokers and topics that limit reassignments."""


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


def topic_throttles(moves: Mapping[TopicPartition, Move]) -> ConfigChanges:
    """The config changes that throttle the replicas of moves."""
    return {
        (ResourceType.TOPIC, topic): [(LEADER_REPLICAS, leaders), (FOLLOWER_REPLICAS, followers)]
        for topic, (leaders, followers) in throttled_replicas(moves).items()
    }


def broker_throttles(moves: Mapping[TopicPartition, Move], rate: int) -> ConfigChanges:
    """The config changes that limit moves between brokers to `rate` bytes per second."""
    return {
        (ResourceType.BROKER, str(b)): [(LEADER_RATE, str(rate)), (FOLLOWER_RATE, str(rate))]
        for b in moving_brokers(moves)
    }


def directory_throttles(plan: Plan, rate: int) -> ConfigChanges:
    """The config changes that limit moves between directories to `rate` bytes per second."""
    brokers = sorted({broker for _, broker in plan.directories})
    return {(ResourceType.BROKER, str(b)): [(DIRECTORY_RATE, str(rate))] for b in brokers}


def cleared_brokers(brokers: Iterable[int]) -> ConfigChanges:
    """The config changes that remove all throttles of brokers."""
    return {
        (ResourceType.BROKER, str(b)): [(key, None) for key in BROKER_THROTTLES] for b in brokers
    }


def cleared_topics(topics: Iterable[str]) -> ConfigChanges:
    """The config changes that remove all throttles of topics."""
    return {(ResourceType.TOPIC, t): [(key, None) for key in TOPIC_THROTTLES] for t in topics}
