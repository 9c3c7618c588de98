"""The pipeline in a process of its own, which is killed once (kill -9) with all its children."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from sparkraft.pipeline import batch_log
from sparkraft.pipeline.run import PipelineError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sparkraft.pipeline.spec import Pipeline

_LOOK_SECONDS: Final = 0.1
_KILL_AFTER_SECONDS: Final = 0.6
"""From the end of a batch: a moment within the next one."""
_STOP_SECONDS_MAX: Final = 120.0


class Driver:
    """Runs a pipeline file, and kills it after a number of batches."""

    def __init__(self, command: Sequence[str], pipeline: Pipeline) -> None:
        """Prepare.

        Args:
            command: that runs the pipeline.
            pipeline: the same, for its checkpoint.
        """
        self._command = command
        self._pipeline = pipeline
        self._process: subprocess.Popen[bytes] | None = None
        self.is_killed = False

    def run(
        self,
        *,
        on_batch: Callable[[Mapping[str, Any]], None],
        is_time_to_kill: Callable[[], bool],
        is_over: Callable[[], bool],
    ) -> None:
        """Run until `is_over`; `on_batch` gets the document of each batch."""
        reader = batch_log.Reader(self._pipeline.checkpoint)
        self._start()
        try:
            while not is_over():
                for document in reader.new():
                    on_batch(document)
                self._require_running()
                if not self.is_killed and is_time_to_kill():
                    time.sleep(_KILL_AFTER_SECONDS)
                    self._kill()
                    self.is_killed = True
                    self._start()
                time.sleep(_LOOK_SECONDS)
        finally:
            self._stop()

    def _start(self) -> None:
        # In a session of its own: it is killed as a whole, and Ctrl-C reaches only this process.
        self._process = subprocess.Popen(
            self._command, stderr=subprocess.DEVNULL, start_new_session=True
        )

    def _require_running(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            log = f"{self._pipeline.checkpoint}.log"
            raise PipelineError(f"the pipeline's process ended by itself; see {log}")

    def _kill(self) -> None:
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _stop(self) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._kill()


def command_of(file: str, values: Mapping[str, str]) -> list[str]:
    """The command that runs a pipeline file with values."""
    settings = [word for name, value in values.items() for word in ("--set", f"{name}={value}")]
    return [sys.executable, "-P", "-m", "sparkraft.cli.main", "pipeline", "run", file, *settings]
