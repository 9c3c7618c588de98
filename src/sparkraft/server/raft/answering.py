"""How the quorum's API files hand requests to the core and wait for its answer."""

import asyncio
from typing import TYPE_CHECKING

from sparkraft.raft import events

if TYPE_CHECKING:
    from sparkraft.server.raft.driver import RaftDriver


async def answer_of(raft: "RaftDriver", request: events.Request) -> events.Answer:
    """The core's answer; a caller that is cancelled takes its request back."""
    future = raft.request(request)
    try:
        return await future
    except asyncio.CancelledError:
        future.cancel()
        raise
