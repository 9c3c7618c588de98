"""SCRAM-SHA-256 and SCRAM-SHA-512, both sides (RFC 5802, RFC 7677), as Kafka uses them.

    client first   n,[a=AUTHZID],n=USER,r=CLIENT_NONCE[,extensions]
    server first   r=CLIENT_NONCE SERVER_NONCE,s=SALT,i=ITERATIONS
    client final   c=CHANNEL,r=NONCE,p=PROOF
    server final   v=SIGNATURE

* Passwords are used as they are, without SASLprep; an authorization id must be empty or the user.
* The nonce of the last message must be the whole nonce of this exchange (CVE-2024-56128).
* An unknown user gets a salt of its own and fails at the proof, like a wrong password, so that the
  number of messages does not reveal which users exist. Kafka fails at the first message.
* Proofs and signatures are compared in constant time.
* With the extension `tokenauth=true` the user is the id of a delegation token (KIP-48), and the
  client is authenticated as the token's owner. An unknown or expired token is an unknown user.

Not here: the storage of credentials (`metadata.image`), those of tokens (`delegation_token`).
"""

import binascii
import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from sparkraft.security.sasl import SaslError
from sparkraft.security.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Callable

ITERATIONS_MIN = 4096
ITERATIONS_MAX = 16384
"""Kafka's bounds of new credentials (`ScramControlManager`), both inclusive."""

CLIENT_ITERATIONS_MAX = 100_000
"""The most that our client computes for a server, 0.1 s: a hostile server could ask for hours."""


@dataclass(frozen=True, slots=True)
class ScramMechanism:
    """A hash function, and the number of the mechanism in requests and records."""

    name: str
    type: int
    digest: str
    digest_bytes: int


SHA_256 = ScramMechanism("SCRAM-SHA-256", 1, "sha256", 32)
SHA_512 = ScramMechanism("SCRAM-SHA-512", 2, "sha512", 64)

BY_NAME = {mechanism.name: mechanism for mechanism in (SHA_256, SHA_512)}
BY_TYPE = {mechanism.type: mechanism for mechanism in (SHA_256, SHA_512)}


class Credential(Protocol):
    """A user's data on the server; the password cannot be computed from it."""

    @property
    def salt(self) -> bytes: ...

    @property
    def stored_key(self) -> bytes: ...

    @property
    def server_key(self) -> bytes: ...

    @property
    def iterations(self) -> int: ...


@dataclass(frozen=True, slots=True, repr=False)
class TokenLogin:
    """The login of a client by a delegation token.

    Attributes:
        credential: of the token.
        owner: the name of the user it is authenticated as.
        expires_at_ms: wall-clock time at which the token expires.
    """

    credential: Credential
    owner: str
    expires_at_ms: int


def no_tokens(token_id: str) -> TokenLogin | None:
    """The lookup of a server without delegation tokens."""
    del token_id
    return None


@dataclass(frozen=True, slots=True, repr=False)
class Keys:
    """The two keys of a credential."""

    stored_key: bytes
    server_key: bytes


def salted_password(
    mechanism: ScramMechanism, password: Secret, salt: bytes, iterations: int
) -> bytes:
    """`SaltedPassword` of RFC 5802: takes about 1 ms for 4096 iterations."""
    return hashlib.pbkdf2_hmac(mechanism.digest, password.reveal().encode(), salt, iterations)


def keys_of(mechanism: ScramMechanism, salted: bytes) -> Keys:
    """The keys to store for a salted password."""
    client_key = hmac.digest(salted, b"Client Key", mechanism.digest)
    return Keys(
        stored_key=hashlib.new(mechanism.digest, client_key).digest(),
        server_key=hmac.digest(salted, b"Server Key", mechanism.digest),
    )


_USER = rb"(?:[\x01-\x2b\x2d-\x3c\x3e-\xff]|=2C|=3D)+"
_VALUE = rb"[\x21-\x2b\x2d-\x7e]+"
_EXTENSIONS = rb"(?:,[A-Za-z]+=[\x01-\x2b\x2d-\x7f]+)*"
_TOKEN_EXTENSION = b"tokenauth"
_FIRST = re.compile(
    rb"(?P<header>n,(?:a=(?P<authorization>" + _USER + rb"))?,)"
    rb"(?P<bare>n=(?P<user>" + _USER + rb"),r=(?P<nonce>" + _VALUE + rb")"
    rb"(?P<extensions>" + _EXTENSIONS + rb"))"
)
_BASE64 = rb"[A-Za-z0-9+/]+=*"
_SERVER_FIRST = re.compile(
    rb"r=(?P<nonce>"
    + _VALUE
    + rb"),s=(?P<salt>"
    + _BASE64
    + rb"),i=(?P<iterations>[0-9]{1,9})"
    + _EXTENSIONS
)
_FINAL = re.compile(
    rb"(?P<without_proof>c=(?P<channel>"
    + _BASE64
    + rb"),r=(?P<nonce>"
    + _VALUE
    + rb")"
    + _EXTENSIONS
    + rb"),p=(?P<proof>"
    + _BASE64
    + rb")"
)
_SERVER_FINAL = re.compile(rb"v=(?P<signature>" + _BASE64 + rb")")


class ScramServer:
    """The server's side of one exchange."""

    blocks = False

    def __init__(
        self,
        mechanism: ScramMechanism,
        lookup: "Callable[[str], Credential | None]",
        *,
        nonce: str,
        unknown_user_key: bytes,
        lookup_token: "Callable[[str], TokenLogin | None]" = no_tokens,
    ) -> None:
        """Begin.

        Args:
            mechanism: the one the client chose.
            lookup: returns the credential of a user.
            nonce: random, at least 128 bits, printable and without a comma.
            unknown_user_key: from which the salts of unknown users are computed; constant while
                the node runs.
            lookup_token: returns the login of a delegation token that has not expired, by its id.
        """
        self._mechanism = mechanism
        self._lookup = lookup
        self._lookup_token = lookup_token
        self._nonce = nonce.encode()
        self._unknown_user_key = unknown_user_key
        self._claimed = ""
        self._credential: Credential | None = None
        self._header = self._auth_message = self._whole_nonce = b""
        self._expires_at_ms: int | None = None
        self._by_token = False
        self.user = ""
        self.expires_at_ms: int | None = None
        self.token_authenticated = False

    def respond(self, token: bytes) -> bytes:
        """Take the client's first message, then its final one."""
        if self.user:
            raise SaslError("a message after the end of the exchange")
        return self._first(token) if not self._whole_nonce else self._final(token)

    def _first(self, token: bytes) -> bytes:
        found = _FIRST.fullmatch(token)
        if found is None:
            raise SaslError("the first message is invalid")
        user = _unescaped(found["user"])
        if found["authorization"] and _unescaped(found["authorization"]) != user:
            raise SaslError(
                "Authentication failed: Client requested an authorization id that is different "
                "from username",
                public=True,
            )
        self._by_token = _names_token(found["extensions"])
        self._find(user)
        if self._credential is None:
            salt, iterations = self._unknown_salt(user), ITERATIONS_MIN
        else:
            salt, iterations = self._credential.salt, self._credential.iterations
        if iterations < ITERATIONS_MIN:
            raise SaslError(f"the credential has less than {ITERATIONS_MIN} iterations")
        self._whole_nonce = found["nonce"] + self._nonce
        self._header = found["header"]
        answer = b"r=%b,s=%b,i=%d" % (self._whole_nonce, b64encode(salt), iterations)
        self._auth_message = found["bare"] + b"," + answer
        return answer

    def _find(self, user: str) -> None:
        """Look up the credential of a user, or of a token, whose owner is the user."""
        if not self._by_token:
            self._claimed, self._credential = user, self._lookup(user)
            return
        login = self._lookup_token(user)
        if login is not None:
            self._claimed, self._credential = login.owner, login.credential
            self._expires_at_ms = login.expires_at_ms

    def _unknown_salt(self, user: str) -> bytes:
        """As long as Kafka's own salts, and the same for each login of a name."""
        return hmac.digest(self._unknown_user_key, user.encode(), "sha256")[:20]

    def _final(self, token: bytes) -> bytes:
        found = _FINAL.fullmatch(token)
        if found is None:
            raise SaslError("the final message is invalid")
        if _decoded(found["channel"]) not in {b"n,,", self._header}:
            raise SaslError("the final message has another channel binding")
        if not hmac.compare_digest(found["nonce"], self._whole_nonce):
            raise SaslError("the final message has another nonce")
        proof = _decoded(found["proof"])
        auth_message = self._auth_message + b"," + found["without_proof"]
        if not self._proves(proof, auth_message):
            raise SaslError("the user is unknown or the password is wrong")
        assert self._credential is not None
        signature = hmac.digest(self._credential.server_key, auth_message, self._mechanism.digest)
        self.user = self._claimed
        self.expires_at_ms, self.token_authenticated = self._expires_at_ms, self._by_token
        return b"v=" + b64encode(signature)

    def _proves(self, proof: bytes, auth_message: bytes) -> bool:
        credential, digest = self._credential, self._mechanism.digest
        stored = bytes(self._mechanism.digest_bytes)
        if credential is not None:
            stored = credential.stored_key
        signature = hmac.digest(stored, auth_message, digest)
        if len(proof) != len(signature):
            return False
        client_key = _xor(proof, signature)
        matches = hmac.compare_digest(hashlib.new(digest, client_key).digest(), stored)
        return matches and credential is not None


class ScramClient:
    """The client's side of one exchange."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        user: str,
        password: Secret,
        *,
        nonce: str,
        by_token: bool = False,
    ) -> None:
        """Begin; `nonce` as in `ScramServer`; `by_token`: `user` is the id of a token."""
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce.encode()
        escaped = user.replace("=", "=3D").replace(",", "=2C")
        extensions = b",tokenauth=true" if by_token else b""
        self._bare = f"n={escaped},r=".encode() + self._nonce + extensions
        self._signature = b""

    def first(self) -> bytes:
        """Return the first message."""
        return b"n,," + self._bare

    def respond(self, token: bytes) -> bytes | None:
        """Take the server's first message, then check its signature."""
        if not self._signature:
            return self._final(token)
        found = _SERVER_FINAL.fullmatch(token)
        if found is None or not hmac.compare_digest(_decoded(found["signature"]), self._signature):
            raise SaslError("the server does not know the password")
        return None

    def _final(self, token: bytes) -> bytes:
        found = _SERVER_FIRST.fullmatch(token)
        if found is None:
            raise SaslError("the server's first message is invalid")
        nonce, iterations = found["nonce"], int(found["iterations"])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise SaslError("the server's nonce does not extend the client's")
        if not ITERATIONS_MIN <= iterations <= CLIENT_ITERATIONS_MAX:
            raise SaslError(
                f"the server wants {iterations} iterations; from {ITERATIONS_MIN} to "
                f"{CLIENT_ITERATIONS_MAX} are accepted"
            )
        mechanism = self._mechanism
        salt = _decoded(found["salt"])
        salted = salted_password(mechanism, self._password, salt, iterations)
        keys = keys_of(mechanism, salted)
        without_proof = b"c=biws,r=" + nonce
        auth_message = self._bare + b"," + token + b"," + without_proof
        self._signature = hmac.digest(keys.server_key, auth_message, mechanism.digest)
        client_key = hmac.digest(salted, b"Client Key", mechanism.digest)
        proof = _xor(client_key, hmac.digest(keys.stored_key, auth_message, mechanism.digest))
        return without_proof + b",p=" + b64encode(proof)


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def _names_token(extensions: bytes) -> bool:
    """Whether the user is the id of a token; the last of equal extensions counts, as in Java."""
    pairs = dict(pair.split(b"=", 1) for pair in extensions.split(b",") if pair)
    return pairs.get(_TOKEN_EXTENSION, b"").lower() == b"true"


def _unescaped(name: bytes) -> str:
    try:
        return name.decode().replace("=2C", ",").replace("=3D", "=")
    except UnicodeDecodeError:
        raise SaslError("a name is not UTF-8") from None


def _decoded(text: bytes) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise SaslError("a value is not base64") from None
