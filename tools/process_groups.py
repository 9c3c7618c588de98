"""Processes of `./test`, each with all that it starts: they end together.

A tool that is stopped by Ctrl-C, SIGTERM or SIGHUP interrupts what it has started: pytest then ends
the nodes and clusters of its tests, also those in sessions of their own. Whatever has not ended
after `STOP_SECONDS_MAX` is killed.
"""

import contextlib
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from types import FrameType
from typing import IO

STOP_SECONDS_MAX = 20.0
"""Ending a cluster of JVMs takes up to ten seconds."""


class ProcessGroups:
    """The process groups that a tool runs, from any number of threads.

    Attributes:
        stopped: set when no more are started.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self.stopped = threading.Event()

    def start(
        self, command: list[str], output: IO[bytes] | None, cwd: Path, environment: dict[str, str]
    ) -> subprocess.Popen[bytes] | None:
        """Start a process in a group of its own; None after `stop`.

        Args:
            command: the program and its arguments.
            output: for both of its streams; None: those of this process.
            cwd: its working directory.
            environment: added to that of this process.
        """
        with self._lock:
            if self.stopped.is_set():
                return None
            process = subprocess.Popen(
                command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                env={**os.environ, **environment}, start_new_session=True,
            )  # fmt: skip
            self._running.add(process)
            return process

    def end(self, process: subprocess.Popen[bytes]) -> None:
        """Kill what a group has left running."""
        _signal(process, signal.SIGKILL)
        process.wait()
        with self._lock:
            self._running.discard(process)

    def stop(self, seconds_max: float = STOP_SECONDS_MAX) -> None:
        """End all groups, and start no more; another interrupt kills them at once."""
        with self._lock:
            self.stopped.set()
            running = list(self._running)
        deadline = time.monotonic() + seconds_max
        try:
            for process in running:
                _signal(process, signal.SIGINT)
            for process in running:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(deadline - time.monotonic(), 0))
        finally:
            for process in running:
                self.end(process)


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def interrupt_on_signals() -> None:
    """Raise KeyboardInterrupt in the main thread also on SIGTERM and SIGHUP.

    A shell starts its background jobs with SIGINT ignored, and processes inherit that: with a
    handler here, those that are started from now on can be interrupted.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt(signal.Signals(number).name)

    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
