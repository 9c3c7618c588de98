"""Java programs that run beside a test until they end or are killed, each in a JVM of its own."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

END_SECONDS_MAX = 90


class JavaProgram:
    """One program, which may be started again after its end; its output is appended to files."""

    def __init__(self, command: Sequence[str], output: Path) -> None:
        """Start nothing.

        Args:
            command: with all arguments.
            output: gets standard output; standard error goes to the same name with `.err`.
        """
        self.output = output
        self.errors = output.with_suffix(".err")
        self.starts = 0
        self._command = list(command)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; it must not run."""
        assert not self.is_running
        self.starts += 1
        with self.output.open("ab") as output, self.errors.open("ab") as errors:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors
            )

    @property
    def is_running(self) -> bool:
        """Whether its process has started and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """Of the last process, if that has ended."""
        return None if self._process is None else self._process.poll()

    def kill(self) -> None:
        """kill -9, if it runs."""
        self._end(signal.SIGKILL)

    def terminate(self) -> int:
        """SIGTERM, and wait for its end; the exit code, 143 from a JVM that ends by the signal."""
        return self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> int:
        assert self._process is not None
        if self._process.poll() is None:
            os.kill(self._process.pid, how)
        return self._process.wait(END_SECONDS_MAX)

    def lines(self) -> list[str]:
        """The complete lines of standard output so far."""
        if not self.output.exists():
            return []
        return self.output.read_text(errors="replace").rpartition("\n")[0].splitlines()

    def events(self) -> list[dict[str, Any]]:
        """The lines of standard output that are JSON objects."""
        return [json.loads(line) for line in self.lines() if line.startswith("{")]

    def tail(self) -> str:
        """The end of both outputs."""
        files = (path for path in (self.output, self.errors) if path.exists())
        return "\n".join(path.read_text(errors="replace")[-3_000:] for path in files)


@contextmanager
def killed_at_the_end(*programs: JavaProgram) -> Iterator[None]:
    """At the end of the block kill the programs that run."""
    try:
        yield
    finally:
        for program in programs:
            if program.is_running:
                program.kill()


@contextmanager
def running(*programs: JavaProgram) -> Iterator[None]:
    """Start the programs; at the end of the block kill those that still run."""
    with killed_at_the_end(*programs):
        for program in programs:
            program.start()
        yield
