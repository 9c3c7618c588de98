"""Holds an answer to `DescribeHistory` against what was committed, and what was seen to be done.

Each disagreement is a sentence; none means that the answer is true, and leaves nothing out of what
it claims to tell: everything from its `start_offset` up to its `offset`.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from sparkraft.controller.decision_context import OFFLINE_DIRECTORY
from sparkraft.controller.leader_election import Cause, CauseKind, ChosenBy, ElectionKind, Reason
from sparkraft.metadata.image import ClusterImage
from sparkraft.metadata.partition_state import PartitionState
from sparkraft.server.api.k10002_describe_history import OUT_OF_SYNC_MAX
from sparkraft.simulation.checks.election_reasons import wrong_reason
from sparkraft.simulation.checks.isr_oracle import IsrOracle
from sparkraft.simulation.checks.metadata_oracle import Change, MetadataOracle, Where


class Truth(NamedTuple):
    """What is known: of the log, and of those who wrote it."""

    history: MetadataOracle
    ghosts: IsrOracle


class Span(NamedTuple):
    """What an answer tells of: offsets, both inclusive, and how many changes of each thing."""

    start: int
    end: int
    events_max: int

    def of(self, events: Any) -> list[Any]:
        """Those within, the newest."""
        return [e for e in events if self.start <= e.offset <= self.end][-self.events_max :]


def wrong_answer(answer: Any, span: Span, truth: Truth) -> Iterator[str]:
    """What is wrong with it."""
    image = truth.history.image_at(span.end)
    batch = truth.history.batch_at(span.end)
    at_ms = -1 if batch is None or span.start > span.end else batch.at_ms
    if answer.at_ms != at_ms:
        yield f"offset {span.end} was written at {at_ms}, told is {answer.at_ms}"
    for told in answer.partitions:
        where = (told.topic_id, told.partition)
        for wrong in _wrong_partition(told, where, span, image, truth):
            yield f"{told.topic}-{told.partition}: {wrong}"
    for told in answer.brokers:
        for wrong in _wrong_broker(told, span, image, truth):
            yield f"broker {told.broker_id}: {wrong}"


# ---- partitions


def _wrong_partition(
    told: Any, where: Where, span: Span, image: ClusterImage, truth: Truth
) -> Iterator[str]:
    partition = image.partition(*where)
    if partition_of(told.state) != partition:
        yield f"it is {partition}, told is {told.state}"
    offline = offline_replicas(image, partition)
    if told.offline_replicas != offline:
        yield f"{offline} are offline, told is {told.offline_replicas}"
    yield from _wrong_events(told.events, span.of(truth.history.changes.get(where, ())), truth)


def _wrong_events(told: list[Any], changes: list[Change], truth: Truth) -> Iterator[str]:
    offsets = [event.offset for event in told], [change.offset for change in changes]
    if offsets[0] != offsets[1]:
        yield f"it changed at {offsets[1]}, told is {offsets[0]}"
        return
    for event, change in zip(told, changes, strict=True):
        for wrong in _wrong_event(event, change, truth):
            yield f"offset {change.offset}: {wrong}"


def _wrong_event(event: Any, change: Change, truth: Truth) -> Iterator[str]:
    place = (event.at_ms, event.controller_epoch, (event.topic_id, event.partition), event.topic)
    known = (change.batch.at_ms, change.batch.epoch, change.where, change.topic)
    if place != known:
        yield f"it was {known}, told is {place}"
    for name, was in (("before", change.before), ("after", change.after)):
        told = getattr(event, name)
        if partition_of(told) != was:
            yield f"{name} it is {was}, told is {told}"
    yield from _wrong_cause(event.occasion, event.cause, change, truth)
    if event.election is not None and change.after is not None:
        yield from _wrong_election(event.election, change, change.after)


def partition_of(state: Any) -> PartitionState | None:
    """A `PartitionState` as an image has it."""
    if state is None:
        return None
    return PartitionState(
        replicas=tuple(state.replicas),
        isr=tuple(state.isr),
        elr=tuple(state.elr),
        last_known_elr=tuple(state.last_known_elr),
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        directories=tuple(state.directories),
        adding_replicas=tuple(state.adding),
        removing_replicas=tuple(state.removing),
        leader_recovery_state=state.leader_recovery_state,
    )


def offline_replicas(image: ClusterImage, partition: PartitionState | None) -> list[int]:
    """Replicas that could not lead, in the order of their assignment."""
    if partition is None:
        return []
    return [r for r in partition.replicas if _what_keeps(image, partition, r) is not None]


def _what_keeps(image: ClusterImage, partition: PartitionState, replica: int) -> str | None:
    broker = image.brokers.get(replica)
    if broker is None:
        return "not registered"
    if broker.fenced:
        return "fenced"
    if broker.in_controlled_shutdown:
        return "shutting down"
    online = broker.has_online_directory(partition.directory(replica))
    return None if online else OFFLINE_DIRECTORY


# ---- causes

_GONE = {
    CauseKind.FENCED: "fenced",
    CauseKind.SHUTDOWN: "shutting down",
    CauseKind.RESTARTED: "restarted",
    CauseKind.UNREGISTERED: "unregistered",
    CauseKind.DIRECTORY_OFFLINE: OFFLINE_DIRECTORY,
}
"""What keeps a broker from leading that goes with the very decision."""

_SAID = {
    CauseKind.SHUTDOWN: r"controlled shutdown of broker {}",
    CauseKind.RESTARTED: r"broker {} registered (again|after an unclean stop)",
    CauseKind.UNREGISTERED: r"broker {} was unregistered",
    CauseKind.RETURNED: r"broker {} was unfenced",
    CauseKind.DIRECTORY_OFFLINE: r"a log directory of broker {0} went offline"
    r"|directory \S+ of broker {0} went offline"
    r"|broker {0} assigned replicas to an offline directory",
}

_NEEDS_A_BROKER = {
    o.value for o in (*_SAID, CauseKind.FENCED) if o is not CauseKind.DIRECTORY_OFFLINE
}


def _wrong_cause(occasion: str, text: str, change: Change, truth: Truth) -> Iterator[str]:
    """A broker that came or went, the leader that asked for it, or neither of these."""
    suspects = change.suspects
    if change.before is None or change.after is None:
        made = CauseKind.CREATED if change.before is None else CauseKind.DELETED
        if occasion != made.value:
            yield f"it was {made.value}, told is {occasion}"
    elif suspects:
        if not any(_is_named(mark, occasion, text, change, truth) for mark in suspects):
            yield f"its cause is among {suspects}, told is {occasion!r}: {text!r}"
    elif was_asked_for(change, truth.ghosts):
        by_leader = f"leader {change.before.leader} changed the ISR"
        if occasion != CauseKind.ISR_CHANGED.value or not text.startswith(by_leader):
            yield f"its leader asked for it, told is {occasion!r}: {text!r}"
    elif occasion in _NEEDS_A_BROKER or occasion == CauseKind.ISR_CHANGED.value or not text:
        yield f"nobody came, went or asked for it, told is {occasion!r}: {text!r}"


def was_asked_for(change: Change, ghosts: IsrOracle) -> bool:
    """Whether the leader had asked for exactly this ISR, or for one that ended a reassignment.

    That takes those out who were to leave, and somebody has joined: without him it would have ended
    before. An operator may take the very replica out of a partition that its leader asks to leave.
    """
    before, after = change.before, change.after
    if before is None or after is None:
        return False
    asked = ghosts.asked.get((change.where, before.leader_epoch, before.partition_epoch))
    if asked is None:
        return False
    if _moving(before) == _moving(after) and before.replicas == after.replicas:
        return asked.isr == frozenset(after.isr) != frozenset(before.isr)
    ended = any(_moving(before)) and not any(_moving(after))
    left = asked.isr - {*before.removing_replicas}
    return ended and left == frozenset(after.isr) and not left <= {*before.isr}


def _moving(partition: PartitionState) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return partition.adding_replicas, partition.removing_replicas


def _is_named(mark: Any, occasion: str, text: str, change: Change, truth: Truth) -> bool:
    if occasion != mark.occasion.value:
        return False
    if mark.occasion is not CauseKind.FENCED:
        return re.fullmatch(_SAID[mark.occasion].format(mark.broker_id), text) is not None
    if text == f"broker {mark.broker_id} was fenced":
        return True
    key = (change.batch.epoch, mark.broker_id)
    decided = truth.ghosts.fencings.get(key, [])
    # Of one controller's decisions the first are committed, in their order.
    place = truth.history.fencings[key].index(change.batch.base_offset)
    found = re.fullmatch(decided[place].said, text) if place < len(decided) else None
    if found is None:
        return False
    silent = decided[place].silent_ms
    return silent is None or silent >= int(found[1])


# ---- elections


def _wrong_election(told: Any, change: Change, after: PartitionState) -> Iterator[str]:
    reason = Reason(
        kind=ElectionKind.ONLINE,
        chosen_by=ChosenBy(told.chosen_by),
        candidates=tuple(told.candidates),
        isr=tuple(told.isr),
        elr=tuple(told.elr),
        live=tuple(told.live),
        ruled_out=tuple((each.replica, each.why) for each in told.ruled_out),
        cause=Cause(CauseKind.FENCED, ""),
    )
    yield from wrong_reason(reason, after)
    if not told.is_derived:
        yield "its election is told to contradict the log"
    gone = {m.broker_id: _GONE[m.occasion] for m in change.marks if m.occasion in _GONE}
    keeps = {r: gone.get(r) or _what_keeps(change.image, after, r) for r in after.replicas}
    live = [replica for replica in after.replicas if keeps[replica] is None]
    if list(told.live) != live:
        yield f"{live} were alive, told is {told.live}"
    for each in told.ruled_out:
        if keeps.get(each.replica) not in {None, each.why}:
            yield f"{each.replica} was {keeps[each.replica]}, told is {each.why}"


# ---- brokers


def _wrong_broker(told: Any, span: Span, image: ClusterImage, truth: Truth) -> Iterator[str]:
    broker_id = told.broker_id
    is_state, told_state = _registration(image, broker_id), _told_registration(told)
    if is_state != told_state:
        yield f"it is {is_state}, told is {told_state}"
    counts, lagging = counts_of(image, broker_id)
    told_counts = (told.leads, told.preferred, told.replicas, told.in_sync, told.eligible)
    if counts != told_counts:
        yield f"it leads, would lead, has, is in sync and eligible {counts}, told is {told_counts}"
    told_lagging = [f"{each.topic}-{each.partition}" for each in told.out_of_sync]
    if told_lagging != lagging[:OUT_OF_SYNC_MAX]:
        yield f"it is not in sync with {lagging}, told is {told_lagging}"
    notes = [tuple(note) for note in span.of(truth.history.notes.get(broker_id, ()))]
    changes = [(each.offset, each.at_ms, each.broker_epoch, each.what) for each in told.changes]
    if notes != changes:
        yield f"its records say {notes}, told is {changes}"
    elections = span.of(truth.history.elections_of(broker_id))
    yield from _wrong_events(told.elections, elections, truth)


def _registration(image: ClusterImage, broker_id: int) -> tuple[Any, ...]:
    broker = image.brokers.get(broker_id)
    if broker is None:
        return (False,)
    return (
        True,
        broker.epoch,
        broker.fenced,
        broker.in_controlled_shutdown,
        broker.rack,
        list(broker.directories),
        list(broker.cordoned_directories or ()),
    )


def _told_registration(told: Any) -> tuple[Any, ...]:
    if not told.is_registered:
        return (False,)
    return (
        True,
        told.broker_epoch,
        told.is_fenced,
        told.is_shutting_down,
        told.rack,
        told.directories,
        told.cordoned_directories,
    )


def counts_of(image: ClusterImage, broker_id: int) -> tuple[tuple[int, ...], list[str]]:
    """Partitions that a broker leads, is preferred for, has, is in sync with, is eligible for.

    And the names of those that it has and is not in sync with.
    """
    mine = [
        (f"{topic.name}-{index}", partition)
        for topic in image.topics_in_order()
        for index, partition in topic.in_order()
        if broker_id in partition.replicas
    ]
    counts = (
        sum(partition.leader == broker_id for _, partition in mine),
        sum(partition.replicas[0] == broker_id for _, partition in mine),
        len(mine),
        sum(broker_id in partition.isr for _, partition in mine),
        sum(broker_id in partition.elr for _, partition in mine),
    )
    return counts, [name for name, partition in mine if broker_id not in partition.isr]
