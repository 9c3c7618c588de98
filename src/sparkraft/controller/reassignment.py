"""Reassignment of partitions to other brokers (KIP-455, KIP-860).

Stage 1 adds the new replicas to the assignment and records which replicas are added and removed.
Stage 2 waits until the added replicas are in sync. Stage 3 is part of the ISR change that completes
stage 2 (`partition_rules`): it removes the other replicas. A reassignment that only reorders
replicas is completed at once.
"""

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.controller.call import Call
from sparkraft.controller.decision import Decision
from sparkraft.controller.decision_context import DecisionContext
from sparkraft.controller.leader_election import Cause, CauseKind, ElectionKind
from sparkraft.controller.partition_rules import Target
from sparkraft.controller.replication import Changes
from sparkraft.controller.steps import CHANGE_UNITS, Steps
from sparkraft.controller.topics import check_assignment
from sparkraft.metadata.image import Topic
from sparkraft.metadata.partition_state import PartitionState
from sparkraft.protocol.messages import k45_alter_partition_reassignments as k45
from sparkraft.protocol.messages import k46_list_partition_reassignments as k46


def alter_partition_reassignments(
    context: DecisionContext, call: Call[k45.AlterPartitionReassignmentsRequest]
) -> Steps[Decision]:
    """Decide an AlterPartitionReassignments request: start or cancel reassignments."""
    request = call.request
    changes = Changes(context)
    response = k45.AlterPartitionReassignmentsResponse(
        error_message=None, allow_replication_factor_change=request.allow_replication_factor_change
    )
    for topic in request.topics:
        topic_response = k45.ReassignableTopicResponse(name=topic.name)
        for wanted in topic.partitions:
            result = k45.ReassignablePartitionResponse(
                partition_index=wanted.partition_index, error_message=None
            )
            try:
                _reassign(
                    changes,
                    topic.name,
                    wanted,
                    may_resize=request.allow_replication_factor_change,
                )
            except KafkaError as error:
                result.error_code = error.code
                result.error_message = error.detail or None
            topic_response.partitions.append(result)
            yield CHANGE_UNITS
        response.responses.append(topic_response)
    return Decision(
        records=tuple(changes.records), response=response, elections=tuple(changes.elections)
    )


def _reassign(
    changes: Changes,
    name: str,
    wanted: k45.ReassignablePartition,
    *,
    may_resize: bool,
) -> None:
    context, index = changes.context, wanted.partition_index
    topic = context.image.topic(name)
    if topic is None:
        wrong = f"Unable to find a topic named {name}."
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, wrong)
    partition = topic.partitions.get(index)
    if partition is None:
        wrong = f"Unable to find partition {name}:{index}."
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, wrong)
    if wanted.replicas is None:
        target = _cancelled(context, topic, index, partition)
    else:
        target = _reassigned(context, partition, tuple(wanted.replicas), may_resize=may_resize)
    changes.change(topic.id, index, target)


def _reassigned(
    context: DecisionContext,
    partition: PartitionState,
    wanted: tuple[int, ...],
    *,
    may_resize: bool,
) -> Target:
    check_assignment(context, wanted, None)
    # If a reassignment is in progress, compare with the replicas that it would end with (KIP-860).
    settled = [r for r in partition.replicas if r not in partition.removing_replicas]
    if not may_resize and len(wanted) != len(settled):
        wrong = f"The replication factor is changed from {len(settled)} to {len(wanted)}"
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, wrong)
    removing = tuple(sorted(set(partition.replicas) - set(wanted)))
    adding = tuple(sorted(set(wanted) - set(partition.replicas)))
    return Target(
        replicas=wanted + removing,
        removing=removing or None,
        adding=adding or None,
        cause=Cause(CauseKind.REASSIGNED, "the partition is reassigned"),
    )


def _cancelled(
    context: DecisionContext, topic: Topic, index: int, partition: PartitionState
) -> Target:
    if not partition.is_reassigning:
        wrong = "No partition reassignment is in progress."
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, wrong)
    unclean_allowed = context.unclean_elections_allowed(topic.name)
    replicas = tuple(r for r in partition.replicas if r not in partition.adding_replicas)
    isr = tuple(r for r in partition.isr if r not in partition.adding_replicas)
    if not replicas:
        wrong = "Cannot cancel the reassignment: it adds every replica of the partition."
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, wrong)
    if not isr:
        if not unclean_allowed:
            wrong = (
                f"Unable to revert partition assignment for {topic.name}:{index} because it would "
                "require an unclean leader election."
            )
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, wrong)
        isr = replicas[:1]
    return Target(
        isr=isr,
        replicas=replicas,
        removing=(),
        adding=(),
        kind=ElectionKind.UNCLEAN if unclean_allowed else ElectionKind.ONLINE,
        cause=Cause(CauseKind.REASSIGNED, "the reassignment was cancelled"),
    )


def list_partition_reassignments(
    context: DecisionContext, call: Call[k46.ListPartitionReassignmentsRequest]
) -> Decision:
    """List the reassignments in progress, of some or all partitions."""
    request = call.request
    response = k46.ListPartitionReassignmentsResponse(error_message=None)
    if request.topics is None:
        wanted = [(t, sorted(t.partitions)) for t in context.image.topics_in_order()]
    else:
        named = [(context.image.topic(t.name), t.partition_indexes) for t in request.topics]
        wanted = [(topic, list(indexes)) for topic, indexes in named if topic is not None]
    for topic, indexes in wanted:
        ongoing = []
        for index in indexes:
            partition = topic.partitions.get(index)
            if partition is not None and partition.is_reassigning:
                ongoing.append(
                    k46.OngoingPartitionReassignment(
                        partition_index=index,
                        replicas=list(partition.replicas),
                        adding_replicas=list(partition.adding_replicas),
                        removing_replicas=list(partition.removing_replicas),
                    )
                )
        if ongoing:
            response.topics.append(
                k46.OngoingTopicReassignment(name=topic.name, partitions=ongoing)
            )
    return Decision(response=response)
