"""Whether a node is healthy: it serves, and it has been in touch with the quorum's leader.

In ZooKeeper mode: it serves, and its session has not expired.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparkraft.server.status import NodeStatus

LEADERLESS_MS_MAX = 1_000
"""An election takes less; a node without a leader for longer is not healthy."""


def health_of(node: "NodeStatus") -> dict[str, Any]:
    """Return the body of /health: the verdict and its reasons."""
    if node.config.is_zookeeper:
        return _health_in_zookeeper_mode(node)
    leader, epoch, leaderless_ms, in_touch = -1, -1, 0, False
    warning = None
    if node.raft is not None:
        leaderless_ms = node.raft.leaderless_ms
        # Not whether a leader is known: during an election none is, and the node is still healthy.
        in_touch = node.raft.has_met_leader and leaderless_ms < LEADERLESS_MS_MAX
        known = node.raft.leader_and_epoch
        leader = -1 if known.leader_id is None else int(known.leader_id)
        epoch = int(known.epoch)
        warning = node.raft.lost_directory_text
    serving = node.failure is None
    state = "CONTROLLER"
    if node.broker is not None:
        state = node.broker.lifecycle.state.name
        serving = serving and state == "RUNNING"
    return {
        "healthy": serving and in_touch,
        "serving": serving,
        "nodeId": node.config.node_id,
        "state": state,
        "quorumLeader": leader if leader >= 0 else None,
        "quorumEpoch": epoch,
        "quorumLeaderlessMs": leaderless_ms,
        # The node serves, and restarting it would not help: no reason for a 503.
        "warnings": [] if warning is None else [warning],
    }


def _health_in_zookeeper_mode(node: "NodeStatus") -> dict[str, Any]:
    status, broker = node.zookeeper, node.broker
    state = "STARTING" if broker is None else broker.lifecycle.state.name
    serving = node.failure is None and state == "RUNNING"
    controller = -1 if status is None else status.controller_id
    return {
        "healthy": serving and status is not None and status.session.is_valid,
        "serving": serving,
        "nodeId": node.config.node_id,
        "state": state,
        "zookeeperConnected": status is not None and status.session.is_connected,
        "controller": controller if controller >= 0 else None,
        "isController": status is not None and status.controller.is_active,
        "warnings": [],
    }
