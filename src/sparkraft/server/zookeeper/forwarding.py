"""Sends clients' requests to the controller of a cluster in ZooKeeper mode.

Kafka 3.9 refuses such requests with NOT_CONTROLLER unless it migrates to KRaft, and clients find
the controller by Metadata. A broker of ours sends them on, without an Envelope: the controller sees
them as this broker's own requests. That is right while no node has an authorizer, and one with an
authorizer does not start in this mode.
"""

from typing import TYPE_CHECKING, Any

from sparkraft.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from sparkraft.server.api.registry import RequestContext
    from sparkraft.server.broker.controller_channel import ControllerChannel
    from sparkraft.server.config import NodeConfig


class ZooKeeperForwarding:
    """As `Forwarding`."""

    def __init__(self, config: "NodeConfig", channel: "ControllerChannel") -> None:
        self._timeout_ms = config.number("request.timeout.ms")
        self._channel = channel

    async def forward(
        self, context: "RequestContext", request: Any, *, tries_ms: int | None = None
    ) -> Any:
        """The controller's response, in the newest version that it serves.

        Attempts start within the request's own `timeout_ms`, else `tries_ms`.

        Raises:
            KafkaError: REQUEST_TIMED_OUT if there was no response in time.
        """
        own_ms = getattr(request, "timeout_ms", 0)
        response = await self._channel.send(
            request,
            ApiKey(context.api_key),
            timeout_ms=self._timeout_ms,
            tries_ms=own_ms if own_ms > 0 else tries_ms,
        )
        throttle_ms = getattr(response, "throttle_time_ms", 0)
        if throttle_ms > 0:
            context.connection.mute(throttle_ms)
        return response
