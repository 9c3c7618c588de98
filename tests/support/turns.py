"""Turns between test processes: at most so many of them do something heavy at once.

A turn is a lock on one of a few files; the kernel releases it when its process ends. Turns are a
courtesy to a small machine and never a condition: a process that has waited long goes on without.
"""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from tests.support.outside_tools import CACHE

JVM_STARTS = ("jvm-start", 2)
"""Kafka nodes that are coming up: each wants a core of its own for seconds."""

SPARK = ("spark", 1)
"""Spark: a heap of 512 MB and as many threads as there are cores."""

WAIT_SECONDS_MAX = 180.0
_PAUSE_SECONDS = 0.05


@contextmanager
def turn(kind: tuple[str, int], seconds: float = WAIT_SECONDS_MAX) -> Iterator[None]:
    """Hold one of the places of `kind`; after `seconds` of waiting, go on without a place."""
    name, places = kind
    folder = CACHE / "turns"
    folder.mkdir(parents=True, exist_ok=True)
    files = [(folder / f"{name}-{place}.lock").open("a") for place in range(places)]
    try:
        deadline = time.monotonic() + seconds
        while not any(_locked(file) for file in files) and time.monotonic() < deadline:
            time.sleep(_PAUSE_SECONDS)
        yield
    finally:
        for file in files:
            file.close()


def _locked(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
