"""Who leads the quorum, as one node knows it, in a sentence for those who ask the wrong one."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparkraft.server.raft.driver import RaftDriver


def describe_leader(raft: "RaftDriver") -> str:
    """Names the leader and its epoch, or says that there is none, and who could elect one.

    A voter that can't win keeps the name of a leader that is gone (KIP-996), so what counts is
    whether this node is in touch with one.
    """
    known = raft.leader_and_epoch
    voters = ", ".join(map(str, raft.voters.ids)) or "not known here"
    if known.leader_id is not None and not raft.leaderless_ms:
        node = raft.leader_node
        place = f" at {node.host}:{node.port}" if node is not None else ""
        return f"Controller {known.leader_id}{place} leads the quorum in epoch {known.epoch}"
    last = "" if known.leader_id is None else f" (controller {known.leader_id} does not answer)"
    return (
        f"The quorum has no leader, as far as node {raft.node_id} knows, in epoch {known.epoch}"
        f"{last}; its voters are {voters}"
    )
