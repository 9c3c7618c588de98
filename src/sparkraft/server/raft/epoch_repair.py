"""Repair of a quorum whose epoch has come to the end of its range; the node must be stopped.

A forged Vote, or years of elections, may bring the epoch in `quorum-state` to the reserved epochs
(`raft.epoch_guard`). If no leader was elected since, the log does not know those epochs, and all
nodes may go back to the largest epoch that any of their logs knows:

* An epoch above all logs has no records, so no leader of one acknowledged anything.
* Every node forgets its vote and its leader. All voters are stopped meanwhile, so no vote of the
  old epochs is counted in a new one.

Not here: a log with records of the reserved epochs. Its quorum works until they are used up.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sparkraft.base.ids import BrokerId, LeaderEpoch, Uuid
from sparkraft.raft.epoch_guard import EPOCH_LAST, RESERVED_FROM
from sparkraft.storage.names import METADATA_DIR
from sparkraft.storage.quorum_state import (
    QUORUM_STATE,
    QuorumState,
    read_quorum_state,
    write_quorum_state,
)
from sparkraft.storage.raft_log import RaftLog

if TYPE_CHECKING:
    from sparkraft.server.config import NodeConfig
    from sparkraft.server.env import Env

BACKUP = f"{QUORUM_STATE}.before-repair"
"""Beside `quorum-state`; a later repair replaces it."""


class RepairRefused(Exception):  # noqa: N818 (a sentence for the operator)
    """The epoch can't be set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochReport:
    """The epochs of a stopped node.

    Attributes:
        state: its `quorum-state`; None if it has none yet.
        log_epoch: the epoch of the last record in its log, or of its latest snapshot; 0 if empty.
    """

    node_id: BrokerId
    state: QuorumState | None
    log_epoch: LeaderEpoch

    @property
    def epoch(self) -> LeaderEpoch:
        """The epoch it starts in."""
        return max(self.log_epoch, self.state.leader_epoch if self.state else LeaderEpoch(0))

    @property
    def needs_repair(self) -> bool:
        """Whether it starts in one of the reserved epochs."""
        return self.epoch >= RESERVED_FROM

    @property
    def elections_left(self) -> int:
        """The number of epochs after `epoch` in which a leader can be elected."""
        return max(0, EPOCH_LAST - self.epoch)


def read_epochs(config: "NodeConfig", env: "Env") -> EpochReport:
    """Read the epochs of a stopped node; blocks.

    Raises:
        DirectoryLocked: the node is running.
        StorageFault, BadQuorumState: its files cannot be read.
    """
    lock = env.disk.lock(f"{config.metadata_log_dir}/.lock")
    try:
        return _read(config, env)
    finally:
        lock.release()


def _read(config: "NodeConfig", env: "Env") -> EpochReport:
    log = RaftLog.open(env.disk, config.metadata_log_dir, clock=env.clock, entropy=env.entropy)
    try:
        snapshot = log.latest_snapshot
        known = [0, *(epoch for epoch, _ in log.epochs), snapshot.epoch if snapshot else 0]
    finally:
        log.close()
    return EpochReport(
        node_id=BrokerId(config.node_id),
        state=read_quorum_state(env.disk, f"{config.metadata_log_dir}/{METADATA_DIR}"),
        log_epoch=LeaderEpoch(max(known)),
    )


def set_epoch(config: "NodeConfig", env: "Env", epoch: int) -> EpochReport:
    """Let a stopped node start in `epoch`, without a vote; returns what it was in; blocks.

    `epoch` must be the largest `EpochReport.log_epoch` of all nodes of the cluster.

    Raises:
        RepairRefused: the node's log has a newer epoch, or `epoch` is not below its own.
        DirectoryLocked, StorageFault, BadQuorumState: as `read_epochs`.
    """
    lock = env.disk.lock(f"{config.metadata_log_dir}/.lock")
    try:
        report = _read(config, env)
        state = report.state
        if epoch < report.log_epoch:
            raise RepairRefused(
                f"the log of node {report.node_id} has records of epoch "
                f"{report.log_epoch}, which is above {epoch}"
            )
        if state is None or epoch >= state.leader_epoch:
            raise RepairRefused(
                f"node {report.node_id} is in epoch {report.epoch}, which is not "
                f"above {epoch}: there is nothing to repair"
            )
        directory = f"{config.metadata_log_dir}/{METADATA_DIR}"
        env.disk.replace(f"{directory}/{BACKUP}", state.format())
        fresh = replace(
            state,
            leader_epoch=LeaderEpoch(epoch),
            leader_id=BrokerId(-1),
            voted_id=BrokerId(-1),
            voted_directory_id=Uuid.ZERO,
        )
        write_quorum_state(env.disk, directory, fresh)
    finally:
        lock.release()
    return report
