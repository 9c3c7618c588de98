"""Requests of clients and brokers that only the active controller serves.

Each answers once, or raises a KafkaError that answers the whole request.
"""

from collections.abc import Collection, Mapping

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import TopicPartition
from sparkraft.zookeeper.controller import brokers, elections, reassignment, store
from sparkraft.zookeeper.controller.active import Active
from sparkraft.zookeeper.controller.brokers import check_broker_epoch
from sparkraft.zookeeper.controller.steps import Answer, Steps
from sparkraft.zookeeper.controller.values import ReplicaAssignment

Failure = tuple[ErrorCode, str]
"""An error of one partition, with its message."""

ALL_GOOD: Failure = (ErrorCode.NONE, "")

UNKNOWN: Failure = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")

NO_REASSIGNMENT = "No partition reassignment is in progress."

UNKNOWN_BROKER_EPOCH = -1


def shut_down(active: Active, broker: int, broker_epoch: int) -> Steps[None]:
    """ControlledShutdown: answer with the partitions that the broker still leads.

    An epoch of -1 is not checked: the broker does not know it.
    """
    known = active.context.brokers.get(broker)
    if known is not None and UNKNOWN_BROKER_EPOCH != broker_epoch < known.epoch:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"its epoch is {known.epoch}")
    if known is None:
        stated = broker_epoch != UNKNOWN_BROKER_EPOCH
        code = ErrorCode.UNKNOWN_SERVER_ERROR if stated else ErrorCode.BROKER_NOT_AVAILABLE
        raise KafkaError(code, f"Broker id {broker} does not exist.")
    left = yield from brokers.shut_down(active, broker)
    yield Answer(left)


def allocate_producer_ids(active: Active, broker: int, broker_epoch: int) -> Steps[None]:
    """AllocateProducerIds: answer with the first id of a block of 1000 (KIP-730)."""
    if broker not in active.context.brokers:
        code = ErrorCode.BROKER_ID_NOT_REGISTERED
        raise KafkaError(code, f"broker {broker} is not registered")
    check_broker_epoch(active, broker, broker_epoch)
    yield Answer((yield from store.allocate_producer_ids(broker)))


def elect_leaders(
    active: Active, wanted: Collection[TopicPartition] | None, *, unclean: bool
) -> Steps[None]:
    """ElectLeaders: answer with the new leader or a `Failure` of each partition; None: all."""
    every = list(active.context.partitions())
    results: dict[TopicPartition, int | Failure] = {}
    electable = []
    for at in every if wanted is None else wanted:
        failure = elections.why_not(active, at, unclean=unclean)
        if failure is None:
            electable.append(at)
        else:
            results[at] = failure
    elected = yield from elections.elect_for_client(active, electable, unclean=unclean)
    failed = (
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        if unclean
        else ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    )
    for at, result in elected.items():
        results[at] = (failed, result) if isinstance(result, str) else result.leader
    yield Answer(results)


def alter_reassignments(
    active: Active, targets: Mapping[TopicPartition, tuple[int, ...] | None]
) -> Steps[None]:
    """AlterPartitionReassignments: answer with a `Failure` or `ALL_GOOD` of each partition.

    A target of None cancels. A reassignment by znode of the same partition is replaced.
    """
    results: dict[TopicPartition, Failure] = {}
    accepted: dict[TopicPartition, ReplicaAssignment] = {}
    for at, target in targets.items():
        decided = _assignment_for(active, at, target)
        if isinstance(decided, ReplicaAssignment):
            accepted[at] = decided
        else:
            results[at] = decided
    yield from store.remove_reassignments(
        lambda at, _: at in accepted, active.context.epoch_version
    )
    for at, assignment in accepted.items():
        done = yield from reassignment.try_reassign(active, at, assignment)
        results[at] = ALL_GOOD if done else (ErrorCode.UNKNOWN_SERVER_ERROR, "")
    yield Answer({at: results[at] for at in targets})


def _assignment_for(
    active: Active, at: TopicPartition, target: tuple[int, ...] | None
) -> ReplicaAssignment | Failure:
    context = active.context
    present = context.assignment(at)
    if target is not None and (problem := _problem_of(active, present, target)):
        return (ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
    if target is None and not present.is_being_reassigned:
        return (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, NO_REASSIGNMENT)
    if not present.replicas or at[0] in context.topics_to_be_deleted:
        return UNKNOWN
    return present.reassign_to(present.origin if target is None else target)


def _problem_of(active: Active, present: ReplicaAssignment, target: tuple[int, ...]) -> str | None:
    """Kafka's sentence about an invalid target (validateReplicas)."""
    listed = ",".join(map(str, target))
    if not target:
        return "Empty replica list specified in partition reassignment."
    if len(set(target)) != len(target):
        return f"Duplicate replica ids in partition reassignment replica list: {listed}"
    if min(target) < 0:
        return f"Invalid broker id in replica list: {listed}"
    added = [broker for broker in target if broker not in present.origin]
    live = active.context.live_brokers
    if any(broker not in live for broker in added):
        return f"Replica assignment has brokers that are not alive. Replica list: {listed}, live broker list: {','.join(map(str, live))}"  # noqa: E501 (Kafka's sentence)
    return None


def list_reassignments(active: Active, wanted: Collection[TopicPartition] | None) -> Steps[None]:
    """ListPartitionReassignments: answer with those in progress; None: of all partitions."""
    found = active.context.being_reassigned
    asked = sorted(found if wanted is None else set(wanted) & found)
    yield Answer({at: active.context.assignment(at) for at in asked})
