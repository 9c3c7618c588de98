"""The vocabulary of access control lists, with the codes of Kafka's protocol and records."""

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple


class AclOperation(IntEnum):
    """Operations on a resource that a principal may be allowed."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclResourceType(IntEnum):
    """Types of resources in access control entries; config resources have other types."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How an entry's resource name is compared with a resource."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclPermissionType(IntEnum):
    """Whether an entry allows or denies its operation."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


CLUSTER_NAME = "kafka-cluster"
"""The name of the only resource of type CLUSTER."""

WILDCARD = "*"
"""As the name of a LITERAL pattern: every resource of its type; as a host: every host."""

WILDCARD_PRINCIPAL = "User:*"
"""In an entry: every principal, of any type."""


class Acl(NamedTuple):
    """An access control entry; numbers as in the protocol."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


IMPLIED_BY: Mapping[int, frozenset[int]] = {
    AclOperation.DESCRIBE: frozenset(
        {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset({AclOperation.ALTER_CONFIGS}),
}
"""Operations whose ALLOW entries also allow the key; a DENY entry implies nothing (KIP-140)."""


def is_principal(text: str) -> bool:
    """Whether `text` has the form Type:name (Kafka's SecurityUtils.parseKafkaPrincipal)."""
    return ":" in text
