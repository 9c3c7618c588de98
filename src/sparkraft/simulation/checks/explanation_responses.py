"""Check a `DescribeHistory` response against the committed log and the observed decisions.

Each disagreement is one message; no message means that the response is correct and complete between
its `start_offset` and its `offset`.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from sparkraft.controller.decision_context import OFFLINE_DIRECTORY
from sparkraft.controller.leader_election import Cause, CauseKind, ChosenBy, ElectionKind, Reason
from sparkraft.metadata.image import ClusterImage
from sparkraft.metadata.partition_state import PartitionState
from sparkraft.server.api.history_values import OUT_OF_SYNC_MAX
from sparkraft.simulation.checks.election_reasons import wrong_reason
from sparkraft.simulation.checks.isr_oracle import IsrOracle
from sparkraft.simulation.checks.metadata_oracle import Change, MetadataOracle, Where


class Truth(NamedTuple):
    """The committed log and the observed decisions, which a response is compared with."""

    history: MetadataOracle
    isr_oracle: IsrOracle


class Span(NamedTuple):
    """The range of a response: both offsets inclusive, and its limit of changes per entity."""

    start: int
    end: int
    events_max: int

    def of(self, events: Any) -> list[Any]:
        """Return the newest events within the range, at most `events_max`."""
        return [e for e in events if self.start <= e.offset <= self.end][-self.events_max :]


def wrong_response(response: Any, span: Span, truth: Truth) -> Iterator[str]:
    """Yield the differences between a response and the truth."""
    image = truth.history.image_at(span.end)
    batch = truth.history.batch_at(span.end)
    at_ms = -1 if batch is None or span.start > span.end else batch.at_ms
    if response.at_ms != at_ms:
        yield f"offset {span.end} has time {response.at_ms} ms, in the log {at_ms} ms"
    for reported in response.partitions:
        where = (reported.topic_id, reported.partition)
        for wrong in _wrong_partition(reported, where, span, image, truth):
            yield f"{reported.topic}-{reported.partition}: {wrong}"
    for reported in response.brokers:
        for wrong in _wrong_broker(reported, span, image, truth):
            yield f"broker {reported.broker_id}: {wrong}"


# ---- partitions


def _wrong_partition(
    reported: Any, where: Where, span: Span, image: ClusterImage, truth: Truth
) -> Iterator[str]:
    partition = image.partition(*where)
    if partition_of(reported.state) != partition:
        yield f"its state is {reported.state}, in the log {partition}"
    offline = offline_replicas(image, partition)
    if reported.offline_replicas != offline:
        yield f"its offline replicas are {reported.offline_replicas}, in the log {offline}"
    yield from _wrong_events(reported.events, span.of(truth.history.changes.get(where, ())), truth)


def _wrong_events(reported: list[Any], changes: list[Change], truth: Truth) -> Iterator[str]:
    offsets = [event.offset for event in reported], [change.offset for change in changes]
    if offsets[0] != offsets[1]:
        yield f"it changed at offsets {offsets[0]}, in the log {offsets[1]}"
        return
    for event, change in zip(reported, changes, strict=True):
        for wrong in _wrong_event(event, change, truth):
            yield f"offset {change.offset}: {wrong}"


def _wrong_event(event: Any, change: Change, truth: Truth) -> Iterator[str]:
    place = (event.at_ms, event.controller_epoch, (event.topic_id, event.partition), event.topic)
    known = (change.batch.at_ms, change.batch.epoch, change.where, change.topic)
    if place != known:
        yield f"the event is {place}, in the log {known}"
    for name, was in (("before", change.before), ("after", change.after)):
        reported = getattr(event, name)
        if partition_of(reported) != was:
            yield f"`{name}` is {reported}, in the log {was}"
    yield from _wrong_cause(event.occasion, event.cause, change, truth)
    if event.election is not None and change.after is not None:
        yield from _wrong_election(event.election, change, change.after)


def partition_of(state: Any) -> PartitionState | None:
    """Convert a partition state of the response to the image's `PartitionState`."""
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
    """Return the replicas that cannot lead, in assignment order."""
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

_REMOVED_AS = {
    CauseKind.FENCED: "fenced",
    CauseKind.SHUTDOWN: "shutting down",
    CauseKind.RESTARTED: "restarted",
    CauseKind.UNREGISTERED: "unregistered",
    CauseKind.DIRECTORY_OFFLINE: OFFLINE_DIRECTORY,
}
"""Why a broker cannot lead, for causes that take effect in the same batch as the election."""

_CAUSE_TEXTS = {
    CauseKind.SHUTDOWN: r"controlled shutdown of broker {}",
    CauseKind.RESTARTED: r"broker {} registered (again|after an unclean stop)",
    CauseKind.UNREGISTERED: r"broker {} was unregistered",
    CauseKind.RETURNED: r"broker {} was unfenced",
    CauseKind.DIRECTORY_OFFLINE: r"a log directory of broker {0} went offline"
    r"|directory \S+ of broker {0} went offline"
    r"|broker {0} assigned replicas to an offline directory",
}

_NEEDS_A_BROKER = {
    o.value for o in (*_CAUSE_TEXTS, CauseKind.FENCED) if o is not CauseKind.DIRECTORY_OFFLINE
}


def _wrong_cause(occasion: str, text: str, change: Change, truth: Truth) -> Iterator[str]:
    """Check the cause: a broker joined or left, its leader changed the ISR, or neither."""
    suspects = change.suspects
    if change.before is None or change.after is None:
        made = CauseKind.CREATED if change.before is None else CauseKind.DELETED
        if occasion != made.value:
            yield f"its cause is {occasion!r}, in the log {made.value!r}"
    elif suspects:
        if not any(_is_named(mark, occasion, text, change, truth) for mark in suspects):
            yield f"its cause is {occasion!r}: {text!r}, the log allows only {suspects}"
    elif was_requested(change, truth.isr_oracle):
        by_leader = f"leader {change.before.leader} changed the ISR"
        if occasion != CauseKind.ISR_CHANGED.value or not text.startswith(by_leader):
            yield f"its cause is {occasion!r}: {text!r}, but its leader requested the change"
    elif occasion in _NEEDS_A_BROKER or occasion == CauseKind.ISR_CHANGED.value or not text:
        yield (
            f"its cause is {occasion!r}: {text!r}, but no broker joined or left and no leader "
            "requested the change"
        )


def was_requested(change: Change, isr_oracle: IsrOracle) -> bool:
    """Whether the leader requested exactly this ISR, or one that completed a reassignment.

    Completion also removes the replicas being removed, and a replica must have joined: otherwise
    it would have completed earlier. An operator may remove the same replica that the leader asks
    to take out of the ISR.
    """
    before, after = change.before, change.after
    if before is None or after is None:
        return False
    requested = isr_oracle.requested.get(
        (change.where, before.leader_epoch, before.partition_epoch)
    )
    if requested is None:
        return False
    if _moving(before) == _moving(after) and before.replicas == after.replicas:
        return requested.isr == frozenset(after.isr) != frozenset(before.isr)
    ended = any(_moving(before)) and not any(_moving(after))
    left = requested.isr - {*before.removing_replicas}
    return ended and left == frozenset(after.isr) and not left <= {*before.isr}


def _moving(partition: PartitionState) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return partition.adding_replicas, partition.removing_replicas


def _is_named(mark: Any, occasion: str, text: str, change: Change, truth: Truth) -> bool:
    if occasion != mark.occasion.value:
        return False
    if mark.occasion is not CauseKind.FENCED:
        return re.fullmatch(_CAUSE_TEXTS[mark.occasion].format(mark.broker_id), text) is not None
    if text == f"broker {mark.broker_id} was fenced":
        return True
    key = (change.batch.epoch, mark.broker_id)
    decided = truth.isr_oracle.fencings.get(key, [])
    # The committed decisions of one controller are a prefix of its decisions, in order.
    place = truth.history.fencings[key].index(change.batch.base_offset)
    found = re.fullmatch(decided[place].pattern, text) if place < len(decided) else None
    if found is None:
        return False
    silent = decided[place].silent_ms
    return silent is None or silent >= int(found[1])


# ---- elections


def _wrong_election(reported: Any, change: Change, after: PartitionState) -> Iterator[str]:
    reason = Reason(
        kind=ElectionKind.ONLINE,
        chosen_by=ChosenBy(reported.chosen_by),
        candidates=tuple(reported.candidates),
        isr=tuple(reported.isr),
        elr=tuple(reported.elr),
        live=tuple(reported.live),
        ruled_out=tuple((each.replica, each.why) for each in reported.ruled_out),
        cause=Cause(CauseKind.FENCED, ""),
    )
    yield from wrong_reason(reason, after)
    if not reported.is_derived:
        yield "its election is not derived from the log"
    removed = {
        m.broker_id: _REMOVED_AS[m.occasion] for m in change.marks if m.occasion in _REMOVED_AS
    }
    keeps = {r: removed.get(r) or _what_keeps(change.image, after, r) for r in after.replicas}
    live = [replica for replica in after.replicas if keeps[replica] is None]
    if list(reported.live) != live:
        yield f"its live replicas are {reported.live}, in the log {live}"
    for each in reported.ruled_out:
        if keeps.get(each.replica) not in {None, each.why}:
            yield f"{each.replica} is ruled out as {each.why!r}, in the log {keeps[each.replica]!r}"


# ---- brokers


def _wrong_broker(reported: Any, span: Span, image: ClusterImage, truth: Truth) -> Iterator[str]:
    broker_id = reported.broker_id
    is_state, reported_state = _registration(image, broker_id), _reported_registration(reported)
    if is_state != reported_state:
        yield f"its registration is {reported_state}, in the log {is_state}"
    counts, lagging = counts_of(image, broker_id)
    reported_counts = (
        reported.leads,
        reported.preferred,
        reported.replicas,
        reported.in_sync,
        reported.eligible,
    )
    if counts != reported_counts:
        yield (
            "its counts (leader, preferred leader, replica, in sync, eligible) are "
            f"{reported_counts}, in the log {counts}"
        )
    reported_lagging = [f"{each.topic}-{each.partition}" for each in reported.out_of_sync]
    if reported_lagging != lagging[:OUT_OF_SYNC_MAX]:
        yield f"it is out of sync with {reported_lagging}, in the log {lagging}"
    notes = [tuple(note) for note in span.of(truth.history.notes.get(broker_id, ()))]
    changes = [(each.offset, each.at_ms, each.broker_epoch, each.what) for each in reported.changes]
    if notes != changes:
        yield f"its changes are {changes}, in the log {notes}"
    elections = span.of(truth.history.elections_of(broker_id))
    yield from _wrong_events(reported.elections, elections, truth)


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


def _reported_registration(reported: Any) -> tuple[Any, ...]:
    if not reported.is_registered:
        return (False,)
    return (
        True,
        reported.broker_epoch,
        reported.is_fenced,
        reported.is_shutting_down,
        reported.rack,
        reported.directories,
        reported.cordoned_directories,
    )


def counts_of(image: ClusterImage, broker_id: int) -> tuple[tuple[int, ...], list[str]]:
    """Count a broker's partitions: leader, preferred leader, replica, in sync, eligible.

    Also return the names of the partitions it is out of sync with.
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
