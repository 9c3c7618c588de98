"""SaslHandshake (key 17): v0-1, never flexible.

KIP-43, KIP-152.
"""

from sparkraft.protocol.declare import Message, int16, string, strings


class SaslHandshakeRequest(Message, key=17, versions="0-1"):
    """Names the SASL mechanism a client wants; the tokens follow in SaslAuthenticate from v1."""

    mechanism: str = string()


class SaslHandshakeResponse(Message, key=17, versions="0-1"):
    """The mechanisms the broker has."""

    error_code: int = int16()
    mechanisms: list[str] = strings()
