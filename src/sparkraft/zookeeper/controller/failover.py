"""The steps of a new controller, in Kafka 3.9's order (KafkaController.onControllerFailover).

    0. Enable /feature, in the version of inter.broker.protocol.version; disable it before 2.7.
    1. Set watches: each read below sets the watch that its later changes fire.
    2. Delete the notifications of log directories and of ISR changes: all states are read now.
    3. Read brokers, topics, assignments and states into the context.
    4. Read the topics to be deleted; those with an offline replica or a
       reassignment are ineligible. With delete.topic.enable=false, none is deleted.
    5. Send the live brokers to all brokers, before any LeaderAndIsr: a broker does not follow a
       leader that it does not know (KAFKA-4443).
    6. Start the replicas: LeaderAndIsr to all online ones; offline ones leave the ISR.
    7. Start the partitions: elect a leader for each partition without one.
    8. Continue operations in progress: reassignments, those in /admin/reassign_partitions first;
       deletions; preferred elections in /admin/preferred_replica_election.

A partition whose leader failed with the controller gets two leader epochs: step 6 writes leader -1,
step 7 the new leader. Kafka does the same.

In step 0 Kafka also waits until its own listener has seen /feature; nothing here depends on it.
"""

from typing import TYPE_CHECKING

from sparkraft.controller.leader_election import Cause, CauseKind
from sparkraft.zookeeper.controller import (
    deletion,
    elections,
    partitions,
    reassignment,
    replicas,
    store,
    znodes,
)
from sparkraft.zookeeper.controller.active import Active
from sparkraft.zookeeper.controller.states import ReplicaStatus
from sparkraft.zookeeper.controller.steps import Send, Steps, Worked, pieces
from sparkraft.zookeeper.controller.topic_ids import add_topics
from sparkraft.zookeeper.errors import ZooKeeperError
from sparkraft.zookeeper.znodes.json_form import ZnodeError

if TYPE_CHECKING:
    from sparkraft.base.ids import TopicPartition
    from sparkraft.zookeeper.controller.values import Replica

CAUSE = Cause(CauseKind.FENCED, "a new controller found no online leader")


def fail_over(active: Active) -> Steps[None]:
    """Execute the steps; the context has the epoch that was won."""
    protocol = active.settings.protocol
    if protocol is not None:
        enabled, version = protocol.has_features, protocol.features
        if (yield from store.set_up_features(version, enabled=enabled)):
            active.journal.add("failover", f"wrote /feature in version {version}")
    yield from _delete_notifications(active)
    yield from load(active)
    discarded = yield from _find_deletions(active)
    yield from deletion.discard(active, discarded)
    yield from _send_live_brokers(active)
    yield from _start_replicas(active)
    yield from _start_partitions(active)
    yield from _continue_reassignments(active)
    yield from deletion.resume(active)
    yield from _continue_preferred_elections(active)


def _delete_notifications(active: Active) -> Steps[None]:
    version = active.context.epoch_version
    directories = yield from store.delete_children(znodes.LOG_DIR_EVENTS, version)
    changes = yield from store.delete_children(znodes.ISR_CHANGES, version)
    text = f"deleted {directories} notifications of log directories, {changes} of ISR changes"
    active.journal.add("failover", text)


def load_and_derive(active: Active) -> Steps[None]:
    """Read the cluster and derive all states, without writing: as a controller has them."""
    yield from load(active)
    yield from _find_deletions(active)
    yield from replicas.initialize(active)
    yield from partitions.initialize(active)


def load(active: Active) -> Steps[None]:
    """Read the cluster into the context: brokers, topics, states of partitions."""
    context = active.context
    context.brokers = yield from store.read_brokers(watch=True)
    context.topics = set((yield from store.read_children(znodes.TOPICS, watch=True)))
    topics = yield from store.read_topics(sorted(context.topics), active.ignore)
    yield from add_topics(active, topics)
    all_partitions: list[TopicPartition] = []
    for piece in pieces(context.partitions()):
        all_partitions += piece
        moving = (at for at in piece if context.assignment(at).is_being_reassigned)
        context.being_reassigned.update(moving)
        yield Worked(len(piece))
    for at, state in (yield from store.read_states(all_partitions)).items():
        if isinstance(state, ZnodeError):
            active.ignore(state)
        elif isinstance(state, ZooKeeperError):
            active.journal.add("failed transition", f"{at[0]}-{at[1]}: {state}")
        elif state is not None:
            context.leaderships[at] = state
    counts = (
        f"{len(context.brokers)} brokers, {len(topics)} topics, {len(all_partitions)} partitions"
    )
    active.journal.add("failover", f"read {counts}")


def _find_deletions(active: Active) -> Steps[list[str]]:
    """Find the topics to be deleted; return those that are not, because deletion is disabled."""
    context = active.context
    found = yield from store.read_children(znodes.DELETE_TOPICS, watch=True)
    if not active.settings.deletes_topics:
        return found
    context.topics_to_be_deleted = set(found)
    waiting = {topic for topic, _ in context.being_reassigned}
    for piece in pieces(context.replicas(context.topics_to_be_deleted)):
        waiting.update(
            replica.topic for replica in piece if not context.is_online(replica.broker, replica[:2])
        )
        yield Worked(len(piece))
    context.mark_ineligible(waiting)
    text = (
        f"{len(context.topics_to_be_deleted)} topics to be deleted, "
        f"{len(context.topics_ineligible_for_deletion)} of them not now"
    )
    active.journal.add("failover", text)
    return []


def _send_live_brokers(active: Active) -> Steps[None]:
    active.batch.add_update_metadata(active.context.live_or_shutting_down)
    yield Send(active.batch.drain())
    text = f"sent the live brokers to {len(active.context.brokers)} brokers"
    active.journal.add("failover", text)


def _start_replicas(active: Active) -> Steps[None]:
    yield from replicas.initialize(active)
    context = active.context
    online: list[Replica] = []
    offline: list[Replica] = []
    for piece in pieces(context.replicas()):
        for each in piece:
            (online if context.is_online(each.broker, each[:2]) else offline).append(each)
        yield Worked(len(piece))
    yield from replicas.move(active, online, ReplicaStatus.ONLINE)
    yield from replicas.move(active, offline, ReplicaStatus.OFFLINE)
    text = f"started {len(online)} online replicas, {len(offline)} are offline"
    active.journal.add("failover", text)


def _start_partitions(active: Active) -> Steps[None]:
    yield from partitions.initialize(active)
    results = yield from partitions.bring_online(active, CAUSE)
    failed = sum(isinstance(result, str) for result in results.values())
    text = f"elected {len(results) - failed} leaders, {failed} partitions stay without a leader"
    active.journal.add("failover", text)


def _continue_reassignments(active: Active) -> Steps[None]:
    started = yield from reassignment.reassign_by_znode(active)
    yield from reassignment.resume_all(active, lambda at, _: at not in started)
    text = f"{len(active.context.being_reassigned)} reassignments in progress"
    active.journal.add("failover", text)


def _continue_preferred_elections(active: Active) -> Steps[None]:
    count = yield from elections.elect_by_znode(active)
    active.journal.add("failover", f"{count} preferred elections were pending")
