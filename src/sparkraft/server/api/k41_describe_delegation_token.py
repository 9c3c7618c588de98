"""DescribeDelegationToken: v1-3. Tokens by owner, with their HMACs. (KIP-48, KIP-373)

Behaviour:
    * Null owners: all tokens; an empty list: none. Otherwise those of which a named user is the
      owner, the requester or a renewer.
    * A client sees tokens of which it is one of these, tokens that it may DESCRIBE by id, and those
      of owners on which it has DESCRIBE_TOKENS. Others are left out without an error.
    * The HMAC is the token's password: a client that may describe a token can log in with it.
    * DELEGATION_TOKEN_REQUEST_NOT_ALLOWED for clients that authenticated with a token, and for
      those that did not authenticate (`token_requests`). DELEGATION_TOKEN_AUTH_DISABLED without
      delegation.token.secret.key.
    * Answered from the image of this broker, ordered by id.
Versions: v2 flexible; v3 requester.    Not done: -
"""

from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.controller.delegation_tokens import REQUESTER_VERSION
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k41_describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import on_each
from sparkraft.server.api.registry import Api, RequestContext, Steps
from sparkraft.server.api.token_requests import token_request_refusal

if TYPE_CHECKING:
    from sparkraft.metadata.image import DelegationToken
    from sparkraft.server.broker_services import BrokerServices


def handle(
    broker: "BrokerServices", context: RequestContext, request: DescribeDelegationTokenRequest
) -> Steps:
    """Select the tokens in slices."""
    refusal = token_request_refusal(context.session)
    if refusal is not None:
        raise refusal
    key = broker.config.token_key
    if key is None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    owners = None
    if request.owners is not None:
        owners = [f"{each.principal_type}:{each.principal_name}" for each in request.owners]
    found = []
    for token in broker.image.delegation_tokens.values() if owners != [] else ():
        if _is_wanted(token, owners) and _is_visible(context, token):
            found.append(_described(token, key.hmac_of(token.token_id), context.api_version))
        yield 1
    found.sort(key=lambda described: described.token_id)
    return DescribeDelegationTokenResponse(tokens=found)


def _is_wanted(token: "DelegationToken", owners: list[str] | None) -> bool:
    return owners is None or any(map(token.is_of, owners))


def _is_visible(context: RequestContext, token: "DelegationToken") -> bool:
    return (
        token.is_of(str(context.principal))
        or context.is_allowed(
            AclOperation.DESCRIBE, AclResourceType.DELEGATION_TOKEN, token.token_id, logs=False
        )
        or context.is_allowed(
            AclOperation.DESCRIBE_TOKENS, AclResourceType.USER, token.owner, logs=False
        )
    )


def _described(
    token: "DelegationToken", token_hmac: bytes, version: int
) -> DescribedDelegationToken:
    owner_type, _, owner_name = token.owner.partition(":")
    renewers = [renewer.partition(":") for renewer in token.renewers]
    described = DescribedDelegationToken(
        principal_type=owner_type,
        principal_name=owner_name,
        issue_timestamp=token.issue_timestamp,
        expiry_timestamp=token.expiration_timestamp,
        max_timestamp=token.max_timestamp,
        token_id=token.token_id,
        hmac=token_hmac,
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name)
            for kind, _, name in renewers
        ],
    )
    if version >= REQUESTER_VERSION:
        kind, _, name = token.requester.partition(":")
        described.token_requester_principal_type = kind
        described.token_requester_principal_name = name
    return described


API = Api(
    key=ApiKey.DESCRIBE_DELEGATION_TOKEN,
    handle=handle,
    authorize=(
        on_each(AclOperation.DESCRIBE, AclResourceType.DELEGATION_TOKEN, when="of others"),
        on_each(AclOperation.DESCRIBE_TOKENS, AclResourceType.USER, when="instead, the owner"),
    ),
)
