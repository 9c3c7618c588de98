"""ExpireDelegationToken: v1-2. A token expires earlier, or is removed. (KIP-48)

Behaviour:
    * A negative period removes the token, also one that has expired. Otherwise it expires after
      the period, never after its maximum; an expired one: DELEGATION_TOKEN_EXPIRED.
    * The owner and the renewers may; other errors are those of RenewDelegationToken.
    * Connections that authenticated with the token last until their sessions end, as in Kafka.
Versions: v2 flexible.    Not done: -
"""

from typing import TYPE_CHECKING, Any

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k40_expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from sparkraft.server.api.authorization import NoAuthorization
from sparkraft.server.api.registry import Api, RequestContext
from sparkraft.server.api.token_requests import ERROR_TIMESTAMP, token_request_refusal
from sparkraft.server.controller.submission import submit_to_controller

if TYPE_CHECKING:
    from sparkraft.server.broker_services import BrokerServices
    from sparkraft.server.controller.services import ControllerServices


async def handle(
    node: "ControllerServices", context: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    """Let the controller change the token, if the client may send such requests."""
    response = _refused(context) or await submit_to_controller(node, context, request)
    assert isinstance(response, ExpireDelegationTokenResponse)
    return response


async def _forward(
    broker: "BrokerServices", context: RequestContext, request: ExpireDelegationTokenRequest
) -> Any:
    return _refused(context) or await broker.forwarding.forward(context, request)


def _refused(context: RequestContext) -> ExpireDelegationTokenResponse | None:
    error = token_request_refusal(context.session)
    if error is None:
        return None
    return ExpireDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=ERROR_TIMESTAMP)


API = Api(
    key=ApiKey.EXPIRE_DELEGATION_TOKEN,
    handle=handle,
    authorize=NoAuthorization("the controller compares the client with owner and renewers"),
    forward=True,
    forward_by=_forward,
    controller=True,
)
