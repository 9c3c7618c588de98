"""Facts for the health of a cluster that take a request to each broker, or to many coordinators.

Log directories that are offline, and groups without members that have records left to read. Each is
left out if it is not available in time or not allowed: the other facts do not depend on them.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client.admin import Admin
from sparkraft.client.group_lag import committed_lags
from sparkraft.client.groups import Groups

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sparkraft.client.cluster import Cluster

HEALTH_MS_MAX = 3_000

GROUPS_MAX = 50
"""Groups without members whose offsets are requested."""

GROUP_PARTITIONS_MAX = 1_000
"""Of all these groups together."""

_EMPTY = "Empty"


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthFacts:
    """See the module docstring.

    Attributes:
        offline_dirs: broker → its log directories that are offline.
        idle_groups: group without members → records after its committed offsets, more than 0.
    """

    offline_dirs: Mapping[int, Sequence[str]] = field(default_factory=dict)
    idle_groups: Mapping[str, int] = field(default_factory=dict)


async def health_facts(cluster: Cluster) -> HealthFacts:
    """Request both."""
    offline, idle = await asyncio.gather(_offline_dirs(cluster), _idle_groups(cluster))
    return HealthFacts(offline_dirs=offline, idle_groups=idle)


async def _offline_dirs(cluster: Cluster) -> dict[int, list[str]]:
    admin = Admin(cluster)
    try:
        brokers = sorted((await cluster.refresh()).nodes)
    except KafkaError:
        return {}

    async def of_broker(broker: int) -> list[str]:
        try:
            async with asyncio.timeout(HEALTH_MS_MAX / 1000):
                directories = await admin.log_dirs_alone(broker)
        except (KafkaError, TimeoutError):
            return []
        offline = ErrorCode.KAFKA_STORAGE_ERROR
        return [each.path for each in directories if each.error is offline]

    found = await asyncio.gather(*map(of_broker, brokers))
    return {broker: paths for broker, paths in zip(brokers, found, strict=True) if paths}


async def _idle_groups(cluster: Cluster) -> dict[str, int]:
    try:
        async with asyncio.timeout(HEALTH_MS_MAX / 1000):
            listed = await Groups(cluster).list()
            empty = sorted(
                each.id for each in listed if each.state == _EMPTY and each.kind.lower() != "share"
            )
            lags = await committed_lags(
                cluster, empty[:GROUPS_MAX], partitions_max=GROUP_PARTITIONS_MAX
            )
    except (KafkaError, TimeoutError):
        return {}
    sums = {group: sum(row.lag or 0 for row in rows) for group, rows in lags.items()}
    return {group: lag for group, lag in sums.items() if lag > 0}
