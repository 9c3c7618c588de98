"""`consumer-groups --reset-offsets`: changes the offsets of a group without members.

A scenario names the new offsets, a scope the partitions; `client.group_reset` plans from them.
Nothing changes without --execute. An offset outside a partition's log is moved to the nearer end,
with a warning.
"""

from __future__ import annotations

import re
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from sparkraft.cli.errors import UsageError
from sparkraft.cli.session import print_json, warn
from sparkraft.client import group_reset
from sparkraft.client.admin import Admin
from sparkraft.client.group_reset import ShiftBy, ToCurrent, ToOffset, ToTime
from sparkraft.client.groups import Groups
from sparkraft.client.values import EARLIEST, LATEST

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sparkraft.base.ids import TopicPartition
    from sparkraft.cli.options import Options, Values
    from sparkraft.client.cluster import Cluster
    from sparkraft.client.group_reset import Offsets, ResetPlan, Scenario

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
    """Plan and show the resets, with --execute commit them; 1 if a group has members."""
    plans: dict[str, Offsets] = {}
    code = 0
    groups = Groups(cluster)
    for group_id in ids:
        state = await group_reset.state_of(groups, group_id)
        if state not in group_reset.RESETTABLE_STATES:
            code = 1
            warn(
                f"\nError: Assignments can only be reset if the group '{group_id}' is inactive, "
                f"but the current state is {state}."
            )
            continue
        plan = await _plan(cluster, values, group_id)
        _warn_of_moved(plan)
        if values.execute:
            await group_reset.commit(groups, group_id, plan.offsets)
        plans[group_id] = plan.offsets
    _show(values, plans)
    return code


def _warn_of_moved(plan: ResetPlan) -> None:
    for moved in plan.moved:
        topic, partition = moved.partition
        is_low = moved.wanted < moved.planned
        side = "lower than the earliest" if is_low else "higher than the latest"
        warn(
            f"New offset ({moved.wanted}) of {topic}-{partition} is {side}; "
            f"it is set to {moved.planned}"
        )


async def partitions_of(admin: Admin, entries: Iterable[str]) -> list[TopicPartition]:
    """`topic` and `topic:0,1` entries as partitions; `PlanError` for topics that don't exist."""
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
    found += await group_reset.partitions_of_topics(admin, whole)
    return sorted(set(found))


async def _plan(cluster: Cluster, values: Values, group_id: str) -> ResetPlan:
    admin = Admin(cluster)
    if values.from_file:
        return await group_reset.within_logs(admin, _from_file(values.from_file, group_id))
    if values.all_topics:
        wanted = set(await Groups(cluster).offsets(group_id))
    else:
        wanted = set(await partitions_of(admin, values.topic))
    await group_reset.check_partitions(admin, wanted)
    return await group_reset.plan_reset(cluster, group_id, wanted, _scenario(values))


def _scenario(values: Values) -> Scenario:
    if values.to_offset is not None:
        return ToOffset(values.to_offset)
    if values.to_earliest:
        return ToTime(EARLIEST)
    if values.to_latest:
        return ToTime(LATEST)
    if values.to_datetime:
        return ToTime(_datetime_ms(values.to_datetime))
    if values.by_duration:
        return ToTime(time.time_ns() // 1_000_000 - _duration_ms(values.by_duration))
    return ToCurrent() if values.to_current else ShiftBy(values.shift_by)


def _from_file(path: str, group_id: str) -> Offsets:
    with Path(path).open(encoding="utf-8", newline="") as file:
        return group_reset.offsets_from_csv(file, group_id, source=path)


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


def _show(values: Values, plans: Mapping[str, Offsets]) -> None:
    rows = group_reset.rows_of(plans)
    if values.output == "json":
        names = ("group", "topic", "partition", "newOffset")
        print_json([dict(zip(names, row, strict=True)) for row in rows])
    elif values.export:
        sys.stdout.write(group_reset.csv_of(plans, with_group=len(values.group) != 1))
    elif plans:
        widths = [max([15, *(len(str(row[i])) for row in rows)]) for i in (0, 1)]
        print()
        for row in [("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"), *rows]:
            print(f"{row[0]:<{widths[0]}} {row[1]:<{widths[1]}} {row[2]:<10} {row[3]}")
