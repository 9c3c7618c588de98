r"""PEM text of key and trust stores, with the rules of Kafka's `DefaultSslEngineFactory`.

    -----BEGIN CERTIFICATE-----        a key store: one private key in PKCS#8, and its chain of
    base64                             certificates, the node's own first
    -----END CERTIFICATE-----          a trust store: certificates

Text outside the entries and `Name: value` lines inside them are skipped. The base64 may be on one
line, as in a value of a properties file.
"""

import base64
import binascii
import re
from dataclasses import dataclass, field

_ENTRY = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_LINE_CHARACTERS = 64

CERTIFICATE = "CERTIFICATE"
PRIVATE_KEY = "PRIVATE KEY"
ENCRYPTED_KEY = "ENCRYPTED PRIVATE KEY"


class StoreError(ValueError):
    """The file or text is not a usable store; the message has the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PemKeyStore:
    """A private key and its chain, as PEM text that OpenSSL reads."""

    key: str = field(repr=False)
    certificates: tuple[str, ...]
    is_encrypted: bool


def read_key_store(key_text: str, chain_text: str) -> PemKeyStore:
    """Read a key store whose key and chain may be in one text or in two.

    Raises:
        StoreError: there is not exactly one private key in PKCS#8, or no certificate.
    """
    keys = [(label, body) for label, body in _entries(key_text) if label.endswith(PRIVATE_KEY)]
    if len(keys) != 1:
        raise StoreError(f"expected one private key, found {len(keys)}")
    label, body = keys[0]
    if label not in {PRIVATE_KEY, ENCRYPTED_KEY}:
        raise StoreError(
            f"the private key is in the form {label}; Kafka reads PKCS#8 only: convert it with "
            "openssl pkcs8 -topk8"
        )
    return PemKeyStore(
        key=to_pem(label, body),
        certificates=read_certificates(chain_text),
        is_encrypted=label == ENCRYPTED_KEY,
    )


def read_certificates(text: str) -> tuple[str, ...]:
    """The certificates in a text, one PEM entry each; StoreError if there is none."""
    found = tuple(to_pem(label, body) for label, body in _entries(text) if label == CERTIFICATE)
    if not found:
        raise StoreError("found no certificate")
    return found


def _entries(text: str) -> list[tuple[str, bytes]]:
    return [(label, _decode(body)) for label, body in _ENTRY.findall(text)]


def _decode(body: str) -> bytes:
    lines = [line for line in body.splitlines() if ":" not in line]
    try:
        return base64.b64decode("".join("".join(lines).split()), validate=True)
    except binascii.Error as error:
        raise StoreError(f"an entry is not base64: {error}") from error


def to_pem(label: str, body: bytes) -> str:
    """An entry as PEM text."""
    encoded = base64.b64encode(body).decode()
    lines = [encoded[at : at + _LINE_CHARACTERS] for at in range(0, len(encoded), _LINE_CHARACTERS)]
    return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""])
