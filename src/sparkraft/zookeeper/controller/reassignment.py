"""Reassignment of partitions in phases (KIP-455, KafkaController.onPartitionReassignment).

    U   write the assignment with adding and removing replicas; replicas that an earlier
        reassignment added and this one does not need are deleted at once
    A   until all target replicas are in the ISR: next leader epoch, LeaderAndIsr to all replicas;
        the added ones start as NEW
    B   then: 1 added replicas are ONLINE, 2 the assignment in memory is the target, 3 a leader
        outside of the target is replaced, otherwise the next leader epoch is sent, 4 and 5 the
        removed replicas leave the ISR and are deleted, 6 the target is written, 7 the partition
        leaves /admin/reassign_partitions, 8 UpdateMetadata to all brokers

The topic is ineligible for deletion meanwhile. Responses to the deletion of removed replicas are
not awaited, as in Kafka.
"""

from collections.abc import Callable, Collection

from sparkraft.base.ids import TopicPartition
from sparkraft.controller.leader_election import Cause, CauseKind
from sparkraft.metadata.partition_state import NO_LEADER
from sparkraft.zookeeper.controller import deletion, partitions, replicas, store
from sparkraft.zookeeper.controller.active import Active
from sparkraft.zookeeper.controller.states import ReplicaStatus
from sparkraft.zookeeper.controller.steps import Send, Steps
from sparkraft.zookeeper.controller.strategies import Strategy
from sparkraft.zookeeper.controller.values import (
    LeaderAndIsr,
    Leadership,
    Replica,
    ReplicaAssignment,
)
from sparkraft.zookeeper.errors import ZooKeeperError

CAUSE = Cause(CauseKind.REASSIGNED, "the leader is not among the target replicas")


class ReassignmentFailedError(Exception):
    """A partition cannot be reassigned now; its znodes may be half-way and are resumed later."""


def resume_all(
    active: Active, should_resume: Callable[[TopicPartition, ReplicaAssignment], bool]
) -> Steps[None]:
    """Continue reassignments in progress, such as those whose target has a started broker.

    Unlike in Kafka, not those of topics whose deletion has started: LeaderAndIsr would create logs
    that brokers have deleted already, and that nothing deletes again.
    """
    context = active.context
    for at in sorted(context.being_reassigned):
        assignment = context.assignment(at)
        is_ending = at[0] in context.topics_with_deletion_started
        if not is_ending and should_resume(at, assignment):
            yield from try_reassign(active, at, assignment)


def reassign_by_znode(active: Active) -> Steps[set[TopicPartition]]:
    """Start the reassignments in /admin/reassign_partitions; return those that were started.

    Failed ones are taken out of the znode.
    """
    wanted = yield from store.read_reassignments(active.ignore)
    started: set[TopicPartition] = set()
    for at, target in (wanted or {}).items():
        assignment = active.context.assignment(at)
        exists = bool(assignment.replicas) and at[0] not in active.context.topics_to_be_deleted
        if exists and (yield from try_reassign(active, at, assignment.reassign_to(target))):
            started.add(at)
    failed = (wanted or {}).keys() - started
    if failed:
        version = active.context.epoch_version
        yield from store.remove_reassignments(lambda at, _: at in failed, version)
    return started


def try_reassign(active: Active, at: TopicPartition, assignment: ReplicaAssignment) -> Steps[bool]:
    """As `reassign`; record a failure and return false."""
    try:
        yield from reassign(active, at, assignment)
    except ReassignmentFailedError as error:
        active.batch.clear()
        _note(active, at, f"failed: {error}")
        return False
    return True


def reassign(active: Active, at: TopicPartition, assignment: ReplicaAssignment) -> Steps[None]:
    """Execute the phases that are due: U, then A or B.

    Raises:
        ReassignmentFailedError: the partition has no leadership, or a write was refused.
    """
    active.context.mark_ineligible([at[0]])
    yield from _update(active, at, assignment)
    active.context.being_reassigned.add(at)
    if not (yield from is_complete(active, at, assignment)):
        yield from _bump_leader_epoch(active, at, assignment)
        for broker in assignment.adding:
            yield from replicas.move(active, [Replica(*at, broker)], ReplicaStatus.NEW)
        text = f"adds {list(assignment.adding)}"
        if assignment.removing:
            text += f", then removes {list(assignment.removing)}"
        _note(active, at, text)
        return
    yield from _complete(active, at, assignment)
    _note(active, at, "completed")


def _note(active: Active, at: TopicPartition, text: str) -> None:
    active.journal.add("reassignment", f"{at[0]}-{at[1]}: {text}", topic=at[0])


def _update(active: Active, at: TopicPartition, assignment: ReplicaAssignment) -> Steps[None]:
    present = active.context.assignment(at)
    if present == assignment:
        return
    yield from _write(active, at, assignment)
    active.context.assign(at, assignment)
    unneeded = [replica for replica in present.replicas if replica not in assignment.replicas]
    yield from _delete_replicas(active, at, unneeded)


def _write(active: Active, at: TopicPartition, assignment: ReplicaAssignment) -> Steps[None]:
    context, topic = active.context, at[0]
    assignments = {**context.assignments[topic], at[1]: assignment}
    error = yield from store.write_topic(
        topic, context.topic_ids.get(topic), assignments, context.epoch_version
    )
    if error is not None:
        raise ReassignmentFailedError(str(error))


def is_complete(active: Active, at: TopicPartition, assignment: ReplicaAssignment) -> Steps[bool]:
    """Whether all target replicas are in the ISR, by a fresh read.

    If leaders write ISRs themselves, a watch fires at the next change.
    """
    if not assignment.is_being_reassigned:
        return True
    found: store.FoundState
    if active.settings.writes_isrs:
        found = yield from store.read_watched_state(at)
    else:
        found = (yield from store.read_states([at]))[at]
    return isinstance(found, Leadership) and set(assignment.target) <= set(found.state.isr)


def _complete(active: Active, at: TopicPartition, assignment: ReplicaAssignment) -> Steps[None]:
    context = active.context
    added = [Replica(*at, broker) for broker in assignment.adding]
    yield from replicas.move(active, added, ReplicaStatus.ONLINE)
    completed = ReplicaAssignment(assignment.target)
    context.assign(at, completed)
    leadership = context.leaderships.get(at)
    leader = NO_LEADER if leadership is None else leadership.state.leader
    if leader in completed.replicas and context.is_online(leader, at):
        yield from _bump_leader_epoch(active, at, completed)
    else:
        yield from partitions.move_online(active, [at], Strategy.REASSIGN, CAUSE)
    yield from _delete_replicas(active, at, assignment.removing)
    yield from _write(active, at, completed)
    yield from store.remove_reassignments(
        lambda each, to: (each, to) == (at, completed.replicas), context.epoch_version
    )
    context.being_reassigned.discard(at)
    active.batch.add_update_metadata(context.live_or_shutting_down, [at])
    yield Send(active.batch.drain())
    yield from deletion.resume_topics(active, [at[0]])


def _delete_replicas(active: Active, at: TopicPartition, brokers: Collection[int]) -> Steps[None]:
    removed = [Replica(*at, broker) for broker in brokers]
    for status in (
        ReplicaStatus.OFFLINE,
        ReplicaStatus.DELETION_STARTED,
        ReplicaStatus.DELETION_SUCCESSFUL,
        ReplicaStatus.NON_EXISTENT,
    ):
        yield from replicas.move(active, removed, status)


def _bump_leader_epoch(
    active: Active, at: TopicPartition, assignment: ReplicaAssignment
) -> Steps[None]:
    """Write the next leader epoch under the same leader and send it with the assignment."""
    state = yield from _write_next_epoch(active, at)
    leadership = Leadership(state, active.context.epoch)
    active.context.leaderships[at] = leadership
    batch = active.batch
    batch.add_leader_and_isr(assignment.origin, at, leadership, is_new=False)
    batch.add_leader_and_isr(assignment.adding, at, leadership, is_new=True)
    yield Send(batch.drain())


def _write_next_epoch(active: Active, at: TopicPartition) -> Steps[LeaderAndIsr]:
    while True:
        failures: partitions.Results = {}
        states = yield from partitions.read_states(active, [at], failures)
        if at not in states:
            raise ReassignmentFailedError(str(failures[at]))
        state = states[at]
        wanted = {at: state.elect(state.leader, state.isr)}
        written = yield from store.update_states(wanted, active.context)
        if at in written.finished:
            result = written.finished[at]
            if isinstance(result, ZooKeeperError):
                raise ReassignmentFailedError(str(result))
            return result
