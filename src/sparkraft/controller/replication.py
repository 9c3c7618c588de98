"""Changes of existing partitions: ISRs, elections, stopped and returning brokers (KIP-497, 966).

This module decides which partitions change, and why; `partition_change` decides how. A broker's
partitions are found by a scan of the image: brokers rarely change state, and an index would be one
more thing to keep consistent. All of these decisions are made in pieces (`steps`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.base.ordering import in_order
from sparkraft.controller.call import Call
from sparkraft.controller.decision import RECORDS_MAX, Decision, VersionedRecord
from sparkraft.controller.decision_context import OFFLINE_DIRECTORY, DecisionContext
from sparkraft.controller.leader_election import Cause, CauseKind, Election, ElectionKind
from sparkraft.controller.partition_change import PartitionChange, change_partition
from sparkraft.controller.partition_rules import Target
from sparkraft.controller.steps import CHANGE_UNITS, LocatedPartition, Steps, find_partitions
from sparkraft.metadata.image import Topic
from sparkraft.metadata.partition_state import NO_LEADER, RECOVERED, RECOVERING, PartitionState
from sparkraft.protocol.messages import k43_elect_leaders as k43
from sparkraft.protocol.messages import k56_alter_partition as k56
from sparkraft.protocol.messages import k73_assign_replicas_to_dirs as k73

PREFERRED_ELECTION = 0
UNCLEAN_ELECTION = 1


class Changes:
    """Records and elections of one decision.

    Each change sees the effects of those before it, so a request that names a partition twice, or
    reports two failed directories of a broker, has a consistent result. (Kafka decides all parts of
    a request on the image before it.)

    Attributes:
        context: with every record so far applied.
        records: in the order in which they are appended.
        elections: changes of leaders that the records contain.
    """

    __slots__ = ("context", "elections", "records")

    def __init__(self, context: DecisionContext) -> None:
        self.context = context
        self.records: list[VersionedRecord] = []
        self.elections: list[Election] = []

    def add(self, record: VersionedRecord) -> None:
        """Add a record that changes no partition."""
        self.records.append(record)
        self.context = self.context.after(record[0])

    def change(self, topic_id: Uuid, index: int, target: Target) -> PartitionChange | None:
        """Change a partition to `target`; None if that changes nothing."""
        topic = self.context.image.topics_by_id[topic_id]
        made = change_partition(self.context, topic, index, target)
        if made is not None:
            self.add(made.record)
            if made.election is not None:
                self.elections.append(made.election)
        return made


class IsrRemoval(NamedTuple):
    """Why a broker's replicas leave their ISRs.

    Attributes:
        broker_id: the broker.
        why: the reason that its replicas may not lead, in a few words.
        unclean: the broker may have lost acknowledged records, so it leaves the ELR too.
    """

    broker_id: int
    why: str
    unclean: bool = False


def remove_from_isrs(
    changes: Changes, located: Iterable[LocatedPartition], removal: IsrRemoval, *, cause: Cause
) -> Steps[None]:
    """Remove a broker from the ISR of partitions; elect new leaders of those it led."""
    for topic, index, partition in located:
        context = changes.context
        target = Target(
            isr=tuple(replica for replica in partition.isr if replica != removal.broker_id),
            unclean_shutdowns=(removal.broker_id,) if removal.unclean else (),
            why_not=context.why_not_leader(partition, excluded={removal.broker_id: removal.why}),
            kind=_kind(context, topic),
            cause=cause,
        )
        changes.change(topic.id, index, target)
        yield CHANGE_UNITS


def elect_for_returning_broker(changes: Changes, broker_id: int) -> Steps[None]:
    """Elect leaders of partitions without one; `changes` includes the broker's unfencing."""
    found = yield from find_partitions(
        changes.context.image, lambda _, partition: partition.leader == NO_LEADER
    )
    for topic, index, _ in found:
        target = Target(
            kind=_kind(changes.context, topic),
            cause=Cause(CauseKind.RETURNED, f"broker {broker_id} was unfenced"),
        )
        changes.change(topic.id, index, target)
        yield CHANGE_UNITS


def leads_partitions(context: DecisionContext, broker_id: int) -> Steps[bool]:
    """Whether the broker leads any partition."""
    found = yield from find_partitions(
        context.image, lambda _, partition: partition.leader == broker_id, most=1
    )
    return bool(found)


def partitions_with_isr_member(
    context: DecisionContext, broker_id: int
) -> Steps[list[LocatedPartition]]:
    """Find the partitions whose ISR contains the broker."""
    return find_partitions(context.image, lambda _, partition: broker_id in partition.isr)


def partitions_with_elr_member(
    context: DecisionContext, broker_id: int
) -> Steps[list[LocatedPartition]]:
    """Find the partitions whose ELR contains the broker."""
    return find_partitions(context.image, lambda _, partition: broker_id in partition.elr)


def partitions_in_directory(
    context: DecisionContext, broker_id: int, directory: Uuid
) -> Steps[list[LocatedPartition]]:
    """Find the partitions whose replica on the broker is in that log directory."""
    return find_partitions(
        context.image,
        lambda _, partition: (
            broker_id in partition.replicas and partition.directory(broker_id) == directory
        ),
    )


def _kind(context: DecisionContext, topic: Topic) -> ElectionKind:
    allowed = context.unclean_elections_allowed(topic.name)
    return ElectionKind.UNCLEAN if allowed else ElectionKind.ONLINE


def alter_partition(
    context: DecisionContext, call: Call[k56.AlterPartitionRequest]
) -> Steps[Decision]:
    """Decide an AlterPartition request: a leader changes the ISR of its partitions."""
    request = call.request
    context.check_broker_epoch(request.broker_id, request.broker_epoch)
    changes = Changes(context)
    response = k56.AlterPartitionResponse()
    for wanted in request.topics:
        known = wanted.topic_id in context.image.topics_by_id
        results = []
        for partition in wanted.partitions:
            results.append(
                _alter_one(changes, request.broker_id, Uuid(wanted.topic_id), partition)
                if known
                else k56.AlterPartitionResponsePartitionData(
                    partition_index=partition.partition_index, error_code=ErrorCode.UNKNOWN_TOPIC_ID
                )
            )
            yield CHANGE_UNITS
        response.topics.append(
            k56.AlterPartitionResponseTopicData(topic_id=wanted.topic_id, partitions=results)
        )
    return Decision(
        records=tuple(changes.records),
        response=response,
        atomic=False,
        elections=tuple(changes.elections),
    )


def _alter_one(
    changes: Changes,
    broker_id: int,
    topic_id: Uuid,
    wanted: k56.AlterPartitionRequestPartitionData,
) -> k56.AlterPartitionResponsePartitionData:
    context, index = changes.context, wanted.partition_index
    topic = context.image.topics_by_id[topic_id]
    result = k56.AlterPartitionResponsePartitionData(partition_index=index)
    partition = topic.partitions.get(index)
    isr = _wanted_isr(wanted)
    error = _why_refused(context, broker_id, partition, wanted, isr)
    if error is not None or partition is None:
        result.error_code = error or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return result
    target = Target(
        isr=tuple(isr),
        recovery_state=wanted.leader_recovery_state,
        kind=_kind(context, topic),
        cause=Cause(CauseKind.ISR_CHANGED, f"leader {broker_id} changed the ISR"),
    )
    made = changes.change(topic_id, index, target)
    if made is not None:
        partition = made.partition
        if partition.leader != broker_id:
            # The change completed a reassignment away from this very leader.
            result.error_code = ErrorCode.NEW_LEADER_ELECTED
            return result
    result.leader_id = partition.leader
    result.leader_epoch = partition.leader_epoch
    result.isr = list(partition.isr)
    result.leader_recovery_state = partition.leader_recovery_state
    result.partition_epoch = partition.partition_epoch
    return result


def _wanted_isr(wanted: k56.AlterPartitionRequestPartitionData) -> dict[int, int]:
    """Replica to broker epoch; -1 if the request has none (version 2)."""
    if wanted.new_isr_with_epochs:
        return {state.broker_id: state.broker_epoch for state in wanted.new_isr_with_epochs}
    return dict.fromkeys(wanted.new_isr, -1)


def _why_refused(
    context: DecisionContext,
    broker_id: int,
    partition: PartitionState | None,
    wanted: k56.AlterPartitionRequestPartitionData,
    isr: Mapping[int, int],
) -> ErrorCode | None:
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    error = _epoch_error(broker_id, partition, wanted)
    if error is not None:
        return error
    if not _is_valid_isr(partition, wanted, isr):
        return ErrorCode.INVALID_REQUEST
    if any(not _is_eligible(context, replica, epoch) for replica, epoch in isr.items()):
        return ErrorCode.INELIGIBLE_REPLICA
    return None


def _is_valid_isr(
    partition: PartitionState,
    wanted: k56.AlterPartitionRequestPartitionData,
    isr: Mapping[int, int],
) -> bool:
    requested = max(len(wanted.new_isr_with_epochs), len(wanted.new_isr))
    unassigned = any(replica not in partition.replicas for replica in isr)
    if unassigned or requested != len(isr) or partition.leader not in isr:
        return False
    if wanted.leader_recovery_state == RECOVERED:
        return True
    # An unclean leader is alone in the ISR until it has recovered, and it recovers only once.
    alone = len(isr) == 1 and partition.leader_recovery_state == RECOVERING
    return wanted.leader_recovery_state == RECOVERING and alone


def _epoch_error(
    broker_id: int, partition: PartitionState, wanted: k56.AlterPartitionRequestPartitionData
) -> ErrorCode | None:
    # The leader has newer metadata, from another controller: this controller was deposed.
    newer = (
        wanted.leader_epoch > partition.leader_epoch
        or wanted.partition_epoch > partition.partition_epoch
    )
    if newer:
        return ErrorCode.NOT_CONTROLLER
    if wanted.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if broker_id != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if wanted.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    return None


def _is_eligible(context: DecisionContext, replica: int, broker_epoch: int) -> bool:
    broker = context.image.brokers.get(replica)
    if broker is None or not broker.active:
        return False
    return broker_epoch in {-1, broker.epoch}


def elect_leaders(context: DecisionContext, call: Call[k43.ElectLeadersRequest]) -> Steps[Decision]:
    """Decide an ElectLeaders request: preferred or unclean, for some or all partitions."""
    request = call.request
    if request.election_type not in {PREFERRED_ELECTION, UNCLEAN_ELECTION}:
        wrong = f"Unknown election type {request.election_type}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, wrong)
    everything = request.topic_partitions is None
    wanted: Iterable[tuple[str, Sequence[int]]]
    if request.topic_partitions is None:
        topics = context.image.topics_by_name, context.image.topics_by_id
        names = yield from in_order(topics[0])
        wanted = ((name, sorted(topics[1][topics[0][name]].partitions)) for name in names)
    else:
        wanted = ((t.topic, t.partitions) for t in request.topic_partitions)
    changes = Changes(context)
    response = k43.ElectLeadersResponse()
    for name, indexes in wanted:
        results = []
        for index in indexes:
            error = _elect_one(changes, name, index, request.election_type)
            not_needed = error is not None and error.code == ErrorCode.ELECTION_NOT_NEEDED
            yield 1 if not_needed else CHANGE_UNITS
            if everything and not_needed:
                continue
            results.append(
                k43.PartitionResult(
                    partition_id=index,
                    error_code=0 if error is None else error.code,
                    error_message=None if error is None else error.detail or None,
                )
            )
        response.replica_election_results.append(
            k43.ReplicaElectionResult(topic=name, partition_result=results)
        )
    return Decision(
        records=tuple(changes.records),
        response=response,
        atomic=False,
        elections=tuple(changes.elections),
    )


_REQUESTED_PREFERRED = Cause(CauseKind.PREFERRED, "a preferred election was requested")
_REQUESTED_UNCLEAN = Cause(CauseKind.UNCLEAN, "an unclean election was requested")
_BALANCE = Cause(CauseKind.PREFERRED, "the periodic preferred-leader check")
_COPIED = Cause(CauseKind.RETURNED, "the broker was live before the migration from ZooKeeper")
_CHECK = Cause(CauseKind.UNCLEAN, "the periodic check for partitions without a leader")

_PREFERRED_TEXT = "The preferred leader was not available."
_ELIGIBLE_TEXT = "Eligible topic partition leaders are not available."
_NOT_NEEDED_TEXT = "Leader election not needed for topic partition."


def _elect_one(changes: Changes, name: str, index: int, election_type: int) -> KafkaError | None:
    topic = changes.context.image.topic(name)
    partition = None if topic is None else topic.partitions.get(index)
    if topic is None or partition is None:
        missing = f"topic as {name}" if topic is None else f"partition as {name}-{index}"
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such {missing}")
    preferred = election_type == PREFERRED_ELECTION
    led = partition.leader == partition.preferred_leader if preferred else partition.leader >= 0
    if led:
        return KafkaError(ErrorCode.ELECTION_NOT_NEEDED, _NOT_NEEDED_TEXT)
    target = Target(
        kind=ElectionKind.PREFERRED if preferred else ElectionKind.UNCLEAN,
        cause=_REQUESTED_PREFERRED if preferred else _REQUESTED_UNCLEAN,
    )
    if changes.change(topic.id, index, target) is not None:
        return None
    if preferred:
        return KafkaError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, _PREFERRED_TEXT)
    return KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, _ELIGIBLE_TEXT)


def balance_leaders(context: DecisionContext) -> Steps[Decision]:
    """Elect preferred leaders; the response is True if more partitions may need it."""
    return _periodic(
        context,
        lambda _, partition: partition.leader != partition.preferred_leader,
        lambda _: Target(kind=ElectionKind.PREFERRED, cause=_BALANCE),
    )


def elect_uncleanly_where_allowed(context: DecisionContext) -> Steps[Decision]:
    """Elect leaders uncleanly if the topic allows it; the response is True if more may need it."""
    return _periodic(
        context,
        lambda topic, partition: (
            partition.leader == NO_LEADER and context.unclean_elections_allowed(topic.name)
        ),
        lambda _: Target(kind=ElectionKind.UNCLEAN, cause=_CHECK),
    )


def elect_after_copy(context: DecisionContext) -> Steps[Decision]:
    """Elect leaders of partitions without one; the response is True if more may need it.

    A broker that was unfenced before they were copied from ZooKeeper does not return again.
    """
    return _periodic(
        context,
        lambda _, partition: partition.leader == NO_LEADER,
        lambda topic: Target(kind=_kind(context, topic), cause=_COPIED),
    )


def _periodic(
    context: DecisionContext,
    wanted: Callable[[Topic, PartitionState], bool],
    target_of: Callable[[Topic], Target],
) -> Steps[Decision]:
    changes = Changes(context)
    most = context.config.elections_per_balance_max
    for topic, index, _ in (yield from find_partitions(context.image, wanted)):
        if len(changes.records) >= most:
            break
        changes.change(topic.id, index, target_of(topic))
        yield CHANGE_UNITS
    return Decision(
        records=tuple(changes.records),
        response=len(changes.records) >= most,
        atomic=False,
        elections=tuple(changes.elections),
    )


def assign_replicas_to_dirs(
    context: DecisionContext, call: Call[k73.AssignReplicasToDirsRequest]
) -> Steps[Decision]:
    """Decide an AssignReplicasToDirs request: a broker reports its log directories (KIP-858)."""
    request = call.request
    if not context.directories_supported:
        wrong = "Directory assignment is not supported yet."
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, wrong)
    broker = context.check_broker_epoch(request.broker_id, request.broker_epoch)
    changes = Changes(context)
    response = k73.AssignReplicasToDirsResponse()
    offline: dict[tuple[str, int], LocatedPartition] = {}
    for directory in request.directories:
        online = broker.has_online_directory(directory.id)
        topics = []
        for wanted in directory.topics:
            topic = context.image.topics_by_id.get(wanted.topic_id)
            partitions = []
            for item in wanted.partitions:
                index = item.partition_index
                error = _assign_one(changes, topic, index, {request.broker_id: Uuid(directory.id)})
                if error is ErrorCode.NONE and topic is not None and not online:
                    offline[topic.name, index] = (topic, index, topic.partitions[index])
                partitions.append(
                    k73.AssignReplicasToDirsResponsePartitionData(
                        partition_index=index, error_code=error
                    )
                )
                yield CHANGE_UNITS
            topics.append(
                k73.AssignReplicasToDirsResponseTopicData(
                    topic_id=wanted.topic_id, partitions=partitions
                )
            )
        response.directories.append(
            k73.AssignReplicasToDirsResponseDirectoryData(id=directory.id, topics=topics)
        )
    yield from remove_from_isrs(
        changes,
        offline.values(),
        IsrRemoval(request.broker_id, OFFLINE_DIRECTORY),
        cause=Cause(
            CauseKind.DIRECTORY_OFFLINE,
            f"broker {request.broker_id} assigned replicas to an offline directory",
        ),
    )
    if len(changes.records) > RECORDS_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Too many replicas in one request.")
    return Decision(
        records=tuple(changes.records),
        response=response,
        atomic=False,
        elections=tuple(changes.elections),
    )


def _assign_one(
    changes: Changes,
    topic: Topic | None,
    index: int,
    directories: dict[int, Uuid],
) -> ErrorCode:
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    partition = topic.partitions.get(index)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if any(broker_id not in partition.replicas for broker_id in directories):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    cause = Cause(CauseKind.DIRECTORY_ASSIGNED, "a directory was assigned")
    target = Target(directories=directories, cause=cause)
    changes.change(topic.id, index, target)
    return ErrorCode.NONE
