"""Cuts long work of a decision into slices of the event loop."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparkraft.server.env import Env


def pausing(env: "Env") -> Callable[[int], Awaitable[None]]:
    """A function that counts units of work, and ends a slice when it is over."""
    turn = env.turn(env.work_max.partitions)

    async def pause(units: int) -> None:
        if turn.is_over(units):
            await turn.next()

    return pause
