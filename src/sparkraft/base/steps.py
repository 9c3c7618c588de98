"""Work that is cut into pieces: a generator that yields, after each piece, the units it has done.

The size of a unit, and of the largest piece, is in `controller.steps` and `coordinator.steps`.
"""

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


def complete(steps: Generator[int, None, T]) -> T:
    """Do all the work at once, and return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
