"""Broker changes: started, stopped and bounced brokers, failed log directories, shutdowns.

A broker is *bounced* if its znode was created again since the controller read it: its epoch (czxid)
is greater (KAFKA-7235). It is handled as a failure and a start.
"""

from collections.abc import Iterable, Mapping, Sequence

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import TopicPartition
from sparkraft.controller.leader_election import Cause, CauseKind
from sparkraft.zookeeper.controller import (
    deletion,
    partitions,
    reassignment,
    replicas,
    store,
    znodes,
)
from sparkraft.zookeeper.controller.active import Active
from sparkraft.zookeeper.controller.states import PartitionStatus, ReplicaStatus
from sparkraft.zookeeper.controller.steps import Send, Steps, Worked, pieces
from sparkraft.zookeeper.controller.strategies import Strategy
from sparkraft.zookeeper.controller.values import Replica


def on_brokers_changed(active: Active) -> Steps[None]:
    """Read /brokers/ids and handle started, bounced and failed brokers, in this order."""
    known = active.context.brokers
    found = yield from store.read_brokers(watch=True)
    started = sorted(found.keys() - known.keys())
    failed = sorted(known.keys() - found.keys())
    bounced = sorted(
        broker
        for broker in found.keys() & known.keys()
        if found[broker].epoch > known[broker].epoch
    )
    if started:
        known.update((broker, found[broker]) for broker in started)
        yield from on_started(active, started)
    if bounced:
        yield from _forget(active, bounced)
        known.update((broker, found[broker]) for broker in bounced)
        yield from on_started(active, bounced)
    if failed:
        yield from _forget(active, failed)
    for kind, brokers in (("started", started), ("bounced", bounced), ("failed", failed)):
        if brokers:
            active.journal.add("brokers", f"{kind}: {_list(brokers)}", brokers=brokers)


def _forget(active: Active, brokers: Sequence[int]) -> Steps[None]:
    context = active.context
    for broker in brokers:
        del context.brokers[broker]
        context.offline_replicas.pop(broker, None)
        context.shutting_down.discard(broker)
    cause = Cause(CauseKind.FENCED, f"the session of broker {_list(brokers)} ended")
    hosted = yield from _replicas_on(active, brokers)
    yield from on_replicas_offline(active, hosted, cause)


def _replicas_on(active: Active, brokers: Iterable[int]) -> Steps[list[Replica]]:
    """Find the replicas assigned to any of `brokers`, in order."""
    wanted = set(brokers)
    found: list[Replica] = []
    for piece in pieces(active.context.replicas()):
        found += [replica for replica in piece if replica.broker in wanted]
        yield Worked(len(piece))
    return found


def _list(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, brokers))


def check_broker_epoch(active: Active, broker: int, epoch: int) -> None:
    """Reject a request of an earlier incarnation of a broker, or of an unknown one (KIP-380).

    Raises:
        KafkaError: STALE_BROKER_EPOCH.
    """
    known = active.context.brokers.get(broker)
    if known is None or known.epoch != epoch:
        present = "not registered" if known is None else f"of epoch {known.epoch}"
        text = f"broker {broker} of epoch {epoch} is {present}"
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, text)


def on_broker_modified(active: Active, broker: int) -> Steps[None]:
    """Send changed endpoints or features of a broker to all brokers."""
    known = active.context.brokers.get(broker)
    found = yield from store.read_broker(broker)
    if known is None or found is None or found.epoch != known.epoch:
        return  # it has left, or has registered again: the change of /brokers/ids follows
    changed = found.endpoints != known.endpoints or found.features != known.features
    if changed:
        active.context.brokers[broker] = found
        yield from send_metadata(active, active.context.live_or_shutting_down)


def on_started(active: Active, brokers: Sequence[int]) -> Steps[None]:
    """Initialize started brokers, elect leaders, and continue operations that waited for them."""
    context = active.context
    for broker in brokers:
        context.offline_replicas.pop(broker, None)
    others = [broker for broker in context.live_or_shutting_down if broker not in brokers]
    yield from send_metadata(active, others)
    for piece in pieces(context.partitions()):
        present = [at for at in piece if at[0] not in context.topics_to_be_deleted]
        active.batch.add_update_metadata(brokers, present)
        yield Worked(len(piece))
    yield from send_metadata(active, brokers)
    hosted = yield from _replicas_on(active, brokers)
    yield from replicas.move(active, hosted, ReplicaStatus.ONLINE)
    cause = Cause(CauseKind.RETURNED, f"broker {_list(brokers)} started")
    yield from partitions.bring_online(active, cause)
    yield from reassignment.resume_all(
        active, lambda _, assignment: any(broker in brokers for broker in assignment.target)
    )
    yield from deletion.resume_topics(active, {replica.topic for replica in hosted})


def on_replicas_offline(active: Active, offline: Sequence[Replica], cause: Cause) -> Steps[None]:
    """Replace leaders that are offline, and take replicas out of ISRs."""
    context = active.context
    deleted = [each for each in offline if each.topic in context.topics_to_be_deleted]
    others = [each for each in offline if each.topic not in context.topics_to_be_deleted]
    without_leader: list[TopicPartition] = []
    for piece in pieces(context.partitions()):
        without_leader += [at for at in piece if _has_lost_its_leader(active, at)]
        yield Worked(len(piece))
    yield from partitions.move(active, without_leader, PartitionStatus.OFFLINE)
    results = yield from partitions.bring_online(active, cause)
    yield from replicas.move(active, others, ReplicaStatus.OFFLINE)
    yield from deletion.fail_replicas(active, deleted)
    if not others and all(isinstance(result, str) for result in results.values()):
        yield from send_metadata(active, context.live_or_shutting_down)


def _has_lost_its_leader(active: Active, at: TopicPartition) -> bool:
    context = active.context
    leadership = context.leaderships.get(at)
    return (
        leadership is not None
        and at[0] not in context.topics_to_be_deleted
        and not context.is_online(leadership.state.leader, at)
    )


def send_metadata(
    active: Active, brokers: Iterable[int], changed: Iterable[TopicPartition] = ()
) -> Steps[None]:
    """Send UpdateMetadata alone."""
    active.batch.add_update_metadata(brokers, changed)
    yield Send(active.batch.drain())


# Log directories


def on_log_dir_events(active: Active) -> Steps[None]:
    """Send LeaderAndIsr with unchanged states to brokers that have a failed log directory.

    They respond with KAFKA_STORAGE_ERROR for the replicas that they have lost.
    """
    names, brokers = yield from store.read_log_dir_events(active.ignore)
    hosted = yield from _replicas_on(active, brokers)
    yield from replicas.move(active, hosted, ReplicaStatus.ONLINE)
    version = active.context.epoch_version
    yield from store.delete_notifications(znodes.LOG_DIR_EVENTS, names, version)
    if brokers:
        text = f"log directory failed: {_list(sorted(brokers))}"
        active.journal.add("brokers", text, brokers=sorted(brokers))


def on_leader_and_isr_response(
    active: Active, broker: int, error: int, errors: Mapping[TopicPartition, int]
) -> Steps[None]:
    """Note which replicas of a broker are on failed log directories."""
    if error != ErrorCode.NONE:
        active.journal.add("failed transition", f"LeaderAndIsr to {broker}: error {error}")
        return
    offline_now = active.context.offline_replicas.setdefault(broker, set())
    found: list[TopicPartition] = []
    for piece in pieces(errors.items()):
        for at, code in piece:
            if code == ErrorCode.NONE:
                offline_now.discard(at)
            elif code == ErrorCode.KAFKA_STORAGE_ERROR and at not in offline_now:
                offline_now.add(at)
                found.append(at)
        yield Worked(len(piece))
    new = sorted(found)
    if new:
        cause = Cause(CauseKind.DIRECTORY_OFFLINE, f"a log directory of broker {broker} failed")
        offline = [Replica(*at, broker) for at in new]
        yield from on_replicas_offline(active, offline, cause)


# Controlled shutdown


def shut_down(active: Active, broker: int) -> Steps[list[TopicPartition]]:
    """Move leaderships away from a broker; return the partitions that it still leads.

    Partitions with one replica stay: no other broker could lead them. The broker counts as shutting
    down until its session ends.
    """
    context = active.context
    if broker not in context.shutting_down:
        active.journal.add("brokers", f"shutting down: {broker}", brokers=[broker])
    context.shutting_down.add(broker)
    led: list[TopicPartition] = []
    followed: list[TopicPartition] = []
    for piece in pieces(context.partitions()):
        for at in piece:
            if _may_move(active, at) and broker in context.assignment(at).replicas:
                leads = context.leaderships[at].state.leader == broker
                (led if leads else followed).append(at)
        yield Worked(len(piece))
    cause = Cause(CauseKind.SHUTDOWN, f"broker {broker} asked to shut down")
    yield from partitions.move_online(active, led, Strategy.CONTROLLED_SHUTDOWN, cause)
    for at in followed:
        active.batch.add_stop_replica(broker, at, delete=False)
    yield Send(active.batch.drain())
    stopped = [Replica(*at, broker) for at in followed]
    yield from replicas.move(active, stopped, ReplicaStatus.OFFLINE)
    left: list[TopicPartition] = []
    for some in pieces(context.partitions()):
        left += [
            at
            for at in some
            if _may_move(active, at) and context.leaderships[at].state.leader == broker
        ]
        yield Worked(len(some))
    return left


def _may_move(active: Active, at: TopicPartition) -> bool:
    """Whether another of its brokers could lead a partition."""
    context = active.context
    return (
        len(context.assignment(at).replicas) > 1
        and at in context.leaderships
        and at[0] not in context.topics_to_be_deleted
    )
