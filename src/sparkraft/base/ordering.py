"""Sort in pieces: sorting very many names is one long call."""

import heapq
from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

from sparkraft.base.loop_work import LoopBound

NAMES: LoopBound = 2_000
"""Names or ids sorted at once."""

T = TypeVar("T", bound=Any)

FAST_PER_UNIT = 16
"""Names that are sorted in the time of one unit of work."""


def in_order(names: Iterable[T]) -> Generator[int, None, Iterator[T]]:
    """The names or ids as `sorted` returns them; yields the units of work of each piece.

    The result merges the sorted pieces while it is iterated, at a microsecond per name.
    """
    parts: list[list[T]] = []
    rest = iter(names)
    while part := list(islice(rest, NAMES)):
        part.sort()
        parts.append(part)
        yield len(part) // FAST_PER_UNIT
    return heapq.merge(*parts)
