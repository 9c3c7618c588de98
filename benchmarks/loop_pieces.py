"""CPU times of the pieces of work in steps."""

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def piece_times(work: Any, times: list[float]) -> Any:
    """Add the CPU ms of each piece; the result of the work."""
    while True:
        begun = time.thread_time()
        try:
            next(work)
        except StopIteration as end:
            return end.value
        finally:
            times.append((time.thread_time() - begun) * 1000)


@contextmanager
def without_collection() -> Iterator[None]:
    """A node collects in small steps (`garbage`)."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
