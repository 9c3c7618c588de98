"""Access tokens: which JWTs a listener accepts, and their users (KIP-768, RFC 7519).

The rules are those of Kafka's `BrokerJwtValidator` and of jose4j, which it uses:

* Signed with a key of the JWKS, whose `kid` the header names. `none` and symmetric algorithms are
  refused, and so are headers that bring or locate a key of their own, and critical extensions.
* `exp` and `iat` are required, `nbf` is checked, with the clock skew allowed. `exp` may be before
  neither of the others.
* An expected issuer must be the token's. An expected audience must be among the token's; without
  one, a token with an audience is refused.
* The user is a claim, `sub` by default, without white space around it. The scope may be missing; as
  text or a list it has no blank and no repeated entry.

Pure: keys and time are arguments. Errors contain no part of the token.
"""

import json
from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, JWKRegistry, RSAKey

ALGORITHMS: Mapping[str, str] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "RSA"),
    **dict.fromkeys(("ES256", "ES384", "ES512"), "EC"),
}
"""Algorithm → type of its keys; all are asymmetric."""

RSA_BITS_MIN = 2048
"""jose4j's; shorter keys in a JWKS are ignored."""

KEY_ID_CHARACTERS_MAX = 1000

_PARTS = 3
_REGISTRY = jws.JWSRegistry(algorithms=list(ALGORITHMS), strict_check_header=False)

Claims = Mapping[str, Any]


class TokenError(ValueError):
    """A token that is not accepted; the text has nothing of it."""


@dataclass(frozen=True, slots=True)
class AccessToken:
    """The claims of a valid token.

    Attributes:
        user: the name of the principal.
        expires_at_ms: wall-clock time from which it is invalid, without the skew.
    """

    user: str
    expires_at_ms: int


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """A public key of a JWKS; `algorithm` is "" if it has none of its own."""

    id: str
    type: str
    algorithm: str
    key: RSAKey | ECKey


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """The `sasl.oauthbearer.*` configs about claims; None or empty: not checked."""

    audiences: frozenset[str]
    issuer: str | None
    clock_skew_s: int
    user_claim: str
    scope_claim: str

    def validate(
        self, token: str, keys: "Callable[[str], Iterable[VerificationKey]]", now_s: float
    ) -> AccessToken:
        """Check a token; `keys` returns those of a key id, all without one.

        Raises:
            TokenError: it is not accepted.
        """
        claims = _verified(token, keys)
        expires_s = self._check_times(claims, now_s)
        if self.issuer is not None and claims.get("iss") != self.issuer:
            raise TokenError("the token has another issuer")
        self._check_audience(claims)
        self._check_scope(claims)
        user = claims.get(self.user_claim)
        if not isinstance(user, str) or not user.strip():
            raise TokenError(f"the token has no text as {self.user_claim}")
        return AccessToken(user.strip(), expires_s * 1000)

    def _check_times(self, claims: Claims, now_s: float) -> int:
        expires, issued = _time(claims, "exp"), _time(claims, "iat")
        not_before = _time(claims, "nbf")
        if expires is None or issued is None:
            raise TokenError("the token has no exp or no iat")
        if now_s - self.clock_skew_s >= expires:
            raise TokenError("the token has expired")
        if not_before is not None and now_s + self.clock_skew_s < not_before:
            raise TokenError("the token is not valid yet")
        if expires < issued or (not_before is not None and expires < not_before):
            raise TokenError("the token expires before it is valid")
        return expires

    def _check_audience(self, claims: Claims) -> None:
        given = claims.get("aud")
        found = [given] if isinstance(given, str) else given or []
        if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
            raise TokenError("the audience of the token is not text")
        if not self.audiences and found:
            raise TokenError("the token has an audience, and none is expected")
        if self.audiences and not self.audiences.intersection(found):
            raise TokenError("the token has another audience")

    def _check_scope(self, claims: Claims) -> None:
        given = claims.get(self.scope_claim)
        scopes = [given] if isinstance(given, str) else given
        if not isinstance(scopes, list):
            return
        if not all(isinstance(each, str) and each.strip() for each in scopes):
            raise TokenError("the token has a blank scope")
        if len({each.strip() for each in scopes}) < len(scopes):
            raise TokenError("the token has a scope twice")


def read_key_set(text: str) -> list[VerificationKey]:
    """The public keys of a JWKS document; keys of other kinds are left out.

    Raises:
        ValueError: it is not a JWKS.
    """
    try:
        entries = json.loads(text)["keys"]
        return [found for each in entries if (found := _key(each)) is not None]
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        raise ValueError("the document is not a JWKS") from None


def _key(entry: Mapping[str, Any]) -> VerificationKey | None:
    kind = entry.get("kty")
    if kind not in {"RSA", "EC"} or entry.get("use", "sig") != "sig":
        return None
    public = {name: value for name, value in entry.items() if name in _PUBLIC_PARAMETERS}
    try:
        if kind == "RSA" and _bits(public["n"]) < RSA_BITS_MIN:
            return None
        key = JWKRegistry.import_key(public)
        assert isinstance(key, RSAKey | ECKey)
        key.public_key  # noqa: B018 (the numbers are checked at first use)
    except (JoseError, KeyError, ValueError, TypeError):
        return None
    return VerificationKey(str(entry.get("kid", "")), str(kind), str(entry.get("alg", "")), key)


def _bits(number: str) -> int:
    return int.from_bytes(_decoded(number), "big").bit_length()


def _decoded(text: str) -> bytes:
    """Bytes of base64url without padding; ValueError for anything else."""
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


_PUBLIC_PARAMETERS = frozenset({"kty", "n", "e", "crv", "x", "y"})
"""Private parameters and certificates of a JWKS are not read."""


def _verified(token: str, keys: "Callable[[str], Iterable[VerificationKey]]") -> Claims:
    """The claims, after the signature was checked."""
    parts = token.split(".")
    if len(parts) != _PARTS or not all(parts):
        raise TokenError("the token is not a signed JWT")
    header = _json(parts[0])
    algorithm, key_id = header.get("alg"), header.get("kid", "")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise TokenError("the token has no algorithm that is accepted")
    if "crit" in header or "b64" in header:
        raise TokenError("the token has critical headers")
    if not isinstance(key_id, str) or len(key_id) > KEY_ID_CHARACTERS_MAX:
        raise TokenError("the token has no valid key id")
    fitting = [
        each
        for each in keys(key_id)
        if each.type == ALGORITHMS[algorithm] and each.algorithm in {"", algorithm}
    ]
    if len(fitting) != 1:
        raise TokenError(f"{len(fitting) or 'none'} of the keys fit the token")
    try:
        jws.deserialize_compact(token, fitting[0].key, registry=_REGISTRY)
    except (JoseError, ValueError, TypeError):
        raise TokenError("the signature of the token is wrong") from None
    return _json(parts[1])


def _json(part: str) -> Claims:
    try:
        found = json.loads(_decoded(part))
    except (ValueError, RecursionError):
        raise TokenError("the token is not valid JSON") from None
    if not isinstance(found, dict):
        raise TokenError("the token is not a JSON object")
    return found


def _time(claims: Claims, name: str) -> int | None:
    """A NumericDate in whole seconds; None if it is missing."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1 << 53:
        raise TokenError(f"{name} of the token is not a time")
    return int(value)
