"""`topics`: create, list, describe, alter, delete topics, as `kafka-topics.sh`.

Not done: partitions in reassignment are shown as they are now, without adding and removing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.cli.errors import CommandError, UsageError
from sparkraft.cli.names import TopicFilter
from sparkraft.cli.options import Options, Values, exactly_one, key_values, only_with
from sparkraft.cli.session import connected, print_json, run, warn
from sparkraft.client.admin import Admin
from sparkraft.client.values import ConfigEntry, ConfigSource, NewTopic, ResourceType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkraft.client.cluster import PartitionInfo, TopicInfo

_ACTIONS = ("--create", "--alter", "--list", "--describe", "--delete")
_FILTERS = (
    "--under-replicated-partitions",
    "--unavailable-partitions",
    "--under-min-isr-partitions",
    "--at-min-isr-partitions",
)
_REPLICATION_FACTOR_MAX = 0x7FFF
_NAME = re.compile(r"[a-zA-Z0-9._-]+")
"""A topic's name, in which a period is just that."""

_NO_DELETE_CONFIG = (
    "delete-config option is no longer supported and deprecated since version 4.0. The config will "
    "be fully removed in future releases."
)
"""Kafka's TopicCommand prints it and continues without."""


def _options() -> Options:
    options = Options("topics", "Creates, lists, describes, grows and deletes topics.")
    options.connection()
    options.flag("--create", "create a topic")
    options.flag("--alter", "change the number of partitions")
    options.flag("--list", "list topics")
    options.flag("--describe", "show topics and their partitions")
    options.flag("--delete", "delete a topic")
    options.value("--topic", about="the topic; but for --create a regular expression, too")
    options.value("--topic-id", about="the topic to describe, by id")
    options.value("--partitions", about="number of partitions", type=int)
    options.value("--replication-factor", about="number of replicas", type=int)
    options.value(
        "--replica-assignment",
        about="brokers by hand: 1:2,2:3 is two partitions with two replicas each",
    )
    options.values("--config", about="a config of the new topic; repeatable", metavar="NAME=VALUE")
    options.values(
        "--delete-config", about="deprecated and without effect, as in Kafka; see configs"
    )
    options.flag("--if-exists", "alter, describe, delete only what exists; no error otherwise")
    options.flag("--if-not-exists", "no error if the topic to create exists")
    options.flag("--exclude-internal", "leave out internal topics")
    options.flag("--topics-with-overrides", "describe only topics with configs of their own")
    options.flag("--under-replicated-partitions", "only partitions with replicas out of the ISR")
    options.flag("--unavailable-partitions", "only partitions without a live leader")
    options.flag("--under-min-isr-partitions", "only partitions whose ISR is below the minimum")
    options.flag("--at-min-isr-partitions", "only partitions whose ISR is just the minimum")
    options.value("--partition-size-limit-per-response", about="accepted; pages size themselves")
    options.output()
    return options


def main(argv: list[str]) -> int:
    """Do one action."""
    values = _options().parse(argv)
    action = exactly_one(values, _ACTIONS)
    if values.delete_config:
        warn(_NO_DELETE_CONFIG)
    _check(values, action)
    return run(_main(values, action))


def _check(values: Values, action: str) -> None:
    only_with(values, ["--if-not-exists", "--config", "--replication-factor"], "--create")
    only_with(values, ["--topics-with-overrides", *_FILTERS, "--topic-id"], "--describe")
    if action in {"--create", "--alter", "--delete"} and not values.topic:
        raise UsageError(f"{action} needs --topic")
    if action == "--alter" and values.partitions is None:
        raise UsageError("--alter needs --partitions")
    if (
        values.replica_assignment
        and action == "--create"
        and (values.partitions is not None or values.replication_factor is not None)
    ):
        raise UsageError("--replica-assignment replaces --partitions and --replication-factor")
    if values.partitions is not None and values.partitions < 1:
        raise UsageError("--partitions is at least 1")
    factor = values.replication_factor
    if factor is not None and not 1 <= factor <= _REPLICATION_FACTOR_MAX:
        raise UsageError(f"--replication-factor is between 1 and {_REPLICATION_FACTOR_MAX}")


async def _main(values: Values, action: str) -> int:
    async with connected(values, client_id="topics") as cluster:
        admin = Admin(cluster)
        match action:
            case "--create":
                await _create(admin, values)
            case "--list":
                await _list(admin, values)
            case "--describe":
                await _describe(admin, values)
            case "--alter":
                await _alter(admin, values)
            case _:
                await _delete(admin, values)
    return 0


def _assignment(text: str) -> list[list[int]]:
    try:
        found = [[int(broker) for broker in part.split(":")] for part in text.split(",")]
    except ValueError:
        raise UsageError(f"--replica-assignment wants ids like 1:2,2:3, not {text!r}") from None
    for index, brokers in enumerate(found):
        if len(set(brokers)) != len(brokers):
            raise UsageError(f"--replica-assignment names a broker twice for partition {index}")
        if len(brokers) != len(found[0]):
            raise UsageError(f"partition {index} has another number of replicas than partition 0")
    return found


async def _create(admin: Admin, values: Values) -> None:
    name = values.topic
    if values.output == "text" and ("." in name or "_" in name):
        print(
            "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore "
            "('_') could collide. To avoid issues it is best to use either, but not both."
        )
    topic = NewTopic(
        name=name,
        partitions=values.partitions or -1,
        replication_factor=values.replication_factor or -1,
        assignment=dict(enumerate(_assignment(values.replica_assignment)))
        if values.replica_assignment
        else {},
        configs=key_values(values.config, "--config"),
    )
    made = (await admin.create_topics([topic]))[name]
    if isinstance(made, KafkaError):
        if made.code is ErrorCode.TOPIC_ALREADY_EXISTS and values.if_not_exists:
            return
        raise made
    if values.output == "json":
        print_json(
            {
                "topic": name,
                "topicId": str(made.id),
                "partitions": made.partitions,
                "replicationFactor": made.replication_factor,
            }
        )
    else:
        print(f"Created topic {name}.")


async def _names(admin: Admin, values: Values) -> list[str]:
    """The topics that `--topic` means; `CommandError` if it means none that exists."""
    everything = await admin.list_topics()
    wanted = TopicFilter(values.topic or ".*")
    names = [
        name for name in everything if wanted.allows(name, exclude_internal=values.exclude_internal)
    ]
    if values.topic and not names and not values.if_exists and not values.list:
        raise _missing(values.topic)
    return names


def _missing(topic: str) -> CommandError:
    return CommandError(f"Topic '{topic}' does not exist as expected")


async def _list(admin: Admin, values: Values) -> None:
    names = await _names(admin, values)
    if values.output == "json":
        print_json(names)
    else:
        print("\n".join(names))


async def _alter(admin: Admin, values: Values) -> None:
    names = await _names(admin, values)
    counts = dict.fromkeys(names, values.partitions)
    assignments = None
    if values.replica_assignment:
        given = _assignment(values.replica_assignment)
        known = await admin.list_topics()
        assignments = {name: given[len(known[name].partitions) :] for name in names}
    _raise_first(await admin.create_partitions(counts, assignments=assignments))


async def _delete(admin: Admin, values: Values) -> None:
    try:
        names = await _names(admin, values)
    except KafkaError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION or not _NAME.fullmatch(values.topic):
            raise
        # A controller deletes topics, but does not list them to match a regular expression.
        await _delete_unlisted(admin, values)
        return
    if names:
        _raise_first(await admin.delete_topics(names))


async def _delete_unlisted(admin: Admin, values: Values) -> None:
    outcome = await admin.delete_topics([values.topic])
    error = outcome[values.topic]
    if error is not None and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        if values.if_exists:
            return
        raise _missing(values.topic)
    _raise_first(outcome)


def _raise_first(outcome: dict[str, KafkaError | None]) -> None:
    for error in outcome.values():
        if error is not None:
            raise error


# describe


async def _describe(admin: Admin, values: Values) -> None:
    topics = await _described(admin, values)
    described = await admin.describe_configs([(ResourceType.TOPIC, t.name) for t in topics])
    live = {node.id for node in (await admin.describe_cluster()).nodes}
    shown: list[dict[str, Any]] = []
    for topic in topics:
        configs = described[ResourceType.TOPIC, topic.name]
        if isinstance(configs, KafkaError):
            raise configs
        own = [c for c in configs if c.source is not ConfigSource.DEFAULT_CONFIG]
        partitions = list(_filtered(topic, configs, live, values))
        if values.output == "json":
            shown.append(_as_json(topic, own, partitions))
        else:
            _print_topic(topic, own, partitions, values)
    if values.output == "json":
        print_json(shown)


async def _described(admin: Admin, values: Values) -> list[TopicInfo]:
    if values.topic_id and values.topic_id != str(Uuid.ZERO):
        return await _by_id(admin, values)
    found = await admin.describe_topics(await _names(admin, values))
    topics = []
    for topic in found.values():
        if isinstance(topic, KafkaError):
            raise topic
        topics.append(topic)
    return topics


async def _by_id(admin: Admin, values: Values) -> list[TopicInfo]:
    try:
        wanted = Uuid.parse(values.topic_id)
    except ValueError as error:
        raise UsageError(str(error)) from None
    names = [t.name for t in (await admin.list_topics()).values() if t.id == wanted]
    if not names and not values.if_exists:
        raise CommandError(f"TopicId '{values.topic_id}' does not exist as expected")
    found = await admin.describe_topics(names)
    return [topic for topic in found.values() if not isinstance(topic, KafkaError)]


def _filtered(
    topic: TopicInfo, configs: list[ConfigEntry], live: set[int], values: Values
) -> Iterable[PartitionInfo]:
    minimum = next((int(c.value or 1) for c in configs if c.name == "min.insync.replicas"), 1)
    for _, partition in sorted(topic.partitions.items()):
        in_sync = len(partition.isr)
        checks = {
            "under_replicated_partitions": in_sync < len(partition.replicas),
            "unavailable_partitions": partition.leader not in live,
            "under_min_isr_partitions": in_sync < minimum,
            "at_min_isr_partitions": in_sync == minimum,
        }
        asked = [name for name in checks if getattr(values, name)]
        if not asked or any(checks[name] for name in asked):
            yield partition


def _print_topic(
    topic: TopicInfo, own: list[ConfigEntry], partitions: list[PartitionInfo], values: Values
) -> None:
    is_filtered = any(getattr(values, name.lstrip("-").replace("-", "_")) for name in _FILTERS)
    if values.topics_with_overrides and not own:
        return
    if not is_filtered:
        factor = len(topic.partitions[0].replicas) if 0 in topic.partitions else 0
        configs = ",".join(f"{c.name}={c.value}" for c in own)
        print(
            f"Topic: {topic.name}\tTopicId: {topic.id}\tPartitionCount: {len(topic.partitions)}"
            f"\tReplicationFactor: {factor}\tConfigs: {configs}"
        )
    if values.topics_with_overrides:
        return
    for p in partitions:
        print(
            f"\tTopic: {topic.name}\tPartition: {p.index}"
            f"\tLeader: {p.leader if p.leader >= 0 else 'none'}\tReplicas: {_ids(p.replicas)}"
            f"\tIsr: {_ids(p.isr)}\tElr: {_ids(p.elr)}\tLastKnownElr: {_ids(p.last_known_elr)}"
        )


def _ids(ids: tuple[int, ...] | None) -> str:
    return "N/A" if ids is None else ",".join(map(str, ids))


def _as_json(
    topic: TopicInfo, own: list[ConfigEntry], partitions: list[PartitionInfo]
) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "topicId": str(topic.id),
        "isInternal": topic.is_internal,
        "partitionCount": len(topic.partitions),
        "configs": {c.name: c.value for c in own},
        "partitions": [
            {
                "partition": p.index,
                "leader": p.leader if p.leader >= 0 else None,
                "leaderEpoch": p.leader_epoch,
                "replicas": p.replicas,
                "isr": p.isr,
                "elr": p.elr,
                "lastKnownElr": p.last_known_elr,
            }
            for p in partitions
        ],
    }
