"""Forwards clients' requests to the controller (KIP-590)."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.protocol.api_keys import API_INFO, ApiKey
from sparkraft.protocol.positions import fixed_position
from sparkraft.server.broker.envelope import EnvelopeError

if TYPE_CHECKING:
    from sparkraft.server.api.registry import RequestContext
    from sparkraft.server.broker.controller_channel import ControllerChannel
    from sparkraft.server.config import NodeConfig

_THROTTLE_BYTES = 4


class Forwarding:
    """Forwards requests; responses are returned unchanged.

    A client that the controller throttles is held up by this broker: for the controller's throttle
    or this broker's own, whichever is longer, and the response reports that one (Kafka's
    `RequestHandlerHelper.sendForwardedResponse`).
    """

    def __init__(self, config: "NodeConfig", channel: "ControllerChannel") -> None:
        self._timeout_ms = config.number("request.timeout.ms")
        self._channel = channel

    async def forward(
        self, context: "RequestContext", request: Any, *, tries_ms: int | None = None
    ) -> list[Any]:
        """The controller's response, encoded: for the client as it is.

        Attempts start within the request's own `timeout_ms`, else `tries_ms`. Once the request has
        reached a controller, its response is awaited for request.timeout.ms.

        As in Kafka (ForwardingManager), UNSUPPORTED_VERSION for the envelope closes the client's
        connection: the controller does not serve the version that this broker has advertised, and
        the client asks for the versions again.

        Raises:
            KafkaError: REQUEST_TIMED_OUT if there was no response in time; UNKNOWN_SERVER_ERROR
                if the controller refused the envelope.
        """
        with _refusals(context):
            parts = await self._channel.send_encoded(
                request,
                context,
                timeout_ms=self._timeout_ms,
                tries_ms=_tries_ms(request, tries_ms),
            )
        _hold_up(context, _throttle_ms(context, parts[0]))
        return parts

    async def ask(self, context: "RequestContext", request: Any) -> Any:
        """As `forward`, for a response that this broker reads or changes."""
        with _refusals(context):
            response = await self._channel.send(
                request,
                ApiKey(context.api_key),
                version=context.api_version,
                timeout_ms=self._timeout_ms,
                tries_ms=_tries_ms(request, None),
                context=context,
            )
        _hold_up(context, getattr(response, "throttle_time_ms", 0))
        return response

    async def encode(self, context: "RequestContext", response: Any) -> list[Any]:
        """The buffers of a response that was made here."""
        return await self._channel.encode(response, context.api_version)


def _tries_ms(request: Any, otherwise: int | None) -> int | None:
    own_ms: int = getattr(request, "timeout_ms", 0)
    return own_ms if own_ms > 0 else otherwise


@contextmanager
def _refusals(context: "RequestContext") -> Iterator[None]:
    try:
        yield
    except EnvelopeError as refused:
        if refused.code is ErrorCode.UNSUPPORTED_VERSION:
            context.connection.close(
                f"the controller does not serve version {context.api_version} of its request"
            )
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(refused)) from refused


def _throttle_ms(context: "RequestContext", body: Any) -> int:
    """The throttle in an encoded response; 0 if its version has none."""
    kind = API_INFO[ApiKey(context.api_key)].response_class()
    at = fixed_position(kind, context.api_version, "throttle_time_ms")
    return 0 if at < 0 else int.from_bytes(body[at : at + _THROTTLE_BYTES], "big", signed=True)


def _hold_up(context: "RequestContext", throttle_ms: int) -> None:
    if throttle_ms > 0:
        context.throttle_by(max(throttle_ms, context.throttle_ms))
        context.connection.mute(throttle_ms)
