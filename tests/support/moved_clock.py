"""A sparkraft node whose wall clock moves while it runs: `moved_clock.py FILE COMMAND ...`.

`FILE` tells how far its clock is ahead of the machine's: eight bytes, nanoseconds, signed, little
end first. It is mapped, so a jump counts from the next look at the clock on. What measures how long
something takes, the monotonic clock, does not move, as when a machine's time is set.
"""

import mmap
import os
import sys
import time
from pathlib import Path


def set_ahead(path: Path, hours: float) -> None:
    """Have the clock that looks at `path` be so far ahead, or behind."""
    ahead = round(hours * 3_600_000) * 1_000_000
    file = os.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        os.pwrite(file, ahead.to_bytes(8, "little", signed=True), 0)
    finally:
        os.close(file)


def move_wall_clock(path: Path) -> None:
    """Replace this process's wall clock by one that looks at `path`."""
    with path.open("rb") as file:
        ahead = mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ)
    machines = time.time_ns

    def moved_ns() -> int:
        return machines() + int.from_bytes(ahead[:], "little", signed=True)

    time.time_ns = moved_ns
    time.time = lambda: moved_ns() / 1e9


if __name__ == "__main__":
    sys.path.pop(0)  # This folder: a node is not to find the tests' modules.
    move_wall_clock(Path(sys.argv[1]))
    from sparkraft.cli.main import main

    sys.exit(main(sys.argv[2:]))
