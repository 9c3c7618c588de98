"""Filters of access control entries, as in DescribeAcls and DeleteAcls (KIP-140, KIP-290).

The rules are those of Kafka's ResourcePatternFilter and AccessControlEntryFilter.
"""

from typing import NamedTuple

from sparkraft.security.acls import (
    WILDCARD,
    Acl,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
)


class AclFilter(NamedTuple):
    """The entries that a request is about; ANY and None match everything.

    `pattern_type` MATCH selects every pattern that fits the resource called `resource_name`:
    literal, wildcard and prefixes.
    """

    resource_type: int = AclResourceType.ANY
    resource_name: str | None = None
    pattern_type: int = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: int = AclOperation.ANY
    permission_type: int = AclPermissionType.ANY

    @property
    def has_unknown_pattern(self) -> bool:
        """Whether the resource type or pattern type is not one of Kafka's."""
        return _unknown(AclResourceType, self.resource_type) or _unknown(
            PatternType, self.pattern_type
        )

    @property
    def has_unknown_entry(self) -> bool:
        """Whether the operation or permission type is not one of Kafka's."""
        return _unknown(AclOperation, self.operation) or _unknown(
            AclPermissionType, self.permission_type
        )

    def matches(self, acl: Acl) -> bool:
        """Whether `acl` is one of the selected entries."""
        return (
            self.resource_type in (AclResourceType.ANY, acl.resource_type)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission_type in (AclPermissionType.ANY, acl.permission_type)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self._matches_name(acl.pattern_type, acl.resource_name)
        )

    def matches_pattern(self, resource_type: int, pattern_type: int, name: str) -> bool:
        """Whether entries of that resource pattern may be among those selected."""
        return self.resource_type in (
            AclResourceType.ANY,
            resource_type,
        ) and self._matches_name(pattern_type, name)

    def _matches_name(self, pattern_type: int, own: str) -> bool:
        name, kind = self.resource_name, self.pattern_type
        if kind == PatternType.MATCH:
            return name is None or _includes(pattern_type, own, name)
        return kind in (PatternType.ANY, pattern_type) and name in (None, own)


def fits(acl: Acl, name: str) -> bool:
    """Whether the pattern of `acl` includes the resource called `name`, of the same type.

    Only a LITERAL `*` is a wildcard: a PREFIXED one is the prefix of names that start with a star.
    """
    return _includes(acl.pattern_type, acl.resource_name, name)


def _includes(pattern_type: int, pattern: str, name: str) -> bool:
    if pattern_type == PatternType.PREFIXED:
        return name.startswith(pattern)
    return pattern in (name, WILDCARD)


def _unknown(
    codes: type[AclResourceType] | type[PatternType] | type[AclOperation] | type[AclPermissionType],
    code: int,
) -> bool:
    return code == 0 or code not in codes.__members__.values()
