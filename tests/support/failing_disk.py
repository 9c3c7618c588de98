"""A disk that fails on command under a real process, by a small library loaded before libc's."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.support.outside_tools import CACHE, Missing

_SOURCE = Path(__file__).with_name("failing_disk.c")


def _library() -> Path | Missing:
    if not sys.platform.startswith("linux"):
        return Missing("needs Linux: /proc and LD_PRELOAD")
    compiler = shutil.which("cc")
    if compiler is None:
        return Missing("needs a C compiler, cc")
    built = CACHE / "failing_disk.so"
    if not built.exists() or built.stat().st_mtime < _SOURCE.stat().st_mtime:
        CACHE.mkdir(exist_ok=True)
        fresh = CACHE / f"failing_disk.{os.getpid()}.so"
        options = ["-shared", "-fPIC", "-O1", "-o", str(fresh), str(_SOURCE), "-ldl"]
        done = subprocess.run(
            [compiler, *options], capture_output=True, text=True, timeout=60, check=False
        )
        if done.returncode:
            return Missing(f"cc could not build {_SOURCE.name}: {done.stderr[-300:]}")
        fresh.replace(built)
    return built


@dataclass(frozen=True, slots=True)
class FailingDisk:
    """Give `environment` to a process; then `fail` and `heal` at will."""

    library: Path
    control: Path

    @classmethod
    def in_folder(cls, folder: Path) -> "FailingDisk | Missing":
        """One that is told by a file in `folder`; the reason where it can't be built."""
        library = _library()
        if isinstance(library, Missing):
            return library
        return cls(library, folder / "failing_disk.control")

    @property
    def environment(self) -> dict[str, str]:
        """For the process whose disk is to fail."""
        return {"LD_PRELOAD": str(self.library), "FAILING_DISK": str(self.control)}

    def fail(self, operation: str, number: int, part: str) -> None:
        """From now on `operation` (write or sync) fails with errno `number` where `part` is in
        the file's path."""
        fresh = self.control.with_suffix(".new")
        fresh.write_text(f"{operation} {number} {part}\n")
        fresh.replace(self.control)

    def heal(self) -> None:
        """Nothing fails any more."""
        self.control.unlink(missing_ok=True)
