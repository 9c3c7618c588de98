"""One broker: state, leaderships won and lost, replicas out of sync."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkraft.client.explain.events import (
    Json,
    at_text,
    election_json,
    election_lines,
    head_lines,
    report_json,
)
from sparkraft.client.explain.times import time_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkraft.client.history import HistoryReport


def broker_document(report: HistoryReport, broker: Any, *, last: int) -> Json:
    """Everything about one broker; changes and elections newest first."""
    elections = [e for event in broker.elections if (e := election_json(event)) is not None]
    return {
        "broker": broker.broker_id,
        **report_json(report),
        "state": _state(broker),
        "brokerEpoch": broker.broker_epoch if broker.is_registered else None,
        "rack": broker.rack,
        "directories": [str(d) for d in broker.directories],
        "cordonedDirectories": [str(d) for d in broker.cordoned_directories],
        "leads": broker.leads,
        "preferredLeaderOf": broker.preferred,
        "replicas": broker.replicas,
        "inSync": broker.in_sync,
        "eligible": broker.eligible,
        "outOfSync": [f"{p.topic}-{p.partition}" for p in broker.out_of_sync],
        "changes": [
            {
                "offset": change.offset if change.offset >= 0 else None,
                "time": time_text(change.at_ms),
                "brokerEpoch": change.broker_epoch if change.broker_epoch >= 0 else None,
                "what": change.what,
            }
            for change in broker.changes[::-1][:last]
        ],
        "elections": elections[::-1][:last],
    }


def _state(broker: Any) -> str:
    if not broker.is_registered:
        return "not registered"
    if broker.is_fenced:
        return "fenced"
    return "shutting down" if broker.is_shutting_down else "serving"


def broker_lines(document: Json) -> Iterator[str]:
    yield f"broker {document['broker']}"
    yield from head_lines(document)
    yield ""
    rack = "" if document["rack"] is None else f", rack {document['rack']}"
    epoch = document["brokerEpoch"]
    yield f"{document['state']}{'' if epoch is None else f', broker epoch {epoch}'}{rack}"
    yield (
        f"leads {document['leads']} of {document['replicas']} partitions, would lead "
        f"{document['preferredLeaderOf']} if all brokers were in sync; "
        f"in sync with {document['inSync']}, eligible for {document['eligible']}"
    )
    if document["outOfSync"]:
        yield f"not in sync: {', '.join(document['outOfSync'])}"
    yield ""
    changes = document["changes"]
    yield "its changes, newest first:" if changes else "no changes recorded"
    for change in changes:
        yield f"  {at_text(change)}  {change['what']}"
    yield ""
    elections = document["elections"]
    yield "leaderships won and lost:" if elections else "no leaderships won or lost"
    for entry in elections:
        yield from election_lines(entry, name=True)
