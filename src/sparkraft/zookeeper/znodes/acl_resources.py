"""Access control entries of a resource pattern, as Kafka's `AclAuthorizer` stores them.

    literal    /kafka-acl/TYPE/NAME                      /kafka-acl-changes/acl_changes_N
    prefixed   /kafka-acl-extended/prefixed/TYPE/NAME    /kafka-acl-extended-changes/acl_changes_N

Words are those of Kafka's JSON: `TransactionalId`, `ClusterAction`, `Allow`. The bytes are in
`security`.
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from functools import cache
from typing import NamedTuple, TypeVar

from sparkraft.security.acls import (
    Acl,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
)
from sparkraft.zookeeper.znodes.json_form import ZnodeError
from sparkraft.zookeeper.znodes.security import (
    LITERAL_ACLS,
    PREFIXED_ACLS,
    AclEntry,
    ChangedResource,
    decode_acl,
    encode_acl,
    encode_acl_change,
)

Word = TypeVar("Word", bound=IntEnum)

LITERAL_CHANGES = "/kafka-acl-changes"
PREFIXED_CHANGES = "/kafka-acl-extended-changes"

ACL_ROOTS = {PatternType.LITERAL: LITERAL_ACLS, PatternType.PREFIXED: PREFIXED_ACLS}
"""Pattern type → the znode above the resource types."""

RESOURCE_TYPES = (
    AclResourceType.USER,
    AclResourceType.DELEGATION_TOKEN,
    AclResourceType.GROUP,
    AclResourceType.CLUSTER,
    AclResourceType.TOPIC,
    AclResourceType.TRANSACTIONAL_ID,
)
"""Types with a znode of their own below each root."""


class AclResource(NamedTuple):
    """A resource pattern; numbers as in the protocol."""

    type: int
    pattern: int
    name: str

    @classmethod
    def of(cls, acl: Acl) -> "AclResource":
        """The pattern that an entry is for."""
        return cls(acl.resource_type, acl.pattern_type, acl.resource_name)

    @property
    def path(self) -> str:
        """The znode of its entries."""
        kind = word_of(AclResourceType(self.type))
        return f"{ACL_ROOTS[PatternType(self.pattern)]}/{kind}/{self.name}"

    @property
    def notice(self) -> tuple[str, bytes]:
        """The notification of a change: path without its number, and data."""
        is_literal = self.pattern == PatternType.LITERAL
        root = LITERAL_CHANGES if is_literal else PREFIXED_CHANGES
        changed = ChangedResource(
            AclResourceType(self.type).name, self.name, PatternType(self.pattern).name
        )
        return f"{root}/acl_changes_", encode_acl_change(changed)


def changed_resource(path: str, changed: ChangedResource) -> AclResource:
    """The pattern in a notification.

    Raises:
        ZnodeError: an unknown type.
    """
    try:
        kind = AclResourceType[changed.type.upper()]
        return AclResource(kind, PatternType[changed.pattern_type.upper()], changed.name)
    except KeyError as error:
        raise ZnodeError(path, f"unknown type of a resource: {error}") from error


def decode_entries(resource: AclResource, data: bytes) -> list[Acl]:
    """The entries in the znode of a resource.

    Raises:
        ZnodeError: malformed.
    """
    path = resource.path
    return [_entry(path, resource, each) for each in decode_acl(path, data)]


def _entry(path: str, resource: AclResource, entry: AclEntry) -> Acl:
    return Acl(
        resource.type,
        resource.name,
        resource.pattern,
        entry.principal,
        entry.host,
        named(path, AclOperation, entry.operation),
        named(path, AclPermissionType, entry.permission_type),
    )


def encode_entries(acls: Iterable[Acl]) -> bytes:
    """The data of the znode of a resource with these entries."""
    return encode_acl(
        [
            AclEntry(
                principal=acl.principal,
                permission_type=word_of(AclPermissionType(acl.permission_type)),
                host=acl.host,
                operation=word_of(AclOperation(acl.operation)),
            )
            for acl in sorted(acls)
        ]
    )


def word_of(member: IntEnum) -> str:
    """TRANSACTIONAL_ID as `TransactionalId`."""
    return "".join(part.capitalize() for part in member.name.split("_"))


@cache
def _members(words: type[Word]) -> Mapping[str, Word]:
    return {word_of(each).upper(): each for each in words}


def named(path: str, words: type[Word], word: str) -> Word:
    """The member with that word, in letters of any case (`SecurityUtils`).

    Raises:
        ZnodeError: unknown.
    """
    found: Word | None = _members(words).get(word.upper())
    if found is None:
        raise ZnodeError(path, f"unknown word in an access control entry: {word[:60]!r}")
    return found
