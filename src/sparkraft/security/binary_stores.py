"""Java's key and trust stores in binary form: JKS and PKCS12. Each is recognized by its bytes.

    JKS = FEEDFEED version(u32) count(u32) entry* digest
    digest = SHA-1 of the password, "Mighty Aphrodite", and the bytes before
    entry = 1(u32) alias time(i64) length(u32) protected key, count(u32) certificate*
          | 2(u32) alias time(i64) certificate
    certificate = type length(u32) DER        (text: length(u16) and modified UTF-8)

As in Java, `ssl.keystore.type=JKS` (the default) and `PKCS12` read both forms, and the password of
a JKS trust store only checks its integrity.

Invariant: a length allocates nothing; malformed bytes raise `StoreError`.
"""

import hashlib
import hmac
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkraft.security.pem import CERTIFICATE, PRIVATE_KEY, PemKeyStore, StoreError, to_pem

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates
    from cryptography.x509 import Certificate

_JKS = bytes.fromhex("feedfeed")
_JCEKS = bytes.fromhex("cececece")
_SEQUENCE = 0x30

_KEY_ENTRY = 1
_CERTIFICATE_ENTRY = 2
_VERSIONS = {1, 2}
_DIGEST_BYTES = 20
_WHITENER = b"Mighty Aphrodite"

_KEY_PROTECTOR = bytes.fromhex("060a2b060104012a02110101")
"""The object identifier of JKS's own encryption of keys: 1.3.6.1.4.1.42.2.17.1.1."""


@dataclass(frozen=True, slots=True)
class _KeyEntry:
    protected: bytes
    chain: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class _Jks:
    keys: tuple[_KeyEntry, ...]
    trusted: tuple[bytes, ...]


def read_binary_key_store(data: bytes, password: str, key_password: str | None) -> PemKeyStore:
    """The only private key of a store, and its chain.

    Args:
        data: the file.
        password: of the store.
        key_password: of the key in JKS; None: the store's.

    Raises:
        StoreError: it is malformed, a password is wrong, or there is not exactly one private key.
    """
    if not data.startswith(_JKS):
        return _pkcs12_key_store(_open_pkcs12(data, password))
    keys = _read_jks(data, password).keys
    if len(keys) != 1:
        raise StoreError(f"expected one private key, found {len(keys)}")
    secret = password if key_password is None else key_password
    return PemKeyStore(
        key=to_pem(PRIVATE_KEY, _unprotect(keys[0].protected, secret)),
        certificates=tuple(to_pem(CERTIFICATE, each) for each in keys[0].chain),
        is_encrypted=False,
    )


def read_binary_trust_store(data: bytes, password: str | None) -> tuple[str, ...]:
    """The trusted certificates of a store, as PEM; without a password JKS is not checked.

    Raises:
        StoreError: it is malformed, has no certificate, or the password is wrong.
    """
    if data.startswith(_JKS):
        found = tuple(to_pem(CERTIFICATE, each) for each in _read_jks(data, password).trusted)
    else:
        opened = _open_pkcs12(data, password)
        found = tuple(_certificate_pem(each.certificate) for each in opened.additional_certs)
    if not found:
        raise StoreError("found no trusted certificate")
    return found


# ---- JKS


class _Reader:
    """Reads numbers, texts and byte strings; StoreError at the end of the data."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._data):
            raise StoreError("the file ends within an entry")
        found = self._data[self._at : end]
        self._at = end
        return found

    def number(self) -> int:
        return int.from_bytes(self.take(4), "big")

    def skip_text(self) -> None:
        self.take(int.from_bytes(self.take(2), "big"))

    def sized(self) -> bytes:
        return self.take(self.number())


def _read_jks(data: bytes, password: str | None) -> _Jks:
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if password is not None:
        expected = hashlib.sha1(password.encode("utf-16-be") + _WHITENER + body).digest()
        if not hmac.compare_digest(expected, digest):
            raise StoreError("the password is wrong, or the file is damaged")
    reader = _Reader(body)
    reader.take(len(_JKS))
    version = reader.number()
    if version not in _VERSIONS:
        raise StoreError(f"JKS version {version} is unknown")
    keys: list[_KeyEntry] = []
    trusted: list[bytes] = []
    for _ in range(reader.number()):
        tag = reader.number()
        reader.skip_text()
        reader.take(8)
        if tag == _KEY_ENTRY:
            protected = reader.sized()
            chain = tuple(_jks_certificate(reader, version) for _ in range(reader.number()))
            keys.append(_KeyEntry(protected, chain))
        elif tag == _CERTIFICATE_ENTRY:
            trusted.append(_jks_certificate(reader, version))
        else:
            raise StoreError(f"an entry has the unknown type {tag}")
    return _Jks(tuple(keys), tuple(trusted))


def _jks_certificate(reader: _Reader, version: int) -> bytes:
    if version > 1:
        reader.skip_text()
    return reader.sized()


def _unprotect(protected: bytes, password: str) -> bytes:
    """The PKCS#8 private key in an entry: XORed with a stream of SHA-1 digests, as in the JDK.

    protected = EncryptedPrivateKeyInfo { algorithm, OCTET STRING { salt, key, digest } }
    """
    at = protected.find(_KEY_PROTECTOR)
    header = at + len(_KEY_PROTECTOR) + 2  # the parameters are NULL
    if not 0 <= at < _DIGEST_BYTES or protected[header : header + 1] != b"\x04":
        raise StoreError("the private key has an unknown encryption")
    length = protected[header + 1 : header + 2]
    start = header + 2 + (length[0] & 0x7F if length and length[0] & 0x80 else 0)
    sealed = protected[start:]
    salt, key, digest = (
        sealed[:_DIGEST_BYTES],
        sealed[_DIGEST_BYTES:-_DIGEST_BYTES],
        sealed[-_DIGEST_BYTES:],
    )
    secret = password.encode("utf-16-be")
    plain = bytes(a ^ b for a, b in zip(key, _stream(secret, salt), strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + plain).digest(), digest):
        raise StoreError("the password of the private key is wrong")
    return plain


def _stream(secret: bytes, salt: bytes) -> Iterator[int]:
    block = salt
    while True:
        block = hashlib.sha1(secret + block).digest()
        yield from block


# ---- PKCS12


def _open_pkcs12(data: bytes, password: str | None) -> "PKCS12KeyAndCertificates":
    if data.startswith(_JCEKS):
        raise StoreError("JCEKS stores are not supported; convert it with keytool -importkeystore")
    if not data or data[0] != _SEQUENCE:
        raise StoreError("the file is neither a JKS nor a PKCS12 store")
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    try:
        return load_pkcs12(data, None if password is None else password.encode())
    except ValueError as error:
        raise StoreError("the password is wrong, or the file is not a PKCS12 store") from error


def _pkcs12_key_store(opened: "PKCS12KeyAndCertificates") -> PemKeyStore:
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    if opened.key is None or opened.cert is None:
        raise StoreError("expected one private key with its certificate, found none")
    key = opened.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    chain = _in_order(
        opened.cert.certificate, [each.certificate for each in opened.additional_certs]
    )
    return PemKeyStore(
        key=key.decode(),
        certificates=tuple(_certificate_pem(each) for each in chain),
        is_encrypted=False,
    )


def _in_order(own: "Certificate", others: "list[Certificate]") -> "list[Certificate]":
    """A chain from `own` to the authority above it; PKCS12 has no order."""
    chain, left = [own], list(others)
    while True:
        above = next((each for each in left if each.subject == chain[-1].issuer), None)
        if above is None:
            return chain
        left.remove(above)
        chain.append(above)


def _certificate_pem(certificate: "Certificate") -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM).decode()
