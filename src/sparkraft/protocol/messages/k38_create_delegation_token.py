"""CreateDelegationToken (key 38): v1-3, flexible from v2."""

from sparkraft.protocol.declare import Message, array, blob, int16, int32, int64, secret, string


class CreatableRenewers(Message):
    """A principal that may renew the token: `CreateDelegationTokenRequest.renewers`."""

    principal_type: str = string()
    principal_name: str = string()


class CreateDelegationTokenRequest(Message, key=38, versions="1-3", flexible="2+"):
    """Requests a delegation token (KIP-48). v3 on behalf of another principal (KIP-373)."""

    owner_principal_type: str | None = string("3+", nullable=True)
    owner_principal_name: str | None = string("3+", nullable=True)
    renewers: list[CreatableRenewers] = array(CreatableRenewers)
    max_lifetime_ms: int = int64()


class CreateDelegationTokenResponse(Message, key=38, versions="1-3", flexible="2+"):
    """The token, with its key."""

    error_code: int = int16()
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string("3+")
    token_requester_principal_name: str = string("3+")
    issue_timestamp_ms: int = int64()
    expiry_timestamp_ms: int = int64()
    max_timestamp_ms: int = int64()
    token_id: str = string()
    hmac: bytes = secret(blob())
    throttle_time_ms: int = int32()
