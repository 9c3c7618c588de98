"""OpenSSL contexts from `TlsSettings`: reads the stores, and never writes a key to disk.

Trusted certificates are trust anchors themselves, intermediate ones too, as in Java. A listener
with client authentication trusts its trust store only; a client without a trust store trusts the
system's certificate authorities.
"""

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sparkraft.security.binary_stores import read_binary_key_store, read_binary_trust_store
from sparkraft.security.pem import PemKeyStore, StoreError, read_certificates, read_key_store
from sparkraft.security.tls_settings import (
    PEM,
    ClientAuth,
    KeyStore,
    TlsConfigError,
    TlsSettings,
    TrustStore,
    check_listener,
)

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}

_VERIFY = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}

STORE_BYTES_MAX = 16 << 20
"""A larger file is not a key or trust store; the system's certificate authorities have 220 KB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """The contents of the stores of one side.

    Attributes:
        key: None without a key store.
        trusted: certificates as PEM; None without a trust store.
    """

    key: PemKeyStore | None
    trusted: tuple[str, ...] | None


def read_stores(settings: TlsSettings) -> Stores:
    """Read the stores; TlsConfigError if one is missing, cannot be read or is invalid."""
    key, trust = settings.key_store, settings.trust_store
    return Stores(
        key=None if key is None else _read_key_store(key),
        trusted=None if trust is None else _read_trust_store(trust),
    )


def server_context(settings: TlsSettings, stores: Stores | None = None) -> ssl.SSLContext:
    """The context of a listener's connections.

    Args:
        settings: of the listener.
        stores: their contents; read by default.

    Raises:
        TlsConfigError: a store is missing, cannot be read or is invalid.
    """
    check_listener(settings)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # Kafka rejects renegotiation, too; TLS 1.3 has only key updates.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    context.verify_mode = _VERIFY[settings.client_auth]
    stores = stores or read_stores(settings)
    _configure(context, settings, stores)
    if settings.client_auth is not ClientAuth.NONE:
        _load_trust(context, settings, stores)
    return context


def client_context(settings: TlsSettings, stores: Stores | None = None) -> ssl.SSLContext:
    """The context of a client's connections; as `server_context`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.verifies_hostname
    context.options |= ssl.OP_NO_COMPRESSION
    stores = stores or read_stores(settings)
    _configure(context, settings, stores)
    if stores.trusted is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        _load_trust(context, settings, stores)
    return context


def _configure(context: ssl.SSLContext, settings: TlsSettings, stores: Stores) -> None:
    context.minimum_version = _VERSIONS[settings.protocols[0]]
    context.maximum_version = _VERSIONS[settings.protocols[1]]
    if settings.cipher_suites:
        context.set_ciphers(":".join(settings.cipher_suites))
    if settings.key_store is not None and stores.key is not None:
        _load_key(context, settings.key_store, stores.key)


def _load_key(context: ssl.SSLContext, store: KeyStore, found: PemKeyStore) -> None:
    with _as_file(found) as path:
        try:
            # A password is always given: OpenSSL would ask for a missing one on the terminal.
            context.load_cert_chain(path, password=store.key_password or "")
        except ssl.SSLError as error:
            raise TlsConfigError(
                f"{_place(store)}: the private key cannot be used: the password may be wrong, or "
                f"the first certificate may belong to another key ({error.reason or error})"
            ) from error


def _load_trust(context: ssl.SSLContext, settings: TlsSettings, stores: Stores) -> None:
    try:
        context.load_verify_locations(cadata="".join(stores.trusted or ()))
    except ssl.SSLError as error:
        assert settings.trust_store is not None
        raise TlsConfigError(f"{_place(settings.trust_store)}: {error}") from error
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def _place(store: KeyStore | TrustStore) -> str:
    inline = "ssl.keystore.key" if isinstance(store, KeyStore) else "ssl.truststore.certificates"
    return store.location or inline


def _read_key_store(store: KeyStore) -> PemKeyStore:
    try:
        if store.location is None:
            found = read_key_store(store.key or "", store.chain or "")
        else:
            data = _read("ssl.keystore.location", store.location)
            if store.type == PEM:
                text = data.decode("latin-1")
                found = read_key_store(text, text)
            else:
                found = read_binary_key_store(data, store.password or "", store.key_password)
    except StoreError as error:
        raise TlsConfigError(f"{_place(store)}: {error}") from error
    if found.is_encrypted and store.key_password is None:
        raise TlsConfigError(f"{_place(store)}: the private key is encrypted: set ssl.key.password")
    return found


def _read_trust_store(store: TrustStore) -> tuple[str, ...]:
    try:
        if store.location is None:
            return read_certificates(store.certificates or "")
        data = _read("ssl.truststore.location", store.location)
        if store.type == PEM:
            return read_certificates(data.decode("latin-1"))
        return read_binary_trust_store(data, store.password)
    except StoreError as error:
        raise TlsConfigError(f"{_place(store)}: {error}") from error


def _read(key: str, location: str) -> bytes:
    try:
        with Path(location).open("rb") as file:
            data = file.read(STORE_BYTES_MAX + 1)
    except OSError as error:
        raise TlsConfigError(f"{key}={location}: {error.strerror}") from error
    if len(data) > STORE_BYTES_MAX:
        raise TlsConfigError(f"{key}={location} is too large for a store")
    return data


@contextmanager
def _as_file(store: PemKeyStore) -> Iterator[str]:
    """A path to key and chain, in memory: OpenSSL's Python interface reads them from files only."""
    data = "".join((store.key, *store.certificates)).encode()
    if not hasattr(os, "memfd_create"):  # not Linux: a file that only we can read, for a moment
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            yield file.name
        return
    descriptor = os.memfd_create("key store", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, data)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
