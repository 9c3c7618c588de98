"""`metadata-quorum repair`: a stopped node goes back to the epoch that its cluster's logs know."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sparkraft.base.ids import BrokerId, LeaderEpoch
from sparkraft.cli.main import main
from sparkraft.raft.epoch_guard import RESERVED_FROM
from sparkraft.records.record import BatchBuilder
from sparkraft.server.env import SystemClock, SystemEntropy
from sparkraft.storage.disk import OsDisk
from sparkraft.storage.quorum_state import QuorumState, read_quorum_state, write_quorum_state
from sparkraft.storage.raft_log import RaftLog
from tests.cli.test_storage import format_with, properties

END = LeaderEpoch(2**31 - 2)


def formatted(root: Path, *, log_epoch: int = 12, epoch: int = END) -> str:
    """A node whose log ends with a record of `log_epoch` and whose quorum-state is in `epoch`."""
    path = properties(root)
    assert format_with(path, "--standalone") == 0
    disk = OsDisk()
    log = RaftLog.open(disk, f"{root}/a", clock=SystemClock(), entropy=SystemEntropy())
    builder = BatchBuilder(base_offset=log.end, leader_epoch=log_epoch)
    builder.append(0, None, b"\x01\x14\x00\x00")
    log.append(builder.build())
    log.close()
    state = QuorumState(leader_epoch=LeaderEpoch(epoch), voted_id=BrokerId(1), version=1)
    write_quorum_state(disk, f"{root}/a/__cluster_metadata-0", state)
    return path


def state_of(root: Path, name: str = "") -> QuorumState | None:
    directory = root / "a" / "__cluster_metadata-0"
    if name:
        return QuorumState.parse((directory / name).read_bytes())
    return read_quorum_state(OsDisk(), str(directory))


def repair(path: str, *more: str) -> int:
    return main(["metadata-quorum", "repair", "--command-config", path, *more])


def test_the_steps_name_the_epoch_of_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = formatted(tmp_path)
    capsys.readouterr()
    assert repair(path) == 0
    out = capsys.readouterr().out
    assert f"Node 1 is in epoch {END}." in out
    assert "can elect a leader 0 more times" in out
    assert "On this node it is 12." in out
    assert f"repair --command-config {path} --epoch N" in out
    state = state_of(tmp_path)
    assert state is not None
    assert state.leader_epoch == END


def test_the_epoch_goes_back_without_the_vote_and_the_old_state_is_kept(tmp_path: Path) -> None:
    path = formatted(tmp_path)
    assert repair(path, "--epoch", "15") == 0
    state, kept = state_of(tmp_path), state_of(tmp_path, "quorum-state.before-repair")
    assert state == QuorumState(leader_epoch=LeaderEpoch(15), version=1)
    assert kept is not None
    assert (kept.leader_epoch, kept.voted_id) == (END, 1)


def test_a_dry_run_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = formatted(tmp_path)
    capsys.readouterr()
    assert repair(path, "--epoch", "12", "--dry-run", "--output", "json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "nodeId": 1,
        "epoch": END,
        "logEpoch": 12,
        "electionsLeft": 0,
        "needsRepair": True,
    }
    state = state_of(tmp_path)
    assert state is not None
    assert state.leader_epoch == END


def test_an_epoch_below_that_of_the_log_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = formatted(tmp_path)
    assert repair(path, "--epoch", "11") == 1
    assert "has records of epoch 12, which is above 11" in capsys.readouterr().err


def test_a_node_in_that_epoch_or_below_has_nothing_to_repair(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = formatted(tmp_path, epoch=13)
    assert repair(path) == 0
    assert "This node needs no repair" in capsys.readouterr().out
    assert repair(path, "--epoch", "13") == 1
    assert "there is nothing to repair" in capsys.readouterr().err


def test_a_log_of_the_last_epochs_cannot_go_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = formatted(tmp_path, log_epoch=RESERVED_FROM, epoch=RESERVED_FROM + 5)
    assert repair(path) == 0
    out = capsys.readouterr().out
    assert f"can elect a leader {2**20 - 2 - 5} more times" in out
    assert "the epoch cannot go back" in out


def test_a_running_node_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = formatted(tmp_path)
    command = f"""
import sys
from sparkraft.storage.disk import OsDisk
lock = OsDisk().lock({str(tmp_path / "a" / ".lock")!r})
print("held", flush=True)
sys.stdin.read()
"""
    holder = subprocess.Popen(
        [sys.executable, "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    try:
        assert repair(path, "--epoch", "12") == 1
    finally:
        holder.communicate()
    assert "stop node 1 first" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ((), "--command-config names the properties file of the stopped node"),
        (("--command-config", "x", "--bootstrap-server", "h:1"), "it connects to none"),
        (("--command-config", "x", "--epoch", "-1"), "--epoch -1 is negative"),
        (("--command-config", "x", "--status"), "--status does not go with repair"),
    ],
)
def test_a_wrong_command_line_says_what_is_wrong(
    more: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["metadata-quorum", "repair", *more]) != 0
    assert said in capsys.readouterr().err
