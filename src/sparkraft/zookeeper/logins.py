"""Users of an ensemble by SASL: ZooKeeper's `ZooKeeperSaslClient`.

    DigestLoginModule   DIGEST-MD5   a name and a password
    Krb5LoginModule     GSSAPI       a principal of Kerberos; the ensemble decides whether its host
                                     and realm are part of the user

The principal of a server is `zookeeper/host` (`SaslServerPrincipal`):

    zookeeper.sasl.client.username                 the first component
    zookeeper.sasl.client.canonicalize.hostname    true: the host is the name of its address
    zookeeper.server.principal                     replaces both, for all servers
    zookeeper.server.realm                         must be a realm; as in ZooKeeper's client, the
                                                   library takes that of the host (krb5.conf)

Tickets are renewed as by ZooKeeper's `Login`, with the defaults of `RenewalPolicy`:

    zookeeper.kinit                                renews a ticket cache
    zookeeper.kerberos.minReLoginTimeMs            the shortest time between two renewals, and the
                                                   wait for a ticket if there is none

ZooKeeper reads these keys as system properties.
"""

import socket
from dataclasses import dataclass, field, replace
from typing import Protocol

from sparkraft.kerberos.login import KerberosLogin, kerberos_login
from sparkraft.kerberos.renewal import RenewalPolicy
from sparkraft.security.digest_md5 import DIGEST_MD5, DigestClient
from sparkraft.security.jaas import KERBEROS_MODULE, JaasError, LoginModule
from sparkraft.security.sasl import SaslClient
from sparkraft.security.secret import Secret

DIGEST_URI = "zookeeper/zk-sasl-md5"
"""The service and the server's name in ZooKeeper's own client and server."""

SERVICE = "zookeeper"
"""The first component of servers' principals."""


class EnsembleLogin(Protocol):
    """Credentials of a session."""

    @property
    def blocks(self) -> bool:
        """Whether an exchange waits for files or the network, so that it needs a thread."""
        ...

    def client(self, cnonce: str, host: str, address: str | None) -> SaslClient:
        """Begin an exchange with a server.

        Args:
            cnonce: random and printable.
            host: of the server, as in `zookeeper.connect`.
            address: to which the connection is; None if that is unknown.
        """
        ...


@dataclass(frozen=True, slots=True)
class DigestLogin:
    """A user of the ensemble's `DigestLoginModule`."""

    user: str
    password: Secret

    @property
    def blocks(self) -> bool:
        """The password is here."""
        return False

    def client(self, cnonce: str, host: str, address: str | None) -> DigestClient:
        """See `EnsembleLogin`."""
        return DigestClient(self.user, self.password, uri=DIGEST_URI, cnonce=cnonce)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerNames:
    """The principals of servers; see the module docstring.

    Attributes:
        service: the first component.
        host: the second one, for all servers; None: that of each server.
        canonicalizes: whether the host of a server is the name of its address.
    """

    service: str = SERVICE
    host: str | None = None
    canonicalizes: bool = True

    def host_of(self, host: str, address: str | None) -> str:
        """The second component for a server; waits for a name service."""
        if self.host is not None:
            return self.host
        canonical = canonical_host(address) if self.canonicalizes and address else None
        return canonical or host


@dataclass(frozen=True, slots=True)
class TicketLogin:
    """A principal of Kerberos, with a key or a ticket."""

    login: KerberosLogin
    names: ServerNames = field(default_factory=ServerNames)

    @property
    def blocks(self) -> bool:
        """Tickets come from a KDC."""
        return True

    def client(self, cnonce: str, host: str, address: str | None) -> SaslClient:
        """See `EnsembleLogin`; waits for a name service."""
        return self.login.client(cnonce, self.names.host_of(host, address))


def ensemble_login(
    module: LoginModule, names: ServerNames, renewal: RenewalPolicy
) -> EnsembleLogin:
    """The credentials in a login module.

    Args:
        module: the entry of the section `Client`.
        names: the principals of servers.
        renewal: when tickets of Kerberos are renewed.

    Raises:
        JaasError: an option is missing, or the module is not for ZooKeeper.
        KerberosError: the package `gssapi` is missing.
    """
    if module.module == KERBEROS_MODULE:
        login = kerberos_login(module, module.text("serviceName") or names.service, renewal)
        return TicketLogin(replace(login, service=names.service), names)
    module.check_mechanism(DIGEST_MD5)
    user, password = module.text("username"), module.options.get("password")
    if not user or password is None:
        raise JaasError("it needs the options username and password")
    return DigestLogin(user, password)


def canonical_host(address: str) -> str | None:
    """The name of an address; None unless the name has that address too.

    As Java's `InetAddress.getCanonicalHostName`; waits for a name service.
    """
    try:
        name = socket.gethostbyaddr(address)[0]
        found = {each[4][0] for each in socket.getaddrinfo(name, None)}
    except (OSError, UnicodeError):
        return None
    return name if address in found else None
