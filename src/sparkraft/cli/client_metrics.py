"""`client-metrics`: which metrics clients push, as `kafka-client-metrics.sh` (KIP-714).

A subscription is a config resource; the command reads and changes its keys `metrics`,
`interval.ms` and `match`. Brokers offer it with `sparkraft.telemetry.enable`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkraft.base.env import random_uuid
from sparkraft.base.errors import KafkaError
from sparkraft.cli.errors import UsageError
from sparkraft.cli.options import Options, Values, exactly_one
from sparkraft.cli.session import connected, print_json, run
from sparkraft.client.admin import Admin
from sparkraft.client.values import ConfigOperation, ConfigSource, ResourceType
from sparkraft.server.env import SystemEntropy

if TYPE_CHECKING:
    from collections.abc import Iterable

_KEYS = {"metrics": "metrics", "interval": "interval.ms", "match": "match"}


def main(argv: list[str]) -> int:
    """Run one action; 1 if the cluster refuses."""
    options = Options("client-metrics", "Lists, describes and changes what clients push.")
    options.connection()
    options.flag("--list", "print the names of the subscriptions")
    options.flag("--describe", "print a subscription, or all of them")
    options.flag("--alter", "create or change a subscription")
    options.flag("--delete", "delete a subscription")
    options.value("--name", about="the subscription")
    options.flag("--generate-name", "with --alter: choose a name")
    options.value("--metrics", about="prefixes of names, separated by commas; * for all")
    options.value("--interval", about="milliseconds between two pushes, 100 to 3600000")
    options.value(
        "--match",
        about="parameter=regular expression, separated by commas; parameters: client_instance_id, "
        "client_id, client_software_name, client_software_version, client_source_address, "
        "client_source_port",
    )
    options.output()
    values = options.parse(argv)
    action = exactly_one(values, _ACTIONS)
    _check(values, action)
    return run(_ACTIONS[action](values))


def _check(values: Values, action: str) -> None:
    changes = [option for option in _KEYS if getattr(values, option) is not None]
    if action != "--alter" and (changes or values.generate_name):
        raise UsageError("--metrics, --interval, --match and --generate-name go with --alter")
    if action == "--alter":
        if (values.name is None) == (not values.generate_name):
            raise UsageError("--alter needs either --name or --generate-name")
        if not changes:
            raise UsageError("--alter needs --metrics, --interval or --match")
    if action == "--delete" and values.name is None:
        raise UsageError("--delete needs --name")


async def _list(values: Values) -> int:
    async with connected(values, client_id="client-metrics") as cluster:
        names = await Admin(cluster).list_config_resources(ResourceType.CLIENT_METRICS)
    if values.output == "json":
        print_json(names)
    else:
        print("\n".join(names))
    return 0


async def _describe(values: Values) -> int:
    shown: list[dict[str, Any]] = []
    async with connected(values, client_id="client-metrics") as cluster:
        admin = Admin(cluster)
        names = await admin.list_config_resources(ResourceType.CLIENT_METRICS)
        if values.name is not None:
            if values.name not in names:
                print(f"The client metric resource {values.name} doesn't exist")
                return 0
            names = [values.name]
        for name in names:
            configs = await _own_configs(admin, name)
            shown.append({"name": name, "configs": configs})
            if values.output == "text":
                print(f"Client metrics configs for {name} are:")
                for key, value in configs.items():
                    print(f"  {key}={value}")
    if values.output == "json":
        print_json(shown)
    return 0


async def _alter(values: Values) -> int:
    name = values.name or str(random_uuid(SystemEntropy()))
    changes = [
        (key, ConfigOperation.SET, getattr(values, option))
        for option, key in _KEYS.items()
        if getattr(values, option) is not None
    ]
    async with connected(values, client_id="client-metrics") as cluster:
        await _change(Admin(cluster), name, changes)
    _report(values, name, "Altered")
    return 0


async def _delete(values: Values) -> int:
    async with connected(values, client_id="client-metrics") as cluster:
        admin = Admin(cluster)
        keys = await _own_configs(admin, values.name)
        changes = [(key, ConfigOperation.DELETE, None) for key in keys]
        if changes:
            await _change(admin, values.name, changes)
    _report(values, values.name, "Deleted")
    return 0


async def _own_configs(admin: Admin, name: str) -> dict[str, str]:
    resource = (ResourceType.CLIENT_METRICS, name)
    found = (await admin.describe_configs([resource]))[resource]
    if isinstance(found, KafkaError):
        raise found
    own = ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG
    return {each.name: each.value or "" for each in found if each.source is own}


async def _change(
    admin: Admin, name: str, changes: Iterable[tuple[str, ConfigOperation, str | None]]
) -> None:
    outcome = await admin.alter_configs({(ResourceType.CLIENT_METRICS, name): changes})
    for error in outcome.values():
        if error is not None:
            raise error


def _report(values: Values, name: str, done: str) -> None:
    if values.output == "json":
        print_json({"name": name})
    else:
        print(f"{done} client metrics config for {name}.")


_ACTIONS = {"--list": _list, "--describe": _describe, "--alter": _alter, "--delete": _delete}
