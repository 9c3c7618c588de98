"""`Krb5LoginModule`: a login module with the location of a key or ticket.

    useKeyTab="true" keyTab="/path" principal="alice@EXAMPLE.ORG"    a key
    useTicketCache="true" ticketCache="/path"                        tickets, by default the user's

The names are those of Java's module. With both, the key is used. Other options have no effect.
The service is `sasl.kerberos.service.name` or the option `serviceName`, as in Kafka's
`KerberosLogin`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparkraft.kerberos.contexts import Initiator, initiate, library
from sparkraft.kerberos.renewal import RenewalPolicy, keep_renewed, run_kinit
from sparkraft.security.gssapi import GssapiClient
from sparkraft.security.jaas import JaasError, LoginModule
from sparkraft.security.kerberos_names import PrincipalError, parse_principal
from sparkraft.security.sasl import GSSAPI

if TYPE_CHECKING:
    from sparkraft.security.sasl import SaslClient

SERVICE_NAME = "sasl.kerberos.service.name"

_SERVICE_COMPONENTS = 2
"""`service/host`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KerberosLogin:
    """Credentials of Kerberos; see `Initiator`."""

    service: str
    principal: str | None
    keytab: str | None
    cache: str | None
    renewal: RenewalPolicy = field(default_factory=RenewalPolicy)
    mechanism: str = GSSAPI

    @property
    def blocks(self) -> bool:
        """Tickets come from a KDC."""
        return True

    def client(self, nonce: str, host: str) -> SaslClient:
        """Begin an exchange with the node on `host`; from now on the tickets are renewed."""
        initiator = Initiator(principal=self.principal, keytab=self.keytab, cache=self.cache)
        keep_renewed(ClientTickets(initiator), self.renewal)
        return GssapiClient(initiate(self.service, host, initiator))


@dataclass(frozen=True, slots=True)
class ClientTickets:
    """See `Tickets`."""

    initiator: Initiator

    def lifetime_s(self) -> float:
        """See `Tickets`."""
        return self.initiator.lifetime_s()

    def renew(self, policy: RenewalPolicy) -> None:
        """See `Tickets`: with a key the library does it, since half of the time is over."""
        if self.initiator.keytab is None:
            run_kinit(policy, self.initiator.cache)
        else:
            self.initiator.lifetime_s()


def kerberos_login(
    module: LoginModule, service: str | None, renewal: RenewalPolicy | None = None
) -> KerberosLogin:
    """The credentials in a login module; `service` is the value of `SERVICE_NAME`.

    Raises:
        JaasError: an option or the service is missing, or the two services differ.
        KerberosError: the package `gssapi` is missing.
    """
    module.check_mechanism(GSSAPI)
    principal = module.text("principal") or None
    keytab = keytab_of(module)
    if keytab is None and not _is_true(module, "useTicketCache"):
        raise JaasError(
            'the login module of GSSAPI needs the options useKeyTab="true", keyTab and principal, '
            'or useTicketCache="true"'
        )
    if keytab is not None and principal is None:
        raise JaasError("the login module of GSSAPI needs the option principal with a keyTab")
    login = KerberosLogin(
        service=_service(module, service),
        principal=principal,
        keytab=keytab,
        cache=module.text("ticketCache") or None,
        renewal=renewal or RenewalPolicy(),
    )
    library()
    return login


def keytab_of(module: LoginModule) -> str | None:
    """The path of the keytab; None if the module does not use one.

    Raises:
        JaasError: it has no path.
    """
    if not _is_true(module, "useKeyTab"):
        return None
    path = module.text("keyTab").removeprefix("file:").removeprefix("FILE:")
    if not path:
        raise JaasError('the login module of GSSAPI needs the option keyTab with useKeyTab="true"')
    return path


def service_principal(module: LoginModule) -> str:
    """The principal of the node's key.

    Raises:
        JaasError: it is missing, or is not of the form `service/host`.
    """
    principal = module.text("principal")
    try:
        if len(parse_principal(principal).components) == _SERVICE_COMPONENTS:
            return principal
    except PrincipalError:
        pass
    raise JaasError("the option principal of a listener's login module must be service/host@REALM")


def _is_true(module: LoginModule, option: str) -> bool:
    return module.text(option).lower() == "true"


def _service(module: LoginModule, configured: str | None) -> str:
    in_module = module.text("serviceName")
    if in_module and configured and in_module != configured:
        raise JaasError(f"the option serviceName and {SERVICE_NAME} differ")
    if not (in_module or configured):
        raise JaasError(f"GSSAPI needs {SERVICE_NAME}, the first component of nodes' principals")
    return in_module or str(configured)
