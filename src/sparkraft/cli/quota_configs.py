"""The part of `configs` for users, clients and ips: their quotas, as in `kafka-configs.sh`."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from sparkraft.cli.errors import CommandError, UsageError
from sparkraft.cli.moment_options import past_state
from sparkraft.cli.session import connected, print_json
from sparkraft.cli.user_scram import alter_user, credentials_json, print_credentials
from sparkraft.client.past.settings import client_quotas, scram_users
from sparkraft.client.quota_admin import QuotaAdmin
from sparkraft.client.scram_admin import ScramAdmin
from sparkraft.client.values import ConfigOperation
from sparkraft.security.quotas import (
    CLIENT_ID,
    IP,
    IP_KEYS,
    USER,
    USER_AND_CLIENT_KEYS,
    quota_entity,
)
from sparkraft.security.scram import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sparkraft.cli.moment_options import Moment
    from sparkraft.cli.options import Values
    from sparkraft.security.quotas import QuotaEntity

QUOTA_KINDS = {"users": USER, "clients": CLIENT_ID, "ips": IP}
"""The option's word → type of entity."""

_SHOWN = {USER: "user-principal", CLIENT_ID: "client-id", IP: "ip"}

Change = tuple[str, ConfigOperation, "str | None"]

Entities = dict[str, "str | None"]
"""The option's word → a name, "" for the default, None if no name is given."""


async def alter_clients(values: Values, entities: Entities, changes: Sequence[Change]) -> int:
    """Change quotas of one entity, or SCRAM credentials of one user."""
    if None in entities.values():
        raise UsageError("An entity name must be specified for every entity type")
    keys = [key for key, _, _ in changes]
    if list(entities) != ["users"] or not any(key in BY_NAME for key in keys):
        _check_keys(entities, keys)
        return await _alter_quotas(values, entities, changes)
    user = entities["users"]
    if not user:
        raise UsageError(
            "The use of --entity-default or --user-defaults is not allowed with User SCRAM "
            "Credentials using --bootstrap-server."
        )
    if any(key in USER_AND_CLIENT_KEYS for key in keys):
        raise UsageError(
            "Cannot alter both quota and SCRAM credential configs simultaneously for 'users' using "
            "--bootstrap-server."
        )
    return await alter_user(values, user, changes)


def _check_keys(entities: Entities, keys: Sequence[str]) -> None:
    """`UsageError` unless all keys are quotas of the entities."""
    known = IP_KEYS if "ips" in entities else USER_AND_CLIENT_KEYS
    unknown = [key for key in keys if key not in known]
    if not unknown:
        return
    if "ips" in entities:
        words = "connection quota configs can be added for 'ips'"
    elif list(entities) == ["users"]:
        words = "quota and SCRAM credential configs can be added for 'users'"
    else:
        words = "quota configs can be added for 'clients'"
    raise UsageError(
        f"Only {words} using --bootstrap-server. Unexpected config names: {','.join(unknown)}"
    )


async def _alter_quotas(values: Values, entities: Entities, changes: Sequence[Change]) -> int:
    wanted = {QUOTA_KINDS[kind]: name for kind, name in entities.items()}
    entity = quota_entity((kind, name or None) for kind, name in wanted.items())
    async with connected(values, client_id="configs") as cluster:
        admin = QuotaAdmin(cluster)
        known = (await admin.describe_client_quotas(wanted)).get(entity, {})
        new: dict[str, float | None] = {}
        for key, operation, text in changes:
            new[key] = None if operation is ConfigOperation.DELETE else _number(key, text or "")
        missing = [key for key, value in new.items() if value is None and key not in known]
        if missing:
            raise CommandError(f"Invalid config(s): {','.join(missing)}")
        error = await admin.alter_client_quotas(entity, new)
        if error is not None:
            raise error
    if values.output == "text":
        kind, name = next(iter(entities.items()))
        if name:
            print(f"Completed updating config for {kind[:-1]} {name}.")
        else:
            print(f"Completed updating default config for {kind} in the cluster.")
    return 0


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise CommandError(f"Cannot parse quota configuration value for {key}: {text}") from None


async def describe_clients(values: Values, entities: Entities, moment: Moment | None) -> int:
    """Print the quotas of entities with exactly these types, and SCRAM credentials of users."""
    wanted = {QUOTA_KINDS[kind]: name for kind, name in entities.items()}
    user = entities.get("users")
    has_users = list(entities) == ["users"] and user != ""
    users: dict[str, Any] = {}
    async with connected(values, client_id="configs") as cluster:
        if moment is not None:
            state, _ = await past_state(cluster, moment)
            found = client_quotas(state, wanted)
            known = scram_users(state) if has_users else {}
            users = {name: known[name] for name in known if user in {None, name}}
        else:
            found = await QuotaAdmin(cluster).describe_client_quotas(wanted)
            if has_users:
                users = await ScramAdmin(cluster).describe([] if user is None else [user])
    if values.output == "json":
        shown = [_json(entity, quotas) for entity, quotas in found.items()]
        print_json([*shown, *credentials_json(users)])
        return 0
    for entity, quotas in found.items():
        listed = ", ".join(f"{key}={java_double(value)}" for key, value in quotas.items())
        print(f"Quota configs for {_entity_text(entity)} are {listed}")
    print_credentials(users)
    return 0


def _entity_text(entity: QuotaEntity) -> str:
    names = dict(entity)
    return ", ".join(
        f"the default {shown}" if names[kind] is None else f"{shown} '{names[kind]}'"
        for kind, shown in _SHOWN.items()
        if kind in names
    )


def _json(entity: QuotaEntity, quotas: Mapping[str, float]) -> dict[str, Any]:
    return {"entity": dict(entity), "quotas": dict(quotas)}


def java_double(value: float) -> str:
    """A number as Java's `Double.toString` writes it: 1024.0, 1.0E7."""
    if 1e-3 <= abs(value) < 1e7 or value == 0:  # noqa: PLR2004 (the bounds of Double.toString)
        return repr(value)
    number = Decimal(repr(value)).normalize()
    digits = "".join(map(str, number.as_tuple().digits))
    sign = "-" if value < 0 else ""
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{number.adjusted()}"
