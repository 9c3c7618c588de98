"""One partition: leader, elections, ISR changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkraft.client.explain.events import (
    Json,
    at_text,
    elected,
    election_json,
    election_lines,
    head_lines,
    ids,
    isr_change_json,
    isr_lines,
    note_lines,
    notes_json,
    report_json,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkraft.client.history import HistoryReport


def partition_document(report: HistoryReport, partition: Any, *, last: int) -> Json:
    """Everything about one partition; elections and ISR changes newest first."""
    elections = [e for event in partition.events if (e := election_json(event)) is not None]
    changes = [c for event in partition.events if (c := isr_change_json(event, report)) is not None]
    state = partition.state
    found: Json = {
        "topic": partition.topic,
        "topicId": str(partition.topic_id),
        "partition": partition.partition,
        **report_json(report),
        "exists": state is not None,
    }
    if state is not None:
        found |= _state_json(partition, elections)
    found["elections"] = elections[::-1][:last]
    found["isrChanges"] = changes[::-1][:last]
    if report.history.in_zookeeper_mode:
        found["notes"] = notes_json(report)[::-1][:last]
    return found


def _state_json(partition: Any, elections: list[Json]) -> Json:
    state = partition.state
    leader = state.leader if state.leader >= 0 else None
    since = elections[-1] if elections and elections[-1]["leader"] == leader else None
    return {
        "leader": leader,
        "leaderEpoch": state.leader_epoch,
        "partitionEpoch": state.partition_epoch,
        "isRecovering": bool(state.leader_recovery_state),
        "since": None if since is None else {k: since[k] for k in ("offset", "time", "kind")},
        "replicas": list(state.replicas),
        "isr": list(state.isr),
        "elr": list(state.elr),
        "lastKnownLeader": state.last_known_elr[0] if state.last_known_elr else None,
        "offline": list(partition.offline_replicas),
        "reassignment": {"adding": list(state.adding), "removing": list(state.removing)}
        if state.adding or state.removing
        else None,
    }


def partition_lines(document: Json) -> Iterator[str]:
    yield f"{document['topic']}-{document['partition']}"
    yield from head_lines(document)
    yield ""
    yield from state_lines(document)
    yield ""
    yield "elections, newest first:" if document["elections"] else "no elections recorded"
    for entry in document["elections"]:
        yield from election_lines(entry)
    yield ""
    changes = document["isrChanges"]
    yield "ISR changes, newest first:" if changes else "no ISR changes recorded"
    for entry in changes:
        yield from isr_lines(entry)
    yield from note_lines(document.get("notes", []))


def state_lines(document: Json) -> Iterator[str]:
    """As it is now, or was then."""
    if not document["exists"]:
        yield "it does not exist"
        return
    since = document["since"]
    how = (
        "since before the available history"
        if since is None
        else f"since {at_text(since).strip()} ({elected(since)})"
        if since["offset"] is None
        else f"since {since['time'] or 'offset'} (offset {since['offset']}; {elected(since)})"
    )
    leader = "nobody leads" if document["leader"] is None else f"leader {document['leader']}"
    yield f"{leader} in epoch {document['leaderEpoch']}, {how}"
    yield f"replicas {ids(document['replicas'])}; in sync {ids(document['isr'])}"
    if document["elr"] or document["lastKnownLeader"] is not None:
        last = document["lastKnownLeader"]
        known = "" if last is None else f"; last known leader {last}"
        yield f"eligible to lead besides: {ids(document['elr'])}{known}"
    if document["offline"]:
        yield f"offline: {ids(document['offline'])}"
    if document["isRecovering"]:
        yield "it was elected uncleanly and is recovering: records may have been lost"
    move = document["reassignment"]
    if move is not None:
        coming, going = ids(move["adding"]), ids(move["removing"])
        yield f"reassignment under way: {coming} joining, {going} leaving"
