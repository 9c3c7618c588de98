"""Topics: create, delete, add partitions (KIP-4, KIP-195, KIP-464, KIP-516).

Records of a new topic, in order: TopicRecord, its ConfigRecords, its PartitionRecords. An error of
one topic does not affect the other topics of the request; topics that it names twice are rejected.
"""

from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import Any

from sparkraft.base.env import random_uuid
from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.controller.call import Call
from sparkraft.controller.configs import Change, Operation, alter_resource
from sparkraft.controller.decision import Decision, VersionedRecord, check_room
from sparkraft.controller.decision_context import DecisionContext
from sparkraft.controller.placement import place_replicas
from sparkraft.controller.steps import Steps
from sparkraft.metadata.configs.describe import BrokerSources, describe_topic
from sparkraft.metadata.image import ResourceType, Topic
from sparkraft.metadata.partition_state import RECOVERED, PartitionState
from sparkraft.metadata.snapshot import partition_record
from sparkraft.metadata.topic_names import check_topic_name, unify_collision_chars
from sparkraft.protocol.messages import k19_create_topics as k19
from sparkraft.protocol.messages import k20_delete_topics as k20
from sparkraft.protocol.messages import k37_create_partitions as k37
from sparkraft.protocol.messages.metadata_records import RemoveTopicRecord, TopicRecord

METADATA_TOPIC = "__cluster_metadata"

CONFIGS_VERSION = 5
"""CreateTopics responses have the topics' configs from this version on (KIP-525)."""

PARTITIONS_PER_REQUEST_MAX = 10_000
"""Maximum partitions of one request, as in Kafka."""

NEW_UNITS = 2
"""Units of work of a new partition, without its record."""

_REPLICATION_FACTOR_MAX = (1 << 15) - 1


def create_topics(context: DecisionContext, call: Call[k19.CreateTopicsRequest]) -> Steps[Decision]:
    """Decide a CreateTopics request."""
    request = call.request
    _check_total(context, request)
    duplicates = _repeated([topic.name for topic in request.topics])
    records: list[VersionedRecord] = []
    results = []
    names = _CollidingNames(context)
    described = _DescribedConfigs(context, wanted=call.version >= CONFIGS_VERSION)
    for topic in request.topics:
        if topic.name in duplicates:
            continue
        try:
            made, result = yield from _create_topic(context, topic, names, described)
            call.apply_partition_change_quota(result.num_partitions)
            check_room(records, made)
            records += made
        except KafkaError as error:
            result = k19.CreatableTopicResult(
                name=topic.name, error_code=error.code, error_message=error.detail or None
            )
        results.append(result)
    results += [
        k19.CreatableTopicResult(
            name=name,
            error_code=ErrorCode.INVALID_REQUEST,
            error_message="Duplicate topic name.",
        )
        for name in duplicates
    ]
    response = k19.CreateTopicsResponse(topics=results)
    return Decision(records=() if request.validate_only else tuple(records), response=response)


def _check_total(context: DecisionContext, request: k19.CreateTopicsRequest) -> None:
    total = 0
    for topic in request.topics:
        if topic.assignments:
            total += len(topic.assignments)
        elif topic.num_partitions == -1:
            total += context.config.default_partitions
        else:
            total += max(0, topic.num_partitions)
    if total > PARTITIONS_PER_REQUEST_MAX:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."
        )


def _repeated(items: Sequence[Any]) -> dict[Any, int]:
    """Items that are given more than once, in order, with their counts.

    A request may have very many, so looking one up must not search them all.
    """
    counts: dict[Any, int] = {}
    for item in items:
        counts[item] = counts.get(item, 0) + 1
    return {item: count for item, count in counts.items() if count > 1}


class _CollidingNames:
    """Existing topics whose names collide with a new one in metrics: they show `.` as `_`.

    Collected at the first name that may collide, since there can be very many topics. As in Kafka,
    two new names of the same request are not compared.
    """

    def __init__(self, context: DecisionContext) -> None:
        self._context = context
        self._names: dict[str, str] | None = None

    def colliding_topic(self, name: str) -> str | None:
        if not _may_collide(name):
            return None
        if self._names is None:
            known = sorted(filter(_may_collide, self._context.image.topics_by_name))
            self._names = {unify_collision_chars(each): each for each in known}
        return self._names.get(unify_collision_chars(name))


def _may_collide(name: str) -> bool:
    return "." in name or "_" in name


def _create_topic(
    context: DecisionContext,
    topic: k19.CreatableTopic,
    names: _CollidingNames,
    described: "_DescribedConfigs",
) -> Steps[tuple[list[VersionedRecord], k19.CreatableTopicResult]]:
    name = topic.name
    if name == METADATA_TOPIC:
        wrong = f"Creation of internal topic {METADATA_TOPIC} is prohibited."
        raise KafkaError(ErrorCode.INVALID_REQUEST, wrong)
    if name in context.image.topics_by_name:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    check_topic_name(name)
    rival = names.colliding_topic(name)
    if rival is not None:
        wrong = f"Topic '{name}' collides with existing topic: {rival}"
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, wrong)
    config_records = _topic_configs(context, topic)
    make = _assigned_partitions if topic.assignments else _placed_partitions
    partitions = yield from make(context, topic)
    topic_id = random_uuid(context.entropy)
    records: list[VersionedRecord] = [(TopicRecord(name=name, topic_id=topic_id), 0)]
    records += config_records
    records += yield from _partition_records(context, topic_id, partitions)
    return records, _created(topic, topic_id, partitions, described)


def _topic_configs(context: DecisionContext, topic: k19.CreatableTopic) -> list[VersionedRecord]:
    if not topic.configs:
        return []
    nulls = [config.name for config in topic.configs if config.value is None]
    if nulls:
        wrong = f"Null value not supported for topic configs: {','.join(nulls)}"
        raise KafkaError(ErrorCode.INVALID_CONFIG, wrong)
    changes = [Change(c.name, Operation.SET, c.value) for c in topic.configs]
    return alter_resource(context, ResourceType.TOPIC, topic.name, changes, newly_created=True)


def _assigned_partitions(
    context: DecisionContext, topic: k19.CreatableTopic
) -> Steps[dict[int, PartitionState]]:
    if topic.replication_factor != -1:
        wrong = (
            "A manual partition assignment was specified, but replication factor was not set to -1."
        )
        raise KafkaError(ErrorCode.INVALID_REQUEST, wrong)
    if topic.num_partitions != -1:
        wrong = "A manual partition assignment was specified, but numPartitions was not set to -1."
        raise KafkaError(ErrorCode.INVALID_REQUEST, wrong)
    partitions: dict[int, PartitionState] = {}
    replication_factor: int | None = None
    for assignment in topic.assignments:
        index = assignment.partition_index
        if index in partitions:
            wrong = f"Found multiple manual partition assignments for partition {index}"
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, wrong)
        check_assignment(context, assignment.broker_ids, replication_factor)
        replication_factor = len(assignment.broker_ids)
        partitions[index] = _new_partition(
            context, assignment.broker_ids, partial(_no_live_replica, index)
        )
        yield NEW_UNITS
    if sorted(partitions) != list(range(len(partitions))):
        wrong = "partitions should be a consecutive 0-based integer sequence"
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, wrong)
    return partitions


def _placed_partitions(
    context: DecisionContext, topic: k19.CreatableTopic
) -> Steps[dict[int, PartitionState]]:
    if topic.replication_factor < -1 or topic.replication_factor == 0:
        wrong = "Replication factor must be larger than 0, or -1 to use the default value."
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, wrong)
    if topic.num_partitions < -1 or topic.num_partitions == 0:
        wrong = "Number of partitions was set to an invalid non-positive value."
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, wrong)
    count = topic.num_partitions
    if count == -1:
        count = context.config.default_partitions
    factor = topic.replication_factor
    if factor == -1:
        factor = context.config.default_replication_factor
    try:
        return (yield from _place(context, first=0, count=count, factor=factor))
    except _PlacementError as error:
        raise _unplaceable(factor, error.detail) from error


class _PlacementError(KafkaError):
    """The placer's own error; only CreateTopics adds how many replicas were requested."""


def _unplaceable(factor: int, why: str) -> KafkaError:
    wrong = f"Unable to replicate the partition {factor} time(s): {why}"
    return KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, wrong)


def _place(
    context: DecisionContext, *, first: int, count: int, factor: int
) -> Steps[dict[int, PartitionState]]:
    try:
        placed = place_replicas(
            context.usable_brokers(),
            partitions=count,
            replication_factor=factor,
            entropy=context.entropy,
        )
    except KafkaError as error:
        raise _PlacementError(error.code, error.detail) from error

    def no_live_broker() -> KafkaError:
        return _unplaceable(factor, "All brokers are currently fenced or in controlled shutdown.")

    partitions = {}
    for index, replicas in enumerate(placed, first):
        partitions[index] = _new_partition(context, replicas, no_live_broker)
        yield NEW_UNITS
    return partitions


def _partition_records(
    context: DecisionContext, topic_id: Uuid, partitions: dict[int, PartitionState]
) -> Steps[list[VersionedRecord]]:
    records = []
    for index, partition in sorted(partitions.items()):
        records.append(partition_record(topic_id, index, partition, context.metadata_level))
        yield 1
    return records


def _no_live_replica(index: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        f"All brokers specified in the manual partition assignment for partition {index} "
        "are fenced or in controlled shutdown.",
    )


def _new_partition(
    context: DecisionContext, replicas: Sequence[int], no_live_replica: Callable[[], KafkaError]
) -> PartitionState:
    isr = tuple(replica for replica in replicas if context.is_active(replica))
    if not isr:
        raise no_live_replica()
    return PartitionState(
        replicas=tuple(replicas),
        isr=isr,
        elr=(),
        last_known_elr=(),
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=tuple(context.default_directory(replica) for replica in replicas),
        adding_replicas=(),
        removing_replicas=(),
        leader_recovery_state=RECOVERED,
    )


def check_assignment(
    context: DecisionContext, replicas: Sequence[int], replication_factor: int | None
) -> None:
    """Reject a manual assignment that is empty, or names unknown or duplicate brokers.

    Args:
        context: its image names the registered brokers.
        replicas: broker ids, preferred leader first.
        replication_factor: required number of replicas; None for any.

    Raises:
        KafkaError: INVALID_REPLICA_ASSIGNMENT.
    """
    wrong = ""
    if not replicas:
        wrong = "The manual partition assignment includes an empty replica list."
    previous: int | None = None
    for broker_id in sorted(replicas):
        if broker_id not in context.image.brokers:
            wrong = (
                f"The manual partition assignment includes broker {broker_id}, "
                "but no such broker is registered."
            )
            break
        if broker_id == previous:
            wrong = f"The manual partition assignment includes broker {broker_id} more than once."
            break
        previous = broker_id
    if not wrong and replication_factor is not None and len(replicas) != replication_factor:
        wrong = (
            f"The manual partition assignment includes a partition with {len(replicas)} "
            f"replica(s), while the others have {replication_factor}."
        )
    if wrong:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, wrong)


class _DescribedConfigs:
    """The configs of created topics in a response; topics with the same configs share them."""

    def __init__(self, context: DecisionContext, *, wanted: bool) -> None:
        self._context = context
        self._wanted = wanted
        self._known: dict[tuple[tuple[str, str], ...], list[k19.CreatableTopicConfigs]] = {}

    def of(self, topic: k19.CreatableTopic) -> list[k19.CreatableTopicConfigs]:
        if not self._wanted:
            return []
        own = tuple((config.name, config.value or "") for config in topic.configs)
        if own not in self._known:
            self._known[own] = self._describe(dict(own))
        return self._known[own]

    def _describe(self, own: dict[str, str]) -> list[k19.CreatableTopicConfigs]:
        return [
            k19.CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.sensitive,
            )
            for entry in describe_topic(own, broker_sources(self._context))
        ]


def _created(
    topic: k19.CreatableTopic,
    topic_id: Uuid,
    partitions: dict[int, PartitionState],
    described: _DescribedConfigs,
) -> k19.CreatableTopicResult:
    return k19.CreatableTopicResult(
        name=topic.name,
        topic_id=topic_id,
        num_partitions=len(partitions),
        replication_factor=len(partitions[0].replicas),
        configs=described.of(topic),
    )


def broker_sources(context: DecisionContext) -> BrokerSources:
    """Configs set for this controller as a node."""
    return BrokerSources(
        dynamic=context.image.config(ResourceType.BROKER, str(context.config.node_id)),
        cluster=context.image.config(ResourceType.BROKER, ""),
        static=context.config.static_configs,
    )


def delete_topics(context: DecisionContext, call: Call[k20.DeleteTopicsRequest]) -> Decision:
    """Decide a DeleteTopics request, by name or by id."""
    request = call.request
    if not context.config.delete_topics:
        # Versions before 3 do not have TOPIC_DELETION_DISABLED.
        old = call.version < 3  # noqa: PLR2004
        code = ErrorCode.INVALID_REQUEST if old else ErrorCode.TOPIC_DELETION_DISABLED
        raise KafkaError(code, "Topic deletion is disabled.")
    wanted = _Deletions(context)
    wanted.read(request)
    records: list[VersionedRecord] = []
    results = wanted.rejected
    for topic_id, name in wanted.topics.items():
        result = k20.DeletableTopicResult(name=name, topic_id=topic_id)
        try:
            call.apply_partition_change_quota(len(context.image.topics_by_id[topic_id].partitions))
            records.append((RemoveTopicRecord(topic_id=topic_id), 0))
        except KafkaError as error:
            result.error_code = error.code
            result.error_message = error.detail or None
        results.append(result)
    return Decision(records=tuple(records), response=k20.DeleteTopicsResponse(responses=results))


class _Deletions:
    """The topics to delete, each once, and the results of invalid entries."""

    def __init__(self, context: DecisionContext) -> None:
        self._context = context
        self.topics: dict[Uuid, str] = {}
        self.rejected: list[k20.DeletableTopicResult] = []

    def read(self, request: k20.DeleteTopicsRequest) -> None:
        names, ids = self._names_and_ids(request)
        names_twice = _repeated(names)
        for name in names_twice:
            self._reject(name, Uuid.ZERO, "Duplicate topic name.")
        ids_twice = _repeated(ids)
        for topic_id in ids_twice:
            self._reject(None, topic_id, "Duplicate topic id.")
        for topic_id in ids:
            if topic_id not in ids_twice:
                self._by_id(topic_id)
        for name in names:
            if name not in names_twice:
                self._by_name(name, ids_twice)

    def _names_and_ids(self, request: k20.DeleteTopicsRequest) -> tuple[list[str], list[Uuid]]:
        names = list(request.topic_names)
        ids: list[Uuid] = []
        for topic in request.topics:
            topic_id = Uuid(topic.topic_id)
            if topic.name is None and topic_id == Uuid.ZERO:
                self._reject(None, topic_id, "Neither topic name nor id were specified.")
            elif topic.name is None:
                ids.append(topic_id)
            elif topic_id == Uuid.ZERO:
                names.append(topic.name)
            else:
                self._reject(
                    topic.name, topic_id, "You may not specify both topic name and topic id."
                )
        return names, ids

    def _reject(
        self,
        name: str | None,
        topic_id: Uuid,
        wrong: str,
        code: ErrorCode = ErrorCode.INVALID_REQUEST,
    ) -> None:
        self.rejected.append(
            k20.DeletableTopicResult(
                name=name, topic_id=topic_id, error_code=code, error_message=wrong
            )
        )

    def _by_id(self, topic_id: Uuid) -> None:
        topic = self._context.image.topics_by_id.get(topic_id)
        if topic is None:
            wrong = "This server does not host this topic ID."
            self._reject(None, topic_id, wrong, ErrorCode.UNKNOWN_TOPIC_ID)
        else:
            self.topics[topic_id] = topic.name

    def _by_name(self, name: str, ids_given_twice: Container[Uuid]) -> None:
        topic_id = self._context.image.topics_by_name.get(name)
        if topic_id is None:
            wrong = "This server does not host this topic-partition."
            self._reject(name, Uuid.ZERO, wrong, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif topic_id in self.topics or topic_id in ids_given_twice:
            self.topics.pop(topic_id, None)
            wrong = "The provided topic name maps to an ID that was already supplied."
            self._reject(name, topic_id, wrong)
        else:
            self.topics[topic_id] = name


def create_partitions(
    context: DecisionContext, call: Call[k37.CreatePartitionsRequest]
) -> Steps[Decision]:
    """Decide a CreatePartitions request."""
    request = call.request
    duplicates = _repeated([topic.name for topic in request.topics])
    records: list[VersionedRecord] = []
    results = [
        k37.CreatePartitionsTopicResult(
            name=name,
            error_code=ErrorCode.INVALID_REQUEST,
            error_message="Duplicate topic name.",
        )
        for name in duplicates
    ]
    for topic in request.topics:
        if topic.name in duplicates:
            continue
        result = k37.CreatePartitionsTopicResult(name=topic.name)
        try:
            made = yield from _add_partitions(context, topic)
            call.apply_partition_change_quota(len(made))
            check_room(records, made)
            records += made
        except KafkaError as error:
            result.error_code = error.code
            result.error_message = error.detail or None
        results.append(result)
    return Decision(
        records=() if request.validate_only else tuple(records),
        response=k37.CreatePartitionsResponse(results=results),
    )


def _add_partitions(
    context: DecisionContext, wanted: k37.CreatePartitionsTopic
) -> Steps[list[VersionedRecord]]:
    topic = context.image.topic(wanted.name)
    if topic is None:
        wrong = "This server does not host this topic-partition."
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, wrong)
    have = len(topic.partitions)
    if wanted.count == have:
        wrong = f"Topic already has {have} partition(s)."
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, wrong)
    if wanted.count < have:
        wrong = (
            f"The topic {topic.name} currently has {have} partition(s); "
            f"{wanted.count} would not be an increase."
        )
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, wrong)
    additional = wanted.count - have
    if additional > PARTITIONS_PER_REQUEST_MAX:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."
        )
    factor = len(topic.partitions[0].replicas)
    if wanted.assignments is None:
        partitions = yield from _place(context, first=have, count=additional, factor=factor)
    else:
        partitions = yield from _manually_added(context, topic, wanted, factor)
    return (yield from _partition_records(context, topic.id, partitions))


def _manually_added(
    context: DecisionContext, topic: Topic, wanted: k37.CreatePartitionsTopic, factor: int
) -> Steps[dict[int, PartitionState]]:
    assignments = wanted.assignments or []
    have = len(topic.partitions)
    if len(assignments) != wanted.count - have:
        wrong = (
            f"Attempted to add {wanted.count - have} additional partition(s), "
            f"but only {len(assignments)} assignment(s) were specified."
        )
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, wrong)
    partitions = {}
    for number, assignment in enumerate(assignments):
        index = have + number
        check_assignment(context, assignment.broker_ids, factor)
        partitions[index] = _new_partition(
            context, assignment.broker_ids, partial(_no_live_replica, index)
        )
        yield NEW_UNITS
    return partitions
