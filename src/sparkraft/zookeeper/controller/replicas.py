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
from sparkraft.zookeeper.controller import store
from sparkraft.zookeeper.controller.active import Active
from sparkraft.zookeeper.controller.partitions import Results, read_states
from sparkraft.zookeeper.controller.states import ReplicaStatus
from sparkraft.zookeeper.controller.steps import Send, Steps
from sparkraft.zookeeper.controller.values import LeaderAndIsr, Leadership, Replica


def initialize(active: Active) -> None:
    """Derive the states of all replicas from the live brokers, at a failover.

    Deletions that were in progress start again: their offline replicas are DELETION_INELIGIBLE.
    """
    context = active.context
    context.replica_statuses.clear()
    for replica in context.replicas():
        if context.is_online(replica.broker, replica[:2]):
            status = ReplicaStatus.ONLINE
        else:
            status = ReplicaStatus.DELETION_INELIGIBLE
        context.replica_statuses[replica] = status


def move(active: Active, replicas: Iterable[Replica], status: ReplicaStatus) -> Steps[None]:
    """Change the states of replicas, broker by broker, and send the requests that follow."""
    by_broker: dict[int, list[Replica]] = {}
    for replica in replicas:
        by_broker.setdefault(replica.broker, []).append(replica)
    for broker, group in sorted(by_broker.items()):
        yield from _move_on(active, broker, _valid(active, group, status), status)
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
    match status:
        case ReplicaStatus.OFFLINE:
            yield from _take_offline(active, broker, replicas)
        case ReplicaStatus.NEW:
            for replica in replicas:
                _make_new(active, replica)
        case ReplicaStatus.ONLINE:
            for replica in replicas:
                _bring_online(active, replica)
        case _:
            for replica in replicas:
                _make(active, replica, status)


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
    for replica in replicas:
        batch.add_stop_replica(broker, replica[:2], delete=False)
    led = [replica[:2] for replica in replicas if replica[:2] in context.leaderships]
    for at, leadership in (yield from _remove_from_isr(active, broker, led)).items():
        if at[0] not in context.topics_to_be_deleted:
            others = [r for r in context.assignment(at).replicas if r != broker]
            batch.add_leader_and_isr(others, at, leadership, is_new=False)
        context.put_replica_status(Replica(*at, broker), ReplicaStatus.OFFLINE)
    for replica in replicas:
        if replica[:2] not in set(led):
            batch.add_update_metadata(context.live_or_shutting_down, [replica[:2]])
            context.put_replica_status(replica, ReplicaStatus.OFFLINE)


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
        wanted = {at: state.without(broker) for at, state in states.items() if broker in state.isr}
        written = yield from store.update_states(wanted, active.context)
        for at, state in {**_unchanged(states, wanted), **written.finished}.items():
            if isinstance(state, LeaderAndIsr):
                results[at] = Leadership(state, active.context.epoch)
                active.context.leaderships[at] = results[at]
            else:
                failures[at] = str(state)
        for at, failure in failures.items():
            _record_failure(active, Replica(*at, broker), ReplicaStatus.OFFLINE, str(failure))
        remaining = written.to_retry
    return results


def _unchanged(
    states: dict[TopicPartition, LeaderAndIsr], wanted: dict[TopicPartition, LeaderAndIsr]
) -> dict[TopicPartition, LeaderAndIsr]:
    return {at: state for at, state in states.items() if at not in wanted}
