"""Resets of a group's committed offsets, planned as data and then committed.

A plan maps partitions to new offsets. Only a group without members can be reset; planning changes
nothing.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import TopicPartition
from sparkraft.client.admin import Admin
from sparkraft.client.errors import PlanError, sentence_of
from sparkraft.client.groups import Groups
from sparkraft.client.values import EARLIEST, LATEST, Committed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sparkraft.client.cluster import Cluster

Offsets = dict[TopicPartition, int]

RESETTABLE_STATES = frozenset({"Empty", "Dead"})
"""States of a group without members."""

_COLUMNS = ("group", "topic", "partition", "offset")


@dataclass(frozen=True, slots=True)
class ToOffset:
    """One offset for all partitions."""

    offset: int


@dataclass(frozen=True, slots=True)
class ToTime:
    """The first record from a time on, in wall-clock ms or `EARLIEST` or `LATEST`; else the end."""

    ms: int


@dataclass(frozen=True, slots=True)
class ShiftBy:
    """A number of records after the committed offset; before it if negative."""

    count: int


@dataclass(frozen=True, slots=True)
class ToCurrent:
    """The committed offset, or the end if there is none."""


Scenario = ToOffset | ToTime | ShiftBy | ToCurrent


@dataclass(frozen=True, slots=True)
class Moved:
    """A wanted offset outside its partition's log, and the nearer end of the log instead of it."""

    partition: TopicPartition
    wanted: int
    planned: int


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """The new offsets of a group, and which of them differ from the wanted ones."""

    offsets: Offsets
    moved: tuple[Moved, ...] = ()


async def state_of(groups: Groups, group_id: str) -> str:
    """The group's state; `Dead` if it does not exist."""
    try:
        return (await groups.describe(group_id)).state
    except KafkaError as error:
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return "Dead"
        raise


async def commit(groups: Groups, group_id: str, offsets: Offsets) -> None:
    """Commit a plan's offsets; `PlanError` for the first partition that refuses its offset."""
    outcome = await groups.commit(
        group_id, {tp: Committed(offset=offset) for tp, offset in offsets.items()}
    )
    refused = [(tp, error) for tp, error in sorted(outcome.items()) if error is not None]
    if refused:
        (topic, partition), error = refused[0]
        reset = len(outcome) - len(refused)
        rest = f"; {reset} of {len(outcome)} partitions were reset" if reset else ""
        raise PlanError(f"{topic}-{partition} was not reset: {sentence_of(error)}{rest}")


# scopes


async def partitions_of_topics(admin: Admin, topics: Iterable[str]) -> list[TopicPartition]:
    """All partitions of topics; `PlanError` if a topic does not exist."""
    found: list[TopicPartition] = []
    for name, topic_info in (await admin.describe_topics(topics)).items():
        if isinstance(topic_info, KafkaError):
            raise PlanError(sentence_of(topic_info))
        found.extend((name, index) for index in topic_info.partitions)
    return found


async def check_partitions(admin: Admin, wanted: Iterable[TopicPartition]) -> None:
    """`PlanError` unless all partitions exist."""
    topics = await admin.list_topics()
    missing = sorted(
        f"{t}-{p}" for t, p in wanted if t not in topics or p not in topics[t].partitions
    )
    if missing:
        raise PlanError(f'the partitions "{",".join(missing)}" do not exist')


# plans


async def plan_reset(
    cluster: Cluster, group_id: str, wanted: set[TopicPartition], scenario: Scenario
) -> ResetPlan:
    """The offsets of a scenario for partitions that exist."""
    admin = Admin(cluster)
    if isinstance(scenario, ToOffset):
        return await within_logs(admin, dict.fromkeys(wanted, scenario.offset))
    if isinstance(scenario, ToTime):
        return ResetPlan(await _at_time(admin, wanted, scenario.ms))
    committed = {tp: c.offset for tp, c in (await Groups(cluster).offsets(group_id)).items()}
    if isinstance(scenario, ShiftBy):
        return await within_logs(admin, _shifted(wanted, committed, scenario.count))
    ends = await _listed(admin, {tp for tp in wanted if tp not in committed}, LATEST)
    return ResetPlan({tp: committed.get(tp, ends.get(tp, 0)) for tp in wanted})


async def within_logs(admin: Admin, wanted: Offsets) -> ResetPlan:
    """The plan with every offset inside its partition's log."""
    first = await _listed(admin, wanted, EARLIEST)
    last = await _listed(admin, wanted, LATEST)
    offsets = {tp: min(max(offset, first[tp]), last[tp]) for tp, offset in wanted.items()}
    moved = tuple(
        Moved(tp, offset, offsets[tp]) for tp, offset in wanted.items() if offsets[tp] != offset
    )
    return ResetPlan(offsets, moved)


def _shifted(
    wanted: Iterable[TopicPartition], committed: Mapping[TopicPartition, int], by: int
) -> Offsets:
    for topic, partition in sorted(wanted):
        if (topic, partition) not in committed:
            raise PlanError(f"{topic}-{partition} can't be shifted: the group has no offset of it")
    return {tp: committed[tp] + by for tp in wanted}


async def _listed(admin: Admin, wanted: Iterable[TopicPartition], at: int) -> Offsets:
    found = await admin.list_offsets(dict.fromkeys(wanted, at))
    offsets: Offsets = {}
    for tp, listed in found.items():
        if isinstance(listed, KafkaError):
            raise PlanError(f"{tp[0]}-{tp[1]}: {sentence_of(listed)}")
        offsets[tp] = listed.offset
    return offsets


async def _at_time(admin: Admin, wanted: Iterable[TopicPartition], ms: int) -> Offsets:
    """The first record from `ms` on; the end if all are older."""
    offsets = await _listed(admin, wanted, ms)
    late = {tp for tp, offset in offsets.items() if offset < 0}
    return offsets | await _listed(admin, late, LATEST)


# plans as CSV


def offsets_from_csv(lines: Iterable[str], group_id: str, *, source: str) -> Offsets:
    """The offsets of a group in `[group,]topic,partition,offset` lines of the file `source`."""
    offsets: Offsets = {}
    for number, row in enumerate(csv.reader(lines), start=1):
        if not row:
            continue
        cells = row if len(row) == len(_COLUMNS) else [group_id, *row]
        try:
            group, topic, partition, offset = cells
            if group == group_id:
                offsets[topic, int(partition)] = int(offset)
        except ValueError:
            raise PlanError(
                f"{source} line {number} is not [group,]topic,partition,offset"
            ) from None
    if not offsets:
        raise PlanError(f"{source} has no plan for group {group_id}")
    return offsets


def csv_of(plans: Mapping[str, Offsets], *, with_group: bool) -> str:
    """Plans by group as the lines that `offsets_from_csv` reads, partitions in order."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(
        row if with_group else row[1:] for row in rows_of(plans)
    )
    return out.getvalue()


def rows_of(plans: Mapping[str, Offsets]) -> list[tuple[str, str, int, int]]:
    """Group, topic, partition and new offset of all plans, partitions in order."""
    return [
        (group, topic, partition, offset)
        for group, offsets in plans.items()
        for (topic, partition), offset in sorted(offsets.items())
    ]
