"""Delegation tokens: created, renewed and expired (KIP-48, KIP-373, KIP-900).

The checks are those of Kafka's DelegationTokenControlManager, in its order; errors are in the
response. Records never contain the HMAC of a token. The API files check whether a client may send
such a request, and create tokens of other users.
"""

from heapq import nsmallest
from typing import Any

from sparkraft.base.env import random_uuid
from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.controller.call import Call
from sparkraft.controller.decision import Decision
from sparkraft.controller.decision_context import DecisionContext
from sparkraft.metadata.features import DELEGATION_TOKEN_LEVEL
from sparkraft.metadata.image import DelegationToken
from sparkraft.protocol.messages import k38_create_delegation_token as k38
from sparkraft.protocol.messages import k39_renew_delegation_token as k39
from sparkraft.protocol.messages import k40_expire_delegation_token as k40
from sparkraft.protocol.messages.metadata_records import (
    DelegationTokenRecord,
    RemoveDelegationTokenRecord,
)
from sparkraft.security.delegation_token import TokenIndex
from sparkraft.security.principal import USER, KafkaPrincipal

REMOVALS_MAX = 1_000
"""Kafka's MAX_RECORDS_PER_EXPIRATION: expired tokens that one decision removes."""

REQUESTER_VERSION = 3
"""From this version on, requests and responses distinguish owner and requester (KIP-373)."""

_TIME_MAX = (1 << 63) - 1


def owner_of(
    request: k38.CreateDelegationTokenRequest, requester: KafkaPrincipal
) -> KafkaPrincipal:
    """The owner that a request names; the requester if it names none."""
    if not request.owner_principal_name:
        return requester
    return KafkaPrincipal(request.owner_principal_type or "", request.owner_principal_name)


def creation_response(
    owner: KafkaPrincipal, requester: KafkaPrincipal, version: int
) -> k38.CreateDelegationTokenResponse:
    """A response without a token; the requester is in it from `REQUESTER_VERSION` on."""
    response = k38.CreateDelegationTokenResponse(
        principal_type=owner.type, principal_name=owner.name
    )
    if version >= REQUESTER_VERSION:
        response.token_requester_principal_type = requester.type
        response.token_requester_principal_name = requester.name
    return response


def create_delegation_token(
    context: DecisionContext, call: Call[k38.CreateDelegationTokenRequest]
) -> Decision:
    """Decide a CreateDelegationToken request: the response has the token's HMAC."""
    owner, requester = owner_of(call.request, call.principal), call.principal
    response = creation_response(owner, requester, call.version)
    try:
        index = _enabled(context)
        renewers = _renewers(call.request)
    except KafkaError as error:
        response.error_code = error.code
        return Decision(response=response)
    config = context.config
    lifetime_ms = _at_most(config.token_lifetime_ms_max, call.request.max_lifetime_ms)
    max_timestamp = _later(call.wall_ms, lifetime_ms)
    token = DelegationToken(
        owner=str(owner),
        requester=str(requester),
        renewers=renewers,
        issue_timestamp=call.wall_ms,
        max_timestamp=max_timestamp,
        expiration_timestamp=min(max_timestamp, _later(call.wall_ms, config.token_expiry_ms)),
        token_id=_new_id(context),
    )
    response.issue_timestamp_ms = token.issue_timestamp
    response.expiry_timestamp_ms = token.expiration_timestamp
    response.max_timestamp_ms = token.max_timestamp
    response.token_id = token.token_id
    response.hmac = index.key.hmac_of(token.token_id)
    return Decision(records=((_record(token), 0),), response=response)


def renew_delegation_token(
    context: DecisionContext, call: Call[k39.RenewDelegationTokenRequest]
) -> Decision:
    """Decide a RenewDelegationToken request: the owner or a renewer puts off the expiry."""
    response = k39.RenewDelegationTokenResponse()
    try:
        token = _found(context, call.request.hmac)
        _check_valid(token, call.wall_ms)
        _check_renewer(token, call.principal)
    except KafkaError as error:
        response.error_code = error.code
        return Decision(response=response)
    period_ms = _at_most(context.config.token_expiry_ms, call.request.renew_period_ms)
    return _expiring(token, _later(call.wall_ms, period_ms), response)


def expire_delegation_token(
    context: DecisionContext, call: Call[k40.ExpireDelegationTokenRequest]
) -> Decision:
    """Decide an ExpireDelegationToken request: a negative period removes the token at once."""
    response = k40.ExpireDelegationTokenResponse()
    period_ms = call.request.expiry_time_period_ms
    try:
        token = _found(context, call.request.hmac)
        _check_renewer(token, call.principal)
        if period_ms >= 0:
            _check_valid(token, call.wall_ms)
    except KafkaError as error:
        response.error_code = error.code
        return Decision(response=response)
    if period_ms < 0:
        response.expiry_timestamp_ms = call.wall_ms
        return Decision(
            records=((RemoveDelegationTokenRecord(token_id=token.token_id), 0),), response=response
        )
    return _expiring(token, _later(call.wall_ms, period_ms), response)


def remove_expired_tokens(context: DecisionContext, wall_ms: int) -> Decision:
    """Remove tokens that have expired; the response is True if there may be more of them."""
    tokens = context.image.delegation_tokens.values()
    expired = (token.token_id for token in tokens if token.has_expired(wall_ms))
    removals = nsmallest(REMOVALS_MAX, expired)
    return Decision(
        records=tuple((RemoveDelegationTokenRecord(token_id=id_), 0) for id_ in removals),
        response=len(removals) == REMOVALS_MAX,
        atomic=False,
    )


def _enabled(context: DecisionContext) -> TokenIndex:
    """The index of tokens.

    Raises:
        KafkaError: DELEGATION_TOKEN_AUTH_DISABLED, UNSUPPORTED_VERSION.
    """
    if context.tokens is None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    if context.metadata_level < DELEGATION_TOKEN_LEVEL:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    return context.tokens


def _renewers(request: k38.CreateDelegationTokenRequest) -> tuple[str, ...]:
    if any(renewer.principal_type != USER for renewer in request.renewers):
        raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)
    return tuple(f"{USER}:{renewer.principal_name}" for renewer in request.renewers)


def _found(context: DecisionContext, token_hmac: bytes) -> DelegationToken:
    token_id = _enabled(context).find(token_hmac)
    token = None if token_id is None else context.image.delegation_tokens.get(token_id)
    if token is None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    return token


def _check_valid(token: DelegationToken, wall_ms: int) -> None:
    if token.has_expired(wall_ms):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)


def _check_renewer(token: DelegationToken, principal: KafkaPrincipal) -> None:
    """A user who requested a token for another owner may describe it, but not renew it."""
    if str(principal) != token.owner and str(principal) not in token.renewers:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)


def _expiring(token: DelegationToken, at_ms: int, response: Any) -> Decision:
    """The token expires at that time, but not after its maximum."""
    changed = token._replace(expiration_timestamp=min(token.max_timestamp, at_ms))
    response.expiry_timestamp_ms = changed.expiration_timestamp
    return Decision(records=((_record(changed), 0),), response=response)


def _record(token: DelegationToken) -> DelegationTokenRecord:
    fields = token._asdict() | {"renewers": list(token.renewers)}
    return DelegationTokenRecord(**fields)


def _new_id(context: DecisionContext) -> str:
    while (made := str(random_uuid(context.entropy))) in context.image.delegation_tokens:
        pass
    return made


def _at_most(default_ms: int, wanted_ms: int) -> int:
    return min(default_ms, wanted_ms) if wanted_ms > 0 else default_ms


def _later(wall_ms: int, period_ms: int) -> int:
    return min(wall_ms + period_ms, _TIME_MAX)
