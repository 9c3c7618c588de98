"""JWT assertions: how a client proves its identity to a token endpoint.

RFC 7523; KIP-1139 and KIP-1258.

    sasl.oauthbearer.assertion.file                 a JWT that another program replaces
    sasl.oauthbearer.assertion.private.key.file     or a key, with which a JWT is made and signed:

    header     template file | alg, typ
    payload    aud, iss, sub | template file | iat, exp, nbf [, jti]      later ones replace earlier

The layers are those of Kafka's `AssertionUtils.layeredAssertionJwtTemplate`. Files are read for
each assertion, so a key can be replaced without a restart. A key is PEM in PKCS#8, which may be
encrypted, or its base64 text.

No error quotes a key, a passphrase or an assertion.
"""

from __future__ import annotations

import json
import re
import uuid
from base64 import b64decode
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from joserfc.jwk import ECKey, RSAKey

    from sparkraft.security.secret import Secret

ALGORITHMS: Final = ("RS256", "ES256")

LIFETIME_S, LIFETIME_S_MAX = 300, 86_400
BACKDATED_S, BACKDATED_S_MAX = 60, 3_600
"""Kafka's defaults and bounds of claim.exp.seconds and claim.nbf.seconds."""

FILE_BYTES_MAX: Final = 1 << 16
"""Of a key, a template, or an assertion."""

_ASSERTION = re.compile(r"[-_a-zA-Z0-9]+\.[-_a-zA-Z0-9]+\.[-_a-zA-Z0-9]+", re.ASCII)
_SEQUENCE = b"\x30"
"""The first byte of a key in DER."""


class AssertionFailureError(ValueError):
    """An assertion cannot be made; the message names the file and the reason."""


class Assertions(Protocol):
    """A source of assertions."""

    def next(self, now_s: int) -> str:
        """Return an assertion; reads files. `now_s` is the wall-clock time.

        Raises:
            AssertionFailureError: it cannot be made or read.
        """
        ...


@dataclass(frozen=True, slots=True)
class AssertionFile:
    """Assertions that another program writes (`FileAssertionCreator`)."""

    path: str

    def next(self, now_s: int) -> str:
        """See `Assertions`."""
        text = _read(self.path).decode(errors="replace").strip()
        if _ASSERTION.fullmatch(text) is None:
            raise AssertionFailureError(f"the assertion file {self.path}: not a JWT")
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedAssertions:
    """Assertions that are signed here (`DefaultAssertionCreator`).

    Attributes:
        key_path: of the private key.
        passphrase: of the key; None: it is not encrypted.
        algorithm: one of `ALGORITHMS`.
        template_path: of a JSON object with `header` and `payload`; None without a template.
        claims: name and value of `aud`, `iss` and `sub`, of those that are set.
        lifetime_s: from the time at which it is made to `exp`.
        backdated_s: from `nbf` to that time.
        has_id: whether each one has an id of its own (`jti`).
    """

    key_path: str
    passphrase: Secret | None = None
    algorithm: str = "RS256"
    template_path: str | None = None
    claims: tuple[tuple[str, str], ...] = ()
    lifetime_s: int = LIFETIME_S
    backdated_s: int = BACKDATED_S
    has_id: bool = False

    def next(self, now_s: int) -> str:
        """See `Assertions`."""
        from joserfc import jws
        from joserfc.errors import JoseError

        header, payload = self._template()
        header |= {"alg": self.algorithm, "typ": "JWT"}
        payload = dict(self.claims) | payload
        payload |= {"iat": now_s, "exp": now_s + self.lifetime_s, "nbf": now_s - self.backdated_s}
        if self.has_id:
            payload["jti"] = str(uuid.uuid4())
        registry = jws.JWSRegistry(algorithms=list(ALGORITHMS), strict_check_header=False)
        key = self._key()
        try:
            return jws.serialize_compact(header, json.dumps(payload), key, registry=registry)
        except (JoseError, TypeError, ValueError):
            raise AssertionFailureError(
                f"the private key in {self.key_path} or a header of the template does not fit "
                f"{self.algorithm}"
            ) from None

    def _template(self) -> tuple[dict[str, Any], dict[str, Any]]:
        if self.template_path is None:
            return {}, {}
        data = _read(self.template_path)
        try:
            found = json.loads(data)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, dict):
            header, payload = found.get("header", {}), found.get("payload", {})
            if isinstance(header, dict) and isinstance(payload, dict):
                return header, payload
        raise AssertionFailureError(
            f"the assertion template {self.template_path}: not a JSON object with the objects "
            "header and payload"
        )

    def _key(self) -> RSAKey | ECKey:
        from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
        from joserfc.jwk import ECKey, RSAKey

        found = self._private_key()
        if self.algorithm == "RS256" and isinstance(found, RSAPrivateKey):
            return RSAKey.import_key(_pem(found))
        is_p_256 = isinstance(found, EllipticCurvePrivateKey) and found.curve.name == "secp256r1"
        if self.algorithm == "ES256" and is_p_256:
            return ECKey.import_key(_pem(found))
        raise AssertionFailureError(
            f"the private key in {self.key_path} is not one of {self.algorithm}"
        )

    def _private_key(self) -> Any:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import (
            load_der_private_key,
            load_pem_private_key,
        )

        data = _read(self.key_path)
        password = None if self.passphrase is None else self.passphrase.reveal().encode()
        try:
            if b"-----BEGIN" in data:
                return load_pem_private_key(data, password)
            der = data if data.startswith(_SEQUENCE) else b64decode(b"".join(data.split()))
            return load_der_private_key(der, password)
        except (TypeError, ValueError, UnsupportedAlgorithm):
            raise AssertionFailureError(
                f"the private key in {self.key_path} cannot be read: it must be a key in PKCS#8, "
                "with sasl.oauthbearer.assertion.private.key.passphrase if it is encrypted"
            ) from None


def _read(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "not a path"
        raise AssertionFailureError(f"the file {path}: {why}") from None
    if len(data) > FILE_BYTES_MAX:
        raise AssertionFailureError(f"the file {path} has more than {FILE_BYTES_MAX} bytes")
    return data


def _pem(key: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
