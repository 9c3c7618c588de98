"""Stacks of a node's threads: when its process crashes, and when an operator asks with SIGQUIT.

    SIGSEGV, SIGFPE, SIGABRT, SIGBUS, SIGILL   in native code: the stacks, then the process ends
    SIGQUIT (`kill -QUIT PID`)                 the stacks, and the node continues, as a JVM does

They are on standard error; with `sparkraft.log.dir` those of a crash are in its file crash.log.
Errors that stop a node are in its log, with the traceback.
"""

import faulthandler
import signal
import sys
from pathlib import Path
from typing import TextIO

FILE_NAME = "crash.log"

_open: list[TextIO] = []
"""The file of crashes: `faulthandler` needs it for as long as the process lives."""


def report_crashes(folder: str) -> None:
    """Report from now on; `folder` is `sparkraft.log.dir`, or empty.

    Raises:
        OSError: the file cannot be written.
    """
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        _open.append((Path(folder) / FILE_NAME).open("a", encoding="utf-8"))
    faulthandler.enable(_open[-1] if folder else sys.stderr)
    faulthandler.register(signal.SIGQUIT, file=sys.stderr, all_threads=True, chain=False)
