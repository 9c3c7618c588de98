"""SaslHandshake: v0-1. Refused: no listener authenticates yet. (KIP-43)

Behaviour: ILLEGAL_SASL_STATE, as Kafka answers on a listener without SASL.
Versions: v0-1 are alike.    Not done: SASL itself.
"""

from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k17_sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from sparkraft.server.api.authorization import NoAuthorization
from sparkraft.server.api.registry import Api, RequestContext

if TYPE_CHECKING:
    from sparkraft.server.broker_services import BrokerServices


def handle(
    broker: "BrokerServices", context: RequestContext, request: SaslHandshakeRequest
) -> SaslHandshakeResponse:
    """Refuse."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


API = Api(
    key=ApiKey.SASL_HANDSHAKE,
    handle=handle,
    authorize=NoAuthorization("sent before authentication"),
    controller=True,
)
