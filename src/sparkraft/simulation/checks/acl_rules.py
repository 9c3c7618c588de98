"""Kafka's rules of access control entries, by a scan of all of them (KIP-11, KIP-140, KIP-290).

Deliberately independent of `security.standard_authorizer`, which may have the bug that a check
looks for.
"""

from collections.abc import Iterable
from typing import Any

from sparkraft.security.acls import AclOperation, AclPermissionType, PatternType
from sparkraft.simulation.world.principals import Action

_IMPLYING = {
    AclOperation.DESCRIBE: {
        AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER,
    },
    AclOperation.DESCRIBE_CONFIGS: {AclOperation.ALTER_CONFIGS},
}  # fmt: skip
"""Operation → those whose ALLOW entries allow it, too."""


def is_allowed(entries: Iterable[Any], action: Action, *, default: bool) -> bool:
    """Whether `entries` allow an action of a principal that is not a super user.

    Args:
        entries: records or `Acl`s.
        action: see `Action`.
        default: `allow.everyone.if.no.acl.found`.
    """
    covering = [
        each
        for each in entries
        if each.resource_type == action.resource_type and _covers(each, action.name)
    ]
    mine = [
        each
        for each in covering
        if each.principal in {action.principal, "User:*"} and each.host in {action.host, "*"}
    ]
    same = {action.operation, AclOperation.ALL}
    if any(e.permission_type == AclPermissionType.DENY and e.operation in same for e in mine):
        return False
    sufficient = same | _IMPLYING.get(action.operation, set())
    if any(
        e.permission_type == AclPermissionType.ALLOW and e.operation in sufficient for e in mine
    ):
        return True
    return default and not covering


def _covers(entry: Any, name: str) -> bool:
    if entry.pattern_type == PatternType.PREFIXED:
        return name.startswith(entry.resource_name)
    return entry.resource_name in {name, "*"}
