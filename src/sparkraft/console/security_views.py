"""Access control entries, users, quotas, and decisions about a resource.

Each part has a `problem` if the cluster refuses it: a cluster without an authorizer has no entries,
and the console's own identity may lack the right to see them.
"""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from sparkraft.base.errors import KafkaError
from sparkraft.client.acl_admin import AclAdmin
from sparkraft.client.errors import sentence_of
from sparkraft.client.quota_admin import QuotaAdmin
from sparkraft.client.scram_admin import ScramAdmin
from sparkraft.console.who_may import who_may
from sparkraft.security.acl_filter import AclFilter
from sparkraft.security.acls import (
    CLUSTER_NAME,
    Acl,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
)
from sparkraft.security.quotas import CLIENT_ID, IP, USER

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from sparkraft.client.cluster import Cluster
    from sparkraft.client.scram_admin import CredentialInfo
    from sparkraft.security.quotas import QuotaEntity

Json = dict[str, Any]

SHOWN_MAX = 1_000
"""Entries, users and quotas in a document; the rest is counted."""

COMMANDS = (
    "acls --list",
    "configs --describe --entity-type users",
    "configs --describe --entity-type users --entity-type clients",
    "configs --describe --entity-type clients",
    "configs --describe --entity-type ips",
)
"""They print what the screen shows."""

ENTITIES: tuple[tuple[str, ...], ...] = ((USER,), (USER, CLIENT_ID), (CLIENT_ID,), (IP,))
"""The types of entities that quotas can be set for."""


class SecurityViews:
    """See the module docstring."""

    def __init__(self, cluster: Cluster, *, bootstrap: str) -> None:
        """Use `cluster`, which commands name as `bootstrap`."""
        self._acls = AclAdmin(cluster)
        self._quotas = QuotaAdmin(cluster)
        self._scram = ScramAdmin(cluster)
        self._bootstrap = bootstrap

    def _command(self, words: str) -> str:
        return f"sparkraft {words} --bootstrap-server {self._bootstrap}"

    async def security(self) -> Json:
        """Access control entries, users with SCRAM credentials, and quotas."""
        return security_json(
            acls=await _part(self._all_acls),
            users=await _part(self._users),
            quotas=await _part(self._all_quotas),
            commands=[self._command(words) for words in COMMANDS],
        )

    async def who_may(self, operation: str, kind: str, name: str) -> Json:
        """The principals that may do `operation` to the resource `name` of type `kind`.

        Raises:
            KafkaError: the entries are not available.
            ValueError: an unknown operation or type, or no name.
        """
        question = Question.parse(operation, kind, name)
        matching = AclFilter(question.resource_type, question.name, PatternType.MATCH)
        answer = question.answer(await self._acls.describe_acls(matching))
        return {**answer, "command": self._command(question.command)}

    async def _all_acls(self) -> list[Json]:
        return [acl_json(acl) for acl in await self._acls.describe_acls(AclFilter())]

    async def _users(self) -> list[Json]:
        return users_json(await self._scram.describe())

    async def _all_quotas(self) -> list[Json]:
        found: list[Json] = []
        for types in ENTITIES:
            found += quotas_json(await self._quotas.describe_client_quotas(dict.fromkeys(types)))
        return found


class Question(NamedTuple):
    """Who may do `operation` to a resource?"""

    operation: AclOperation
    resource_type: AclResourceType
    name: str

    @classmethod
    def parse(cls, operation: str, kind: str, name: str) -> Self:
        """The question in a request; `ValueError` for an unknown operation or type, or no name."""
        wanted, resource_type = _named(AclOperation, operation), _named(AclResourceType, kind)
        if resource_type is AclResourceType.CLUSTER:
            name = CLUSTER_NAME
        if not name:
            raise ValueError("the name of the resource is missing")
        return cls(wanted, resource_type, name)

    def answer(self, acls: Sequence[Acl]) -> Json:
        """The decisions by these entries."""
        found = who_may(acls, *self)
        return {
            "isCovered": found.is_covered,
            "isCut": found.is_cut,
            "verdicts": [
                {
                    "principal": one.principal,
                    "host": one.host,
                    "isAllowed": one.is_allowed,
                    "entry": None if one.entry is None else acl_sentence(one.entry),
                }
                for one in found.verdicts
            ],
        }

    @property
    def command(self) -> str:
        """The words of the command that prints the entries which decide."""
        if self.resource_type is AclResourceType.CLUSTER:
            return "acls --list --cluster"
        option = self.resource_type.name.lower().replace("_", "-")
        return f"acls --list --{option} {quote(self.name)} --resource-pattern-type match"


def security_json(*, acls: Json, users: Json, quotas: Json, commands: list[str]) -> Json:
    """The document of the screen, from its parts (`rows_json`)."""
    return {
        "acls": acls,
        "users": users,
        "quotas": quotas,
        "operations": _names(AclOperation),
        "resourceTypes": _names(AclResourceType),
        "commands": commands,
    }


async def _part(make: Callable[[], Awaitable[list[Json]]]) -> Json:
    try:
        found = await make()
    except KafkaError as error:
        return {"problem": sentence_of(error), "rows": [], "more": 0}
    return rows_json(found)


def rows_json(rows: list[Json]) -> Json:
    """A part of the document that the cluster does not refuse."""
    return {"problem": "", "rows": rows[:SHOWN_MAX], "more": max(0, len(rows) - SHOWN_MAX)}


def users_json(found: Mapping[str, Sequence[CredentialInfo] | KafkaError]) -> list[Json]:
    """The users that have SCRAM credentials."""
    return [
        {
            "user": user,
            "credentials": [
                {"mechanism": one.mechanism.name, "iterations": one.iterations}
                for one in credentials
            ],
        }
        for user, credentials in sorted(found.items())
        if not isinstance(credentials, KafkaError)
    ]


def quotas_json(found: Mapping[QuotaEntity, Mapping[str, float]]) -> list[Json]:
    """The quotas of entities of the same types."""
    return [
        {
            "entity": [{"type": kind, "name": name} for kind, name in entity],
            "quotas": dict(sorted(values.items())),
        }
        for entity, values in sorted(found.items(), key=lambda each: repr(each[0]))
    ]


def _names(kind: type[AclOperation | AclResourceType]) -> list[str]:
    return [one.name for one in kind if one.name not in {"UNKNOWN", "ANY"}]


def _named(kind: Any, name: str) -> Any:
    if name not in _names(kind):
        raise ValueError(f"{name[:60]!r} is not one of {', '.join(_names(kind))}")
    return kind[name]


def acl_json(acl: Acl) -> Json:
    """An access control entry for a page and for a change of it."""
    return {
        "resourceType": _text(AclResourceType, acl.resource_type),
        "resourceName": acl.resource_name,
        "patternType": _text(PatternType, acl.pattern_type),
        "principal": acl.principal,
        "host": acl.host,
        "operation": _text(AclOperation, acl.operation),
        "permission": _text(AclPermissionType, acl.permission_type),
        "sentence": acl_sentence(acl),
    }


def acl_sentence(acl: Acl) -> str:
    """An entry in words."""
    verb = _text(AclPermissionType, acl.permission_type).lower()
    prefix = " with the prefix" if acl.pattern_type == PatternType.PREFIXED else ""
    host = "" if acl.host == "*" else f" from {acl.host}"
    kind = _text(AclResourceType, acl.resource_type).lower().replace("_", " ")
    operation = _text(AclOperation, acl.operation)
    return f"{verb} {acl.principal}{host} {operation} on {kind}{prefix} {acl.resource_name}"


def _text(kind: Any, number: int) -> str:
    try:
        name: str = kind(number).name
    except ValueError:
        return str(number)
    return name
