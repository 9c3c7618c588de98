"""An issuer of access tokens: its keys, its JWKS, and tokens that it signs."""

import json
import time
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from joserfc import jws
from joserfc.jwk import ECKey, RSAKey

ISSUER, AUDIENCE = "https://issuer.test", "kafka"


class Issuer:
    """Signs with one key, an elliptic curve's by default; `now_s` is its time, else it passes."""

    def __init__(
        self, key_id: str = "first", *, algorithm: str = "ES256", now_s: int | None = None
    ) -> None:
        self._now_s = now_s
        self.key_id = key_id
        self.algorithm = algorithm
        self.key: RSAKey | ECKey
        if algorithm.startswith("ES"):
            self.key = ECKey.import_key(_pem(ec.generate_private_key(ec.SECP256R1())))
        else:
            private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
            self.key = RSAKey.import_key(_pem(private))

    def private_key(self) -> bytes:
        """PEM of the key, in PKCS#8."""
        return bytes(self.key.as_pem(private=True))

    def private_der(self) -> bytes:
        """DER of the key, in PKCS#8."""
        private = load_pem_private_key(self.private_key(), None)
        return private.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())

    def entry(self, **changes: str) -> dict[str, Any]:
        """The public key as an entry of a JWKS."""
        return self.key.as_dict(private=False) | {"kid": self.key_id} | changes

    def token(self, header: dict[str, Any] | None = None, **claims: Any) -> str:
        """A token of an hour for alice; claims that are None are left out."""
        now = int(time.time()) if self._now_s is None else self._now_s
        given = {"sub": "alice", "iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + 3600}
        given = {name: value for name, value in (given | claims).items() if value is not None}
        whole = {"alg": self.algorithm, "kid": self.key_id} | (header or {})
        whole = {name: value for name, value in whole.items() if value is not None}
        return self.sign(whole, given)

    def sign(self, header: dict[str, Any], claims: Any) -> str:
        registry = jws.JWSRegistry(algorithms=[self.algorithm], strict_check_header=False)
        payload = json.dumps(claims)
        return jws.serialize_compact(header, payload, self.key, registry=registry)


def key_set(*entries: dict[str, Any]) -> str:
    """A JWKS document."""
    return json.dumps({"keys": entries})


def _pem(key: Any) -> bytes:
    from tests.support.certificates import private_pem

    return private_pem(key, None)
