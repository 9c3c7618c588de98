"""How long the machine itself stood still: what no timeout of a node can tell from a dead peer.

    with Stalls(folder) as stalls:
        ...
    assert nothing_happened or stalls.excuse(2.0)

A thread that has almost nothing to do sleeps for a moment and syncs a few bytes, again and again.
"""

import os
import threading
import time
from pathlib import Path
from typing import NamedTuple, Self

PAUSE_SECONDS = 0.1


class Stall(NamedTuple):
    """What one turn of the thread took beyond its sleep, within its begin and its end."""

    begun: float
    ended: float
    seconds: float


class Stalls:
    """See the module docstring."""

    def __init__(self, folder: Path) -> None:
        self._found: list[Stall] = []
        self._path = folder / "stalls"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def longest(self) -> float:
        """In seconds, so far."""
        return max((stall.seconds for stall in self._found), default=0.0)

    def excuse(self, timeout: float, since: float = 0.0, until: float = float("inf")) -> bool:
        """Whether a time-out after so many seconds may be the machine's doing: half were a stall,
        the rest is what is needed anyway. Only stalls between these two times count (monotonic).
        """
        return any(
            stall.seconds >= timeout / 2 and stall.begun <= until and stall.ended >= since
            for stall in self._found
        )

    def __str__(self) -> str:
        return f"the machine stood still for {self.longest:.2f} s at most"

    def _run(self) -> None:
        with self._path.open("wb", buffering=0) as file:
            while not self._stop.is_set():
                begun = time.monotonic()
                time.sleep(PAUSE_SECONDS)
                file.write(b"x")
                os.fsync(file.fileno())
                ended = time.monotonic()
                self._found.append(Stall(begun, ended, ended - begun - PAUSE_SECONDS))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
