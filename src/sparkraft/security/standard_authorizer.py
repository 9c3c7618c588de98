"""Kafka's StandardAuthorizer: decisions by the access control entries of the metadata log.

    super user? → allowed          entries not loaded yet? → refused
    entries that fit the resource, and apply to principal, host and operation:
        any DENY → denied          else any ALLOW → allowed
    else no entry at all fits the resource → `allow.everyone.if.no.acl.found`, else denied

Decisions are remembered until the entries change. `server.access_control` makes it from a node's
configs and keeps its entries equal to the image's.
"""

from collections.abc import Iterable
from ipaddress import IPv6Address
from typing import NamedTuple

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.security.acl_index import AclIndex
from sparkraft.security.acls import (
    IMPLIED_BY,
    WILDCARD,
    WILDCARD_PRINCIPAL,
    Acl,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    is_principal,
)
from sparkraft.security.authorizer import Requester
from sparkraft.security.denials import DenialLog
from sparkraft.security.principal import KafkaPrincipal

CLASS_NAME = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
"""The supported value of `authorizer.class.name`; it selects this module, no class is loaded."""

SUPER_USERS = "super.users"
ALLOW_IF_NO_ACL = "allow.everyone.if.no.acl.found"
"""Configs of the authorizer, which Kafka's broker configs do not declare."""

DECISIONS_MAX = 20_000
"""Decisions remembered: about 6 MB. All are dropped at once when there are more: clients choose
the names, so no order of removal is better than another."""

_FIXED_NAME = "hardcode"
"""The resource that Kafka authorizes first for `authorize_any`, to let super users pass."""

_Key = tuple[str, str, str, int, str | None]


class Verdict(NamedTuple):
    """A decision and its reason: an entry, or `SuperUser`, `DefaultAllow`, `DefaultDeny`."""

    allowed: bool
    rule: Acl | str


_SUPER_USER = Verdict(True, "SuperUser")  # noqa: FBT003
_DEFAULT_ALLOW = Verdict(True, "DefaultAllow")  # noqa: FBT003
_DEFAULT_DENY = Verdict(False, "DefaultDeny")  # noqa: FBT003


class StandardAuthorizer:
    """See the module docstring. It is an `Authorizer`."""

    allows_all = False

    def __init__(
        self, super_users: Iterable[str] = (), *, allow_everyone_if_no_acl: bool = False
    ) -> None:
        self.super_users = frozenset(super_users)
        self._if_no_acl = _DEFAULT_ALLOW if allow_everyone_if_no_acl else _DEFAULT_DENY
        self._index = AclIndex()
        self._is_loaded = False
        self._verdicts: dict[_Key, Verdict] = {}
        self._denials = DenialLog()

    # ---- entries

    def load(self, acls: Iterable[Acl]) -> None:
        """Replace all entries."""
        self.take(AclIndex(acls))

    def take(self, index: AclIndex) -> None:
        """Replace all entries by those of `index`, which belongs to the authorizer from now on."""
        self._index = index
        self._verdicts.clear()

    def change(self, *, removed: Iterable[Acl], added: Iterable[Acl]) -> None:
        """Remove and add entries at once; every decision sees all of them or none."""
        for acl in removed:
            self._index.remove(acl)
        for acl in added:
            self._index.add(acl)
        self._verdicts.clear()

    def complete_load(self) -> None:
        """Decide for every principal from now on: the entries are those of the high watermark."""
        self._is_loaded = True

    @property
    def is_loaded(self) -> bool:
        """Whether `complete_load` was called."""
        return self._is_loaded

    # ---- decisions

    def authorize(
        self,
        requester: Requester,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str,
    ) -> bool:
        """See `Authorizer`.

        Raises:
            KafkaError: UNKNOWN_SERVER_ERROR before `complete_load`, as Kafka's
                AuthorizerNotReadyException; super users pass.
        """
        return self.verdict(requester, operation, resource_type, name).allowed

    def authorize_any(
        self, requester: Requester, operation: AclOperation, resource_type: AclResourceType
    ) -> bool:
        """See `Authorizer`; Kafka's Authorizer.authorizeByResourceType.

        Raises:
            KafkaError: as `authorize`.
        """
        if self.authorize(requester, operation, resource_type, _FIXED_NAME):
            return True
        key = _key(requester, operation, resource_type, None)
        found = self._verdicts.get(key)
        if found is None:
            host = java_host(requester.client_host)
            principals = _principals(requester.principal)
            allowed = self._index.allows_any(resource_type, operation, principals, host)
            found = self._remember(key, Verdict(allowed, "ByResourceType"))
        return found.allowed

    def verdict(
        self,
        requester: Requester,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str,
    ) -> Verdict:
        """The decision of `authorize`, with its reason."""
        key = _key(requester, operation, resource_type, name)
        found = self._verdicts.get(key)
        if found is None:
            if str(requester.principal) in self.super_users:
                found = _SUPER_USER
            elif not self._is_loaded:
                raise KafkaError(
                    ErrorCode.UNKNOWN_SERVER_ERROR, "access control lists are not loaded yet"
                )
            else:
                found = self._decide(requester, operation, resource_type, name)
            self._remember(key, found)
        return found

    def log_denied(
        self,
        requester: Requester,
        action: tuple[AclOperation, AclResourceType, str],
        *,
        request_name: str,
        now_ms: int,
    ) -> None:
        """See `Authorizer`."""
        rule = self.verdict(requester, *action).rule
        self._denials.add(requester, action, request_name, rule, now_ms)

    def _remember(self, key: _Key, verdict: Verdict) -> Verdict:
        if len(self._verdicts) >= DECISIONS_MAX:
            self._verdicts.clear()
        self._verdicts[key] = verdict
        return verdict

    def _decide(
        self,
        requester: Requester,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str,
    ) -> Verdict:
        principals = _principals(requester.principal)
        host = java_host(requester.client_host)
        implied_by = IMPLIED_BY.get(operation, frozenset())
        allowing: Acl | None = None
        is_covered = False
        for acl in self._index.fitting(resource_type, name):
            is_covered = True
            if acl.principal not in principals or acl.host not in (WILDCARD, host):
                continue
            if acl.operation in (operation, AclOperation.ALL):
                if acl.permission_type != AclPermissionType.ALLOW:
                    return Verdict(False, acl)  # noqa: FBT003
                allowing = acl
            elif acl.permission_type == AclPermissionType.ALLOW and acl.operation in implied_by:
                allowing = acl
        if allowing is not None:
            return Verdict(True, allowing)  # noqa: FBT003
        return _DEFAULT_DENY if is_covered else self._if_no_acl


def _key(
    requester: Requester, operation: AclOperation, resource_type: AclResourceType, name: str | None
) -> _Key:
    principal = requester.principal
    # One number: hashing an enum's member runs Python code.
    action = operation << 8 | resource_type
    return principal.name, principal.type, requester.client_host, action, name


def _principals(principal: KafkaPrincipal) -> tuple[str, ...]:
    """The principals of entries that apply to `principal`.

    None for a principal whose text is ambiguous: a type with a colon, and the user `*`, which
    would match every wildcard entry (in Kafka each of its requests fails). Both are denied unless
    the default allows.
    """
    text = str(principal)
    if is_principal(principal.type) or text == WILDCARD_PRINCIPAL:
        return ()
    return text, WILDCARD_PRINCIPAL


def java_host(host: str) -> str:
    """An address as Java's `InetAddress.getHostAddress` writes it, which is what entries contain.

    IPv6 in eight groups without leading zeros; IPv4 in IPv6 as IPv4.
    """
    if ":" not in host:
        return host
    text, percent, zone = host.partition("%")
    try:
        address = IPv6Address(text)
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    groups = (f"{int(group, 16):x}" for group in address.exploded.split(":"))
    return ":".join(groups) + percent + zone


def parse_super_users(text: str) -> frozenset[str]:
    """The principals in `super.users`, which are separated by semicolons.

    Raises:
        ValueError: one of them is not of the form Type:name.
    """
    users = [part.strip() for part in text.split(";")]
    for user in users:
        if user and not is_principal(user):
            raise ValueError(
                f"super.users: expected principals of the form Type:name, got {user!r}"
            )
    return frozenset(user for user in users if user)
