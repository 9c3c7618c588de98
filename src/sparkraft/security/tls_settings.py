"""The `ssl.*` configs of a listener or a client, checked and without defaults left open.

The combinations that are refused are those of Kafka's `DefaultSslEngineFactory`. Not here: reading
the stores, and OpenSSL (`sparkraft.tls`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from sparkraft.security.cipher_suites import CipherSuiteError, openssl_names
from sparkraft.security.principal_mapping import MappingError, PrincipalMapping

PEM = "PEM"

STORE_TYPES = frozenset({PEM, "JKS", "PKCS12"})
"""Values of ssl.keystore.type and ssl.truststore.type that can be read."""

PROTOCOLS = ("TLSv1.2", "TLSv1.3")
"""Versions of TLS that can be enabled, lowest first."""

CLIENT_KEYS = (
    "ssl.cipher.suites",
    "ssl.enabled.protocols",
    "ssl.endpoint.identification.algorithm",
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.protocol",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
)
"""Keys with an effect on clients."""

_NOT_SUPPORTED = (
    "ssl.engine.factory.class",
    "ssl.provider",
    "ssl.secure.random.implementation",
)
"""Keys that must not be set: ignoring them would weaken what they ask for."""


class TlsConfigError(ValueError):
    """TLS cannot be configured like this; the message names the keys."""


class ClientAuth(Enum):
    """`ssl.client.auth`: whether clients present a certificate."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyStore:
    """A private key and its certificates: in a file, or as PEM text in `key` and `chain`.

    Attributes:
        password: of a file that is not PEM.
        key_password: of the private key.
    """

    type: str
    location: str | None
    password: str | None = field(repr=False)
    key_password: str | None = field(repr=False)
    key: str | None = field(repr=False)
    chain: str | None = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustStore:
    """Trusted certificates: in a file, or as PEM text.

    Attributes:
        password: of a file that is not PEM; JKS can be read without one.
    """

    type: str
    location: str | None
    password: str | None = field(repr=False)
    certificates: str | None = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """One side's TLS.

    Attributes:
        key_store: None on a client that presents no certificate.
        trust_store: None: the system's certificate authorities, for clients only.
        client_auth: of a listener.
        protocols: the lowest and the highest version.
        cipher_suites: of TLS 1.2, by OpenSSL's names; empty: OpenSSL's own.
        verifies_hostname: a client compares the host it connects to with the certificate
            (`ssl.endpoint.identification.algorithm`).
        mapping_rules: `ssl.principal.mapping.rules`.
        allows_dn_changes: a new certificate may have another distinguished name.
        allows_san_changes: a new certificate may lack alternative names.
    """

    key_store: KeyStore | None
    trust_store: TrustStore | None
    client_auth: ClientAuth
    protocols: tuple[str, str]
    cipher_suites: tuple[str, ...]
    verifies_hostname: bool
    mapping_rules: str
    allows_dn_changes: bool
    allows_san_changes: bool


def read_tls_settings(get: Callable[[str], str | None]) -> TlsSettings:
    """The settings in a configuration.

    Args:
        get: returns the text of a key such as `ssl.keystore.location`, None if it is not set.

    Raises:
        TlsConfigError: a value is invalid, or values contradict each other.
    """
    for key in _NOT_SUPPORTED:
        if _text(get, key):
            raise TlsConfigError(f"{key} is not supported")
    context = _text(get, "ssl.protocol") or "TLS"
    if context not in {"TLS", *PROTOCOLS}:
        raise TlsConfigError(f"ssl.protocol={context} is not supported")
    rules = _text(get, "ssl.principal.mapping.rules") or "DEFAULT"
    try:
        PrincipalMapping(rules)
    except MappingError as error:
        raise TlsConfigError(str(error)) from error
    suites, protocols = _cipher_suites(get, _protocols(get))
    return TlsSettings(
        key_store=_key_store(get),
        trust_store=_trust_store(get),
        client_auth=_client_auth(get),
        protocols=protocols,
        cipher_suites=suites,
        verifies_hostname=_verifies_hostname(get),
        mapping_rules=rules,
        allows_dn_changes=_flag(get, "ssl.allow.dn.changes"),
        allows_san_changes=_flag(get, "ssl.allow.san.changes"),
    )


def check_listener(settings: TlsSettings) -> None:
    """Check what a listener needs beyond a client; TlsConfigError if it is missing."""
    if settings.key_store is None:
        raise TlsConfigError(
            "a TLS listener needs ssl.keystore.location, or ssl.keystore.key and "
            "ssl.keystore.certificate.chain"
        )
    if settings.client_auth is not ClientAuth.NONE and settings.trust_store is None:
        raise TlsConfigError(
            f"ssl.client.auth={settings.client_auth.value} needs ssl.truststore.location or "
            "ssl.truststore.certificates: otherwise every public certificate authority could "
            "issue client certificates"
        )


def _text(get: Callable[[str], str | None], key: str) -> str | None:
    return (get(key) or "").strip() or None


def _flag(get: Callable[[str], str | None], key: str) -> bool:
    text = (_text(get, key) or "false").lower()
    if text not in {"true", "false"}:
        raise TlsConfigError(f"{key} must be true or false, not {text}")
    return text == "true"


def _type(get: Callable[[str], str | None], key: str) -> str:
    kind = (_text(get, key) or "JKS").upper()
    if kind not in STORE_TYPES:
        known = ", ".join(sorted(STORE_TYPES))
        raise TlsConfigError(f"{key}={kind} is not supported, only {known}")
    return kind


def _key_store(get: Callable[[str], str | None]) -> KeyStore | None:
    location = _text(get, "ssl.keystore.location")
    key, chain = _text(get, "ssl.keystore.key"), _text(get, "ssl.keystore.certificate.chain")
    if (key is None) != (chain is None):
        raise TlsConfigError("set both ssl.keystore.key and ssl.keystore.certificate.chain")
    if key is not None and location is not None:
        raise TlsConfigError("set ssl.keystore.location or ssl.keystore.key, not both")
    if key is None and location is None:
        if get("ssl.keystore.password") is not None:
            raise TlsConfigError("ssl.keystore.password is set without ssl.keystore.location")
        return None
    kind, password = _type(get, "ssl.keystore.type"), get("ssl.keystore.password")
    if kind == PEM and password is not None:
        raise TlsConfigError(
            "ssl.keystore.password cannot be used with type PEM, only ssl.key.password"
        )
    if kind != PEM and key is not None:
        raise TlsConfigError(f"ssl.keystore.key needs ssl.keystore.type=PEM, which is {kind}")
    if kind != PEM and password is None:
        raise TlsConfigError("ssl.keystore.location is set without ssl.keystore.password")
    return KeyStore(
        type=kind,
        location=location,
        password=password,
        key_password=get("ssl.key.password"),
        key=key,
        chain=chain,
    )


def _trust_store(get: Callable[[str], str | None]) -> TrustStore | None:
    location = _text(get, "ssl.truststore.location")
    certificates = _text(get, "ssl.truststore.certificates")
    if location is not None and certificates is not None:
        raise TlsConfigError("set ssl.truststore.location or ssl.truststore.certificates, not both")
    if location is None and certificates is None:
        if get("ssl.truststore.password") is not None:
            raise TlsConfigError("ssl.truststore.password is set without ssl.truststore.location")
        return None
    kind, password = _type(get, "ssl.truststore.type"), get("ssl.truststore.password")
    if kind == PEM and password is not None:
        raise TlsConfigError("ssl.truststore.password cannot be used with type PEM")
    if kind != PEM and certificates is not None:
        raise TlsConfigError(
            f"ssl.truststore.certificates needs ssl.truststore.type=PEM, which is {kind}"
        )
    return TrustStore(type=kind, location=location, password=password, certificates=certificates)


def _client_auth(get: Callable[[str], str | None]) -> ClientAuth:
    text = _text(get, "ssl.client.auth") or "none"
    try:
        return ClientAuth(text)
    except ValueError:
        raise TlsConfigError(
            f"ssl.client.auth must be required, requested or none, not {text}"
        ) from None


def _protocols(get: Callable[[str], str | None]) -> tuple[str, str]:
    text = _text(get, "ssl.enabled.protocols") or ",".join(PROTOCOLS)
    enabled = {word.strip() for word in text.split(",") if word.strip()}
    unknown = sorted(enabled - set(PROTOCOLS))
    if unknown:
        raise TlsConfigError(
            f"ssl.enabled.protocols: {', '.join(unknown)} is not supported, only "
            f"{', '.join(PROTOCOLS)}"
        )
    ordered = [protocol for protocol in PROTOCOLS if protocol in enabled]
    return ordered[0], ordered[-1]


def _cipher_suites(
    get: Callable[[str], str | None], protocols: tuple[str, str]
) -> tuple[tuple[str, ...], tuple[str, str]]:
    """The suites of TLS 1.2, and the versions of TLS that have suites."""
    text = _text(get, "ssl.cipher.suites")
    if text is None:
        return (), protocols
    try:
        suites, has_newest = openssl_names([name.strip() for name in text.split(",")])
    except CipherSuiteError as error:
        raise TlsConfigError(str(error)) from error
    usable = [version for version, has in zip(PROTOCOLS, (suites, has_newest), strict=True) if has]
    left = [version for version in usable if protocols[0] <= version <= protocols[1]]
    if not left:
        raise TlsConfigError("ssl.cipher.suites has no suite of the ssl.enabled.protocols")
    return suites, (left[0], left[-1])


def _verifies_hostname(get: Callable[[str], str | None]) -> bool:
    given = get("ssl.endpoint.identification.algorithm")
    text = "https" if given is None else given.strip().lower()
    if text not in {"", "https"}:
        raise TlsConfigError(
            f"ssl.endpoint.identification.algorithm must be https or empty, not {text}"
        )
    return text == "https"
