"""RenewDelegationToken (key 39): v1-2, flexible from v2."""

from sparkraft.protocol.declare import Message, blob, int16, int32, int64, secret


class RenewDelegationTokenRequest(Message, key=39, versions="1-2", flexible="2+"):
    """Puts off the end of a delegation token (KIP-48)."""

    hmac: bytes = secret(blob())
    renew_period_ms: int = int64()


class RenewDelegationTokenResponse(Message, key=39, versions="1-2", flexible="2+"):
    """The new end."""

    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()
