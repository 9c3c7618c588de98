"""Security contexts of Kerberos: `GssContext` on the package `gssapi`.

An acceptor has the key of a service in a keytab, which the library reads again for each context, so
a new key needs no restart. An initiator has a ticket cache, or a keytab whose ticket the library
gets and renews by itself, in a cache in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkraft.security.sasl import SaslError

if TYPE_CHECKING:
    from collections.abc import Callable

_KRB5_TABLE = -1765328384
"""The codes of Kerberos' errors (RFC 4120, 7.5.9) begin here in the library."""
_RETRIABLE = frozenset({_KRB5_TABLE + 33, _KRB5_TABLE + 34})
"""A ticket that is not valid yet, and a replay, which may be a false alarm (`KerberosError`)."""


class KerberosError(ValueError):
    """Kerberos cannot be used like this; the message has the reason and no secret."""


def library() -> Any:
    """The package `gssapi`; `KerberosError` if it or the system's library is missing."""
    try:
        import gssapi
    except ImportError as error:
        raise KerberosError(
            f"GSSAPI needs Kerberos: pip install 'sparkraft[gssapi]' ({error})"
        ) from None
    return gssapi


def default_realm() -> str:
    """The realm of names without one; `KerberosError` if the system has none."""
    gssapi = library()
    try:
        name = gssapi.Name("any", gssapi.NameType.kerberos_principal)
        return str(name.canonicalize(gssapi.MechType.kerberos)).rpartition("@")[2]
    except gssapi.exceptions.GSSError as error:
        raise KerberosError(f"the default realm is missing: {error}") from None


class Acceptor:
    """The key of a service."""

    def __init__(self, principal: str, keytab: str | None) -> None:
        """Find the key of `principal` in `keytab`, None for the system's; blocks for the file.

        Raises:
            KerberosError: it has none.
        """
        gssapi = library()
        try:
            self._credentials = gssapi.Credentials(
                name=gssapi.Name(principal, gssapi.NameType.kerberos_principal),
                usage="accept",
                mechs=[gssapi.MechType.kerberos],
                store=None if keytab is None else {"keytab": f"FILE:{keytab}"},
            )
        except gssapi.exceptions.GSSError as error:
            where = "the default keytab" if keytab is None else keytab
            raise KerberosError(f"no key of {principal} in {where}: {error}") from None

    def begin(self) -> Context:
        """Begin a context with a client."""
        gssapi = library()
        return Context(
            lambda: gssapi.SecurityContext(creds=self._credentials, usage="accept"), gssapi
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Initiator:
    """A client with a key or a ticket.

    Attributes:
        principal: of the client; None: that of the ticket cache.
        keytab: has its key; None: the ticket is in the cache.
        cache: the ticket cache; None: the system's, or with a keytab one in memory.
    """

    principal: str | None
    keytab: str | None
    cache: str | None

    def credentials(self) -> Any:
        """Its ticket; with a key the library gets another one if half of its time is over.

        Raises:
            GSSError: there is none.
        """
        gssapi = library()
        store = {}
        if self.keytab is not None:
            cache = f"MEMORY:sparkraft {self.principal}"
            store = {"client_keytab": f"FILE:{self.keytab}", "ccache": cache}
        elif self.cache is not None:
            store = {"ccache": self.cache}
        name = self.principal and gssapi.Name(self.principal, gssapi.NameType.kerberos_principal)
        return gssapi.Credentials(name=name or None, usage="initiate", store=store or None)

    def lifetime_s(self) -> float:
        """How long its ticket lives.

        Raises:
            KerberosError: it has none.
        """
        try:
            lifetime = self.credentials().lifetime
        except library().exceptions.GSSError as error:
            raise KerberosError(str(error)) from None
        return float("inf") if lifetime is None else float(lifetime)


def initiate(service: str, host: str, initiator: Initiator) -> Context:
    """Begin a context with the service on `host`.

    Args:
        service: the first component of the service's principal.
        host: the second one, before the library's own canonicalization.
        initiator: the client.
    """
    gssapi = library()

    def make() -> Any:
        flag = gssapi.RequirementFlag
        return gssapi.SecurityContext(
            name=gssapi.Name(f"{service}@{host}", gssapi.NameType.hostbased_service),
            creds=initiator.credentials(),
            usage="initiate",
            mech=gssapi.MechType.kerberos,
            flags=[flag.mutual_authentication, flag.integrity],
        )

    return Context(make, gssapi)


class Context:
    """A security context; see `GssContext`."""

    def __init__(self, make: Callable[[], Any], gssapi: Any) -> None:
        """Use the context that `make` returns at the first step."""
        self._make = make
        self._made: Any = None
        self._error = gssapi.exceptions.GSSError

    @property
    def is_complete(self) -> bool:
        """See `GssContext`."""
        return self._made is not None and bool(self._made.complete)

    @property
    def client(self) -> str:
        """See `GssContext`."""
        return str(self._checked(lambda: str(self._made.initiator_name)))

    def step(self, token: bytes | None) -> bytes:
        """See `GssContext`."""

        def work() -> Any:
            if self._made is None:
                self._made = self._make()
            return self._made.step(token)

        return bytes(self._checked(work) or b"")

    def wrap(self, message: bytes) -> bytes:
        """See `GssContext`."""
        return bytes(self._checked(lambda: self._made.wrap(message, encrypt=False).message))

    def unwrap(self, token: bytes) -> bytes:
        """See `GssContext`."""
        return bytes(self._checked(lambda: self._made.unwrap(token).message))

    def _checked(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except UnicodeDecodeError:
            raise SaslError("Kerberos: a principal is not UTF-8") from None
        except self._error as error:
            code = getattr(error, "min_code", 0)
            raise SaslError(
                f"Kerberos: {error}", is_retriable=_signed(code) in _RETRIABLE
            ) from None


def _signed(code: int) -> int:
    """A minor status is an unsigned number of 32 bits."""
    return code - (1 << 32) if code >= 1 << 31 else code
