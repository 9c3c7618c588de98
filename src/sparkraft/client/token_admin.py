"""Delegation tokens from outside: create, renew, expire and describe them (KIP-48, KIP-373)."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode
from sparkraft.client.cluster import check, code_of
from sparkraft.security.principal import KafkaPrincipal
from sparkraft.security.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkraft.client.cluster import Cluster

_REASONS = {
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "Delegation Token feature is not enabled.",
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: "Delegation Token is not found on server.",
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: "Specified Principal is not valid Owner/Renewer.",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: (
        "Delegation Token requests are not allowed on PLAINTEXT/1-way SSL channels and on "
        "delegation token authenticated channels."
    ),
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "Delegation Token authorization failed.",
    ErrorCode.DELEGATION_TOKEN_EXPIRED: "Delegation Token is expired.",
    ErrorCode.INVALID_PRINCIPAL_TYPE: "Supplied principalType is not supported.",
}
"""Kafka's messages: the responses have only codes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenInfo:
    """A delegation token, with its secret; times in milliseconds since 1970.

    Attributes:
        hmac: in base64: the password of logins with the token.
    """

    token_id: str
    hmac: Secret
    owner: KafkaPrincipal
    requester: KafkaPrincipal
    renewers: tuple[KafkaPrincipal, ...]
    issue_timestamp_ms: int
    expiry_timestamp_ms: int
    max_timestamp_ms: int


class TokenAdmin:
    """Calls on delegation tokens over a `Cluster`, which stays the caller's to close.

    They raise `KafkaError` if the node refuses them.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def create(
        self,
        *,
        renewers: Sequence[KafkaPrincipal] = (),
        owner: KafkaPrincipal | None = None,
        max_lifetime_ms: int = -1,
    ) -> TokenInfo:
        """Create a token of `owner`, by default of this client's user; -1: the longest lifetime."""
        from sparkraft.protocol.messages import k38_create_delegation_token as k38

        request = k38.CreateDelegationTokenRequest(
            owner_principal_type=None if owner is None else owner.type,
            owner_principal_name=None if owner is None else owner.name,
            renewers=[
                k38.CreatableRenewers(principal_type=each.type, principal_name=each.name)
                for each in renewers
            ],
            max_lifetime_ms=max_lifetime_ms,
        )
        answer = await self._send(request)
        return TokenInfo(
            token_id=answer.token_id,
            hmac=_encoded(answer.hmac),
            owner=KafkaPrincipal(answer.principal_type, answer.principal_name),
            requester=KafkaPrincipal(
                answer.token_requester_principal_type, answer.token_requester_principal_name
            ),
            renewers=tuple(renewers),
            issue_timestamp_ms=answer.issue_timestamp_ms,
            expiry_timestamp_ms=answer.expiry_timestamp_ms,
            max_timestamp_ms=answer.max_timestamp_ms,
        )

    async def renew(self, hmac: bytes, *, period_ms: int = -1) -> int:
        """Let a token expire later, -1: by the node's default; the new time."""
        from sparkraft.protocol.messages.k39_renew_delegation_token import (
            RenewDelegationTokenRequest,
        )

        request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
        expiry: int = (await self._send(request)).expiry_timestamp_ms
        return expiry

    async def expire(self, hmac: bytes, *, period_ms: int = -1) -> int:
        """Let a token expire after that time, -1: remove it at once; the new time."""
        from sparkraft.protocol.messages.k40_expire_delegation_token import (
            ExpireDelegationTokenRequest,
        )

        request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
        expiry: int = (await self._send(request)).expiry_timestamp_ms
        return expiry

    async def describe(self, owners: Sequence[KafkaPrincipal] | None = None) -> list[TokenInfo]:
        """Describe the tokens of these owners that the client may see; None: of all."""
        from sparkraft.protocol.messages import k41_describe_delegation_token as k41

        named = None
        if owners is not None:
            named = [
                k41.DescribeDelegationTokenOwner(principal_type=each.type, principal_name=each.name)
                for each in owners
            ]
        answer = await self._send(k41.DescribeDelegationTokenRequest(owners=named))
        return [_described(token) for token in answer.tokens]

    async def _send(self, request: Any) -> Any:
        return await self._cluster.retrying(partial(self._attempt, request))

    async def _attempt(self, request: Any) -> Any:
        answer = await self._cluster.ask_any(request)
        check(answer.error_code, _REASONS.get(code_of(answer.error_code)))
        return answer


def _described(token: Any) -> TokenInfo:
    return TokenInfo(
        token_id=token.token_id,
        hmac=_encoded(token.hmac),
        owner=KafkaPrincipal(token.principal_type, token.principal_name),
        requester=KafkaPrincipal(
            token.token_requester_principal_type, token.token_requester_principal_name
        ),
        renewers=tuple(
            KafkaPrincipal(each.principal_type, each.principal_name) for each in token.renewers
        ),
        issue_timestamp_ms=token.issue_timestamp,
        expiry_timestamp_ms=token.expiry_timestamp,
        max_timestamp_ms=token.max_timestamp,
    )


def _encoded(hmac: bytes) -> Secret:
    return Secret(b64encode(bytes(hmac)).decode())
