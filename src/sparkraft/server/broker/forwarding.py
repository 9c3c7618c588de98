"""Requests a broker passes to the controller on a client's behalf (KIP-590)."""

from typing import TYPE_CHECKING, Any

from sparkraft.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from sparkraft.server.api.registry import RequestContext
    from sparkraft.server.broker.controller_channel import ControllerChannel
    from sparkraft.server.config import NodeConfig


class Forwarding:
    """Passes requests on; answers come back unchanged."""

    def __init__(self, config: "NodeConfig", channel: "ControllerChannel") -> None:
        """Use `channel`."""
        self._timeout_ms = config.number("request.timeout.ms")
        self._channel = channel

    async def forward(
        self, context: "RequestContext", request: Any, *, tries_ms: int | None = None
    ) -> Any:
        """The controller's answer; REQUEST_TIMED_OUT where none is found in time.

        In time is what the request itself allows (`timeout_ms`), else `tries_ms`, at most
        `request.timeout.ms`; once it has reached a controller that one counts, so the answer is
        waited for.
        """
        own_ms = getattr(request, "timeout_ms", 0)
        return await self._channel.send(
            request,
            ApiKey(context.api_key),
            version=context.api_version,
            timeout_ms=self._timeout_ms,
            tries_ms=own_ms if own_ms > 0 else tries_ms,
            context=context,
        )
