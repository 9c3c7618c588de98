"""The status file of a pipeline, and the commands that read it or ask a running process."""

import fcntl
import json
import subprocess
import sys

import pytest

from sparkraft.cli import main as cli
from sparkraft.pipeline import check, spec, status
from sparkraft.pipeline import run as running

FILE = """
name = "n"
checkpoint = "state/n"
[source]
"kafka.bootstrap.servers" = "h:1"
subscribe = "t"
[[sink]]
kind = "console"
"""

HOLDER = """
import fcntl, signal, sys
from sparkraft.pipeline import status
lock = open(sys.argv[1] + ".lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX)
import os
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
status.write(sys.argv[1], name="n", state="running", pid=os.getpid(), batch=7)
print("ready", flush=True)
signal.sigwait([signal.SIGTERM])
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "n.toml"
    path.write_text(FILE)
    (tmp_path / "state").mkdir()
    return path


@pytest.fixture
def checkpoint(tmp_path):
    return str(tmp_path / "state" / "n")


@pytest.fixture
def process(file, checkpoint):
    """A process that holds the pipeline's lock until it is asked to stop."""
    started = subprocess.Popen(
        [sys.executable, "-c", HOLDER, checkpoint], stdout=subprocess.PIPE, text=True
    )
    assert started.stdout.readline() == "ready\n"
    yield started
    started.kill()
    started.wait(60)
    started.stdout.close()


def test_fields_are_added_and_a_dead_process_is_recognized(checkpoint, file):
    assert status.now(checkpoint) == {}
    status.write(checkpoint, name="n", state="running", pid=1)
    status.write(checkpoint, batch=3, lag=None)
    found = status.read(checkpoint)
    assert {**found, "at_ms": 0} == {
        "name": "n", "state": "running", "pid": 1, "batch": 3, "lag": None, "at_ms": 0,
    }  # fmt: skip
    assert status.now(checkpoint)["state"] == "killed"
    status.write(checkpoint, state="stopped")
    assert status.now(checkpoint)["state"] == "stopped"


def test_a_running_pipeline_is_listed_paused_and_stopped(process, file, checkpoint, capsys):
    assert cli.main(["pipeline", "list", str(file.parent)]) == 0
    line = capsys.readouterr().out.splitlines()[1]
    assert line.split() == ["n", "running", "7", "-", "-", "-"]
    assert cli.main(["pipeline", "list", str(file.parent), "--output", "json"]) == 0
    assert [each["name"] for each in json.loads(capsys.readouterr().out)] == ["n"]
    assert cli.main(["pipeline", "pause", str(file)]) == 0
    assert status.is_paused(checkpoint)
    assert cli.main(["pipeline", "resume", str(file)]) == 0
    assert not status.is_paused(checkpoint)
    assert cli.main(["pipeline", "reset", str(file)]) == 1
    assert "n is running; stop it first" in capsys.readouterr().err
    assert cli.main(["pipeline", "stop", str(file)]) == 0
    assert process.wait(60) == 0
    assert cli.main(["pipeline", "status", str(file)]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "killed"


@pytest.mark.parametrize("action", ["stop", "pause", "resume"])
def test_a_pipeline_that_does_not_run_is_named(file, capsys, action):
    assert cli.main(["pipeline", action, str(file)]) == 1
    assert capsys.readouterr().err.endswith("n is not running\n")


def test_a_reset_deletes_the_checkpoint_only_if_told_to(file, checkpoint, tmp_path, capsys):
    assert cli.main(["pipeline", "reset", str(file)]) == 1
    assert "does not exist" in capsys.readouterr().err
    offsets = tmp_path / "state" / "n" / "offsets"
    offsets.mkdir(parents=True)
    status.write(checkpoint, name="n", state="stopped")
    assert cli.main(["pipeline", "reset", str(file)]) == 0
    assert "would then begin at its startingOffsets" in capsys.readouterr().err
    assert offsets.is_dir()
    assert cli.main(["pipeline", "reset", str(file), "--execute"]) == 0
    assert [path.name for path in (tmp_path / "state").iterdir()] == []


def test_a_status_before_the_first_run_is_an_error(file, capsys):
    assert cli.main(["pipeline", "status", str(file)]) == 1
    assert "n has not run yet" in capsys.readouterr().err


def test_a_remote_checkpoint_has_no_status(file, capsys):
    file.write_text(FILE.replace("state/n", "s3://b/n"))
    assert cli.main(["pipeline", "stop", str(file)]) == 1
    assert "s3://b/n is not a folder of this machine" in capsys.readouterr().err


def test_another_pipelines_checkpoint_is_refused(file, checkpoint):
    status.write(checkpoint, name="m", state="stopped")
    read = spec.load(file)
    with pytest.raises(spec.SpecError, match="belongs to the pipeline m, which would lose"):
        check.before_spark(read)


def test_the_state_is_kept_also_after_a_failure(file, checkpoint):
    read = spec.load(file)

    def fail():
        with running._state_kept(read):
            assert status.read(checkpoint)["state"] == "starting"
            raise KeyError("why")

    with pytest.raises(KeyError):
        fail()
    found = status.read(checkpoint)
    assert (found["name"], found["state"], found["error"]) == ("n", "failed", "'why'")
    with running._state_kept(read):
        pass
    assert status.read(checkpoint)["state"] == "stopped"
    assert status.read(checkpoint)["error"] is None


def test_a_paused_pipeline_waits_until_it_may_continue_or_is_to_stop(checkpoint, file):
    assert running._waited_for_resume(checkpoint, lambda: False)
    status.pause(checkpoint, paused=True)
    looks = []

    def resumed():
        looks.append(status.read(checkpoint)["state"])
        status.pause(checkpoint, paused=len(looks) < 2)
        return False

    assert running._waited_for_resume(checkpoint, resumed)
    assert looks[:2] == ["paused", "paused"]
    status.pause(checkpoint, paused=True)
    assert not running._waited_for_resume(checkpoint, lambda: True)


def test_locks_are_seen(checkpoint, file):
    assert not status.runs(checkpoint)
    with open(checkpoint + ".lock", "w") as lock:
        assert not status.runs(checkpoint)
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert status.runs(checkpoint)
