"""Long work of a shard, cut into pieces so that its runtime can serve others in between.

A decision or a replay whose work grows with a group is a generator. It yields, after each small
piece, the units of work done since the last time; a unit is a topic or a partition, about 4 µs.

    def decide(...) -> Steps[Decision]:
        ids = yield from in_pieces(sorted(names), self._id_of)
        ...
        return Decision(...)

The runtime lets nothing else reach the shard meanwhile, so state stays as it is between pieces.
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import islice
from typing import Any, Final, TypeAlias, TypeVar

from sparkraft.base.loop_work import LoopBound

A = TypeVar("A")
B = TypeVar("B")
T = TypeVar("T")

Steps = Generator[int, None, T]
"""Work in pieces; yields units, returns its result."""

Deciding: TypeAlias = T | Steps[T]
"""A decision, or the work to make it."""

PIECE_UNITS: LoopBound = 64
"""Units after which a loop yields: a quarter of a millisecond."""

FAST_PER_UNIT: Final = 16
"""Elements that take one unit in a call that the interpreter executes by itself, as `sorted`."""


def begun(steps: Steps[T]) -> Deciding[T]:
    """Do the first `PIECE_UNITS` at once; return the result, or else the rest of the work."""
    units = 0
    while units < PIECE_UNITS:
        try:
            units += next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
    return steps


def pieces(items: Iterable[A]) -> Iterator[list[A]]:
    """Cut what is iterated into runs of at most `PIECE_UNITS`."""
    rest = iter(items)
    while piece := list(islice(rest, PIECE_UNITS)):
        yield piece


def in_pieces(items: Iterable[A], each: Callable[[A], B]) -> Steps[list[B]]:
    """`[each(one) for one in items]`."""
    found: list[B] = []
    for piece in pieces(items):
        found.extend(map(each, piece))
        yield len(piece)
    return found


def fast(count: int) -> int:
    """Units of a call that the interpreter executes by itself, over `count` elements."""
    return count // FAST_PER_UNIT


def sorted_in_steps(items: Iterable[Any]) -> Steps[list[Any]]:
    """`sorted(items)`, counted."""
    found = sorted(items)
    yield fast(len(found))
    return found
