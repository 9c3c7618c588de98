"""SASL/OAUTHBEARER, the server's side: a token instead of a password (RFC 7628, KIP-255, KIP-768).

    client   n,[a=AUTHZID],^A auth=Bearer TOKEN^A [name=value^A…] ^A
    server   empty, or {"status":"invalid_token"}; then the client sends ^A and gets the failure

Behavior as in Kafka's `OAuthBearerSaslServer`: an authorization id must be empty or equal the user.
Extensions are accepted and ignored. Errors contain no part of the token.

Not here: the validation of tokens (`access_tokens`).
"""

import re
from collections.abc import Callable

from sparkraft.security.access_tokens import AccessToken, TokenError
from sparkraft.security.sasl import SaslError

_SASL_NAME = rb"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_PAIR = rb"[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01"
_FIRST = re.compile(
    rb"n,(?:a=(?P<authorization>" + _SASL_NAME + rb"))?,\x01(?P<pairs>(?:" + _PAIR + rb")*)\x01"
)
_AUTH = re.compile(r"\w+ +[-_~+/.a-zA-Z0-9]+=*", re.ASCII)

_ACKNOWLEDGEMENT = b"\x01"
_INVALID_TOKEN = '{"status":"invalid_token"}'

WILDCARD_USER = "*"


class OAuthBearerServer:
    """The server's side."""

    blocks = False

    def __init__(self, validate: Callable[[str], AccessToken]) -> None:
        """Begin; `validate` raises `TokenError` for a token that is not accepted."""
        self._validate = validate
        self._failure = ""
        self.user = ""
        self.expires_at_ms: int | None = None
        self.token_authenticated = False

    def respond(self, token: bytes) -> bytes:
        """Check the token in the client's first message, or end a failed exchange."""
        if token == _ACKNOWLEDGEMENT and self._failure:
            raise SaslError(self._failure, public_text=_INVALID_TOKEN)
        authorization_id, text = _parsed(token)
        try:
            found = self._validate(text)
        except TokenError as error:
            self._failure = str(error)
            return _INVALID_TOKEN.encode()
        if found.user == WILDCARD_USER:
            raise SaslError(f"a user named {WILDCARD_USER}")
        if authorization_id not in {"", found.user}:
            raise SaslError(
                f"Authentication failed: Client requested an authorization id ({authorization_id}) "
                f"that is different from the token's principal name ({found.user})",
                public=True,
            )
        self.user, self.expires_at_ms = found.user, found.expires_at_ms
        return b""


def _parsed(message: bytes) -> tuple[str, str]:
    """The authorization id and the token of a first message."""
    found = _FIRST.fullmatch(message)
    if found is None:
        raise SaslError("the first message is invalid")
    pairs = dict(pair.split(b"=", 1) for pair in found["pairs"].split(b"\x01") if pair)
    auth = pairs.get(b"auth", b"").decode()
    if _AUTH.fullmatch(auth) is None:
        raise SaslError("the first message has no valid auth")
    scheme, token = auth.split()
    if scheme.lower() != "bearer":
        raise SaslError("the scheme of the first message is not Bearer")
    return (found["authorization"] or b"").decode(), token
