"""Elections and ISR changes as JSON documents, and these as lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkraft.client.explain.times import duration_text, time_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sparkraft.client.history import HistoryReport

Json = dict[str, Any]


# ---- documents


def report_json(report: HistoryReport) -> Json:
    """The node that reported it, and the offset and time it is about."""
    history = report.history
    return {
        "node": history.node_id,
        "asOf": {"offset": _offset(history.offset), **_when(history.at_ms)},
        "toldFromOffset": history.start_offset,
        "silent": [{"node": name, "why": why} for name, why in report.silent.items()],
    }


def notes_json(report: HistoryReport) -> list[Json]:
    """Deletions and reassignments of the requested topics, oldest first."""
    return [{**_when(note.at_ms), "what": note.text} for note in report.history.notes]


def _offset(offset: int) -> int | None:
    """In ZooKeeper mode there are none."""
    return offset if offset >= 0 else None


def _when(at_ms: int) -> Json:
    return {"time": time_text(at_ms) if at_ms >= 0 else None}


def election_json(event: Any) -> Json | None:
    """Return the change of leader in an event; None without one. A first leader is a change."""
    before = -1 if event.before is None else event.before.leader
    if event.after is None or (event.after.leader == before and not _has_failed(event)):
        return None
    found: Json = {
        "offset": _offset(event.offset),
        **_when(event.at_ms),
        "controllerEpoch": event.controller_epoch,
        "topic": event.topic,
        "partition": event.partition,
        "previous": before if before >= 0 else None,
        "leader": event.after.leader if event.after.leader >= 0 else None,
        "leaderEpoch": event.after.leader_epoch,
        "cause": event.cause,
    }
    reason = event.election
    if reason is None:
        kind = event.occasion if event.before is not None and event.offset < 0 else "made"
        return {**found, "kind": kind, "from": "log" if event.offset >= 0 else "journal"}
    return {
        **found,
        "kind": reason.kind,
        "chosenBy": reason.chosen_by,
        "candidates": list(reason.candidates),
        "isr": list(reason.isr),
        "elr": list(reason.elr),
        "live": list(reason.live),
        "ruledOut": [{"replica": r.replica, "why": r.why} for r in reason.ruled_out],
        "from": "journal" if reason.from_journal else "log",
        "agrees": reason.is_derived,
    }


def _has_failed(event: Any) -> bool:
    """Whether an election in ZooKeeper mode found no leader."""
    return event.offset < 0 and event.election is not None and event.after.leader < 0


def isr_change_json(event: Any, report: HistoryReport) -> Json | None:
    """Return the change of the ISR in an event with its cause; None without one."""
    before, after = event.before, event.after
    if before is None or after is None or sorted(before.isr) == sorted(after.isr):
        return None
    noted = report.isr_change(event)
    found: Json = {
        "offset": _offset(event.offset),
        **_when(event.at_ms),
        "before": list(before.isr),
        "after": list(after.isr),
        "joined": [r for r in after.isr if r not in before.isr],
        "left": [r for r in before.isr if r not in after.isr],
        "unassigned": [r for r in before.isr if r not in after.replicas],
        "elr": list(after.elr),
        "leader": before.leader if before.leader >= 0 else None,
        "leaderEpoch": after.leader_epoch,
        "cause": event.cause,
        "recorded": True,
        "lags": [],
    }
    if noted is not None:
        found["lags"] = [
            {
                "replica": lag.replica,
                "recordsBehind": max(0, lag.leader_end - lag.log_end_offset)
                if lag.log_end_offset >= 0
                else None,
                "behindMs": lag.behind_ms if lag.behind_ms >= 0 else None,
            }
            for lag in noted.left
        ]
    elif event.occasion == ISR_CHANGED:
        # Only the leader knew the reason, and its journal is lost.
        found["recorded"] = False
    return found


ISR_CHANGED = "the leader changed the ISR"


# ---- lines


def ids(replicas: Iterable[int]) -> str:
    """Join ids by commas; `nobody` if there are none."""
    return ", ".join(map(str, replicas)) or "nobody"


def head_lines(document: Json) -> Iterator[str]:
    when = document["asOf"]
    at = "" if when["time"] is None else f", {when['time']}"
    if when["offset"] is None:
        yield f"as of {when['time']}, reported by broker {document['node']} in ZooKeeper mode"
    else:
        yield f"as of offset {when['offset']}{at}, reported by node {document['node']}"
    if document["toldFromOffset"] > 0:
        yield f"events before offset {document['toldFromOffset']} are not available"
    for one in document["silent"]:
        yield f"{one['node']}: not available, {one['why']}"


def at_text(entry: Json) -> str:
    """The time and offset of a change; in ZooKeeper mode the time."""
    offset = "" if entry["offset"] is None else f"  offset {entry['offset']}"
    return f"{entry['time'] or ''}{offset}"


def note_lines(notes: list[Json]) -> Iterator[str]:
    """Lines for `notes_json`, if there are any."""
    if notes:
        yield ""
        yield "deletions and reassignments, newest first:"
    for note in notes:
        yield f"  {note['time']}  {note['what']}"


def election_lines(entry: Json, *, name: bool = False) -> Iterator[str]:
    """An election, the reasons below it."""
    what = f"{entry['topic']}-{entry['partition']}: " if name else ""
    who = _arrow(entry["previous"], entry["leader"])
    yield f"  {at_text(entry)}  {what}leader {who}, epoch {entry['leaderEpoch']}: {entry['kind']}"
    yield f"      {entry['cause']}"
    if "candidates" not in entry:
        return
    chosen = "" if entry["leader"] is None else f"; chosen as {entry['chosenBy']}"
    yield (
        f"      candidates {ids(entry['candidates'])}; in sync {ids(entry['isr'])}; "
        f"eligible {ids(entry['elr'])}; live {ids(entry['live'])}{chosen}"
    )
    if entry["ruledOut"]:
        out = ", ".join(f"{r['replica']} ({r['why']})" for r in entry["ruledOut"])
        yield f"      ruled out: {out}"
    if not entry["agrees"]:
        yield "      CONTRADICTION: these facts lead to another leader"


def elected(entry: Json) -> str:
    """How its leader came to lead: by which kind of election, or with the partition itself."""
    kind: str = entry["kind"]
    return kind if kind == "made" else f"{kind} election"


def _arrow(previous: int | None, leader: int | None) -> str:
    return (
        f"{'nobody' if previous is None else previous} → {'nobody' if leader is None else leader}"
    )


def isr_lines(entry: Json) -> Iterator[str]:
    """An ISR change, its cause below it."""
    yield f"  {at_text(entry)}  in sync {ids(entry['before'])} → {ids(entry['after'])}"
    if not entry["recorded"]:
        yield f"      {entry['cause']}; cause not recorded"
        return
    yield f"      {entry['cause']}"
    for lag in entry["lags"]:
        behind = lag["recordsBehind"]
        how_far = "never fetched" if behind is None else f"{behind} records behind"
        how_long = (
            "never had everything in this leadership"
            if lag["behindMs"] is None
            else f"without everything for {duration_text(lag['behindMs'])}"
        )
        yield f"      {lag['replica']} left: {how_far}, {how_long}"
    for replica in entry["joined"] if not entry["lags"] else ():
        yield f"      {replica} caught up"
    for replica in entry["unassigned"]:
        yield f"      {replica} left: it is no longer a replica"
