"""One topic: a line per partition, and the copies that would outlive its deletion."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkraft.client.explain.events import (
    Json,
    elected,
    head_lines,
    ids,
    note_lines,
    notes_json,
    report_json,
)
from sparkraft.client.explain.partition import partition_document

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkraft.client.history import HistoryReport

_OWN = ("node", "asOf", "toldFromOffset", "silent", "topic", "topicId", "notes")
"""Fields of a partition's document that the topic's document already has."""


def topic_document(report: HistoryReport, topic: str, *, last: int) -> Json:
    """Everything about the report's partitions of a topic."""
    reported = [p for p in report.history.partitions if p.topic == topic]
    partitions = [partition_document(report, p, last=last) for p in reported]
    found: Json = {
        "topic": topic,
        "topicId": partitions[0]["topicId"] if partitions else None,
        **report_json(report),
        "partitions": [{k: v for k, v in p.items() if k not in _OWN} for p in partitions],
        # Their brokers set them aside as strays when they return.
        "copiesThatOutliveDeletion": sorted({b for p in partitions for b in p.get("offline", ())}),
    }
    if report.history.in_zookeeper_mode:
        found["notes"] = notes_json(report)[::-1][:last]
    return found


def topic_lines(document: Json) -> Iterator[str]:
    yield f"{document['topic']}, id {document['topicId']}"
    yield from head_lines(document)
    yield ""
    for partition in document["partitions"]:
        yield _line(partition)
    if not document["partitions"]:
        yield "it does not exist"
    away = document["copiesThatOutliveDeletion"]
    if away:
        yield ""
        yield (
            f"if it were deleted now, the deletion would wait for brokers {ids(away)}"
            if document["asOf"]["offset"] is None
            else f"if it were deleted now, copies on {ids(away)} would stay there until those "
            "brokers return"
        )
    yield from note_lines(document.get("notes", []))


def _line(partition: Json) -> str:
    name = f"  partition {partition['partition']}: "
    if not partition["exists"]:
        return f"{name}does not exist"
    leader = "nobody" if partition["leader"] is None else str(partition["leader"])
    since = partition["since"]
    how = "" if since is None else f" since {since['time'] or since['offset']} ({elected(since)})"
    notes = [f"in sync {ids(partition['isr'])} of {ids(partition['replicas'])}"]
    if partition["elr"]:
        notes.append(f"eligible {ids(partition['elr'])}")
    if partition["offline"]:
        notes.append(f"offline {ids(partition['offline'])}")
    if partition["reassignment"] is not None:
        notes.append(f"{ids(partition['reassignment']['adding'])} joining")
    return f"{name}leader {leader} in epoch {partition['leaderEpoch']}{how}; {'; '.join(notes)}"
