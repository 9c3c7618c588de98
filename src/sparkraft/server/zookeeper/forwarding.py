"""Requests for the controller of a cluster in ZooKeeper mode: decided here, or sent to it.

While this node is the controller it decides. Configs, access control lists and delegation tokens
are changed by any broker. Kafka 3.9 refuses other requests, with NOT_CONTROLLER unless it migrates
to KRaft, and clients find the controller by Metadata. A broker of ours sends on those of clients
that are not authenticated, without an Envelope: the controller sees them as this broker's own
requests. So a broker with an authorizer sends none on, nor those of an authenticated client: it
refuses them, as Kafka does.

A request that another broker of ours has sent on is not sent on again: two brokers that both
believe the other to be the controller would send it to and fro. Requests of brokers themselves are
not sent on either.

While a KRaft controller migrates the cluster (KIP-866), all requests go to it, configs as well, in
an Envelope.
"""

import re
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.security.principal import ANONYMOUS
from sparkraft.server.api.registry import load_api
from sparkraft.server.broker.forwarding import Forwarding

if TYPE_CHECKING:
    from sparkraft.server.api.registry import RequestContext
    from sparkraft.server.broker.controller_channel import ControllerChannel
    from sparkraft.server.config import NodeConfig
    from sparkraft.server.zookeeper.controllers import KnownController
    from sparkraft.server.zookeeper.own_controller import OwnControllerServices

_OF_BROKERS = frozenset(
    {ApiKey.CONTROLLED_SHUTDOWN, ApiKey.ALTER_PARTITION, ApiKey.ALLOCATE_PRODUCER_IDS}
)
"""Brokers send these to the broker that they believe to be the controller."""

_BROKERS_CLIENT_ID = re.compile(r"broker-[0-9]+")
"""Client id of a `ControllerChannel`."""


class ZooKeeperForwarding:
    """As `Forwarding`."""

    def __init__(
        self,
        config: "NodeConfig",
        channel: "ControllerChannel",
        own: "OwnControllerServices",
        controller: "KnownController",
    ) -> None:
        """Prepare.

        Args:
            config: of the node.
            channel: to the controller.
            own: the controller of this node.
            controller: of the cluster.
        """
        self._to_controller = Forwarding(config, channel)
        self._has_authorizer = config.has_authorizer
        self._own = own
        self._controller = controller

    async def forward(
        self, context: "RequestContext", request: Any, *, tries_ms: int | None = None
    ) -> list[Any]:
        """The controller's response, encoded.

        Attempts start within the request's own `timeout_ms`, else `tries_ms`.

        Raises:
            KafkaError: REQUEST_TIMED_OUT if there was no response in time; NOT_CONTROLLER if this
                node is not the controller, and the request is a broker's or an authenticated
                client's, or this node has an authorizer, and no KRaft controller rules.
        """
        if self._decides(context):
            return await self.encode(context, await self._decide(context, request))
        self._check_sending(context)
        return await self._to_controller.forward(context, request, tries_ms=tries_ms)

    async def ask(self, context: "RequestContext", request: Any) -> Any:
        """As `forward`, for a response that this broker reads or changes."""
        if self._decides(context):
            return await self._decide(context, request)
        self._check_sending(context)
        return await self._to_controller.ask(context, request)

    async def encode(self, context: "RequestContext", response: Any) -> list[Any]:
        """The buffers of a response that was made here."""
        return await self._to_controller.encode(context, response)

    def _decides(self, context: "RequestContext") -> bool:
        serves = self._own.controller.serves(ApiKey(context.api_key))
        return serves and not self._controller.is_kraft

    def _check_sending(self, context: "RequestContext") -> None:
        """Refuse a request that is not sent on."""
        key = ApiKey(context.api_key)
        if key in _OF_BROKERS or _BROKERS_CLIENT_ID.fullmatch(context.client_id or ""):
            # As Kafka: a ControllerMovedException for ControlledShutdown.
            is_shutdown = key is ApiKey.CONTROLLED_SHUTDOWN
            code = ErrorCode.STALE_CONTROLLER_EPOCH if is_shutdown else ErrorCode.NOT_CONTROLLER
            raise KafkaError(code, "this broker is not the controller")
        is_known = self._has_authorizer or context.principal != ANONYMOUS
        if is_known and not self._controller.is_kraft:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller")

    async def _decide(self, context: "RequestContext", request: Any) -> Any:
        key = ApiKey(context.api_key)
        api = load_api(key, controller_listener=False, zookeeper=True)
        if api is None:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{key.name} is not served")
        answer: Any = api.call(self._own, context, request)
        return await answer if hasattr(answer, "__await__") else answer
