"""Topic changes: created and removed topics, added partitions, deletions, ISR notifications."""

from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet

from sparkraft.base.errors import ErrorCode
from sparkraft.base.ids import TopicPartition
from sparkraft.controller.leader_election import Cause, CauseKind
from sparkraft.zookeeper.controller import (
    brokers,
    deletion,
    partitions,
    reassignment,
    replicas,
    store,
    znodes,
)
from sparkraft.zookeeper.controller.active import Active
from sparkraft.zookeeper.controller.states import PartitionStatus, ReplicaStatus
from sparkraft.zookeeper.controller.steps import Steps, Worked, pieces
from sparkraft.zookeeper.controller.strategies import Strategy
from sparkraft.zookeeper.controller.topic_ids import add_topics
from sparkraft.zookeeper.controller.values import Leadership, Replica

CREATED = Cause(CauseKind.CREATED, "the partition was created")

BY_LEADER = Cause(CauseKind.ISR_CHANGED, "its leader wrote the state to ZooKeeper")


def on_topics_changed(active: Active) -> Steps[None]:
    """Read /brokers/topics; create the partitions of new topics, forget removed ones."""
    context = active.context
    present = set((yield from store.read_children(znodes.TOPICS, watch=True)))
    new, removed = sorted(present - context.topics), sorted(context.topics - present)
    context.topics = present
    found = yield from store.read_topics(new, active.ignore)
    for topic in removed:
        context.remove_topic(topic)
    yield from add_topics(active, found)
    yield from create_partitions(active, list(context.partitions(found)))
    if new or removed:
        active.journal.add("topics", f"new {new}, removed {removed}")


def create_partitions(active: Active, new: Collection[TopicPartition]) -> Steps[None]:
    """Give new partitions their znodes and first leaders."""
    added = [Replica(*at, r) for at in new for r in active.context.assignment(at).replicas]
    yield from partitions.move(active, new, PartitionStatus.NEW)
    yield from replicas.move(active, added, ReplicaStatus.NEW)
    yield from partitions.move_online(active, list(new), Strategy.OFFLINE, CREATED)
    yield from replicas.move(active, added, ReplicaStatus.ONLINE)


def on_topic_modified(active: Active, name: str) -> Steps[None]:
    """Create partitions that were added to a topic; other differences have no effect.

    A topic that is being deleted gets no partitions: they are removed from its znode again.
    """
    context = active.context
    found = (yield from store.read_topics([name], active.ignore)).get(name)
    if found is None:
        return
    added = {
        p: a for p, a in found.assignments.items() if not context.assignment((name, p)).replicas
    }
    if not added:
        return
    if name in context.topics_to_be_deleted:
        yield from _restore(active, name, found.assignments.keys())
        return
    for partition, assignment in added.items():
        context.assign((name, partition), assignment)
    yield from create_partitions(active, [(name, partition) for partition in sorted(added)])
    active.journal.add("topics", f"{name}: added partitions {sorted(added)}", topic=name)


def _restore(active: Active, name: str, found: AbstractSet[int]) -> Steps[None]:
    context = active.context
    existing = yield from store.read_partitions(name)
    kept = {p: context.assignment((name, p)) for p in sorted(found & existing)}
    topic_id = context.topic_ids.get(name)
    yield from store.write_topic(name, topic_id, kept, context.epoch_version)


def on_deletions_changed(active: Active) -> Steps[None]:
    """Read /admin/delete_topics; delete topics, and requests for unknown topics.

    With delete.topic.enable=false, all requests are deleted, and no topic.
    """
    context = active.context
    wanted = set((yield from store.read_children(znodes.DELETE_TOPICS, watch=True)))
    unknown = sorted(wanted - context.topics)
    if unknown:
        yield from store.delete_deletions(unknown, context.epoch_version)
    existing = wanted & context.topics
    if not active.settings.deletes_topics:
        yield from deletion.discard(active, sorted(existing))
        return
    for topic in sorted(existing - context.topics_to_be_deleted):
        active.journal.add("deletion", f"{topic}: requested", topic=topic)
    if existing:
        context.topics_to_be_deleted |= existing
        context.mark_ineligible(topic for topic, _ in context.being_reassigned)
        yield from deletion.enqueue(active, existing)


def on_stop_replica_response(
    active: Active, broker: int, error: int, errors: Mapping[TopicPartition, int]
) -> Steps[None]:
    """Handle a response to the deletion of replicas: failed ones suspend their topics."""
    failed: list[TopicPartition] = []
    deleted: list[TopicPartition] = []
    for piece in pieces(sorted(errors.items())):
        for at, code in piece:
            (failed if error or code != ErrorCode.NONE else deleted).append(at)
        yield Worked(len(piece))
    yield from deletion.fail_replicas(active, [Replica(*at, broker) for at in failed])
    if deleted:
        yield from deletion.complete_replicas(active, [Replica(*at, broker) for at in deleted])


def on_isr_changes(active: Active) -> Steps[None]:
    """Handle notifications of leaders that wrote their states (before AlterPartition, KIP-497)."""
    context = active.context
    names, changed = yield from store.read_isr_changes(active.ignore)
    if changed:
        for at, state in (yield from store.read_states(changed)).items():
            if isinstance(state, Leadership):
                known = context.leaderships.get(at)
                before = None if known is None else known.state
                active.journal.partitions.add(context, at, before, state.state, BY_LEADER)
                context.leaderships[at] = state
        yield from brokers.send_metadata(active, context.live_or_shutting_down, changed)
        for at in changed:
            if at in context.being_reassigned:
                yield from complete_if_caught_up(active, at)
    yield from store.delete_notifications(znodes.ISR_CHANGES, names, context.epoch_version)


def complete_if_caught_up(active: Active, at: TopicPartition) -> Steps[None]:
    """Complete the reassignment of a partition whose target replicas are all in the ISR."""
    assignment = active.context.assignment(at)
    if (yield from reassignment.is_complete(active, at, assignment)):
        yield from reassignment.try_reassign(active, at, assignment)
