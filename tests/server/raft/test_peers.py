"""Connections to other members: silence ends a request as a failure, and its connection with it."""

import asyncio
from typing import Any

import pytest

from sparkraft.base.ids import BrokerId, LeaderEpoch
from sparkraft.client.connection import Connection
from sparkraft.raft import events
from sparkraft.raft.voters import Node
from sparkraft.server.raft.peers import Peers

WAIT_SECONDS_MAX = 60


class DeafConnection:
    """Takes requests and never answers."""

    is_closed = False

    def version_for(self, key: Any) -> int:
        return 0

    async def send(self, message: Any, **_: Any) -> Any:
        await asyncio.get_running_loop().create_future()

    def abort(self, reason: str) -> None:
        self.is_closed = True


def test_a_peer_that_says_nothing_is_a_timeout_and_is_connected_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[DeafConnection] = []
    outcomes: list[Any] = []

    async def open_deaf(*_: Any, **__: Any) -> DeafConnection:
        opened.append(DeafConnection())
        return opened[-1]

    async def ask_twice() -> None:
        told = asyncio.Event()

        def on_outcome(event: Any) -> None:
            outcomes.append(event)
            told.set()

        peers = Peers("CONTROLLER", "test", on_outcome)
        for correlation_id in (1, 2):
            told.clear()
            request = events.BeginQuorumEpochRequest(
                cluster_id=None, voter=None, leader_id=BrokerId(1), epoch=LeaderEpoch(1)
            )
            node = Node(BrokerId(2), "nobody", 9093)
            peers.send(
                events.Send(correlation_id=correlation_id, to=node, request=request, timeout_ms=1)
            )
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                await told.wait()
        await peers.close()

    monkeypatch.setattr(Connection, "open", open_deaf)
    asyncio.run(ask_twice())
    assert [event.failure for event in outcomes] == [events.Failure.TIMED_OUT] * 2
    assert len(opened) == 2
    assert all(connection.is_closed for connection in opened)
