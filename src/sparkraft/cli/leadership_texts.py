"""What `explain partition`, `broker` and `topic` share: their options, events as JSON and as lines.

Answers become JSON documents first; the text is written from those, so both tell the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.cli.errors import CommandError, UsageError, sentence_of
from sparkraft.cli.moments import moment, span_text, time_text
from sparkraft.cli.options import Options, Values
from sparkraft.cli.session import connected

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sparkraft.client.history import Account

EVENTS_MAX = 10
"""Elections and ISR changes shown unless more are asked for."""

Json = dict[str, Any]


def options_for(what: str, about: str) -> Options:
    """The options of one of the three."""
    options = Options(f"explain {what}", about)
    options.connection(controllers=True)
    options.value(
        "--at-offset", about="as of this offset of the metadata log, not as of now", type=int
    )
    options.value("--at-time", about="as of then: 90s, 10m, 2h, 3d ago, or 2026-11-20T12:00:00Z")
    options.value(
        "--last", about=f"how many changes to show of each kind ({EVENTS_MAX})", type=int,
        default=EVENTS_MAX,
    )  # fmt: skip
    options.flag("--whole-log", "read all of the metadata log that is kept, however long it is")
    options.output()
    return options


async def told(
    values: Values, *, topics: Iterable[Any] = (), brokers: Iterable[int] = ()
) -> Account:
    """What the cluster tells."""
    from sparkraft.client.history import account
    from sparkraft.protocol.messages.k10002_describe_history import DescribeHistoryRequest

    if values.at_offset is not None and values.at_time is not None:
        raise UsageError("give --at-offset or --at-time, not both")
    request = DescribeHistoryRequest(
        topics=list(topics),
        broker_ids=list(brokers),
        at_offset=-1 if values.at_offset is None else values.at_offset,
        at_ms=moment(values.at_time, "--at-time"),
        # ISR changes and elections share what is kept; each shall find its last ones there.
        events_max=max(1, values.last) * 5,
        whole_log=values.whole_log,
    )
    async with connected(values, client_id="explain") as cluster:
        try:
            return await account(cluster, request)
        except KafkaError as error:
            if error.code in {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OFFSET_OUT_OF_RANGE}:
                raise CommandError(error.detail or sentence_of(error)) from error
            raise


# ---- documents


def account_json(account: Account) -> Json:
    """Whose word it is, and as of when."""
    history = account.history
    return {
        "node": history.node_id,
        "asOf": {"offset": history.offset, **_when(history.at_ms)},
        "toldFromOffset": history.start_offset,
        "silent": [{"node": name, "why": why} for name, why in account.silent.items()],
    }


def _when(at_ms: int) -> Json:
    return {"time": time_text(at_ms) if at_ms >= 0 else None}


def election_json(event: Any) -> Json | None:
    """A change of leader; None where an event is none. A new partition's first leader is one."""
    before = -1 if event.before is None else event.before.leader
    if event.after is None or event.after.leader == before:
        return None
    found: Json = {
        "offset": event.offset,
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
        return {**found, "kind": "made", "from": "log"}
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


def isr_change_json(event: Any, account: Account) -> Json | None:
    """A change of the ISR with its cause; None where an event is none."""
    before, after = event.before, event.after
    if before is None or after is None or sorted(before.isr) == sorted(after.isr):
        return None
    noted = account.isr_change(event)
    found: Json = {
        "offset": event.offset,
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
        # The leader alone knew why, and its journal is gone.
        found["recorded"] = False
    return found


ISR_CHANGED = "the leader changed the ISR"


# ---- lines


def ids(replicas: Iterable[int]) -> str:
    """Between commas, or nobody."""
    return ", ".join(map(str, replicas)) or "nobody"


def head_lines(document: Json) -> Iterator[str]:
    """Whose word it is."""
    when = document["asOf"]
    at = "" if when["time"] is None else f", {when['time']}"
    yield f"as of offset {when['offset']}{at}, told by node {document['node']}"
    if document["toldFromOffset"] > 0:
        yield f"what happened before offset {document['toldFromOffset']} is not told"
    for one in document["silent"]:
        yield f"{one['node']}: not asked, {one['why']}"


def _at(entry: Json) -> str:
    return f"{entry['time'] or ''}  offset {entry['offset']}"


def election_lines(entry: Json, *, name: bool = False) -> Iterator[str]:
    """An election, the reasons below it."""
    what = f"{entry['topic']}-{entry['partition']}: " if name else ""
    who = _arrow(entry["previous"], entry["leader"])
    yield f"  {_at(entry)}  {what}leader {who}, epoch {entry['leaderEpoch']}: {entry['kind']}"
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
        yield "      CONTRADICTION: by these facts somebody else would lead"


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
    yield f"  {_at(entry)}  in sync {ids(entry['before'])} → {ids(entry['after'])}"
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
            else f"without everything for {span_text(lag['behindMs'])}"
        )
        yield f"      {lag['replica']} left: {how_far}, {how_long}"
    for replica in entry["joined"] if not entry["lags"] else ():
        yield f"      {replica} caught up"
    for replica in entry["unassigned"]:
        yield f"      {replica} left: it is no replica any more"
