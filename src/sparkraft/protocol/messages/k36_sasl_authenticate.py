"""SaslAuthenticate (key 36): v0-2, flexible from v2."""

from sparkraft.protocol.declare import Message, blob, int16, int64, secret, string


class SaslAuthenticateRequest(Message, key=36, versions="0-2", flexible="2+"):
    """Carries the next SASL token of the mechanism agreed on (KIP-152)."""

    auth_bytes: bytes = secret(blob())


class SaslAuthenticateResponse(Message, key=36, versions="0-2", flexible="2+"):
    """The server's token; v1 how long the session may last (KIP-368)."""

    error_code: int = int16()
    error_message: str | None = string(nullable=True)
    auth_bytes: bytes = secret(blob())
    session_lifetime_ms: int = int64("1+", ignorable=True)
