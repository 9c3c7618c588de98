"""SaslHandshake (key 17): v0-1, never flexible."""

from sparkraft.protocol.declare import Message, int16, string, strings


class SaslHandshakeRequest(Message, key=17, versions="0-1"):
    """Asks for SaslHandshake."""

    mechanism: str = string()


class SaslHandshakeResponse(Message, key=17, versions="0-1"):
    """Answers SaslHandshakeRequest."""

    error_code: int = int16()
    mechanisms: list[str] = strings()
