"""The lag of a group: records between its committed offsets and the ends of the partitions."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import KafkaError
from sparkraft.client.admin import Admin
from sparkraft.client.groups import Groups
from sparkraft.client.values import LATEST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkraft.base.ids import TopicPartition
    from sparkraft.client.cluster import Cluster
    from sparkraft.client.groups import GroupInfo, GroupMember
    from sparkraft.client.values import Committed, ListedOffset


@dataclass(frozen=True, slots=True)
class GroupLag:
    """A partition of a group."""

    topic: str
    partition: int
    leader_epoch: int | None
    offset: int | None
    end: int | None
    member: GroupMember | None

    @property
    def lag(self) -> int | None:
        """Records after the committed offset; None if either end is unknown."""
        return None if self.offset is None or self.end is None else self.end - self.offset


async def group_lags(cluster: Cluster, group: GroupInfo) -> list[GroupLag]:
    """The partitions of the members, those with most first, then those without an owner."""
    committed = await Groups(cluster).offsets(group.id)
    owners = {
        tp: member
        for member in sorted(group.members, key=lambda each: -len(each.assignment))
        for tp in sorted(member.assignment)
    }
    wanted = [*owners, *sorted(committed.keys() - owners.keys())]
    ends = await Admin(cluster).list_offsets(dict.fromkeys(wanted, LATEST))
    return [_row(tp, committed.get(tp), ends[tp], owners.get(tp)) for tp in wanted]


async def committed_lags(
    cluster: Cluster, group_ids: Sequence[str], *, partitions_max: int
) -> dict[str, list[GroupLag]]:
    """The lag of several groups by their committed offsets, without owners of partitions.

    Groups are missing if their offsets are refused, or if they have more partitions than are left
    of `partitions_max`, which is for all of them.
    """
    groups = Groups(cluster)
    async with asyncio.TaskGroup() as tasks:
        asked = {each: tasks.create_task(_committed(groups, each)) for each in group_ids}
    found: dict[str, dict[TopicPartition, Committed]] = {}
    for group_id, task in asked.items():
        committed = task.result()
        if committed is not None and len(committed) <= partitions_max:
            partitions_max -= len(committed)
            found[group_id] = committed
    wanted = sorted({tp for committed in found.values() for tp in committed})
    ends = await Admin(cluster).list_offsets(dict.fromkeys(wanted, LATEST)) if wanted else {}
    return {
        group_id: [_row(tp, committed[tp], ends[tp], None) for tp in sorted(committed)]
        for group_id, committed in found.items()
    }


async def _committed(groups: Groups, group_id: str) -> dict[TopicPartition, Committed] | None:
    try:
        return await groups.offsets(group_id)
    except KafkaError:
        return None


def _row(
    tp: TopicPartition,
    known: Committed | None,
    end: ListedOffset | KafkaError,
    owner: GroupMember | None,
) -> GroupLag:
    return GroupLag(
        tp[0],
        tp[1],
        known.leader_epoch if known and known.leader_epoch >= 0 else None,
        known.offset if known else None,
        None if isinstance(end, KafkaError) else end.offset,
        owner,
    )


def lag_json(row: GroupLag) -> dict[str, Any]:
    """The row as a JSON object, with null for what is unknown."""
    return {
        "topic": row.topic,
        "partition": row.partition,
        "currentOffset": row.offset,
        "logEndOffset": row.end,
        "lag": row.lag,
        "leaderEpoch": row.leader_epoch,
        "consumerId": row.member.id if row.member else None,
        "host": row.member.host if row.member else None,
        "clientId": row.member.client_id if row.member else None,
    }
