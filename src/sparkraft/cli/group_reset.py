"""`consumer-groups --reset-offsets`: changes the offsets of a group without members.

A scenario names the new offsets, a scope the partitions. Nothing changes without --execute. An
offset outside a partition's log is moved to the nearer end, with a warning.
"""

from __future__ import annotations

import csv
import io
import re
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import TopicPartition
from sparkraft.cli.errors import CommandError, UsageError, sentence_of
from sparkraft.cli.session import print_json, warn
from sparkraft.client.admin import Admin
from sparkraft.client.groups import Committed, Groups
from sparkraft.client.values import EARLIEST, LATEST

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sparkraft.cli.options import Options, Values
    from sparkraft.client.cluster import Cluster

Plan = dict[TopicPartition, int]

SCENARIOS = (
    "--to-offset",
    "--to-datetime",
    "--by-duration",
    "--to-earliest",
    "--to-latest",
    "--shift-by",
    "--from-file",
    "--to-current",
)
OPTION_NAMES = (*SCENARIOS, "--dry-run", "--execute", "--export", "--all-topics")

_DURATION = re.compile(
    r"([-+]?)P(?:([-+]?\d+)D)?"
    r"(?:T(?:([-+]?\d+)H)?(?:([-+]?\d+)M)?(?:([-+]?\d+(?:\.\d+)?)S)?)?",
    re.IGNORECASE,
)
_GROUP_COLUMNS = 4


def add_options(options: Options) -> None:
    """Scenarios, scopes and what to do with the plan."""
    options.value("--to-offset", about="an offset", type=int)
    options.value("--to-datetime", about="the first record from YYYY-MM-DDThh:mm:ss.sss[zone] on")
    options.value("--by-duration", about="the duration PnDTnHnMnS back from now")
    options.flag("--to-earliest", "the first record there is")
    options.flag("--to-latest", "the end")
    options.value("--shift-by", about="from the committed offset, N records on or back", type=int)
    options.value("--from-file", about="a CSV file: topic,partition,offset", metavar="FILE")
    options.flag("--to-current", "the committed offset, or the end if there is none")
    options.flag("--dry-run", "only show the plan (default)")
    options.flag("--execute", "do it")
    options.flag("--export", "print the plan as CSV for --from-file")


def check(values: Values) -> None:
    """`UsageError` unless there is one scenario and a scope."""
    fields = [name.lstrip("-").replace("-", "_") for name in SCENARIOS]
    given = [
        name
        for name, field in zip(SCENARIOS, fields, strict=True)
        if getattr(values, field) not in (None, False)
    ]
    if len(given) != 1:
        raise UsageError(f"--reset-offsets needs exactly one of {', '.join(SCENARIOS)}")
    if values.dry_run and values.execute:
        raise UsageError("give --dry-run or --execute, not both")
    if values.topic and values.all_topics:
        raise UsageError("give --topic or --all-topics, not both")
    if not values.topic and not values.all_topics and not values.from_file:
        raise UsageError("--reset-offsets needs --topic or --all-topics")


async def reset(cluster: Cluster, values: Values, ids: list[str]) -> int:
    """Plan, show, and with --execute do; 1 if a group refused."""
    plans: dict[str, Plan] = {}
    code = 0
    for group_id in ids:
        state = await _state(cluster, group_id)
        if state not in {"Empty", "Dead"}:
            code = 1
            warn(
                f"\nError: Assignments can only be reset if the group '{group_id}' is inactive, "
                f"but the current state is {state}."
            )
            continue
        plan = await _plan(cluster, values, group_id)
        if values.execute:
            await _execute(cluster, group_id, plan)
        plans[group_id] = plan
    _show(values, plans)
    return code


async def _state(cluster: Cluster, group_id: str) -> str:
    try:
        return (await Groups(cluster).describe(group_id)).state
    except KafkaError as error:
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return "Dead"
        raise


async def _execute(cluster: Cluster, group_id: str, plan: Plan) -> None:
    outcome = await Groups(cluster).commit(
        group_id, {tp: Committed(offset=offset) for tp, offset in plan.items()}
    )
    for (topic, partition), error in outcome.items():
        if error is not None:
            raise CommandError(f"{topic}-{partition} was not reset: {sentence_of(error)}")


# scopes


async def partitions_of(admin: Admin, entries: Iterable[str]) -> list[TopicPartition]:
    """`topic` and `topic:0,1` entries as partitions; `CommandError` for topics that don't exist."""
    found: list[TopicPartition] = []
    whole: list[str] = []
    for entry in entries:
        topic, colon, indexes = entry.partition(":")
        if not colon:
            whole.append(topic)
            continue
        for index in indexes.split(","):
            if not index.strip().isdigit():
                raise UsageError(f"{entry!r} does not look like topic:0,1,2")
            found.append((topic, int(index)))
    for name, topic_info in (await admin.describe_topics(whole)).items():
        if isinstance(topic_info, KafkaError):
            raise CommandError(sentence_of(topic_info))
        found.extend((name, index) for index in topic_info.partitions)
    return sorted(set(found))


async def _scope(
    admin: Admin, groups: Groups, values: Values, group_id: str
) -> set[TopicPartition]:
    if values.all_topics:
        wanted = set(await groups.offsets(group_id))
    else:
        wanted = set(await partitions_of(admin, values.topic))
    topics = await admin.list_topics()
    missing = sorted(
        f"{t}-{p}" for t, p in wanted if t not in topics or p not in topics[t].partitions
    )
    if missing:
        raise CommandError(f'the partitions "{",".join(missing)}" do not exist')
    return wanted


# scenarios


async def _plan(cluster: Cluster, values: Values, group_id: str) -> Plan:
    admin, groups = Admin(cluster), Groups(cluster)
    if values.from_file:
        return await _within(admin, _from_file(values, group_id))
    wanted = await _scope(admin, groups, values, group_id)
    if values.to_offset is not None:
        return await _within(admin, dict.fromkeys(wanted, values.to_offset))
    at = _special_or_ms(values)
    if at is not None:
        return await _at_time(admin, wanted, at)
    committed = {tp: c.offset for tp, c in (await groups.offsets(group_id)).items()}
    if values.to_current:
        without = {tp for tp in wanted if tp not in committed}
        ends = await _listed(admin, without, LATEST)
        return {tp: committed.get(tp, ends.get(tp, 0)) for tp in wanted}
    return await _within(admin, _shifted(wanted, committed, values.shift_by))


def _special_or_ms(values: Values) -> int | None:
    """Timestamps to request by ListOffsets, for the scenarios that use it."""
    if values.to_earliest:
        return EARLIEST
    if values.to_latest:
        return LATEST
    if values.to_datetime:
        return _datetime_ms(values.to_datetime)
    if values.by_duration:
        return time.time_ns() // 1_000_000 - _duration_ms(values.by_duration)
    return None


def _shifted(
    wanted: Iterable[TopicPartition], committed: Mapping[TopicPartition, int], by: int
) -> Plan:
    for topic, partition in sorted(wanted):
        if (topic, partition) not in committed:
            raise CommandError(
                f"{topic}-{partition} can't be shifted: the group has no offset of it"
            )
    return {tp: committed[tp] + by for tp in wanted}


async def _listed(admin: Admin, wanted: Iterable[TopicPartition], at: int) -> Plan:
    found = await admin.list_offsets(dict.fromkeys(wanted, at))
    plan: Plan = {}
    for tp, answer in found.items():
        if isinstance(answer, KafkaError):
            raise CommandError(f"{tp[0]}-{tp[1]}: {sentence_of(answer)}")
        plan[tp] = answer.offset
    return plan


async def _at_time(admin: Admin, wanted: Iterable[TopicPartition], ms: int) -> Plan:
    """The first record from `ms` on; the end if all are older."""
    plan = await _listed(admin, wanted, ms)
    late = {tp for tp, offset in plan.items() if offset < 0}
    return plan | await _listed(admin, late, LATEST)


async def _within(admin: Admin, asked: Plan) -> Plan:
    """The plan with every offset inside of its partition's log."""
    first = await _listed(admin, asked, EARLIEST)
    last = await _listed(admin, asked, LATEST)
    plan: Plan = {}
    for tp, offset in asked.items():
        plan[tp] = min(max(offset, first[tp]), last[tp])
        if plan[tp] != offset:
            side = "lower than the earliest" if offset < first[tp] else "higher than the latest"
            warn(f"New offset ({offset}) of {tp[0]}-{tp[1]} is {side}; it is set to {plan[tp]}")
    return plan


def _datetime_ms(text: str) -> int:
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"--to-datetime wants YYYY-MM-DDThh:mm:ss.sss, not {text!r}") from None
    # Without a zone it is UTC, as Kafka has it.
    when = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    return int(when.timestamp() * 1000)


def _duration_ms(text: str) -> int:
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()[1:]):
        raise UsageError(f"--by-duration wants PnDTnHnMnS, not {text!r}")
    sign, days, hours, minutes, seconds = match.groups()
    total = int(days or 0) * 86_400 + int(hours or 0) * 3_600 + int(minutes or 0) * 60
    return int((total + float(seconds or 0)) * 1000) * (-1 if sign == "-" else 1)


# files and output


def _from_file(values: Values, group_id: str) -> Plan:
    plan: Plan = {}
    with Path(values.from_file).open(encoding="utf-8", newline="") as file:
        for number, row in enumerate(csv.reader(file), start=1):
            if not row:
                continue
            cells = row if len(row) == _GROUP_COLUMNS else [group_id, *row]
            try:
                group, topic, partition, offset = cells
                if group == group_id:
                    plan[topic, int(partition)] = int(offset)
            except ValueError:
                raise CommandError(
                    f"{values.from_file} line {number} is not [group,]topic,partition,offset"
                ) from None
    if not plan:
        raise CommandError(f"{values.from_file} has no plan for group {group_id}")
    return plan


def _show(values: Values, plans: Mapping[str, Plan]) -> None:
    rows = [
        (group, topic, partition, offset)
        for group, plan in plans.items()
        for (topic, partition), offset in sorted(plan.items())
    ]
    if values.output == "json":
        names = ("group", "topic", "partition", "newOffset")
        print_json([dict(zip(names, row, strict=True)) for row in rows])
    elif values.export:
        out = io.StringIO()
        is_one = len(values.group) == 1
        csv.writer(out, lineterminator="\n").writerows(row[1:] if is_one else row for row in rows)
        sys.stdout.write(out.getvalue())
    elif plans:
        widths = [max([15, *(len(str(row[i])) for row in rows)]) for i in (0, 1)]
        print()
        for row in [("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"), *rows]:
            print(f"{row[0]:<{widths[0]}} {row[1]:<{widths[1]}} {row[2]:<10} {row[3]}")
