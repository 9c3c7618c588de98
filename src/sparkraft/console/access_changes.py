"""Access control entries and quotas that an editor sets and removes."""

from __future__ import annotations

from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING, Any, Self

from sparkraft.client.acl_admin import AclAdmin
from sparkraft.client.errors import PlanError
from sparkraft.client.quota_admin import QuotaAdmin
from sparkraft.console.change import Difference, Plan, raise_refusal, text_of
from sparkraft.console.security_views import acl_sentence
from sparkraft.security.acl_filter import AclFilter
from sparkraft.security.acls import (
    CLUSTER_NAME,
    WILDCARD,
    Acl,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
    is_principal,
)
from sparkraft.security.quotas import (
    CLIENT_ID,
    IP,
    IP_KEYS,
    USER,
    USER_AND_CLIENT_KEYS,
    quota_entity,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkraft.client.leadership import LeadershipAdmin
    from sparkraft.security.quotas import QuotaEntity

_OPTIONS = {
    AclResourceType.TOPIC: "--topic",
    AclResourceType.GROUP: "--group",
    AclResourceType.CLUSTER: "--cluster",
    AclResourceType.TRANSACTIONAL_ID: "--transactional-id",
    AclResourceType.DELEGATION_TOKEN: "--delegation-token",
    AclResourceType.USER: "--user-principal",
}
"""Of the command `acls`."""

_ENTITY_OPTIONS = {USER: "users", CLIENT_ID: "clients", IP: "ips"}
"""Of the command `configs`."""


def _member(kind: Any, document: Mapping[str, Any], name: str, *, without: tuple[str, ...]) -> Any:
    text = text_of(document, name)
    names = [one.name for one in kind if one.name not in {"UNKNOWN", "ANY", *without}]
    if text not in names:
        raise ValueError(f"{name} must be one of {', '.join(names)}, not {text[:60]!r}")
    return kind[text]


# ---- access control entries


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeAcl:
    """The entry of `security_views.acl_json`.

    Names are those of the protocol; the host is an address or `*`.
    """

    acl: Acl
    is_added: bool

    @classmethod
    def added(cls, document: Mapping[str, Any]) -> Self:
        return cls(acl=_parsed(document), is_added=True)

    @classmethod
    def removed(cls, document: Mapping[str, Any]) -> Self:
        return cls(acl=_parsed(document), is_added=False)

    @property
    def wish(self) -> str:
        return (
            f"{'add' if self.is_added else 'remove'} the access control entry "
            f"{acl_sentence(self.acl)!r}"
        )

    async def plan(self, admin: LeadershipAdmin, servers: str) -> Plan:
        is_known = bool(await AclAdmin(admin.cluster).describe_acls(_filter_of(self.acl)))
        if is_known == self.is_added:
            raise PlanError("the entry exists already" if is_known else "the entry does not exist")
        sentence = acl_sentence(self.acl)
        return Plan(
            sentence=f"An access control entry is {'added' if self.is_added else 'removed'}.",
            differences=[
                Difference(
                    what="entry",
                    before=None if self.is_added else sentence,
                    after=sentence if self.is_added else None,
                )
            ],
            warnings=self._warnings(),
            command=self._command(servers),
        )

    def _warnings(self) -> list[str]:
        """The first entry of a resource shuts out everyone that no entry allows."""
        if not self.is_added or self.acl.permission_type != AclPermissionType.ALLOW:
            return []
        return [
            "Principals that no entry allows may no longer use the resource, also if "
            "allow.everyone.if.no.acl.found is set."
        ]

    def _command(self, servers: str) -> str:
        acl = self.acl
        word = AclPermissionType(acl.permission_type).name.lower()
        kind = AclResourceType(acl.resource_type)
        resource = _OPTIONS[kind]
        if kind is not AclResourceType.CLUSTER:
            pattern = PatternType(acl.pattern_type).name.lower()
            resource += f" {quote(acl.resource_name)} --resource-pattern-type {pattern}"
        host = "" if acl.host == WILDCARD else f" --{word}-host {quote(acl.host)}"
        operation = AclOperation(acl.operation).name.title().replace("_", "")
        return (
            f"sparkraft acls --bootstrap-server {servers} "
            f"{'--add' if self.is_added else '--remove --force'} "
            f"--{word}-principal {quote(acl.principal)}{host} --operation {operation} {resource}"
        )

    async def apply(self, admin: LeadershipAdmin) -> str:
        acls = AclAdmin(admin.cluster)
        if self.is_added:
            raise_refusal(await acls.create_acls([self.acl]))
        else:
            (removed,) = await acls.delete_acls([_filter_of(self.acl)])
            raise_refusal([removed])
            if not removed:
                raise PlanError("the entry does not exist")
        does = "added" if self.is_added else "removed"
        return f"{does} the access control entry {acl_sentence(self.acl)!r}"


def _parsed(document: Mapping[str, Any]) -> Acl:
    kind = _member(AclResourceType, document, "resourceType", without=())
    pattern = _member(PatternType, document, "patternType", without=("MATCH",))
    principal = text_of(document, "principal").strip()
    if not is_principal(principal):
        raise ValueError(f"a principal has the form User:name, not {principal[:60]!r}")
    return Acl(
        kind,
        CLUSTER_NAME if kind is AclResourceType.CLUSTER else text_of(document, "resourceName"),
        PatternType.LITERAL if kind is AclResourceType.CLUSTER else pattern,
        principal,
        str(document.get("host") or WILDCARD).strip(),
        _member(AclOperation, document, "operation", without=()),
        _member(AclPermissionType, document, "permission", without=()),
    )


def _filter_of(acl: Acl) -> AclFilter:
    return AclFilter(*acl)


# ---- quotas


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterQuota:
    """`{"entity": [{"type", "name"}], "quota", "value"}`.

    A name of null is the default of its type; a value of null removes the quota.
    """

    entity: QuotaEntity
    quota: str
    value: float | None

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Self:
        listed = document["entity"]
        if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
            raise ValueError("entity must be a list of types and names")
        entity = quota_entity(
            (str(each["type"]), None if each.get("name") is None else str(each["name"]))
            for each in listed
        )
        types = [kind for kind, _ in entity]
        if types not in ([USER], [CLIENT_ID], [CLIENT_ID, USER], [IP]):
            raise ValueError("quotas are of a user, a client-id, both, or an ip")
        quota = text_of(document, "quota")
        known = IP_KEYS if types == [IP] else USER_AND_CLIENT_KEYS
        if quota not in known:
            raise ValueError(f"quota must be one of {', '.join(sorted(known))}")
        return cls(entity=entity, quota=quota, value=_number(document["value"]))

    @property
    def wish(self) -> str:
        return (
            f"change the quota {self.quota} of {self._subject()} to {_shown(self.value) or 'none'}"
        )

    async def _before(self, admin: LeadershipAdmin) -> float | None:
        wanted = {kind: name or "" for kind, name in self.entity}
        found = await QuotaAdmin(admin.cluster).describe_client_quotas(wanted)
        return found.get(self.entity, {}).get(self.quota)

    async def plan(self, admin: LeadershipAdmin, servers: str) -> Plan:
        before = await self._before(admin)
        if before == self.value:
            raise PlanError("the quota has this value already" if before else "it is not set")
        row = Difference(what=self.quota, before=_shown(before), after=_shown(self.value))
        return Plan(
            sentence=f"The quota of {self._subject()} is {'set' if self.value else 'removed'}.",
            differences=[row],
            command=self._command(servers),
        )

    def _subject(self) -> str:
        return " and ".join(
            f"the default {kind}" if name is None else f"{kind} {name!r}"
            for kind, name in self.entity
        )

    def _command(self, servers: str) -> str:
        words = [f"sparkraft configs --bootstrap-server {servers} --alter"]
        for kind, name in self.entity:
            words.append(f"--entity-type {_ENTITY_OPTIONS[kind]}")
            words.append("--entity-default" if name is None else f"--entity-name {quote(name)}")
        words.append(
            f"--delete-config {self.quota}"
            if self.value is None
            else f"--add-config {self.quota}={_shown(self.value)}"
        )
        return " ".join(words)

    async def apply(self, admin: LeadershipAdmin) -> str:
        quotas = QuotaAdmin(admin.cluster)
        raise_refusal([await quotas.alter_client_quotas(self.entity, {self.quota: self.value})])
        value = "removed" if self.value is None else f"set to {_shown(self.value)}"
        return f"changed the quota {self.quota} of {self._subject()}: {value}"


def _number(value: Any) -> float | None:
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if isinstance(value, bool) or not 0 < number < float("inf"):
        raise ValueError(f"value must be a number above 0 or null, not {value!r:.60}")
    return number


def _shown(value: float | None) -> str | None:
    if value is None:
        return None
    return str(int(value)) if value == int(value) else repr(value)
