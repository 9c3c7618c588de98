"""The partition state machine (ZkPartitionStateMachine of Kafka 3.9).

A transition that the table of `states` does not allow is recorded in the journal and skipped. Those
to ONLINE write to ZooKeeper:
    * NEW: the first live replica leads, all live replicas are in the ISR, leader epoch 0. The
      znodes of the partition are created. Without a live replica it stays NEW.
    * OFFLINE or ONLINE: an election by one of the `strategies`. A state that its leader changed in
      the meantime is read again and decided again.
The others change memory only.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from sparkraft.base.ids import TopicPartition, Uuid
from sparkraft.controller.leader_election import Cause, Election
from sparkraft.metadata.partition_state import NO_LEADER
from sparkraft.zookeeper.controller import store
from sparkraft.zookeeper.controller.active import Active
from sparkraft.zookeeper.controller.states import PartitionStatus
from sparkraft.zookeeper.controller.steps import Send, Steps, Worked, pieces
from sparkraft.zookeeper.controller.strategies import Elected, Strategy, elect
from sparkraft.zookeeper.controller.values import LeaderAndIsr, Leadership

Results = dict[TopicPartition, LeaderAndIsr | str]
"""The new state of each partition, or the reason that the election failed."""


def initialize(active: Active) -> Steps[None]:
    """Derive the states of all partitions from their znodes, at a failover."""
    context = active.context
    context.partition_statuses.clear()
    for piece in pieces(context.partitions()):
        for at in piece:
            leadership = context.leaderships.get(at)
            if leadership is None:
                status = PartitionStatus.NEW
            elif context.is_online(leadership.state.leader, at):
                status = PartitionStatus.ONLINE
            else:
                status = PartitionStatus.OFFLINE
            context.partition_statuses[at] = status
        yield Worked(len(piece))


def bring_online(
    active: Active, cause: Cause, topics: Iterable[str] | None = None
) -> Steps[Results]:
    """Elect a leader for each partition without one, of `topics` or of all.

    Partitions of topics queued for deletion are left out.
    """
    context = active.context
    without_leader = (PartitionStatus.NEW, PartitionStatus.OFFLINE)
    partitions: list[TopicPartition] = []
    for piece in pieces(context.partitions(topics)):
        partitions += [
            at
            for at in piece
            if context.partition_status(at) in without_leader
            and at[0] not in context.topics_to_be_deleted
        ]
        yield Worked(len(piece))
    return (yield from move_online(active, partitions, Strategy.OFFLINE, cause))


def move(
    active: Active, partitions: Iterable[TopicPartition], status: PartitionStatus
) -> Steps[None]:
    """Change states that only the controller's memory has: to any but ONLINE."""
    for piece in pieces(partitions):
        for at in _valid(active, piece, status):
            active.context.put_partition_status(at, status)
        yield Worked(len(piece))


def move_online(
    active: Active,
    partitions: Sequence[TopicPartition],
    strategy: Strategy,
    cause: Cause,
    *,
    unclean: bool = False,
) -> Steps[Results]:
    """Give partitions a leader, write it and send it.

    Args:
        active: the controller.
        partitions: NEW ones get their first leader, the others are elected by `strategy`.
        strategy: how.
        cause: why, for the journal.
        unclean: for OFFLINE: whether any live replica may lead, whatever the topics' configs are.

    Returns the results of the elections; first leaders are not among them.
    """
    context = active.context
    new: list[TopicPartition] = []
    remaining: list[TopicPartition] = []
    for piece in pieces(partitions):
        for at in _valid(active, piece, PartitionStatus.ONLINE):
            is_new = context.partition_status(at) is PartitionStatus.NEW
            (new if is_new else remaining).append(at)
        yield Worked(len(piece))
    yield from _create(active, new, cause)
    results: Results = {}
    while remaining:
        finished, remaining = yield from _elect(active, remaining, strategy, cause, unclean=unclean)
        results |= finished
    for ended in pieces(results.items()):
        for at, result in ended:
            if isinstance(result, str):
                text = f"{at[0]}-{at[1]} to OnlinePartition: {result}"
                active.journal.add("failed transition", text)
            else:
                context.put_partition_status(at, PartitionStatus.ONLINE)
        yield Worked(len(ended))
    yield Send(active.batch.drain())
    return results


def _valid(
    active: Active, partitions: Iterable[TopicPartition], status: PartitionStatus
) -> list[TopicPartition]:
    valid = []
    for at in partitions:
        if active.context.may_become(at, status):
            valid.append(at)
        else:
            present = active.context.partition_status(at)
            text = f"{at[0]}-{at[1]} to {status.value}: it is {present.value}"
            active.journal.add("failed transition", text)
    return valid


def _create(active: Active, partitions: Sequence[TopicPartition], cause: Cause) -> Steps[None]:
    """Create the znodes of NEW partitions with their first leaders."""
    context = active.context
    states: dict[TopicPartition, Leadership] = {}
    for piece in pieces(partitions):
        for at in piece:
            live = tuple(r for r in context.assignment(at).replicas if context.is_online(r, at))
            if live:
                states[at] = Leadership(LeaderAndIsr(live[0], live), context.epoch)
            else:
                text = f"{at[0]}-{at[1]} to OnlinePartition: no assigned replica is live"
                active.journal.add("failed transition", text)
        yield Worked(len(piece))
    results = yield from store.create_states(states, context.epoch_version)
    for ended in pieces(results.items()):
        for at, error in ended:
            if error is not None:
                text = f"{at[0]}-{at[1]} to OnlinePartition: {error}"
                active.journal.add("failed transition", text)
                continue
            context.leaderships[at] = states[at]
            active.journal.partitions.add(context, at, None, states[at].state, cause)
            active.batch.add_leader_and_isr(states[at].state.isr, at, states[at], is_new=True)
            context.put_partition_status(at, PartitionStatus.ONLINE)
        yield Worked(len(ended))


def _elect(
    active: Active,
    partitions: Sequence[TopicPartition],
    strategy: Strategy,
    cause: Cause,
    *,
    unclean: bool,
) -> Steps[tuple[Results, list[TopicPartition]]]:
    """Elect once; return the results, and the partitions whose state changed meanwhile."""
    results: Results = {}
    states = yield from read_states(active, partitions, results)
    allowed = yield from _unclean_allowed(active, states, strategy, unclean=unclean)
    elected: dict[TopicPartition, Elected] = {}
    for piece in pieces(states.items()):
        for at, state in piece:
            outcome = elect(
                strategy,
                active.context,
                at,
                state,
                unclean=allowed.get(at, False),
                recovers=active.settings.has_recovery_state,
            )
            elected[at] = outcome
            if outcome.state is None:
                results[at] = f"no replica may lead under {strategy.value}"
                _record(active, at, state, state._replace(leader=NO_LEADER), outcome, cause)
        yield Worked(len(piece))
    wanted = {at: each.state for at, each in elected.items() if each.state is not None}
    written = yield from store.update_states(wanted, active.context)
    for ended in pieces(written.finished.items()):
        for at, result in ended:
            results[at] = result if isinstance(result, LeaderAndIsr) else str(result)
            if isinstance(result, LeaderAndIsr):
                leadership = Leadership(result, active.context.epoch)
                active.context.leaderships[at] = leadership
                recipients = elected[at].recipients
                active.batch.add_leader_and_isr(recipients, at, leadership, is_new=False)
                _record(active, at, states[at], result, elected[at], cause)
        yield Worked(len(ended))
    return results, written.to_retry


def read_states(
    active: Active, partitions: Sequence[TopicPartition], failures: Results
) -> Steps[dict[TopicPartition, LeaderAndIsr]]:
    """Read states; add partitions without one, or with a newer controller's, to `failures`."""
    found: dict[TopicPartition, LeaderAndIsr] = {}
    for piece in pieces((yield from store.read_states(partitions)).items()):
        for at, result in piece:
            if result is None:
                failures[at] = "the partition has no state znode"
            elif not isinstance(result, Leadership):
                failures[at] = str(result)
            elif result.controller_epoch > active.context.epoch:
                failures[at] = (
                    f"the state was written by the controller of epoch {result.controller_epoch}"
                )
            else:
                found[at] = result.state
        yield Worked(len(piece))
    return found


def _unclean_allowed(
    active: Active,
    states: dict[TopicPartition, LeaderAndIsr],
    strategy: Strategy,
    *,
    unclean: bool,
) -> Steps[dict[TopicPartition, bool]]:
    """Find which partitions may get an unclean leader; configs are read if it matters only."""
    context = active.context
    if strategy is not Strategy.OFFLINE:
        return {}
    without_isr = [
        at for at, state in states.items() if not any(context.is_online(r, at) for r in state.isr)
    ]
    if unclean or not without_isr:
        return dict.fromkeys(without_isr, True)
    topics = sorted({topic for topic, _ in without_isr})
    configs = yield from store.read_topic_configs(topics, active.ignore)
    default = active.settings.unclean_leader_election
    name = "unclean.leader.election.enable"
    return {
        at: configs[at[0]].get(name, str(default)).lower() == "true"
        for at in without_isr
        if at[0] in configs
    }


def _record(
    active: Active,
    at: TopicPartition,
    before: LeaderAndIsr,
    after: LeaderAndIsr,
    outcome: Elected,
    cause: Cause,
) -> None:
    context = active.context
    reason = replace(outcome.choice.reason, cause=cause)
    election = Election(
        topic=at[0],
        topic_id=context.topic_ids.get(at[0], Uuid.ZERO),
        partition=at[1],
        previous=before.leader,
        leader=after.leader,
        leader_epoch=after.leader_epoch,
        reason=reason,
    )
    active.journal.elections.add(
        election, wall_ms=0, offset=after.partition_epoch, epoch=context.epoch
    )
    active.journal.partitions.add(context, at, before, after, cause, reason)
