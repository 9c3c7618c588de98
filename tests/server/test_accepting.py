"""Connections that arrive together are accepted over several iterations of the event loop."""

import asyncio
import socket

from sparkraft.server.env import ACCEPTED_AT_ONCE, SystemNetwork

BURST = 4 * ACCEPTED_AT_ONCE
ITERATIONS_MAX = 10_000


def test_a_burst_of_connections_is_accepted_in_parts() -> None:
    accepted: list[int] = []

    class Accepted(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            accepted.append(1)
            transport.close()

    async def scenario() -> None:
        server = await SystemNetwork().listen(Accepted, "127.0.0.1", 0)
        await server.start_serving()
        port = server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
        # None is accepted meanwhile: the kernel keeps them all.
        clients = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(BURST)]
        most = 0
        for _ in range(ITERATIONS_MAX):
            before = len(accepted)
            await asyncio.sleep(0)
            most = max(most, len(accepted) - before)
            if len(accepted) == BURST:
                break
        assert len(accepted) == BURST
        assert most == ACCEPTED_AT_ONCE
        for client in clients:
            client.close()
        server.close()
        await server.wait_closed()

    asyncio.run(scenario())
