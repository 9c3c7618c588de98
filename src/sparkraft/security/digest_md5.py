"""SASL/DIGEST-MD5, the client's side (RFC 2831): how clients authenticate to ZooKeeper.

    server  realm="zk-sasl-md5",nonce="...",charset=utf-8,algorithm=md5-sess
    client  username="...",realm="...",nonce="...",cnonce="...",nc=00000001,qop=auth,
            digest-uri="zookeeper/zk-sasl-md5",response=...
    server  rspauth=...

The password does not leave the client. Both responses prove that their side knows it. MD5 is weak:
use it over TLS, or in a network that others cannot read. Kafka's nodes do not use this mechanism
among themselves. Not here: layers that encrypt or sign what follows (`auth-int`, `auth-conf`).
"""

import hashlib
import hmac
import re

from sparkraft.security.sasl import SaslError
from sparkraft.security.secret import Secret

DIGEST_MD5 = "DIGEST-MD5"

_NONCE_COUNT = "00000001"
"""One response for each nonce."""

_CHALLENGE_BYTES_MAX = 2048
"""The bound of RFC 2831."""

_DIRECTIVE = re.compile(r'\s*([a-zA-Z-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))\s*(?:,|$)')


class DigestClient:
    """One exchange; see `SaslClient`."""

    def __init__(self, user: str, password: Secret, *, uri: str, cnonce: str) -> None:
        """Begin.

        Args:
            user: the name of the user.
            password: of the user.
            uri: the service, as `zookeeper/zk-sasl-md5`.
            cnonce: random, printable, without quotes.
        """
        self._user = user
        self._password = password
        self._uri = uri
        self._cnonce = cnonce
        self._expected: bytes | None = None
        """The server's response; None before its challenge."""

    def first(self) -> bytes:
        """Return an empty token: the server begins."""
        return b""

    def respond(self, token: bytes) -> bytes | None:
        """Answer the challenge, then check the server's response.

        Raises:
            SaslError: the server does not know the password, or sent an invalid token.
        """
        found = _directives(token)
        if self._expected is not None:
            given = found.get("rspauth", "").encode()
            if not hmac.compare_digest(given, self._expected):
                raise SaslError("the server does not know the password")
            return None
        nonce = found.get("nonce")
        if not nonce or found.get("algorithm") != "md5-sess":
            raise SaslError("the challenge has no nonce, or another algorithm than md5-sess")
        if "auth" not in found.get("qop", "auth").split(","):
            raise SaslError("the server does not offer qop=auth")
        realm = found.get("realm", "")
        own, self._expected = self._responses(realm, nonce)
        charset = "charset=utf-8," if found.get("charset") == "utf-8" else ""
        return (
            f'{charset}username="{_quoted(self._user)}",realm="{_quoted(realm)}",'
            f'nonce="{_quoted(nonce)}",nc={_NONCE_COUNT},cnonce="{self._cnonce}",'
            f'digest-uri="{self._uri}",qop=auth,response='
        ).encode() + own

    def _responses(self, realm: str, nonce: str) -> tuple[bytes, bytes]:
        """The responses of both sides, in hexadecimal digits."""
        secret = b":".join(map(_text, (self._user, realm, self._password.reveal())))
        session = b":".join((_md5(secret), nonce.encode(), self._cnonce.encode()))
        parts = f":{nonce}:{_NONCE_COUNT}:{self._cnonce}:auth:".encode()
        both = []
        for method in ("AUTHENTICATE", ""):
            request = _hex(f"{method}:{self._uri}".encode())
            both.append(_hex(_hex(session) + parts + request))
        return both[0], both[1]


def _directives(token: bytes) -> dict[str, str]:
    """The directives of a server's token; of a name that is repeated the first one."""
    if len(token) > _CHALLENGE_BYTES_MAX:
        raise SaslError(f"a token of more than {_CHALLENGE_BYTES_MAX} bytes")
    text, at = token.decode(errors="replace"), 0
    found: dict[str, str] = {}
    while at < len(text):
        directive = _DIRECTIVE.match(text, at)
        if directive is None:
            raise SaslError("a malformed token")
        name, quoted, plain = directive.groups()
        value = plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        found.setdefault(name.lower(), value)
        at = directive.end()
    return found


def _quoted(text: str) -> str:
    return re.sub(r'(["\\])', r"\\\1", text)


def _text(text: str) -> bytes:
    """In ISO 8859-1 if possible, as the RFC requires for the digest, otherwise in UTF-8."""
    try:
        return text.encode("iso-8859-1")
    except UnicodeEncodeError:
        return text.encode()


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()


def _hex(data: bytes) -> bytes:
    return _md5(data).hex().encode()
