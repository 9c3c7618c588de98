"""How a client secures its sessions with an ensemble, by the configs of Kafka 3.9.

    zookeeper.ssl.client.enable, zookeeper.ssl.*    TLS; with a key store, the ensemble knows the
                                                    client by its certificate
    sparkraft.zookeeper.sasl.jaas.config            SASL: Kafka has it in the file that the system
                                                    property java.security.auth.login.config names,
                                                    as the section `Client`
    zookeeper.sasl.client                           false: sessions are not authenticated by SASL
    zookeeper.sasl.client.*, zookeeper.server.*, zookeeper.kinit, zookeeper.kerberos.*
                                                    Kerberos: see `logins`
    zookeeper.set.acl                               znodes that only this user may change, and those
                                                    with secrets only this user may read

As in Kafka, zookeeper.set.acl needs a user: a certificate or SASL. The user must be the same on all
brokers, since each changes the znodes of the others.

Not available: lists of revoked certificates.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import PurePath

from sparkraft.kerberos.contexts import KerberosError
from sparkraft.kerberos.renewal import RenewalPolicy
from sparkraft.security.jaas import JaasError, parse_jaas
from sparkraft.security.kerberos_names import PrincipalError, parse_principal
from sparkraft.security.tls_settings import TlsConfigError, TlsSettings, read_tls_settings
from sparkraft.zookeeper.logins import SERVICE, EnsembleLogin, ServerNames, ensemble_login
from sparkraft.zookeeper.requests import OPEN_ACL, Acl

PREFIX = "zookeeper."
JAAS_CONFIG = "sparkraft.zookeeper.sasl.jaas.config"
SET_ACL = "zookeeper.set.acl"
TLS_ENABLE = "zookeeper.ssl.client.enable"

SASL_ENABLE = "zookeeper.sasl.client"
SERVICE_NAME = "zookeeper.sasl.client.username"
CANONICALIZE = "zookeeper.sasl.client.canonicalize.hostname"
SERVER_PRINCIPAL = "zookeeper.server.principal"
SERVER_REALM = "zookeeper.server.realm"
KINIT = "zookeeper.kinit"
RELOGIN_MS_MIN = "zookeeper.kerberos.minReLoginTimeMs"

PROTOCOL_DEFAULT = "TLSv1.2"
"""Of `zookeeper.ssl.protocol`; zookeeper.ssl.enabled.protocols has the same default."""

SENSITIVE_ROOTS = ("/config/users", "/config/brokers", "/delegation_token/tokens")
"""Kafka's `ZkData.SensitiveRootPaths`: only the user of the brokers may read below them."""

OPEN_ROOT = "/consumers"
"""Clients of old versions of Kafka store offsets below it."""

CREATOR_ALL = Acl(31, "auth", "")
"""All rights for the user that creates the znode."""

WORLD_READ = Acl(1, "world", "anyone")

_EXTENSIONS = {".pem": "PEM", ".p12": "PKCS12", ".pfx": "PKCS12", ".jks": "JKS"}
"""ZooKeeper infers the type of a store from the name of its file."""


class EnsembleSecurityError(ValueError):
    """A client cannot be secured like this; the text names the configs and has no secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnsembleSecurity:
    """See the module docstring.

    Attributes:
        tls: None: connections are not encrypted.
        login: None: sessions are not authenticated by SASL.
        sets_acls: whether znodes are created with access control lists.
    """

    tls: TlsSettings | None = None
    login: EnsembleLogin | None = None
    sets_acls: bool = False

    @property
    def has_user(self) -> bool:
        """Whether the ensemble knows the client as a user."""
        return self.login is not None or (self.tls is not None and self.tls.key_store is not None)

    def acl_of(self, path: str) -> tuple[Acl, ...]:
        """The list of a new znode (`ZkData.defaultAcls`)."""
        if not self.sets_acls or path == OPEN_ROOT:
            return OPEN_ACL
        is_sensitive = path.startswith(SENSITIVE_ROOTS)
        return (CREATOR_ALL,) if is_sensitive else (CREATOR_ALL, WORLD_READ)


UNSECURED = EnsembleSecurity()


def read_ensemble_security(properties: Mapping[str, str]) -> EnsembleSecurity:
    """The security that properties ask for.

    Raises:
        EnsembleSecurityError: a value is invalid, or values contradict each other.
    """
    security = EnsembleSecurity(
        tls=_tls(properties) if _flag(properties, TLS_ENABLE) else None,
        login=_login(properties),
        sets_acls=_flag(properties, SET_ACL),
    )
    if security.sets_acls and not security.has_user:
        raise EnsembleSecurityError(
            f"{SET_ACL}=true needs a user: {JAAS_CONFIG}, or {TLS_ENABLE}=true and "
            "zookeeper.ssl.keystore.location"
        )
    return security


def _flag(properties: Mapping[str, str], key: str, default: str = "false") -> bool:
    text = properties.get(key, "").strip().lower() or default
    if text not in {"true", "false"}:
        raise EnsembleSecurityError(f"{key} must be true or false, not {text}")
    return text == "true"


def _login(properties: Mapping[str, str]) -> EnsembleLogin | None:
    text = properties.get(JAAS_CONFIG)
    if text is None or not _flag(properties, SASL_ENABLE, "true"):
        return None
    names = _server_names(properties)
    try:
        return ensemble_login(parse_jaas(text), names, _renewal(properties))
    except (JaasError, KerberosError) as error:
        raise EnsembleSecurityError(f"{JAAS_CONFIG}: {error}") from None


def _renewal(properties: Mapping[str, str]) -> RenewalPolicy:
    """When tickets are renewed (`Login`)."""
    default = RenewalPolicy()
    text = properties.get(RELOGIN_MS_MIN, "").strip() or str(default.relogin_ms_min)
    if not text.isdecimal():
        raise EnsembleSecurityError(
            f"{RELOGIN_MS_MIN} must be a number of milliseconds, not {text}"
        )
    return replace(default, kinit=properties.get(KINIT) or default.kinit, relogin_ms_min=int(text))


def _server_names(properties: Mapping[str, str]) -> ServerNames:
    """The principals of servers.

    As in `SecurityUtils.createSaslClient`, a realm must be well formed and has no effect: the
    library finds that of the host.
    """
    realm = properties.get(SERVER_REALM, "").strip()
    if not set(realm).isdisjoint("/@"):
        raise EnsembleSecurityError(f"{SERVER_REALM} must be a realm, not {realm}")
    principal = properties.get(SERVER_PRINCIPAL, "").strip()
    if not principal:
        return ServerNames(
            service=properties.get(SERVICE_NAME, "").strip() or SERVICE,
            canonicalizes=_flag(properties, CANONICALIZE, "true"),
        )
    try:
        service, host = parse_principal(
            principal if "@" in principal else f"{principal}@{realm}"
        ).components
    except (PrincipalError, ValueError):
        raise EnsembleSecurityError(f"{SERVER_PRINCIPAL} must be service/host[@REALM]") from None
    return ServerNames(service=service, host=host)


def _tls(properties: Mapping[str, str]) -> TlsSettings:
    for key in ("zookeeper.ssl.crl.enable", "zookeeper.ssl.ocsp.enable"):
        if _flag(properties, key):
            raise EnsembleSecurityError(f"{key}=true is not supported")
    try:
        return read_tls_settings(_StoreConfigs(properties).text)
    except TlsConfigError as error:
        raise EnsembleSecurityError(f"zookeeper.ssl.*: {error}") from error


class _StoreConfigs:
    """`zookeeper.ssl.*` as `ssl.*` of Kafka's listeners, with ZooKeeper's defaults."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = properties

    def text(self, key: str) -> str | None:
        """The value for `ssl.*`; None if it is not set."""
        given = self._own(key)
        if key == "ssl.protocol":
            return given or PROTOCOL_DEFAULT
        if key == "ssl.enabled.protocols":
            return given or self._own("ssl.protocol") or PROTOCOL_DEFAULT
        for store in ("ssl.keystore", "ssl.truststore"):
            if key == f"{store}.type":
                return self._type(store)
            if key == f"{store}.password":
                return self._password(store)
        if key == "ssl.key.password" and self._type("ssl.keystore") == "PEM":
            return self._own("ssl.keystore.password")  # ZooKeeper has one password for both
        return given

    def _own(self, key: str) -> str | None:
        return self._properties.get(f"{PREFIX}{key}")

    def _type(self, store: str) -> str | None:
        given = self._own(f"{store}.type")
        extension = PurePath(self._own(f"{store}.location") or "").suffix.lower()
        return given or _EXTENSIONS.get(extension)

    def _password(self, store: str) -> str | None:
        if (self._type(store) or "").upper() == "PEM":
            return None
        given = self._own(f"{store}.password")
        needs_one = store == "ssl.keystore" and self._own(f"{store}.location") is not None
        return "" if given is None and needs_one else given
