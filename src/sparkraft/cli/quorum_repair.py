"""`metadata-quorum repair`: leads a cluster out of the last epochs (`server.raft.epoch_repair`).

sparkraft metadata-quorum repair --command-config FILE             what is wrong, and what to do
sparkraft metadata-quorum repair --command-config FILE --epoch N   do it on this node
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkraft.cli.errors import CommandError
from sparkraft.cli.session import print_json

if TYPE_CHECKING:
    from sparkraft.cli.options import Values
    from sparkraft.server.config import NodeConfig
    from sparkraft.server.raft.epoch_repair import EpochReport


def repair(values: Values) -> int:
    """Report the epochs of the node, or with `--epoch` set them."""
    # No other action needs a node's parts.
    from sparkraft.server.env import real_env
    from sparkraft.server.raft.epoch_repair import RepairRefused, read_epochs, set_epoch
    from sparkraft.storage.disk import DirectoryLocked, StorageFault
    from sparkraft.storage.quorum_state import BadQuorumState

    config, env = _read_config(values.command_config), real_env()
    try:
        if values.epoch is None or values.dry_run:
            _report(values, read_epochs(config, env))
        else:
            _done(values, set_epoch(config, env, values.epoch))
    except DirectoryLocked as error:
        raise CommandError(f"{error}: stop node {config.node_id} first") from error
    except (RepairRefused, StorageFault, BadQuorumState) as error:
        raise CommandError(str(error)) from error
    return 0


def _read_config(path: str) -> NodeConfig:
    from sparkraft.server.config import ConfigError, NodeConfig

    try:
        return NodeConfig.from_text(Path(path).read_text(encoding="latin-1"))
    except (OSError, ConfigError) as error:
        raise CommandError(f"{path}: {error}") from error


def _shown(report: EpochReport) -> dict[str, Any]:
    return {
        "nodeId": report.node_id,
        "epoch": report.epoch,
        "logEpoch": report.log_epoch,
        "electionsLeft": report.elections_left,
        "needsRepair": report.needs_repair,
    }


def _report(values: Values, report: EpochReport) -> None:
    if values.output == "json":
        print_json(_shown(report))
        return
    print(f"Node {report.node_id} is in epoch {report.epoch}.")
    print(f"The last record of its metadata log is of epoch {report.log_epoch}.")
    if report.needs_repair:
        print(f"The quorum can elect a leader {report.elections_left} more times.")
    if not report.needs_repair:
        print("This node needs no repair. If another node does, note the epoch of the last record.")
    elif _log_is_at_the_end(report):
        print(_AT_THE_END)
    else:
        print(_STEPS.format(path=values.command_config, log_epoch=report.log_epoch))


def _log_is_at_the_end(report: EpochReport) -> bool:
    from sparkraft.raft.epoch_guard import RESERVED_FROM

    return report.log_epoch >= RESERVED_FROM


def _done(values: Values, before: EpochReport) -> None:
    if values.output == "json":
        print_json(_shown(before) | {"newEpoch": values.epoch})
        return
    print(
        f"Node {before.node_id} goes back from epoch {before.epoch} to {values.epoch}. "
        "Do the same on every other node before you start any of them."
    )


_STEPS = """
To repair the cluster:
  1. Stop all of its nodes, controllers and brokers.
  2. On every node, run this command without --epoch and note the epoch of its last record.
  3. N is the largest of these epochs. On this node it is {log_epoch}.
  4. On every node that is in a larger epoch than N, run:
       sparkraft metadata-quorum repair --command-config {path} --epoch N
     The old quorum-state is kept beside the new one as quorum-state.before-repair.
  5. Start the controllers, then the brokers.
  6. Let only the nodes of the cluster connect to the controller listeners. Without authentication
     any process that can connect may raise the epoch again.
Do not leave out a voter: a committed record may be only on the voters that are missing."""

_AT_THE_END = """
The log has records of the last epochs, so the epoch cannot go back. The quorum works until its last
epoch is used. Before that, move the data to a new cluster.
Let only the nodes of the cluster connect to the controller listeners. Without authentication any
process that can connect may raise the epoch."""
