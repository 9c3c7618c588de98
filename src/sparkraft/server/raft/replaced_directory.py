"""Detects that this node's metadata directory is not the one the voter set has for its id."""

from typing import TYPE_CHECKING

from sparkraft.base.ids import Uuid
from sparkraft.client.lost_directory import LostDirectory

if TYPE_CHECKING:
    from sparkraft.raft.quorum import Quorum


def lost_directory_of(quorum: "Quorum") -> LostDirectory | None:
    """Return this node's lost directory; None if it is a voter, or no voter has its id."""
    local = quorum.config.local
    voter = quorum.log.voters.get(local.id)
    if voter is None or voter.matches(local) or voter.key.directory_id is None:
        return None
    return LostDirectory(
        node_id=local.id,
        lost=voter.key.directory_id,
        current=local.directory_id or Uuid.ZERO,
    )


def bootstrap_of(quorum: "Quorum") -> str:
    """The option that connects a tool to the quorum's leader."""
    leader = quorum.leader_node
    if leader is None:
        return "--bootstrap-controller HOST:PORT"
    host = f"[{leader.host}]" if ":" in leader.host else leader.host
    return f"--bootstrap-controller {host}:{leader.port}"
