"""How the quorum's API files hand requests to the core, and what DescribeQuorum shows."""

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from sparkraft.base.ids import Millis
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


def on_wall_clock(found: events.Description, *, now: Millis, wall: Millis) -> events.Description:
    """The same with times since 1970; the leader's own are now, as Kafka has it."""

    def moved(at: Millis) -> Millis:
        return Millis(at + wall - now) if at >= 0 else at

    def shown(progress: events.ReplicaProgress) -> events.ReplicaProgress:
        if progress.key.id == found.leader_id:
            return replace(progress, last_fetch_ms=wall, last_caught_up_ms=wall)
        return replace(
            progress,
            last_fetch_ms=moved(progress.last_fetch_ms),
            last_caught_up_ms=moved(progress.last_caught_up_ms),
        )

    return replace(
        found,
        voters=tuple(shown(voter) for voter in found.voters),
        observers=tuple(shown(observer) for observer in found.observers),
    )
