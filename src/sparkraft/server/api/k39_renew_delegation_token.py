"""RenewDelegationToken: v1-2. A token expires later. (KIP-48)

Behaviour:
    * The owner and the renewers may, at brokers and controllers. Others:
      DELEGATION_TOKEN_OWNER_MISMATCH, also the user who requested the token for another owner.
    * DELEGATION_TOKEN_REQUEST_NOT_ALLOWED for clients that authenticated with a token, and for
      those that did not authenticate (`token_requests`).
    * DELEGATION_TOKEN_AUTH_DISABLED, UNSUPPORTED_VERSION as for CreateDelegationToken. An unknown
      HMAC: DELEGATION_TOKEN_NOT_FOUND. An expired token: DELEGATION_TOKEN_EXPIRED.
    * It expires after the requested period, at most delegation.token.expiry.time.ms, and never
      after its maximum.
Versions: v2 flexible.    Not done: -
"""

from typing import TYPE_CHECKING, Any

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k39_renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from sparkraft.server.api.authorization import NoAuthorization
from sparkraft.server.api.registry import Api, RequestContext
from sparkraft.server.api.token_requests import ERROR_TIMESTAMP, token_request_refusal
from sparkraft.server.controller.submission import submit_to_controller

if TYPE_CHECKING:
    from sparkraft.server.broker_services import BrokerServices
    from sparkraft.server.controller.services import ControllerServices


async def handle(
    node: "ControllerServices", context: RequestContext, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    """Let the controller change the token, if the client may send such requests."""
    response = _refused(context) or await submit_to_controller(node, context, request)
    assert isinstance(response, RenewDelegationTokenResponse)
    return response


async def _forward(
    broker: "BrokerServices", context: RequestContext, request: RenewDelegationTokenRequest
) -> Any:
    return _refused(context) or await broker.forwarding.forward(context, request)


def _refused(context: RequestContext) -> RenewDelegationTokenResponse | None:
    error = token_request_refusal(context.session)
    if error is None:
        return None
    return RenewDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=ERROR_TIMESTAMP)


API = Api(
    key=ApiKey.RENEW_DELEGATION_TOKEN,
    handle=handle,
    authorize=NoAuthorization("the controller compares the client with owner and renewers"),
    forward=True,
    forward_by=_forward,
    controller=True,
)
