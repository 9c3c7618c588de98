"""SaslAuthenticate: v0-2. The next token of a SASL exchange. (KIP-152)

Behaviour:
    * Before authentication, `server.network.sasl_gate` handles it. Failures get
      SASL_AUTHENTICATION_FAILED after connection.failed.authentication.delay.ms, then the
      connection closes.
    * The last response has the time after which the session expires: the smaller of
      connections.max.reauth.ms and the credential's; 0: never. The client re-authenticates before
      that with the same mechanism and user, or its next request closes the connection (KIP-368).
    * Here: ILLEGAL_SASL_STATE, after authentication and on listeners without SASL.
Versions: v1 session_lifetime_ms; v2 flexible.    Not done: -
"""

from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k36_sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from sparkraft.server.api.authorization import NoAuthorization
from sparkraft.server.api.registry import Api, RequestContext

if TYPE_CHECKING:
    from sparkraft.server.broker_services import BrokerServices


def handle(
    broker: "BrokerServices", context: RequestContext, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    """Reject a token out of sequence, with the text of Kafka's `KafkaApis`."""
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
    )


API = Api(
    key=ApiKey.SASL_AUTHENTICATE,
    handle=handle,
    authorize=NoAuthorization("sent before authentication"),
    controller=True,
)
