"""Deletion of topics (TopicDeletionManager of Kafka 3.9).

    /admin/delete_topics/T ─► queued ─► started: partitions NON_EXISTENT, UpdateMetadata with
        leader -2 ─► replicas OFFLINE, DELETION_STARTED ─► DELETION_SUCCESSFUL ─► znodes deleted

A topic is ineligible for deletion, and waits, while
    * a replica is on a broker or log directory that is offline, until the broker starts again,
    * a broker failed to delete a replica, until the broker starts again,
    * a partition is being reassigned, until the reassignment ends.

The deletion of a replica ends with the response of its broker. A response that leaves out the
partition counts as none, as in Kafka.
"""

from collections.abc import Iterable, Sequence

from sparkraft.zookeeper.controller import partitions, replicas, store
from sparkraft.zookeeper.controller.active import Active
from sparkraft.zookeeper.controller.states import PartitionStatus, ReplicaStatus
from sparkraft.zookeeper.controller.steps import Send, Steps
from sparkraft.zookeeper.controller.values import Replica


def discard(active: Active, topics: Sequence[str]) -> Steps[None]:
    """Remove requests to delete topics: `delete.topic.enable` is false."""
    yield from store.delete_deletions(topics, active.context.epoch_version)
    for topic in topics:
        text = f"{topic}: not deleted, because delete.topic.enable is false"
        active.journal.add("deletion", text, topic=topic)


def enqueue(active: Active, topics: Iterable[str]) -> Steps[None]:
    """Delete topics, now or as soon as they are eligible."""
    active.context.topics_to_be_deleted |= set(topics)
    yield from resume(active)


def resume_topics(active: Active, topics: Iterable[str]) -> Steps[None]:
    """Try again to delete those of `topics` that are queued: their obstacle is gone."""
    queued = active.context.topics_to_be_deleted & set(topics)
    if queued:
        active.context.topics_ineligible_for_deletion -= queued
        yield from resume(active)


def fail_replicas(active: Active, failed: Iterable[Replica]) -> Steps[None]:
    """Suspend the deletion of topics whose replicas cannot be deleted now."""
    queued = [each for each in failed if each.topic in active.context.topics_to_be_deleted]
    if queued:
        yield from replicas.move(active, queued, ReplicaStatus.DELETION_INELIGIBLE)
        active.context.mark_ineligible(each.topic for each in queued)
        for topic in sorted({each.topic for each in queued}):
            brokers = sorted({each.broker for each in queued if each.topic == topic})
            text = f"{topic}: waits for broker {', '.join(map(str, brokers))}"
            active.journal.add("deletion", text, topic=topic, brokers=brokers)
        yield from resume(active)


def complete_replicas(active: Active, deleted: Iterable[Replica]) -> Steps[None]:
    """Note that brokers have deleted replicas."""
    queued = [each for each in deleted if each.topic in active.context.topics_to_be_deleted]
    yield from replicas.move(active, queued, ReplicaStatus.DELETION_SUCCESSFUL)
    yield from resume(active)


def resume(active: Active) -> Steps[None]:
    """Continue the deletion of each queued topic as far as possible."""
    context = active.context
    retried: list[str] = []
    started: list[str] = []
    for topic in sorted(context.topics_to_be_deleted):
        statuses = {context.replica_status(each) for each in context.replicas([topic])}
        in_progress = ReplicaStatus.DELETION_STARTED in statuses
        if statuses <= {ReplicaStatus.DELETION_SUCCESSFUL}:
            yield from _complete(active, topic)
        elif not in_progress and ReplicaStatus.DELETION_INELIGIBLE in statuses:
            retried.append(topic)
        if context.is_eligible_for_deletion(topic) and not in_progress:
            started.append(topic)
    yield from _retry(active, retried)
    if started:
        yield from _start(active, started)


def _complete(active: Active, topic: str) -> Steps[None]:
    context = active.context
    yield from replicas.move(active, list(context.replicas([topic])), ReplicaStatus.NON_EXISTENT)
    yield from store.delete_topic(topic, context.epoch_version)
    context.remove_topic(topic)
    moved = {at for at in context.being_reassigned if at[0] == topic}
    if moved:  # a started broker makes a topic eligible whose partitions are reassigned
        context.being_reassigned -= moved
        yield from store.remove_reassignments(lambda at, _: at in moved, context.epoch_version)
    active.journal.add("deletion", f"{topic}: deleted", topic=topic)


def _retry(active: Active, topics: Iterable[str]) -> Steps[None]:
    ineligible = [
        each
        for each in active.context.replicas(topics)
        if active.context.replica_status(each) is ReplicaStatus.DELETION_INELIGIBLE
    ]
    yield from replicas.move(active, ineligible, ReplicaStatus.OFFLINE)


def _start(active: Active, topics: list[str]) -> Steps[None]:
    context = active.context
    new = [topic for topic in topics if topic not in context.topics_with_deletion_started]
    ended = list(context.partitions(new))
    yield from partitions.move(active, ended, PartitionStatus.OFFLINE)
    yield from partitions.move(active, ended, PartitionStatus.NON_EXISTENT)
    context.topics_with_deletion_started |= set(new)
    every = list(context.partitions(topics))
    active.batch.add_update_metadata(context.live_or_shutting_down, every)
    yield Send(active.batch.drain())
    yield from _start_replicas(active, topics)


def _start_replicas(active: Active, topics: list[str]) -> Steps[None]:
    context = active.context
    every = list(context.replicas(topics))
    dead = [each for each in every if not context.is_online(each.broker, each[:2])]
    live = [
        each
        for each in every
        if context.is_online(each.broker, each[:2])
        and context.replica_status(each) is not ReplicaStatus.DELETION_SUCCESSFUL
    ]
    yield from replicas.move(active, dead, ReplicaStatus.DELETION_INELIGIBLE)
    yield from replicas.move(active, live, ReplicaStatus.OFFLINE)
    yield from replicas.move(active, live, ReplicaStatus.DELETION_STARTED)
    for topic in topics:
        active.journal.add("deletion", f"{topic}: started", topic=topic)
    waiting = sorted({each.topic for each in dead})
    context.mark_ineligible(waiting)
    for topic in waiting:
        active.journal.add("deletion", f"{topic}: waits for offline replicas", topic=topic)
