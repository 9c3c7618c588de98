"""DescribeDelegationToken (key 41): v1-3, flexible from v2."""

from sparkraft.protocol.declare import Message, array, blob, int16, int32, int64, secret, string


class DescribeDelegationTokenOwner(Message):
    """An owner: `DescribeDelegationTokenRequest.owners`."""

    principal_type: str = string()
    principal_name: str = string()


class DescribeDelegationTokenRequest(Message, key=41, versions="1-3", flexible="2+"):
    """Asks for delegation tokens by owner (KIP-48)."""

    owners: list[DescribeDelegationTokenOwner] | None = array(
        DescribeDelegationTokenOwner, nullable=True
    )


class DescribedDelegationTokenRenewer(Message):
    """A principal that may renew it: `DescribeDelegationTokenResponse.tokens.renewers`."""

    principal_type: str = string()
    principal_name: str = string()


class DescribedDelegationToken(Message):
    """One token: `DescribeDelegationTokenResponse.tokens`."""

    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string("3+")
    token_requester_principal_name: str = string("3+")
    issue_timestamp: int = int64()
    expiry_timestamp: int = int64()
    max_timestamp: int = int64()
    token_id: str = string()
    hmac: bytes = secret(blob())
    renewers: list[DescribedDelegationTokenRenewer] = array(DescribedDelegationTokenRenewer)


class DescribeDelegationTokenResponse(Message, key=41, versions="1-3", flexible="2+"):
    """The tokens, with their keys."""

    error_code: int = int16()
    tokens: list[DescribedDelegationToken] = array(DescribedDelegationToken)
    throttle_time_ms: int = int32()
