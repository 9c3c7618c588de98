"""Requests to whichever controller of the quorum is active."""

from contextlib import suppress
from typing import Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client.connection import Connection
from sparkraft.simulation.world.nodes import CONTROLLER_PORT, NodesWorld

REQUEST_MS = 4_000


async def ask_controllers(world: NodesWorld, request: Any, client_id: str) -> Any:
    """Return the first response that is not NOT_CONTROLLER; None if no controller is active."""
    names = [machine.name for machine in world.machines]
    world.dice.shuffle(names)
    for name in names:
        with suppress(KafkaError, OSError):
            connection = await Connection.open(
                name, CONTROLLER_PORT, client_id=client_id, timeout_ms=REQUEST_MS
            )
            try:
                response = await connection.send(request, timeout_ms=REQUEST_MS)
            finally:
                connection.abort("done")
            if ErrorCode.NOT_CONTROLLER not in _codes(response):
                return response
    return None


def _codes(response: Any) -> set[int]:
    """The error codes of the response, and of its topics."""
    if hasattr(response, "error_code"):
        return {response.error_code}
    topics = response.topics if hasattr(response, "topics") else response.responses
    return {each.error_code for each in topics}
