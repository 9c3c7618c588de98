"""Resets of a group's offsets by an editor: a plan is the dry run, and exactly it is committed.

A group with members cannot be reset: its plan is not allowed, and nothing is committed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from shlex import quote
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client import group_reset
from sparkraft.client.admin import Admin
from sparkraft.client.group_reset import (
    RESETTABLE_STATES,
    ResetPlan,
    Scenario,
    ShiftBy,
    ToOffset,
    ToTime,
)
from sparkraft.client.groups import Groups
from sparkraft.client.values import EARLIEST, LATEST

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkraft.client.cluster import Cluster

Json = dict[str, Any]

PARTITIONS_MAX = 5_000
"""Of one reset."""

_INT64_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetRequest:
    """A reset that an editor asks for.

    Attributes:
        group: the group.
        topic: all its partitions; None for every partition that the group has an offset of.
        scenario: where to.
        option: the same as an option of `consumer-groups --reset-offsets`.
    """

    group: str
    topic: str | None
    scenario: Scenario
    option: str


def parse_reset(document: Mapping[str, Any]) -> ResetRequest:
    """Return the wish in `{"group", "topic", "to": "earliest" | ..., "value"}`.

    Raises:
        KeyError: a field is missing.
        ValueError: a field is malformed.
    """
    topic = document.get("topic")
    scenario, option = _scenario(str(document["to"]), str(document.get("value", "")).strip())
    return ResetRequest(
        group=str(document["group"]),
        topic=None if topic is None else str(topic),
        scenario=scenario,
        option=option,
    )


def _scenario(to: str, value: str) -> tuple[Scenario, str]:
    match to:
        case "earliest":
            return ToTime(EARLIEST), "--to-earliest"
        case "latest":
            return ToTime(LATEST), "--to-latest"
        case "offset":
            offset = _number(value)
            if offset < 0:
                raise ValueError(f"an offset is 0 or larger, not {offset}")
            return ToOffset(offset), f"--to-offset {offset}"
        case "shift":
            count = _number(value)
            return ShiftBy(count), f"--shift-by {count}"
        case "time":
            at = _time(value)
            text = at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03}Z"
            return ToTime(int(at.timestamp() * 1000)), f"--to-datetime {text}"
        case _:
            raise ValueError(f"to is earliest, latest, offset, shift or time, not {to!r}")


def _number(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise ValueError(f"expected a number, got {text!r}") from None
    if abs(number) > _INT64_MAX:
        raise ValueError(f"{number} is out of range")
    return number


def _time(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
        at.timestamp()
    except (ValueError, OverflowError):
        raise ValueError(
            f"expected a time in UTC such as 2026-01-31 12:00:00, got {text!r}"
        ) from None
    return at


def parse_offsets(document: Mapping[str, Any]) -> tuple[str, group_reset.Offsets]:
    """Return group and offsets in `{"group", "offsets": [[topic, partition, offset], ...]}`.

    Raises:
        KeyError: a field is missing.
        ValueError: a field is malformed.
    """
    listed = document["offsets"]
    if not isinstance(listed, list) or not 0 < len(listed) <= PARTITIONS_MAX:
        raise ValueError(f"offsets is a list of 1 to {PARTITIONS_MAX}")
    offsets: group_reset.Offsets = {}
    for each in listed:
        topic, partition, offset = each
        # Offsets above 2^53 arrive as text.
        number = _number(str(offset))
        if not isinstance(partition, int) or min(partition, number) < 0:
            raise ValueError(f"{each!r} is not a topic, a partition and an offset")
        offsets[str(topic), partition] = number
    return str(document["group"]), offsets


class GroupResetter:
    """Plans and commits resets."""

    def __init__(self, cluster: Cluster, *, bootstrap: str) -> None:
        """Use `cluster`, which commands name as `bootstrap`."""
        self._cluster = cluster
        self._bootstrap = bootstrap

    async def plan(self, request: ResetRequest) -> Json:
        """Return what a reset would change, and the command that does the same.

        Raises:
            KafkaError: of the cluster.
            PlanError: a topic does not exist, or an offset cannot be shifted.
            ValueError: the group has no offsets, or the reset has too many partitions.
        """
        groups = Groups(self._cluster)
        state = await group_reset.state_of(groups, request.group)
        committed = {tp: one.offset for tp, one in (await groups.offsets(request.group)).items()}
        if request.topic is None:
            wanted = set(committed)
        else:
            admin = Admin(self._cluster)
            wanted = set(await group_reset.partitions_of_topics(admin, [request.topic]))
        if not 0 < len(wanted) <= PARTITIONS_MAX:
            raise ValueError(
                f"the reset has {len(wanted)} partitions; choose a topic"
                if wanted
                else f"group {request.group} has no committed offsets; choose a topic"
            )
        plan = await group_reset.plan_reset(self._cluster, request.group, wanted, request.scenario)
        return {
            "group": request.group,
            "state": state,
            "isAllowed": state in RESETTABLE_STATES,
            "rows": _rows(plan, committed),
            "command": self._command(request),
        }

    async def apply(self, group: str, offsets: group_reset.Offsets) -> Json:
        """Commit the offsets of a plan.

        Raises:
            KafkaError: the group has members, or an error of the cluster.
            PlanError: a partition refuses its offset.
        """
        groups = Groups(self._cluster)
        state = await group_reset.state_of(groups, group)
        if state not in RESETTABLE_STATES:
            raise KafkaError(
                ErrorCode.NON_EMPTY_GROUP,
                f"group {group} is {state}: stop its members, then reset it",
            )
        await group_reset.commit(groups, group, offsets)
        return {"group": group, "partitions": len(offsets)}

    def _command(self, request: ResetRequest) -> str:
        scope = "--all-topics" if request.topic is None else f"--topic {quote(request.topic)}"
        return (
            f"sparkraft consumer-groups --bootstrap-server {self._bootstrap} "
            f"--group {quote(request.group)} --reset-offsets {scope} {request.option} --execute"
        )


def _rows(plan: ResetPlan, committed: Mapping[tuple[str, int], int]) -> list[Json]:
    outside = {one.partition: one.wanted for one in plan.moved}
    return [
        {
            "topic": tp[0],
            "partition": tp[1],
            "from": committed.get(tp),
            "to": offset,
            "change": None if tp not in committed else offset - committed[tp],
            "outsideLog": outside.get(tp),
        }
        for tp, offset in sorted(plan.offsets.items())
    ]
