"""The lag of a group: records between its committed offsets and the ends of the partitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import KafkaError
from sparkraft.client.admin import Admin
from sparkraft.client.groups import Groups
from sparkraft.client.values import LATEST

if TYPE_CHECKING:
    from sparkraft.client.cluster import Cluster
    from sparkraft.client.groups import GroupInfo, GroupMember


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
    rows = []
    for tp in wanted:
        end = ends[tp]
        known = committed.get(tp)
        rows.append(
            GroupLag(
                tp[0],
                tp[1],
                known.leader_epoch if known and known.leader_epoch >= 0 else None,
                known.offset if known else None,
                None if isinstance(end, KafkaError) else end.offset,
                owners.get(tp),
            )
        )
    return rows


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
