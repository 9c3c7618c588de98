"""A sentence about the quorum leader, for clients that sent a request to the wrong node."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparkraft.server.raft.status import QuorumStatus


def describe_leader(raft: "QuorumStatus") -> str:
    """The leader and its epoch; if there is none, the epoch and the voters that could elect one.

    A voter that cannot win keeps the id of a failed leader (KIP-996), so the leader counts only
    while this node is in touch with it.
    """
    known = raft.leader_and_epoch
    voters = ", ".join(map(str, raft.voters.ids)) or "unknown here"
    if known.leader_id is not None and not raft.leaderless_ms:
        node = raft.leader_node
        place = f" at {node.host}:{node.port}" if node is not None else ""
        return f"Controller {known.leader_id}{place} leads the quorum in epoch {known.epoch}"
    last = "" if known.leader_id is None else f" (controller {known.leader_id} does not respond)"
    return (
        f"Node {raft.node_id} knows no leader of the quorum in epoch {known.epoch}"
        f"{last}; the voters are {voters}"
    )
