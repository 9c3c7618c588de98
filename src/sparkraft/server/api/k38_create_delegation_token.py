"""CreateDelegationToken: v1-3. A client gets a token to give to its workers. (KIP-48, KIP-373)

Behaviour:
    * DELEGATION_TOKEN_REQUEST_NOT_ALLOWED for clients that authenticated with a token, and for
      those that did not authenticate (`token_requests`).
    * Another owner than the client: CREATE_TOKENS on that user, else
      DELEGATION_TOKEN_AUTHORIZATION_FAILED. A renewer that is not a User: INVALID_PRINCIPAL_TYPE.
    * A broker checks this, then forwards to the active controller, which checks it again.
    * Without delegation.token.secret.key: DELEGATION_TOKEN_AUTH_DISABLED. metadata.version below
      3.6-IV2: UNSUPPORTED_VERSION.
    * The token expires after delegation.token.expiry.time.ms unless it is renewed, and in any case
      after the requested lifetime, at most delegation.token.max.lifetime.ms.
    * The response has the HMAC, the token's password. It is stored nowhere.
Versions: v2 flexible; v3 owner.    Not done: -
"""

from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.controller.delegation_tokens import creation_response, owner_of
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k38_create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.security.principal import ANONYMOUS, USER, KafkaPrincipal
from sparkraft.server.api.authorization import on_each
from sparkraft.server.api.registry import Api, RequestContext
from sparkraft.server.api.token_requests import ERROR_TIMESTAMP, token_request_refusal
from sparkraft.server.controller.submission import submit_to_controller

if TYPE_CHECKING:
    from sparkraft.server.broker_services import BrokerServices
    from sparkraft.server.controller.services import ControllerServices


async def handle(
    node: "ControllerServices", context: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    """Let the controller create the token, if the client may."""
    error = _denial(context, request)
    if error is not None:
        return _refused(
            error, owner_of(request, context.principal), context.principal, context.api_version
        )
    response: CreateDelegationTokenResponse = await submit_to_controller(node, context, request)
    return response


async def _forward(
    broker: "BrokerServices", context: RequestContext, request: CreateDelegationTokenRequest
) -> Any:
    """Refuse what the client may not, and renewers of other types, before forwarding."""
    error = _denial(context, request)
    if error is None and any(each.principal_type != USER for each in request.renewers):
        error = KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)
    if error is not None:
        return _refused(
            error, owner_of(request, context.principal), context.principal, context.api_version
        )
    return await broker.forwarding.forward(context, request)


def _denial(context: RequestContext, request: CreateDelegationTokenRequest) -> KafkaError | None:
    refusal = token_request_refusal(context.session)
    if refusal is not None:
        return refusal
    owner = owner_of(request, context.principal)
    if owner == context.principal or context.is_allowed(
        AclOperation.CREATE_TOKENS, AclResourceType.USER, str(owner)
    ):
        return None
    return KafkaError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)


def _refused(
    error: KafkaError, owner: KafkaPrincipal, requester: KafkaPrincipal, version: int
) -> CreateDelegationTokenResponse:
    response = creation_response(owner, requester, version)
    response.error_code = error.code
    response.issue_timestamp_ms = ERROR_TIMESTAMP
    response.expiry_timestamp_ms = ERROR_TIMESTAMP
    response.max_timestamp_ms = ERROR_TIMESTAMP
    return response


def refuse(
    _: type, request: CreateDelegationTokenRequest, version: int, error: KafkaError
) -> CreateDelegationTokenResponse:
    """Kafka's getErrorResponse: owner and requester are ANONYMOUS."""
    return _refused(error, ANONYMOUS, ANONYMOUS, version)


API = Api(
    key=ApiKey.CREATE_DELEGATION_TOKEN,
    handle=handle,
    authorize=(
        on_each(
            AclOperation.CREATE_TOKENS,
            AclResourceType.USER,
            when="the owner, if it is another user",
        ),
    ),
    forward=True,
    forward_by=_forward,
    controller=True,
    refuse=refuse,
)
