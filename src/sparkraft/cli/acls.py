"""`acls`: adds, removes and lists access control entries, as `kafka-acls.sh`.

Which entries the options mean, and how entries are written, is in `acl_options`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import KafkaError
from sparkraft.cli.acl_options import (
    acl_parser,
    binding_text,
    check_options,
    entry_text,
    filter_text,
    pattern_text,
    resource_filters,
    resource_filters_with_entries,
)
from sparkraft.cli.errors import CommandError, UsageError
from sparkraft.cli.moment_options import moment_of, past_state
from sparkraft.cli.session import connected, print_json, run
from sparkraft.client.acl_admin import AclAdmin
from sparkraft.client.past.settings import access_entries
from sparkraft.security.acl_filter import AclFilter
from sparkraft.security.acls import (
    Acl,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sparkraft.cli.moment_options import Moment
    from sparkraft.cli.options import Values

Pattern = tuple[int, str, int]
"""Resource type, name, pattern type."""


def main(argv: list[str]) -> int:
    """Do the one action."""
    values = acl_parser().parse(argv)
    action = check_options(values)
    moment = moment_of(values)
    if moment is not None:
        if action != "--list":
            raise UsageError("--at-offset and --at-time go only with --list")
        return run(_list_then(values, moment))
    actions = {"--add": _add, "--remove": _remove, "--list": _list}
    return run(_main(values, actions[action]))


async def _main(values: Values, action: Any) -> int:
    async with connected(values, client_id="acls-tool") as cluster:
        await action(AclAdmin(cluster), values)
    return 0


# ---- add


async def _add(admin: AclAdmin, values: Values) -> None:
    if values.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise UsageError(
            f"A '--resource-pattern-type' value of '{values.pattern_type.name}' is not valid when "
            "adding acls."
        )
    wanted = resource_filters_with_entries(values)
    if not all(wanted.values()):
        raise UsageError(
            "You must specify one of: --allow-principal, --deny-principal when trying to add ACLs."
        )
    added: list[Acl] = []
    for resource, entries in wanted.items():
        known = set(await admin.describe_acls(resource))
        new = [acl for acl in entries if acl not in known]
        if values.output == "text":
            for acl in entries:
                if acl in known:
                    print(f"Acl {binding_text(acl)} already exists.")
            if new:
                _print_entries(f"Adding ACLs for resource `{pattern_text(new[0])}`: ", new)
        _raise_first(await admin.create_acls(new) if new else [])
        added += new
    if values.output == "json":
        print_json({"added": [_json(acl) for acl in added]})


# ---- remove


async def _remove(admin: AclAdmin, values: Values) -> None:
    removed: list[Acl] = []
    for resource, entries in resource_filters_with_entries(values).items():
        if not entries:
            question = (
                "Are you sure you want to delete all ACLs for resource filter "
                f"`{filter_text(resource)}`? (y/n)"
            )
            filters = [resource]
        else:
            lines = "\n".join(f"\t{entry_text(acl)}" for acl in entries)
            question = (
                f"Are you sure you want to remove ACLs: \n {lines}\n"
                f" from resource filter `{filter_text(resource)}`? (y/n)"
            )
            filters = [_exactly(resource, acl) for acl in entries]
        if values.force or _confirmed(question):
            results = await admin.delete_acls(filters)
            _raise_first([result for result in results if isinstance(result, KafkaError)])
            removed += [acl for result in results if isinstance(result, list) for acl in result]
    if values.output == "json":
        print_json({"removed": [_json(acl) for acl in sorted(set(removed))]})


def _exactly(resource: AclFilter, acl: Acl) -> AclFilter:
    return resource._replace(
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission_type,
    )


def _confirmed(question: str) -> bool:
    print(question)
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() == "y"


# ---- list


async def _list(admin: AclAdmin, values: Values) -> None:
    filters = resource_filters(values) or [AclFilter()]
    _print_list(values, {acl for each in filters for acl in await admin.describe_acls(each)})


async def _list_then(values: Values, moment: Moment) -> int:
    filters = resource_filters(values) or [AclFilter()]
    async with connected(values, client_id="acls-tool") as cluster:
        state, _ = await past_state(cluster, moment)
    known = access_entries(state)
    _print_list(values, {acl for acl in known if any(each.matches(acl) for each in filters)})
    return 0


def _print_list(values: Values, acls: set[Acl]) -> None:
    found = sorted(acls)
    principals: Sequence[str] = list(dict.fromkeys(one.strip() for one in values.principal))
    if values.output == "json":
        print_json([_json(acl) for acl in found if not principals or acl.principal in principals])
    elif not principals:
        _print_resources(found)
    else:
        for principal in principals:
            print(f"ACLs for principal `{principal}`")
            _print_resources(acl for acl in found if acl.principal == principal)


def _print_resources(acls: Iterable[Acl]) -> None:
    by_pattern: dict[Pattern, list[Acl]] = {}
    for acl in acls:
        pattern = acl.resource_type, acl.resource_name, acl.pattern_type
        by_pattern.setdefault(pattern, []).append(acl)
    for entries in by_pattern.values():
        print(f"Current ACLs for resource `{pattern_text(entries[0])}`:")
        print("\n".join(f"\t{entry_text(acl)}" for acl in entries) + "\n")


def _print_entries(head: str, acls: Iterable[Acl]) -> None:
    lines = "\n".join(f"\t{entry_text(acl)}" for acl in acls)
    print(f"{head}\n {lines}\n")


def _raise_first(errors: Iterable[KafkaError | None]) -> None:
    for error in errors:
        if error is not None:
            raise CommandError(error.detail or error.code.name)


def _json(acl: Acl) -> dict[str, str]:
    return {
        "resourceType": AclResourceType(acl.resource_type).name,
        "name": acl.resource_name,
        "patternType": PatternType(acl.pattern_type).name,
        "principal": acl.principal,
        "host": acl.host,
        "operation": AclOperation(acl.operation).name,
        "permissionType": AclPermissionType(acl.permission_type).name,
    }
