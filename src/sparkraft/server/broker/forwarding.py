"""Forwards clients' requests to the controller (KIP-590)."""

from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.server.broker.envelope import EnvelopeError

if TYPE_CHECKING:
    from sparkraft.server.api.registry import RequestContext
    from sparkraft.server.broker.controller_channel import ControllerChannel
    from sparkraft.server.config import NodeConfig


class Forwarding:
    """Forwards requests; responses are returned unchanged."""

    def __init__(self, config: "NodeConfig", channel: "ControllerChannel") -> None:
        self._timeout_ms = config.number("request.timeout.ms")
        self._channel = channel

    async def forward(
        self, context: "RequestContext", request: Any, *, tries_ms: int | None = None
    ) -> Any:
        """The controller's response.

        Attempts start within the request's own `timeout_ms`, else `tries_ms`. Once the request has
        reached a controller, its response is awaited for request.timeout.ms.

        As in Kafka (ForwardingManager), UNSUPPORTED_VERSION for the envelope closes the client's
        connection: the controller does not serve the version that this broker has advertised, and
        the client asks for the versions again.

        A client that the controller throttles is held up by this broker (KIP-599).

        Raises:
            KafkaError: REQUEST_TIMED_OUT if there was no response in time; UNKNOWN_SERVER_ERROR
                if the controller refused the envelope.
        """
        own_ms = getattr(request, "timeout_ms", 0)
        try:
            response = await self._channel.send(
                request,
                ApiKey(context.api_key),
                version=context.api_version,
                timeout_ms=self._timeout_ms,
                tries_ms=own_ms if own_ms > 0 else tries_ms,
                context=context,
            )
        except EnvelopeError as refused:
            if refused.code is ErrorCode.UNSUPPORTED_VERSION:
                context.connection.close(
                    f"the controller does not serve version {context.api_version} of its request"
                )
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(refused)) from refused
        throttle_ms = getattr(response, "throttle_time_ms", 0)
        if throttle_ms > 0:
            context.connection.mute(throttle_ms)
        return response
