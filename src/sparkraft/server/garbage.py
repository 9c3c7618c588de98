"""Python's search for cyclic garbage, without pauses that grow with the heap.

Reference counts free almost everything. A search for cycles goes over objects and stops the event
loop: 0.3 µs per object, or 150 ms for the objects of 12,000 partitions. By default Python searches
all of them whenever the heap has grown by a quarter. Here:

    young objects       searched twice, at most `YOUNG_OBJECTS_MAX` new ones each time
    older ones          if the heap has doubled and grown by `GROWN_BLOCKS_MIN` since the last time
    those of the start  never, because they are permanent

Invariant: a dropped partition contains no cycle, because nodes drop many of them.
"""

import asyncio
import gc
import logging
import sys
import time

from sparkraft.base.loop_work import LoopBound

log = logging.getLogger(__name__)

YOUNG_OBJECTS_MAX: LoopBound = 8_000
"""New objects between two searches: about 3 ms. Python's 700 make replaying metadata cost three
times as much, since images are trees of tuples without a cycle."""

_SEARCHES_PER_SECOND_SEARCH = 1
"""Objects that survived a search are searched again with the next new ones, then no more."""

_NEVER = 1 << 30

GROWN_BLOCKS_MIN = 1_000_000
"""Allocations, about 80 MB: the garbage that may pile up. A closed connection leaves 50."""

GROWTH_FACTOR = 2

CHECK_SECONDS = 5.0
"""Counting the blocks in use takes less than a millisecond."""


class GarbageSearch:
    """Decides when all objects are searched; `start` takes over from Python's own rule."""

    def __init__(self) -> None:
        self.searches = 0
        self._blocks = 0

    def start(self) -> None:
        """Search by this module's rules, for as long as the running loop runs."""
        gc.freeze()
        gc.set_threshold(YOUNG_OBJECTS_MAX, _SEARCHES_PER_SECOND_SEARCH, _NEVER)
        gc.enable()
        self._blocks = sys.getallocatedblocks()
        self._later()

    def is_due(self, blocks: int) -> bool:
        """Whether a search of all objects is worth its time at this number of blocks in use."""
        return blocks >= max(self._blocks * GROWTH_FACTOR, self._blocks + GROWN_BLOCKS_MIN)

    def search(self) -> None:
        """Search all objects that were created since the start."""
        started = time.monotonic()
        found = gc.collect()
        self.searches += 1
        self._blocks = sys.getallocatedblocks()
        took_ms = (time.monotonic() - started) * 1000
        log.info("Searched all objects for garbage in %.0f ms, found %d", took_ms, found)

    def _later(self) -> None:
        asyncio.get_running_loop().call_later(CHECK_SECONDS, self._check)

    def _check(self) -> None:
        if self.is_due(sys.getallocatedblocks()):
            self.search()
        self._later()
