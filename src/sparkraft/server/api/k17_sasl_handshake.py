"""SaslHandshake: v0-1. Which SASL mechanism will the client use? (KIP-43, KIP-152)

Behaviour:
    * Before authentication, `server.network.sasl_gate` handles it: an unknown mechanism gets
      UNSUPPORTED_SASL_MECHANISM with the enabled ones, then the connection closes.
    * If the session expires, `sasl_gate` takes it for the start of re-authentication, at most once
      a second (KIP-368).
    * Here: ILLEGAL_SASL_STATE, after authentication and on listeners without SASL.
Versions: after v0 tokens are frames without a header, after v1 SaslAuthenticate requests.
Not done: -
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
    """Reject a handshake out of sequence."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


API = Api(
    key=ApiKey.SASL_HANDSHAKE,
    handle=handle,
    authorize=NoAuthorization("sent before authentication"),
    controller=True,
)
