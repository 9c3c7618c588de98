"""Decisions about a resource by the access control entries, without I/O.

The decisions are those of a node's own authorizer (`StandardAuthorizer`), for each principal and
host that an entry names and for all others. Nodes describe neither `super.users`, which may do
everything, nor `allow.everyone.if.no.acl.found`, which decides if no entry fits the resource.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkraft.security.acl_filter import fits
from sparkraft.security.acls import IMPLIED_BY, WILDCARD, WILDCARD_PRINCIPAL, AclOperation
from sparkraft.security.principal import KafkaPrincipal
from sparkraft.security.standard_authorizer import StandardAuthorizer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sparkraft.security.acls import Acl, AclResourceType

OTHERS = "all others"

_NO_NAME = "\0"
"""A name and a host that no entry contains."""

DECISIONS_MAX = 2_000


@dataclass(frozen=True, slots=True)
class _Requester:
    principal: KafkaPrincipal
    client_host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether a principal may do it from a host, and the entry that decides; None for none."""

    principal: str
    host: str
    is_allowed: bool
    entry: Acl | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Verdicts by principal and host; `is_covered` if some entry fits the resource."""

    verdicts: list[Verdict]
    is_covered: bool
    is_cut: bool
    """Whether there are more than `DECISIONS_MAX` verdicts."""


def who_may(
    acls: Sequence[Acl], operation: AclOperation, resource_type: AclResourceType, name: str
) -> Answer:
    """Decide for every principal and host that a fitting entry names, and for all others."""
    fitting = [acl for acl in acls if acl.resource_type == resource_type and fits(acl, name)]
    about = {operation, AclOperation.ALL, *IMPLIED_BY.get(operation, ())}
    relevant = [acl for acl in fitting if acl.operation in about]
    principals = sorted({acl.principal for acl in relevant} - {WILDCARD_PRINCIPAL})
    hosts = sorted({acl.host for acl in relevant} - {WILDCARD})
    authorizer = StandardAuthorizer()
    authorizer.load(fitting)
    authorizer.complete_load()
    pairs = [(who, host) for who in (*principals, OTHERS) for host in (*hosts, OTHERS)]
    verdicts: list[Verdict] = []
    for who, host in pairs[:DECISIONS_MAX]:
        kind, _, user = ("User", "", _NO_NAME) if who == OTHERS else who.partition(":")
        requester = _Requester(KafkaPrincipal(kind, user), _NO_NAME if host == OTHERS else host)
        found = authorizer.verdict(requester, operation, resource_type, name)
        entry = None if isinstance(found.rule, str) else found.rule
        verdicts.append(Verdict(principal=who, host=host, is_allowed=found.allowed, entry=entry))
    return Answer(
        verdicts=_merged(verdicts, bool(hosts)),
        is_covered=bool(fitting),
        is_cut=len(pairs) > DECISIONS_MAX,
    )


def _merged(verdicts: Iterable[Verdict], has_hosts: bool) -> list[Verdict]:  # noqa: FBT001
    """Drop hosts whose verdict is that of all others."""
    listed = list(verdicts)
    if not has_hosts:
        return listed
    of_others = {one.principal: one for one in listed if one.host == OTHERS}
    return [
        one
        for one in listed
        if one.host == OTHERS
        or (other := of_others.get(one.principal)) is None
        or (one.is_allowed, one.entry) != (other.is_allowed, other.entry)
    ]
