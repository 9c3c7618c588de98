"""Changes of the cluster by an editor: each is shown as a plan first, then carried out.

    {"kind": "create-topic", ...}   validated by the cluster; differences, command, warnings
    the same, with "confirm"        carried out

The kinds are those of `KINDS`; their classes describe the fields. Records and offsets of groups are
written by `send` and `reset`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkraft.client.leadership import LeadershipAdmin
from sparkraft.console.access_changes import AlterQuota, ChangeAcl
from sparkraft.console.change import text_of
from sparkraft.console.config_changes import AlterConfig
from sparkraft.console.replica_changes import (
    CancelReassignment,
    ElectLeaders,
    Reassign,
    RemoveThrottles,
)
from sparkraft.console.topic_changes import AddPartitions, CreateTopic, DeleteRecords, DeleteTopic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sparkraft.client.cluster import Cluster
    from sparkraft.console.change import Change, Json

KINDS: Mapping[str, Callable[[Mapping[str, Any]], Change]] = {
    "create-topic": CreateTopic.parse,
    "add-partitions": AddPartitions.parse,
    "delete-topic": DeleteTopic.parse,
    "delete-records": DeleteRecords.parse,
    "alter-config": AlterConfig.parse,
    "elect": ElectLeaders.parse,
    "reassign": Reassign.parse,
    "cancel-reassignment": CancelReassignment.parse,
    "remove-throttles": RemoveThrottles.parse,
    "add-acl": ChangeAcl.added,
    "remove-acl": ChangeAcl.removed,
    "alter-quota": AlterQuota.parse,
}


def parse_change(document: Mapping[str, Any]) -> Change:
    """Return the change that a request asks for.

    Raises:
        KeyError: a field is missing.
        ValueError: a field is malformed.
    """
    kind = text_of(document, "kind")
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, not {kind[:60]!r}")
    return KINDS[kind](document)


class ClusterChanger:
    """Plans changes and carries them out."""

    def __init__(self, cluster: Cluster, *, bootstrap: str) -> None:
        """Use `cluster`, which commands name as `bootstrap`."""
        self._admin = LeadershipAdmin(cluster)
        self._bootstrap = bootstrap

    async def plan(self, change: Change) -> Json:
        """Return what a change would do; see `Change.plan`."""
        return (await change.plan(self._admin, self._bootstrap)).as_json()

    async def apply(self, change: Change) -> str:
        """Carry a change out; see `Change.apply`."""
        return await change.apply(self._admin)
