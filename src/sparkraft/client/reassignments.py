"""The cluster's side of reassignments: current replicas, moves in progress, and throttles.

Plans themselves are in `reassignment_plans`, the requests that start and cancel them in
`leadership`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client.errors import PlanError
from sparkraft.client.reassignment_plans import BROKER_THROTTLES, TOPIC_THROTTLES, name_of
from sparkraft.client.values import ConfigOperation, ConfigSource, ResourceType

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sparkraft.base.ids import TopicPartition
    from sparkraft.client.leadership import LeadershipAdmin
    from sparkraft.client.reassignment_plans import ConfigChanges, Replica
    from sparkraft.client.values import Reassignment, Resource

_SET_BY_PLAN = frozenset({ConfigSource.DYNAMIC_BROKER_CONFIG, ConfigSource.DYNAMIC_TOPIC_CONFIG})


async def current_replicas(
    admin: LeadershipAdmin, topics: Iterable[str]
) -> dict[TopicPartition, list[int]]:
    """Replicas of all partitions of topics; `PlanError` if a topic does not exist."""
    found: dict[TopicPartition, list[int]] = {}
    for name, info in (await admin.describe_topics(topics)).items():
        if isinstance(info, KafkaError):
            if info.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise PlanError(f"Topic {name} not found.")
            raise info
        for index, partition in info.partitions.items():
            found[name, index] = list(partition.replicas)
    return found


async def directories_of(
    admin: LeadershipAdmin, replicas: Mapping[TopicPartition, list[int]]
) -> dict[Replica, str]:
    """Return the directories of replicas; brokers that do not respond are left out."""
    paths = await _paths(admin, replicas, {b for ids in replicas.values() for b in ids})
    return {replica: path for (replica, future), path in paths.items() if not future}


async def _paths(
    admin: LeadershipAdmin, partitions: Iterable[TopicPartition], brokers: Iterable[int]
) -> dict[tuple[Replica, bool], str]:
    """(replica, whether it is a future replica) → directory."""
    topics = {topic for topic, _ in partitions}
    found: dict[tuple[Replica, bool], str] = {}
    described = await admin.describe_log_dirs(sorted(brokers), topics=topics)
    for broker, dirs in described.items():
        for log_dir in () if isinstance(dirs, KafkaError) else dirs:
            for r in log_dir.replicas:
                found[((r.topic, r.partition), broker), r.is_future] = log_dir.path
    return found


async def move_states(
    admin: LeadershipAdmin, wanted: Mapping[Replica, str]
) -> dict[Replica, tuple[str, str]]:
    """Replica → (state, sentence) of its move to a directory, by broker.

    The states are `missing`, `active`, `completed` and `cancelled`.
    """
    if not wanted:
        return {}
    paths = await _paths(admin, [tp for tp, _ in wanted], {broker for _, broker in wanted})
    return {
        replica: _move_state(
            replica, target, paths.get((replica, False)), paths.get((replica, True))
        )
        for replica, target in sorted(wanted.items(), key=lambda e: (e[0][1], e[0][0]))
    }


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


def state_of(
    tp: TopicPartition,
    wanted: list[int],
    replicas: list[int],
    ongoing: Mapping[TopicPartition, Reassignment],
) -> str:
    """`ongoing`, `completed` or `inactive`: the progress of a partition to the wanted replicas."""
    if tp in ongoing:
        return "ongoing"
    return "completed" if replicas == wanted else "inactive"


def state_sentence(tp: TopicPartition, state: str, wanted: list[int], replicas: list[int]) -> str:
    """A state as Kafka's tool describes it."""
    if state == "ongoing":
        return f"Reassignment of partition {name_of(tp)} is still in progress."
    if state == "completed":
        return f"Reassignment of partition {name_of(tp)} is completed."
    have, want = (",".join(map(str, ids)) for ids in (replicas, wanted))
    return (
        f"There is no active reassignment of partition {name_of(tp)}, but replica set is {have} "
        f"rather than {want}."
    )


async def throttles(admin: LeadershipAdmin) -> dict[Resource, list[tuple[str, str]]]:
    """The throttles that are set: broker or topic → (config, value), in order."""
    nodes = (await admin.describe_cluster()).nodes
    brokers = [(ResourceType.BROKER, str(node.id)) for node in nodes]
    topics = [(ResourceType.TOPIC, name) for name in await admin.list_topics()]
    found: dict[Resource, list[tuple[str, str]]] = {}
    for resources, names in ((brokers, BROKER_THROTTLES), (topics, TOPIC_THROTTLES)):
        for resource, entries in (await admin.describe_configs(resources, names=names)).items():
            # A topic may be deleted, or a broker stop, in between: it has no throttle to remove.
            own = [] if isinstance(entries, KafkaError) else entries
            values = [(one.name, one.value) for one in own if one.source in _SET_BY_PLAN]
            if any(value for _, value in values):
                found[resource] = sorted((name, value) for name, value in values if value)
    return dict(sorted(found.items()))


async def alter(admin: LeadershipAdmin, changes: ConfigChanges) -> None:
    """Set configs, or delete those given None; raises the first error."""
    wanted = {
        resource: [
            (key, ConfigOperation.DELETE if value is None else ConfigOperation.SET, value)
            for key, value in entries
        ]
        for resource, entries in changes.items()
    }
    for error in (await admin.alter_configs(wanted)).values():
        if error is not None:
            raise error
