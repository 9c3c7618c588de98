"""The replica state machine (ZkReplicaStateMachine of Kafka 3.9).

    to                     what is sent or written
    NEW                    LeaderAndIsr with is_new to the replica, if its partition has leadership
    ONLINE                 LeaderAndIsr with the present state to the replica, unless it was NEW
    OFFLINE                StopReplica to the replica; it leaves the ISR, which is written and sent
                           to the other replicas
    DELETION_STARTED       StopReplica with deletion
    DELETION_SUCCESSFUL, DELETION_INELIGIBLE    memory only
    NON_EXISTENT           the replica is removed from the controller's assignment

Replicas are handled broker by broker, so a partition of several offline replicas is written several
times, as in Kafka. A transition that the table does not allow is recorded and skipped.
"""

from collections.abc import Iterable, Sequence

from sparkraft.base.ids import TopicPartition
from sparkraft.controller.leader_election import Cause, CauseKind
from sparkraft.zookeeper.controller import store
from sparkraft.zookeeper.controller.active import Active
from sparkraft.zookeeper.controller.partitions import Results, read_states
from sparkraft.zookeeper.controller.states import ReplicaStatus
from sparkraft.zookeeper.controller.steps import Send, Steps, Worked, pieces
from sparkraft.zookeeper.controller.values import LeaderAndIsr, Leadership, Replica


def initialize(active: Active) -> Steps[None]:
    """Derive the states of all replicas from the live brokers, at a failover.

    Deletions that were in progress start again: their offline replicas are DELETION_INELIGIBLE.
    """
    context = active.context
    context.replica_statuses.clear()
    for piece in pieces(context.replicas()):
        for replica in piece:
            if context.is_online(replica.broker, replica[:2]):
                status = ReplicaStatus.ONLINE
            else:
                status = ReplicaStatus.DELETION_INELIGIBLE
            context.replica_statuses[replica] = status
        yield Worked(len(piece))


def move(active: Active, replicas: Iterable[Replica], status: ReplicaStatus) -> Steps[None]:
    """Change the states of replicas, broker by broker, and send the requests that follow."""
    by_broker: dict[int, list[Replica]] = {}
    for some in pieces(replicas):
        for replica in some:
            by_broker.setdefault(replica.broker, []).append(replica)
        yield Worked(len(some))
    for broker, group in sorted(by_broker.items()):
        valid: list[Replica] = []
        for piece in pieces(group):
            valid += _valid(active, piece, status)
            yield Worked(len(piece))
        yield from _move_on(active, broker, valid, status)
    yield Send(active.batch.drain())


def _valid(active: Active, replicas: Sequence[Replica], status: ReplicaStatus) -> list[Replica]:
    valid = []
    for replica in replicas:
        if active.context.replica_may_become(replica, status):
            valid.append(replica)
        else:
            _record_failure(active, replica, status, active.context.replica_status(replica).value)
    return valid


def _record_failure(active: Active, replica: Replica, status: ReplicaStatus, text: str) -> None:
    topic, partition, broker = replica
    name = f"replica {broker} of {topic}-{partition}"
    active.journal.add("failed transition", f"{name} to {status.value}: {text}")


def _move_on(
    active: Active, broker: int, replicas: Sequence[Replica], status: ReplicaStatus
) -> Steps[None]:
    if status is ReplicaStatus.OFFLINE:
        yield from _take_offline(active, broker, replicas)
        return
    for piece in pieces(replicas):
        for replica in piece:
            match status:
                case ReplicaStatus.NEW:
                    _make_new(active, replica)
                case ReplicaStatus.ONLINE:
                    _bring_online(active, replica)
                case _:
                    _make(active, replica, status)
        yield Worked(len(piece))


def _make_new(active: Active, replica: Replica) -> None:
    at, leadership = replica[:2], active.context.leaderships.get(replica[:2])
    if leadership is not None:
        if leadership.state.leader == replica.broker:
            text = "it is the leader, and a new replica may only follow"
            _record_failure(active, replica, ReplicaStatus.NEW, text)
            return
        active.batch.add_leader_and_isr([replica.broker], at, leadership, is_new=True)
    active.context.put_replica_status(replica, ReplicaStatus.NEW)


def _bring_online(active: Active, replica: Replica) -> None:
    at, context = replica[:2], active.context
    if context.replica_status(replica) is ReplicaStatus.NEW:
        assignment = context.assignment(at)
        if replica.broker not in assignment.replicas:
            added = (*assignment.replicas, replica.broker)
            context.assign(at, assignment._replace(replicas=added))
    elif at in context.leaderships:
        leadership = context.leaderships[at]
        active.batch.add_leader_and_isr([replica.broker], at, leadership, is_new=False)
    context.put_replica_status(replica, ReplicaStatus.ONLINE)


def _make(active: Active, replica: Replica, status: ReplicaStatus) -> None:
    at, context = replica[:2], active.context
    if status is ReplicaStatus.DELETION_STARTED:
        active.batch.add_stop_replica(replica.broker, at, delete=True)
    elif status is ReplicaStatus.NON_EXISTENT:
        context.assign(at, context.assignment(at).without(replica.broker))
    context.put_replica_status(replica, status)


def _take_offline(active: Active, broker: int, replicas: Sequence[Replica]) -> Steps[None]:
    context, batch = active.context, active.batch
    led: list[TopicPartition] = []
    others: list[Replica] = []
    for piece in pieces(replicas):
        for replica in piece:
            batch.add_stop_replica(broker, replica[:2], delete=False)
            if replica[:2] in context.leaderships:
                led.append(replica[:2])
            else:
                others.append(replica)
        yield Worked(len(piece))
    left = yield from _remove_from_isr(active, broker, led)
    for ended in pieces(left.items()):
        for at, leadership in ended:
            if at[0] not in context.topics_to_be_deleted:
                following = [r for r in context.assignment(at).replicas if r != broker]
                batch.add_leader_and_isr(following, at, leadership, is_new=False)
            context.put_replica_status(Replica(*at, broker), ReplicaStatus.OFFLINE)
        yield Worked(len(ended))
    for piece in pieces(others):
        for replica in piece:
            batch.add_update_metadata(context.live_or_shutting_down, [replica[:2]])
            context.put_replica_status(replica, ReplicaStatus.OFFLINE)
        yield Worked(len(piece))


def _remove_from_isr(
    active: Active, broker: int, partitions: Sequence[TopicPartition]
) -> Steps[dict[TopicPartition, Leadership]]:
    """Remove a replica from ISRs; return the leadership of each partition, changed or not.

    A partition of which the leader wrote the state in the meantime is read and decided again.
    """
    results: dict[TopicPartition, Leadership] = {}
    remaining = list(partitions)
    while remaining:
        failures: Results = {}
        states = yield from read_states(active, remaining, failures)
        wanted: dict[TopicPartition, LeaderAndIsr] = {}
        for each in pieces(states.items()):
            wanted |= {at: state.without(broker) for at, state in each if broker in state.isr}
            yield Worked(len(each))
        written = yield from store.update_states(wanted, active.context)
        decided = {**_unchanged(states, wanted), **written.finished}
        for piece in pieces(decided.items()):
            for at, state in piece:
                if isinstance(state, LeaderAndIsr):
                    results[at] = Leadership(state, active.context.epoch)
                    active.context.leaderships[at] = results[at]
                    if at in wanted:
                        _note_removal(active, Replica(*at, broker), states[at], state)
                else:
                    failures[at] = str(state)
            yield Worked(len(piece))
        for at, failure in failures.items():
            _record_failure(active, Replica(*at, broker), ReplicaStatus.OFFLINE, str(failure))
        remaining = written.to_retry
    return results


def _note_removal(
    active: Active, replica: Replica, before: LeaderAndIsr, after: LeaderAndIsr
) -> None:
    context, at = active.context, replica[:2]
    why = context.why_not(replica.broker, at)
    if replica.topic in context.topics_to_be_deleted:
        cause = Cause(CauseKind.DELETED, "the topic is being deleted")
    elif why is None:
        cause = Cause(CauseKind.REASSIGNED, f"replica {replica.broker} is not a target replica")
    elif replica.broker in context.shutting_down:
        cause = Cause(CauseKind.SHUTDOWN, f"replica {replica.broker}: {why}")
    elif replica.broker not in context.brokers:
        cause = Cause(CauseKind.FENCED, f"replica {replica.broker}: {why}")
    else:
        cause = Cause(CauseKind.DIRECTORY_OFFLINE, f"replica {replica.broker}: {why}")
    active.journal.partitions.add(context, at, before, after, cause)


def _unchanged(
    states: dict[TopicPartition, LeaderAndIsr], wanted: dict[TopicPartition, LeaderAndIsr]
) -> dict[TopicPartition, LeaderAndIsr]:
    return {at: state for at, state in states.items() if at not in wanted}
