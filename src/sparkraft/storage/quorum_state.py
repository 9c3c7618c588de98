"""`__cluster_metadata-0/quorum-state`: epoch, leader and vote, kept over restarts (KIP-595).

One line of JSON. Version 0 (kraft.version 0) and version 1 (kraft.version 1, KIP-853)::

    {"clusterId":"","leaderId":1,"leaderEpoch":2,"votedId":-1,"appliedOffset":0,
     "currentVoters":[{"voterId":1}],"data_version":0}
    {"leaderId":1,"leaderEpoch":2,"votedId":-1,"votedDirectoryId":"AAAA…","data_version":1}

Invariant: after a crash the file is the old one or the new one, never mixed.
"""

import json
from dataclasses import dataclass
from typing import Any

from sparkraft.base.ids import BrokerId, LeaderEpoch, Uuid
from sparkraft.storage.disk import Disk

QUORUM_STATE = "quorum-state"

_VERSIONS = (0, 1)
_NONE = BrokerId(-1)


class BadQuorumState(Exception):  # noqa: N818 (a sentence for the operator)
    """A `quorum-state` that can't be used; a node must not vote without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumState:
    """The file's content; ids are -1 if there is none.

    `voted_directory_id` is kept by version 1 only, `voter_ids` by version 0 only.
    """

    leader_epoch: LeaderEpoch
    leader_id: BrokerId = _NONE
    voted_id: BrokerId = _NONE
    voted_directory_id: Uuid = Uuid.ZERO
    voter_ids: tuple[BrokerId, ...] = ()
    version: int = 0

    def format(self) -> bytes:
        """The file's bytes."""
        fields: dict[str, Any] = {
            "leaderId": self.leader_id,
            "leaderEpoch": self.leader_epoch,
            "votedId": self.voted_id,
        }
        if self.version == 0:
            voters = [{"voterId": voter_id} for voter_id in self.voter_ids]
            fields = {"clusterId": "", **fields, "appliedOffset": 0, "currentVoters": voters}
        else:
            fields["votedDirectoryId"] = str(self.voted_directory_id)
        fields["data_version"] = self.version
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def parse(cls, data: bytes) -> "QuorumState":
        """Parse the file's first line; raise `BadQuorumState` that names what is wrong."""
        try:
            fields = json.loads(data.split(b"\n", 1)[0])
            version = fields["data_version"]
            if version not in _VERSIONS:
                raise BadQuorumState(f"quorum-state has data_version {version}; 0 and 1 are known")
            directory = fields.get("votedDirectoryId") if version else None
            return cls(
                leader_epoch=LeaderEpoch(_integer(fields, "leaderEpoch")),
                leader_id=BrokerId(_integer(fields, "leaderId")),
                voted_id=BrokerId(_integer(fields, "votedId")),
                voted_directory_id=Uuid.parse(directory) if directory else Uuid.ZERO,
                voter_ids=tuple(
                    BrokerId(_integer(voter, "voterId"))
                    for voter in fields.get("currentVoters") or ()
                ),
                version=version,
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadQuorumState(f"quorum-state is damaged: {error!r}") from error


def _integer(fields: dict[str, Any], name: str) -> int:
    value = fields[name]
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}, not a number")
    return value


def read_quorum_state(disk: Disk, directory: str) -> QuorumState | None:
    """Return the state in a metadata log's directory; None if there is none yet."""
    try:
        return QuorumState.parse(disk.read(f"{directory}/{QUORUM_STATE}"))
    except FileNotFoundError:
        return None
    except BadQuorumState as error:
        raise BadQuorumState(f"{directory}: {error}") from error


def write_quorum_state(disk: Disk, directory: str, state: QuorumState) -> None:
    """Put the state in place, on disk when this returns."""
    disk.replace(f"{directory}/{QUORUM_STATE}", state.format())
