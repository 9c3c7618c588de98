"""Checks every half replica.lag.time.max.ms for followers that have fallen behind (KIP-16)."""

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkraft.base.env import Clock

STALL_SHARE = 0.25
"""A check that runs later than this fraction of its interval is treated as a process stall."""


async def expire_isrs(
    clock: "Clock", *, lag_ms_max: int, maybe_shrink_isrs: "Callable[[], None]"
) -> None:
    """Call `maybe_shrink_isrs` until cancelled.

    A check that was delayed by a stall of this node is skipped: the followers' fetches are still
    unread in the sockets.
    """
    interval_ms = lag_ms_max / 2
    while True:
        started_ms = clock.mono_ms()
        await asyncio.sleep(interval_ms / 1000)
        if clock.mono_ms() - started_ms < interval_ms * (1 + STALL_SHARE):
            maybe_shrink_isrs()
