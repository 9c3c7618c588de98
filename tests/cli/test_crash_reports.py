"""Stacks of crashed and of asked processes, in processes of their own."""

import signal
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import os, signal, sys
from sparkraft.cli.crash_reports import report_crashes
report_crashes(sys.argv[1])
def waits_here():
    os.kill(os.getpid(), getattr(signal, sys.argv[2]))
waits_here()
print("continues")
"""


def process(folder: str, name: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", PROGRAM, folder, name]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_sigquit_prints_the_stacks_and_the_process_continues(tmp_path: Path):
    done = process(str(tmp_path / "logs"), "SIGQUIT")
    assert (done.returncode, done.stdout) == (0, "continues\n")
    assert "in waits_here" in done.stderr
    assert (tmp_path / "logs" / "crash.log").read_text() == ""


def test_a_crash_leaves_the_stacks_in_the_log_directory(tmp_path: Path):
    done = process(str(tmp_path), "SIGSEGV")
    assert done.returncode == -signal.SIGSEGV
    report = (tmp_path / "crash.log").read_text()
    assert "Segmentation fault" in report
    assert "in waits_here" in report


def test_without_a_log_directory_a_crash_is_on_standard_error():
    done = process("", "SIGABRT")
    assert done.returncode == -signal.SIGABRT
    assert "in waits_here" in done.stderr
