"""Processes that `up` starts and `down` ends: nodes and the console.

A process is only ever ended by its id, and only if it is still the one we started: its start time
is recorded with the id.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from sparkraft.cli.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

STOP_SECONDS_MAX = 60
"""A process that still runs this long after SIGTERM is killed."""

_POLL_SECONDS = 0.02


class LocalProcess(Protocol):
    """A recorded process; both are None if none was started."""

    pid: int | None
    started: str | None
    """Start time of process `pid`, as the system prints it; distinguishes it from a later
    process."""


_children: dict[int, subprocess.Popen[bytes]] = {}
"""Processes that this very process started; they must be waited for, or they stay as zombies."""


def launch(
    recorded: LocalProcess,
    command: Sequence[str],
    log: Path,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Start a process that appends its output to `log`, and record it.

    `environment` has variables that it gets beside ours.
    """
    with log.open("ab") as output:
        # Its own session: Ctrl-C at our terminal reaches us alone, and we end it in order.
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
    _children[process.pid] = process
    recorded.pid = process.pid
    recorded.started = start_of(process.pid)


def is_running(recorded: LocalProcess) -> bool:
    """Whether the process we started still runs."""
    if recorded.pid is None:
        return False
    child = _children.get(recorded.pid)
    if child is not None and child.poll() is not None:
        return False
    return recorded.started is not None and start_of(recorded.pid) == recorded.started


def end(*processes: LocalProcess) -> None:
    """Send SIGTERM and wait for a clean stop of all; SIGKILL if it takes too long."""
    running = [(each, each.pid) for each in processes if is_running(each)]
    for _, pid in running:
        assert pid is not None
        os.kill(pid, signal.SIGTERM)
        # A paused process handles SIGTERM only after it resumes.
        os.kill(pid, signal.SIGCONT)
    deadline = time.monotonic() + STOP_SECONDS_MAX
    for each, pid in running:
        assert pid is not None
        if not wait_for_end(each, deadline - time.monotonic()):
            os.kill(pid, signal.SIGKILL)
            wait_for_end(each, STOP_SECONDS_MAX)
    for each in processes:
        forget(each)


def wait_for_end(recorded: LocalProcess, seconds: float) -> bool:
    """Whether the process ends within `seconds`."""
    deadline = time.monotonic() + seconds
    while is_running(recorded):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def forget(recorded: LocalProcess) -> None:
    """Record that the process has ended."""
    recorded.pid = None
    recorded.started = None


def start_of(pid: int) -> str | None:
    """When process `pid` began; None if it does not exist or is a zombie.

    Its main thread may be a zombie while others still end, a write to the disk under way: until the
    last one has, the process keeps its ports and its directory's lock.
    """
    stat = Path(f"/proc/{pid}/stat")
    if Path("/proc/self/stat").exists():
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            return None
        state, threads, started = fields[0], int(fields[17]), fields[19]
        return None if state == "X" or (state == "Z" and threads <= 1) else started
    asked = subprocess.run(
        ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return asked.stdout.strip() or None


def own_pid(recorded: LocalProcess, name: str) -> int:
    """The id of a process that runs; `CommandError` if it does not."""
    if not is_running(recorded) or recorded.pid is None:
        raise CommandError(f"{name} is not running")
    return recorded.pid
