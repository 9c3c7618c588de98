"""Check the documents of `explain partition`, `broker` and `topic` against the truth.

They are the documents that the commands build from the responses of all running nodes. Their
leaders and ISRs must match the committed log. Why a follower left an ISR, and how far and how long
it lagged, must match its observed fetches (`isr_oracle`).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from sparkraft.client.explain.broker import broker_document
from sparkraft.client.explain.events import Json
from sparkraft.client.explain.partition import partition_document
from sparkraft.client.explain.times import time_text
from sparkraft.client.explain.topic import topic_document
from sparkraft.client.history import HistoryReport
from sparkraft.metadata.image import ClusterImage
from sparkraft.metadata.partition_state import PartitionState
from sparkraft.server.api.history_values import OUT_OF_SYNC_MAX
from sparkraft.simulation.checks.explanation_responses import (
    Span,
    Truth,
    counts_of,
    offline_replicas,
    was_requested,
)
from sparkraft.simulation.checks.isr_oracle import ConfirmedIsrChange
from sparkraft.simulation.checks.metadata_oracle import Change, Where

ConfirmedChanges = Mapping[tuple[Where, int], ConfirmedIsrChange]
"""ISR changes in the journals of running leaders, by partition and new partition epoch."""


def wrong_documents(
    report: HistoryReport, span: Span, truth: Truth, confirmed: ConfirmedChanges
) -> Iterator[str]:
    """Yield the differences between the truth and the documents of everything in `report`."""
    image = truth.history.image_at(span.end)
    topics: dict[str, list[Any]] = {}
    for reported in report.history.partitions:
        topics.setdefault(reported.topic, []).append(reported)
        document = partition_document(report, reported, last=span.events_max)
        where = (reported.topic_id, reported.partition)
        changes = span.of(truth.history.changes.get(where, ()))
        expected = _partition(image.partition(*where), image, changes, truth, confirmed)
        yield from _differing(f"{reported.topic}-{reported.partition}", document, expected)
    for name, partitions in topics.items():
        document = topic_document(report, name, last=span.events_max)
        yield from _differing(name, document, _topic(partitions, image))
    for reported in report.history.brokers:
        document = broker_document(report, reported, last=span.events_max)
        broker_id = reported.broker_id
        yield from _differing(
            f"broker {broker_id}", document, _broker(broker_id, image, span, truth)
        )


def _differing(name: str, document: Json, expected: Json) -> Iterator[str]:
    for key, value in expected.items():
        reported = _as_far_as(document.get(key), value)
        if reported != value:
            yield f"{name}: {key} is {reported}, expected {value}"


def _as_far_as(reported: Any, expected: Any) -> Any:
    """Keep the fields that `expected` has; causes and reasons are checked elsewhere."""
    if not isinstance(reported, list) or not isinstance(expected, list):
        return reported
    if len(reported) != len(expected) or not all(isinstance(each, dict) for each in expected):
        return reported
    return [{k: one.get(k) for k in other} for one, other in zip(reported, expected, strict=True)]


# ---- partitions


def _partition(
    partition: PartitionState | None,
    image: ClusterImage,
    changes: list[Change],
    truth: Truth,
    confirmed: ConfirmedChanges,
) -> Json:
    expected: Json = {"exists": partition is not None}
    if partition is not None:
        expected |= {
            "leader": _named(partition.leader),
            "leaderEpoch": partition.leader_epoch,
            "partitionEpoch": partition.partition_epoch,
            "replicas": list(partition.replicas),
            "isr": list(partition.isr),
            "elr": list(partition.elr),
            "offline": offline_replicas(image, partition),
            "reassignment": _reassignment(partition),
        }
    isr_changes = [_isr_change(change, truth, confirmed) for change in changes]
    elections = [_election(change) for change in changes if _is_election(change)]
    return expected | {
        "isrChanges": [each for each in isr_changes if each is not None][::-1],
        "elections": elections[::-1],
    }


def _reassignment(partition: PartitionState) -> Json | None:
    adding, removing = partition.adding_replicas, partition.removing_replicas
    return {"adding": [*adding], "removing": [*removing]} if adding or removing else None


def _named(leader: int) -> int | None:
    return leader if leader >= 0 else None


def _isr_change(change: Change, truth: Truth, confirmed: ConfirmedChanges) -> Json | None:
    before, after = change.before, change.after
    if before is None or after is None or set(before.isr) == set(after.isr):
        return None
    requested = was_requested(change, truth.isr_oracle) and not change.suspects
    noted = confirmed.get((change.where, after.partition_epoch)) if requested else None
    left = [replica for replica in before.isr if replica not in after.isr]
    return {
        "offset": change.offset,
        "time": time_text(change.batch.at_ms),
        "before": list(before.isr),
        "after": list(after.isr),
        "joined": [replica for replica in after.isr if replica not in before.isr],
        "left": left,
        "unassigned": [replica for replica in left if replica not in after.replicas],
        "elr": list(after.elr),
        "leader": _named(before.leader),
        "leaderEpoch": after.leader_epoch,
        "recorded": not requested or noted is not None,
        "lags": [] if noted is None else [_lag(noted, r) for r in left if r in noted.behind],
    }


def _lag(noted: ConfirmedIsrChange, replica: int) -> Json:
    offset, end, behind_ms = noted.behind[replica]
    behind = max(0, end - offset) if offset >= 0 else None
    return {"replica": replica, "recordsBehind": behind, "behindMs": behind_ms}


def _is_election(change: Change) -> bool:
    return change.after is not None and change.leaders[0] != change.leaders[1]


def _election(change: Change) -> Json:
    assert change.after is not None
    return {
        "offset": change.offset,
        "time": time_text(change.batch.at_ms),
        "controllerEpoch": change.batch.epoch,
        "topic": change.topic,
        "partition": change.where[1],
        "previous": _named(change.leaders[0]),
        "leader": _named(change.leaders[1]),
        "leaderEpoch": change.after.leader_epoch,
    }


# ---- topics and brokers


def _topic(partitions: list[Any], image: ClusterImage) -> Json:
    states = [image.partition(reported.topic_id, reported.partition) for reported in partitions]
    return {
        "topicId": str(partitions[0].topic_id),
        "copiesThatOutliveDeletion": sorted(
            {replica for state in states for replica in offline_replicas(image, state)}
        ),
    }


def _broker(broker_id: int, image: ClusterImage, span: Span, truth: Truth) -> Json:
    broker = image.brokers.get(broker_id)
    (leads, preferred, replicas, in_sync, eligible), lagging = counts_of(image, broker_id)
    notes = span.of(truth.history.notes.get(broker_id, ()))
    elections = span.of(truth.history.elections_of(broker_id))
    state = "not registered"
    if broker is not None:
        serving = "shutting down" if broker.in_controlled_shutdown else "serving"
        state = "fenced" if broker.fenced else serving
    return {
        "state": state,
        "brokerEpoch": None if broker is None else broker.epoch,
        "leads": leads,
        "preferredLeaderOf": preferred,
        "replicas": replicas,
        "inSync": in_sync,
        "eligible": eligible,
        "outOfSync": lagging[:OUT_OF_SYNC_MAX],
        "changes": [
            {
                "offset": note.offset,
                "time": time_text(note.at_ms),
                "brokerEpoch": note.broker_epoch,
                "what": note.what,
            }
            for note in reversed(notes)
        ],
        "elections": [_election(change) for change in reversed(elections) if _is_election(change)],
    }
