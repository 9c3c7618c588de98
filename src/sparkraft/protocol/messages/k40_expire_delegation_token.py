"""ExpireDelegationToken (key 40): v1-2, flexible from v2."""

from sparkraft.protocol.declare import Message, blob, int16, int32, int64, secret


class ExpireDelegationTokenRequest(Message, key=40, versions="1-2", flexible="2+"):
    """Ends a delegation token, now or later (KIP-48)."""

    hmac: bytes = secret(blob())
    expiry_time_period_ms: int = int64()


class ExpireDelegationTokenResponse(Message, key=40, versions="1-2", flexible="2+"):
    """The new end."""

    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()
