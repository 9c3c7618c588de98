"""The options of `acls`, and the access control entries and filters that they mean.

The rules and texts are those of Kafka's AclCommand and of the classes it prints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkraft.cli.errors import UsageError
from sparkraft.cli.moment_options import add_moment
from sparkraft.cli.options import Options, Values
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

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_ACTIONS = ("--add", "--remove", "--list")

_RESOURCES = {
    "topic": (AclResourceType.TOPIC, "a topic; * for all topics"),
    "group": (AclResourceType.GROUP, "a consumer group; * for all groups"),
    "transactional_id": (
        AclResourceType.TRANSACTIONAL_ID,
        "a transactional id; * for all transactional ids",
    ),
    "delegation_token": (
        AclResourceType.DELEGATION_TOKEN,
        "a delegation token; * for all tokens",
    ),
    "user_principal": (
        AclResourceType.USER,
        "a user as a resource: CreateTokens or DescribeTokens on its tokens",
    ),
}
"""Field of the options → resource type and help."""

_SUPPORTED = {
    AclResourceType.TOPIC: (3, 4, 5, 8, 6, 7, 10, 11),
    AclResourceType.GROUP: (3, 8, 6, 10, 11),
    AclResourceType.CLUSTER: (5, 9, 10, 11, 12, 7, 8),
    AclResourceType.TRANSACTIONAL_ID: (8, 4, 15),
    AclResourceType.DELEGATION_TOKEN: (8,),
    AclResourceType.USER: (13, 14),
}
"""Kafka's AclEntry.supportedOperations; ALL is always one."""

_OPERATIONS = {
    "".join(word.capitalize() for word in operation.name.split("_")): operation
    for operation in AclOperation
    if operation not in {AclOperation.UNKNOWN, AclOperation.ANY}
}
"""Names as Kafka's SecurityUtils has them: DescribeConfigs."""

_PRODUCER = (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE)
_PRODUCER_TRANSACTIONS = (AclOperation.WRITE, AclOperation.DESCRIBE)
_CONSUMER = (AclOperation.READ, AclOperation.DESCRIBE)
_CONSUMER_GROUP = (AclOperation.READ,)

_CLUSTER = AclFilter(AclResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL)


def acl_parser() -> Options:
    """The options of Kafka's tool, and `--output`."""
    options = Options("acls", "Adds, removes and lists access control entries.")
    options.connection(controllers=True)
    options.flag("--add", "add entries")
    options.flag("--remove", "remove entries")
    options.flag("--list", "list entries, of all resources or those that are given")
    for field, (_, about) in _RESOURCES.items():
        options.values("--" + field.replace("_", "-"), about=about, metavar="NAME", dest=field)
    options.flag("--cluster", "the cluster as a resource")
    options.value(
        "--resource-pattern-type",
        about="literal (default) or prefixed; to list and remove also any, or match: every pattern "
        "that includes the given names",
        dest="pattern_type",
        type=_pattern_type,
        default=PatternType.LITERAL,
        metavar="ANY|MATCH|LITERAL|PREFIXED",
    )
    options.values(
        "--operation",
        about=f"an operation to allow or deny (default All): {', '.join(_OPERATIONS)}",
        metavar="NAME",
    )
    for word in ("allow", "deny"):
        options.values(
            f"--{word}-principal",
            about=f"{word} this principal: Type:name, such as User:alice; User:* for all users",
            metavar="PRINCIPAL",
        )
        options.values(
            f"--{word}-host",
            about=f"only from this address (default *: all), with --{word}-principal",
            metavar="HOST",
        )
    options.values("--principal", about="with --list: only its entries", metavar="PRINCIPAL")
    add_moment(options)
    options.flag("--producer", "entries of a producer: Write, Describe, Create on topics")
    options.flag("--idempotent", "with --producer: IdempotentWrite on the cluster")
    options.flag("--consumer", "entries of a consumer: Read, Describe on topics, Read on groups")
    options.flag("--force", "do not ask before removing")
    options.output()
    return options


def _pattern_type(text: str) -> PatternType:
    found = PatternType.__members__.get(text.upper(), PatternType.UNKNOWN)
    if found is PatternType.UNKNOWN:
        raise UsageError(f"Unknown resource-pattern-type: {text}")
    return found


def check_options(values: Values) -> str:
    """The action, once the options fit each other; `UsageError` otherwise, with Kafka's texts."""
    given = [action for action in _ACTIONS if getattr(values, action[2:])]
    if len(given) != 1:
        raise UsageError("Command must include exactly one action: --list, --add, --remove. ")
    _refuse_with(values, "list", ("producer", "consumer", "allow_host", "allow_principal",
                                  "deny_host", "deny_principal"))  # fmt: skip
    for role in ("producer", "consumer"):
        _refuse_with(values, role, ("operation", "deny_principal", "deny_host"))
    if values.principal and not values.list:
        raise UsageError("The --principal option is only available if --list is set")
    if values.producer and not values.topic:
        raise UsageError("With --producer you must specify a --topic")
    if values.idempotent and not values.producer:
        raise UsageError("The --idempotent option is only available if --producer is set")
    if values.consumer and (
        not values.topic
        or not values.group
        or (not values.producer and (values.cluster or values.transactional_id))
    ):
        raise UsageError(
            "With --consumer you must specify a --topic and a --group and no --cluster or "
            "--transactional-id option should be specified."
        )
    return given[0]


def _refuse_with(values: Values, option: str, others: Iterable[str]) -> None:
    if not getattr(values, option):
        return
    for other in others:
        if getattr(values, other):
            raise UsageError(
                f'Option "[{option}]" can\'t be used with option "[{other.replace("_", "-")}]"'
            )


# ---- entries and filters


def resource_filters(values: Values) -> list[AclFilter]:
    """The resources that are given, each with any entry."""
    pattern = values.pattern_type
    found = [
        AclFilter(kind, name if field == "transactional_id" else name.strip(), pattern)
        for field, (kind, _) in _RESOURCES.items()
        for name in getattr(values, field)
    ]
    if pattern is PatternType.LITERAL and (values.cluster or values.idempotent):
        found.append(_CLUSTER)
    return list(dict.fromkeys(found))


def resource_filters_with_entries(values: Values) -> dict[AclFilter, list[Acl]]:
    """Each resource and its entries; none if neither --allow- nor --deny-principal is given."""
    resources = resource_filters(values)
    if not resources:
        raise UsageError(
            "You must provide at least one resource: --topic <topic> or --cluster or "
            "--group <group> or --delegation-token <Delegation Token ID>"
        )
    found: dict[AclFilter, list[Acl]] = {}
    if not values.producer and not values.consumer:
        operations = [_operation(name) for name in values.operation] or [AclOperation.ALL]
        found = {each: acl_entries(values, each, operations) for each in resources}
    if values.producer:
        _take(found, values, resources, AclResourceType.TOPIC, _PRODUCER)
        _take(found, values, resources, AclResourceType.TRANSACTIONAL_ID, _PRODUCER_TRANSACTIONS)
        if values.idempotent:
            found[_CLUSTER] = acl_entries(values, _CLUSTER, (AclOperation.IDEMPOTENT_WRITE,))
    if values.consumer:
        _take(found, values, resources, AclResourceType.TOPIC, _CONSUMER)
        _take(found, values, resources, AclResourceType.GROUP, _CONSUMER_GROUP)
    for resource, entries in found.items():
        _check_operations(resource, entries)
    return found


def _take(
    found: dict[AclFilter, list[Acl]],
    values: Values,
    resources: Iterable[AclFilter],
    kind: AclResourceType,
    operations: Sequence[AclOperation],
) -> None:
    """Add the entries of a role to the resources of one type."""
    for resource in resources:
        if resource.resource_type == kind:
            known = found.setdefault(resource, [])
            known += [a for a in acl_entries(values, resource, operations) if a not in known]


def acl_entries(
    values: Values, resource: AclFilter, operations: Sequence[AclOperation]
) -> list[Acl]:
    """The entries for the given principals and hosts, on the resource of a filter."""
    return [
        Acl(
            resource.resource_type,
            resource.resource_name or "",
            resource.pattern_type,
            principal,
            host,
            operation,
            permission,
        )
        for permission, principals, hosts in (
            (AclPermissionType.ALLOW, values.allow_principal, values.allow_host),
            (AclPermissionType.DENY, values.deny_principal, values.deny_host),
        )
        for principal in dict.fromkeys(map(_principal, principals))
        for operation in dict.fromkeys(operations)
        for host in dict.fromkeys(host.strip() for host in hosts or [WILDCARD])
    ]


def _principal(text: str) -> str:
    if not is_principal(text):
        raise UsageError(
            "expected a string in format principalType:principalName but got " + text.strip()
        )
    return text.strip()


def _operation(text: str) -> AclOperation:
    wanted = text.strip().replace("_", "").lower()
    for name, operation in _OPERATIONS.items():
        if name.lower() == wanted:
            return operation
    raise UsageError(f"{text} is not an operation; they are {', '.join(_OPERATIONS)}")


def _check_operations(resource: AclFilter, entries: Iterable[Acl]) -> None:
    kind = AclResourceType(resource.resource_type)
    supported = [*_SUPPORTED[kind], int(AclOperation.ALL)]
    if any(acl.operation not in supported for acl in entries):
        names = ", ".join(AclOperation(code).name for code in sorted(supported))
        raise UsageError(f"ResourceType {kind.name} only supports operations [{names}]")


# ---- how they are written


def pattern_text(acl: Acl) -> str:
    """Kafka's ResourcePattern.toString."""
    kind, pattern = AclResourceType(acl.resource_type).name, PatternType(acl.pattern_type).name
    return f"ResourcePattern(resourceType={kind}, name={acl.resource_name}, patternType={pattern})"


def filter_text(resource: AclFilter) -> str:
    """Kafka's ResourcePatternFilter.toString."""
    kind = AclResourceType(resource.resource_type).name
    pattern = PatternType(resource.pattern_type).name
    name = resource.resource_name
    return f"ResourcePattern(resourceType={kind}, name={name}, patternType={pattern})"


def entry_text(acl: Acl) -> str:
    """Kafka's AccessControlEntry.toString."""
    return (
        f"(principal={acl.principal}, host={acl.host}, "
        f"operation={AclOperation(acl.operation).name}, "
        f"permissionType={AclPermissionType(acl.permission_type).name})"
    )


def binding_text(acl: Acl) -> str:
    """Kafka's AclBinding.toString."""
    return f"(pattern={pattern_text(acl)}, entry={entry_text(acl)})"
