"""The contexts of a listener as loaded, and whether newer ones may replace them.

Kafka's rules for changes without a restart (`SslFactory.createNewSslEngineFactory`):

* a key store stays, and a trust store is not added;
* the certificate keeps its distinguished name, unless `ssl.allow.dn.changes`;
* it keeps its alternative names and may get more, unless `ssl.allow.san.changes`;
* between brokers, old and new must accept each other in both directions.
"""

import ssl
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sparkraft.security.distinguished_name import subject_of
from sparkraft.security.tls_settings import TlsConfigError, TlsSettings
from sparkraft.tls.contexts import Stores, client_context, read_stores, server_context

if TYPE_CHECKING:
    from collections.abc import Hashable

    from sparkraft.security.pem import PemKeyStore

_ROUNDS_MAX = 10
"""Exchanges of a handshake in memory; it takes four."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedTls:
    """Both sides' contexts of a listener.

    Attributes:
        settings: they are made from.
        files: the stores and their modification times.
        stores: the contents of the stores.
        server: None on a node that only connects to the listener.
    """

    settings: TlsSettings
    files: "tuple[Hashable, ...]"
    stores: Stores
    server: ssl.SSLContext | None
    client: ssl.SSLContext

    @property
    def has_changed_files(self) -> bool:
        """Whether a store was written since it was loaded."""
        return self.files != _files_of(self.settings)


def load_tls(settings: TlsSettings, *, serves: bool) -> LoadedTls:
    """Read the stores; TlsConfigError if one is missing, cannot be read or is invalid."""
    files = _files_of(settings)  # before they are read, so that no change is missed
    stores = read_stores(settings)
    return LoadedTls(
        settings=settings,
        files=files,
        stores=stores,
        server=server_context(settings, stores) if serves else None,
        client=client_context(settings, stores),
    )


def check_replacement(old: LoadedTls, new: LoadedTls, *, between_brokers: bool) -> None:
    """Raise TlsConfigError unless `new` may replace `old`."""
    before, after = old.settings, new.settings
    if (before.key_store is None) != (after.key_store is None):
        raise TlsConfigError("a key store cannot be added to a listener or removed from it")
    if before.trust_store is None and after.trust_store is not None:
        raise TlsConfigError("a trust store cannot be added to a listener without one")
    if old.stores.key is not None and new.stores.key is not None:
        _check_names(old.stores.key, new.stores.key, after)
    if between_brokers and old.server is not None and new.server is not None:
        _check_handshake(old.server, new)
        _check_handshake(new.server, old)


def _check_names(old: "PemKeyStore", new: "PemKeyStore", settings: TlsSettings) -> None:
    before, after = (ssl.PEM_cert_to_DER_cert(each.certificates[0]) for each in (old, new))
    names = [subject_of(each) for each in (before, after)]
    if not settings.allows_dn_changes and names[0].lower() != names[1].lower():
        raise TlsConfigError(
            f"the certificate's distinguished name changes from {names[0]} to {names[1]}; "
            "ssl.allow.dn.changes allows that"
        )
    missing = _alternative_names(before) - _alternative_names(after)
    if not settings.allows_san_changes and missing:
        raise TlsConfigError(
            f"the certificate loses the alternative names {', '.join(sorted(missing))}; "
            "ssl.allow.san.changes allows that"
        )


def _check_handshake(server: ssl.SSLContext, other: LoadedTls) -> None:
    """Shake hands in memory; host names are not compared, as in Kafka."""
    client = client_context(replace(other.settings, verifies_hostname=False), other.stores)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    left = [
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    try:
        for _ in range(_ROUNDS_MAX):
            for side in list(left):
                with suppress(ssl.SSLWantReadError):
                    side.do_handshake()
                    left.remove(side)
    except ssl.SSLError as error:
        raise TlsConfigError(
            f"the old and the new stores do not accept each other: {error.reason or error}"
        ) from error
    if left:
        raise TlsConfigError("the old and the new stores do not accept each other")


def _alternative_names(certificate: bytes) -> set[str]:
    from cryptography.x509 import (
        ExtensionNotFound,
        SubjectAlternativeName,
        load_der_x509_certificate,
    )

    try:
        extensions = load_der_x509_certificate(certificate).extensions
        names = extensions.get_extension_for_class(SubjectAlternativeName).value
    except (ExtensionNotFound, ValueError):
        return set()
    return {str(name.value) for name in names}


def _files_of(settings: TlsSettings) -> "tuple[Hashable, ...]":
    found: list[Hashable] = []
    for store in (settings.key_store, settings.trust_store):
        if store is not None and store.location is not None:
            try:
                found.append((store.location, Path(store.location).stat().st_mtime_ns))
            except OSError:
                found.append((store.location, None))
    return tuple(found)
