"""Controllers whose metadata directory was lost and re-formatted, and their repair.

The voter set identifies a voter by node id and directory id (KIP-853). After `storage format` the
directory has another id: the node becomes an observer, and the quorum counts a voter that cannot
vote anymore.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkraft.base.errors import KafkaError
from sparkraft.base.ids import Uuid

if TYPE_CHECKING:
    from sparkraft.client.cluster import Cluster
    from sparkraft.client.values import QuorumInfo

QUORUM_MS_MAX = 3_000
"""Wait for DescribeQuorum; without a leader there is no response, and no repair either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostDirectory:
    """A voter's directory that its node replaced with another one."""

    node_id: int
    lost: Uuid
    current: Uuid

    def repair(self, bootstrap: str) -> tuple[str, str]:
        """The two commands that replace the voter; `bootstrap` is an option and its value."""
        command = "sparkraft metadata-quorum"
        return (
            f"{command} remove-controller {bootstrap} --controller-id {self.node_id} "
            f"--controller-directory-id {self.lost}",
            f"{command} add-controller {bootstrap} --command-config server.properties",
        )

    def explanation(self, bootstrap: str) -> str:
        """One paragraph: the state, its danger, its repair."""
        remove, add = self.repair(bootstrap)
        return (
            f"Node {self.node_id} is only an observer of the quorum: the voter set has its id with "
            f"directory {self.lost}, but its metadata directory is {self.current}, as after "
            "losing and re-formatting it. The quorum counts a voter that never votes. Remove "
            f"the lost voter with `{remove}`, then add the node again, with its own properties "
            f"file, with `{add}`"
        )


async def lost_directories(cluster: Cluster) -> list[LostDirectory]:
    """The voters whose nodes fetch as observers with another directory; none without a leader."""
    from sparkraft.client.admin import Admin

    try:
        async with asyncio.timeout(QUORUM_MS_MAX / 1000):
            return lost_directories_in(await Admin(cluster).describe_quorum())
    except (KafkaError, TimeoutError):
        return []


def lost_directories_in(quorum: QuorumInfo) -> list[LostDirectory]:
    """The same, of a quorum's description.

    A replaced directory stays an observer until its session expires; it fetches no more.
    """
    voters = {voter.id: voter for voter in quorum.voters}
    return [
        LostDirectory(node_id=each.id, lost=voter.directory_id, current=each.directory_id)
        for each in quorum.observers
        if (voter := voters.get(each.id)) is not None
        and voter.directory_id not in {Uuid.ZERO, each.directory_id}
        and each.last_fetch_ms > voter.last_fetch_ms
    ]
