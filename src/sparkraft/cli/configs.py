"""`configs`: configs of topics, brokers, groups; log levels; users; as `kafka-configs.sh`.

Not here: quotas of users, clients and ips (`quota_configs`), SCRAM credentials (`user_scram`).
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import KafkaError
from sparkraft.cli.errors import CommandError, UsageError
from sparkraft.cli.moment_options import Moment, add_moment, moment_of, past_state
from sparkraft.cli.options import Options, Values, exactly_one, only_with
from sparkraft.cli.quota_configs import (
    QUOTA_KINDS,
    Entities,
    alter_clients,
    describe_clients,
)
from sparkraft.cli.session import connected, print_json, run
from sparkraft.cli.zookeeper_session import add_security
from sparkraft.client.admin import Admin
from sparkraft.client.groups import Groups
from sparkraft.client.past.settings import config_entries, configured_names
from sparkraft.client.values import ConfigEntry, ConfigOperation, ConfigSource, ResourceType

if TYPE_CHECKING:
    from sparkraft.client.cluster import Cluster
    from sparkraft.client.past.state import PastState

_KINDS = {
    "topics": (ResourceType.TOPIC, ConfigSource.DYNAMIC_TOPIC_CONFIG),
    "brokers": (ResourceType.BROKER, ConfigSource.DYNAMIC_BROKER_CONFIG),
    "broker-loggers": (
        ResourceType.BROKER_LOGGER,
        ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
    ),
    "groups": (ResourceType.GROUP, ConfigSource.DYNAMIC_GROUP_CONFIG),
    "client-metrics": (ResourceType.CLIENT_METRICS, ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG),
}
_OF_A_BROKER = {"brokers", "broker-loggers"}
_SHORT = {
    "topic": "topics",
    "broker": "brokers",
    "group": "groups",
    "client_metrics": "client-metrics",
    "user": "users",
    "client": "clients",
    "ip": "ips",
    "broker_logger": "broker-loggers",
}
_SHORT_DEFAULTS = {
    "broker_defaults": "brokers",
    "user_defaults": "users",
    "client_defaults": "clients",
    "ip_defaults": "ips",
}
_KEY = re.compile(r"[a-zA-Z0-9._-]+")
_OUTSIDE_BRACKETS = re.compile(r",(?=[^\]]*(?:\[|$))")


@dataclass(frozen=True, slots=True)
class _Entity:
    """A resource to describe or alter: a kind and a name; None is all, "" the default."""

    kind: str
    name: str | None

    @property
    def resource_type(self) -> ResourceType:
        return _KINDS[self.kind][0]

    @property
    def own_source(self) -> ConfigSource:
        if self.kind == "brokers" and not self.name:
            return ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        return _KINDS[self.kind][1]

    @property
    def singular(self) -> str:
        return self.kind[:-1]


def _options() -> Options:
    options = Options(
        "configs",
        "Shows and changes configs of topics, brokers and groups, log levels of brokers, quotas, "
        "and SCRAM credentials of users.",
    )
    options.connection(controllers=True)
    options.flag("--describe", "list configs")
    options.flag("--alter", "change configs")
    options.flag(
        "--all",
        "with --describe: all configs, defaults and static ones included; with --at-offset and "
        "--at-time: of a broker also those of all brokers",
    )
    options.values(
        "--entity-type",
        about=f"one of {', '.join((*_KINDS, *QUOTA_KINDS))}; users and clients go together",
    )
    options.values("--entity-name", about="its name; of a broker its id", dest="entity_names")
    options.add_argument(
        "--entity-default",
        help="instead of a name: the default of all brokers, users, clients or ips",
        dest="entity_names",
        action="append_const",
        const="",
    )
    for name, kind in _SHORT.items():
        option = "--" + name.replace("_", "-")
        options.value(
            option,
            about=f"short for --entity-type {kind} --entity-name NAME",
            metavar="NAME",
        )
    for name, kind in _SHORT_DEFAULTS.items():
        option = "--" + name.replace("_", "-")
        options.flag(option, f"short for --entity-type {kind} --entity-default")
    add_moment(options)
    options.value("--add-config", about="k1=v1,k2=[v1,v2],k3=v3")
    options.value("--add-config-file", about="a properties file with configs", metavar="FILE")
    options.value("--delete-config", about="k1,k2: back to their defaults")
    options.value(
        "--zookeeper",
        about="with --alter: SCRAM credentials of a user, before brokers in ZooKeeper mode start",
        metavar="HOST:PORT[/chroot]",
    )
    add_security(options)
    options.output()
    return options


def main(argv: list[str]) -> int:
    """Describe or alter."""
    values = _options().parse(argv)
    action = exactly_one(values, ["--describe", "--alter"])
    only_with(values, ["--add-config", "--add-config-file", "--delete-config"], "--alter")
    entities = _entities(values)
    moment = _moment(values, entities)
    only_with(values, ["--zk-tls-config-file"], "--zookeeper")
    if values.zookeeper is not None:
        if action != "--alter" or values.bootstrap_server or values.bootstrap_controller:
            raise UsageError("--zookeeper goes with --alter, and without servers to connect to")
        from sparkraft.cli.zookeeper_users import alter_in_zookeeper

        return run(alter_in_zookeeper(values, entities, _changes(values)))
    if set(entities) <= set(QUOTA_KINDS):
        if action == "--describe":
            return run(describe_clients(values, entities, moment))
        return run(alter_clients(values, entities, _changes(values)))
    entity = _entity(entities)
    if action == "--alter":
        if entity.name is None:
            raise UsageError("--alter needs --entity-name or --entity-default")
        changes = _changes(values)
        return run(_alter(values, entity, changes))
    if moment is not None:
        return run(_describe_then(values, entity, moment))
    return run(_describe(values, entity))


def _moment(values: Values, entities: Entities) -> Moment | None:
    """The moment to describe; the metadata log has only what was set dynamically."""
    moment = moment_of(values)
    if moment is None:
        return None
    if not values.describe:
        raise UsageError("--at-offset and --at-time go only with --describe")
    if "broker-loggers" in entities:
        raise UsageError("levels of loggers are not in the metadata log; leave out --at-offset")
    return moment


def _entities(values: Values) -> Entities:
    """The kinds that are given, in their order, each with the name at its place."""
    kinds = list(values.entity_type)
    names = list(values.entity_names)
    for field, kind in _SHORT.items():
        if getattr(values, field) is not None:
            kinds.append(kind)
            names.append(getattr(values, field))
    for field, kind in _SHORT_DEFAULTS.items():
        if getattr(values, field):
            kinds.append(kind)
            names.append("")
    if not kinds:
        raise UsageError("name one entity: --entity-type and --entity-name, or --topic, --broker …")
    unknown = [kind for kind in kinds if kind not in _KINDS and kind not in QUOTA_KINDS]
    if unknown:
        known = ", ".join((*_KINDS, *QUOTA_KINDS))
        raise UsageError(f"--entity-type is one of {known}, not {unknown[0]}")
    if len(set(kinds)) != len(kinds):
        raise UsageError(f"Duplicate entity type(s) specified: {','.join(kinds)}")
    if len(kinds) > 1 and set(kinds) != {"users", "clients"}:
        raise UsageError("Only 'users' and 'clients' entity types may be specified together")
    if len(names) > len(kinds):
        raise UsageError("give --entity-name or --entity-default once for each --entity-type")
    return dict(zip_longest(kinds, names))


def _entity(entities: Entities) -> _Entity:
    ((kind, name),) = entities.items()
    entity = _Entity(kind, name)
    if entity.kind == "broker-loggers" and not entity.name:
        raise UsageError("--entity-type broker-loggers needs --entity-name, the broker's id")
    if entity.kind in _OF_A_BROKER and entity.name and not entity.name.isdigit():
        raise UsageError(f"a broker's name is its id, a number, not {entity.name!r}")
    return entity


def _changes(values: Values) -> list[tuple[str, ConfigOperation, str | None]]:
    added: dict[str, str] = {}
    if values.add_config_file:
        from sparkraft.server.properties import parse_properties

        added.update(parse_properties(Path(values.add_config_file).read_text(encoding="utf-8")))
    if values.add_config:
        added.update(_parse_added(values.add_config))
    removed = [key.strip() for key in (values.delete_config or "").split(",") if key.strip()]
    for key in (*added, *removed):
        if not _KEY.fullmatch(key):
            raise UsageError(f"{key!r} is not a config name")
    if not added and not removed:
        raise UsageError("--alter needs --add-config, --add-config-file or --delete-config")
    deletions = [(key, ConfigOperation.DELETE, "") for key in removed]
    return [*deletions, *((key, ConfigOperation.SET, value) for key, value in added.items())]


def _parse_added(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in _OUTSIDE_BRACKETS.split(text):
        key, equals, value = entry.partition("=")
        if not equals:
            raise UsageError(f"--add-config wants key=value or key=[v1,v2], not {entry!r}")
        found[key.strip()] = value.replace("[", "").replace("]", "").strip()
    return found


async def _alter(
    values: Values, entity: _Entity, changes: list[tuple[str, ConfigOperation, str | None]]
) -> int:
    async with connected(values, client_id="configs") as cluster:
        admin = Admin(cluster)
        resource = (entity.resource_type, entity.name or "")
        gone = {key for key, operation, _ in changes if operation is ConfigOperation.DELETE}
        if entity.kind == "broker-loggers":
            await _check_loggers(admin, entity, [key for key, _, _ in changes])
        elif gone:
            known = {
                entry.name
                for entry in await _configs(admin, entity, entity.name or "")
                if entry.source is entity.own_source
            }
            if gone - known:
                raise CommandError(f"not set, so not to delete: {', '.join(sorted(gone - known))}")
        error = (await admin.alter_configs({resource: changes}))[resource]
        if error is not None:
            raise error
    if values.output == "text":
        if entity.name:
            print(f"Completed updating config for {entity.singular} {entity.name}.")
        else:
            print(f"Completed updating default config for {entity.kind} in the cluster.")
    return 0


async def _check_loggers(admin: Admin, entity: _Entity, names: list[str]) -> None:
    known = {entry.name for entry in await _configs(admin, entity, entity.name or "")}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise CommandError(f"Invalid broker logger(s): {','.join(unknown)}")


async def _configs(admin: Admin, entity: _Entity, name: str) -> list[ConfigEntry]:
    resource = (entity.resource_type, name)
    found = (await admin.describe_configs([resource]))[resource]
    if isinstance(found, KafkaError):
        raise found
    return sorted(found, key=lambda entry: entry.name)


async def _describe(values: Values, entity: _Entity) -> int:
    found: list[_Described] = []
    async with connected(values, client_id="configs") as cluster:
        admin = Admin(cluster)
        for name in await _names(cluster, admin, entity):
            one = _Entity(entity.kind, name)
            is_known = values.all or await _exists(cluster, admin, one)
            found.append((one, await _configs(admin, one, name) if is_known else None))
    _show(values, found, is_whole=values.all)
    return 0


async def _describe_then(values: Values, entity: _Entity, moment: Moment) -> int:
    async with connected(values, client_id="configs") as cluster:
        state, _ = await past_state(cluster, moment)
    known = _names_then(state, entity)
    found: list[_Described] = []
    for name in known if entity.name is None else [entity.name]:
        one = _Entity(entity.kind, name)
        entries = config_entries(state, (one.resource_type, name))
        found.append((one, entries if entries or name in {"", *known} else None))
    _show(values, found, is_whole=False)
    return 0


def _names_then(state: PastState, entity: _Entity) -> list[str]:
    match entity.kind:
        case "topics":
            return sorted(state.topic_ids)
        case "brokers":
            return [*map(str, sorted(state.brokers)), ""]
        case _:
            return configured_names(state, entity.resource_type)


_Described = tuple[_Entity, list[ConfigEntry] | None]
"""A resource with its configs; None if it does not exist."""


def _show(values: Values, found: list[_Described], *, is_whole: bool) -> None:
    shown: list[dict[str, Any]] = []
    for one, known in found:
        if known is None:
            print(
                f"The {one.singular} '{one.name}' doesn't exist and doesn't have dynamic config.",
                file=sys.stderr if values.output == "json" else sys.stdout,
            )
            continue
        entries = known
        if not values.all:
            entries = [entry for entry in known if entry.source is one.own_source]
        if values.output == "json":
            shown.append(_as_json(one, entries))
        else:
            _print(one, entries, is_all=is_whole)
    if values.output == "json":
        print_json(shown)


async def _names(cluster: Cluster, admin: Admin, entity: _Entity) -> list[str]:
    if entity.name is not None:
        return [entity.name]
    match entity.kind:
        case "topics":
            return list(await admin.list_topics())
        case "brokers" | "broker-loggers":
            return [*(str(node.id) for node in (await admin.describe_cluster()).nodes), ""]
        case "groups":
            groups = {group.id for group in await Groups(cluster).list()}
            return sorted(groups | set(await admin.list_config_resources(ResourceType.GROUP)))
        case _:
            return await admin.list_config_resources(ResourceType.CLIENT_METRICS)


async def _exists(cluster: Cluster, admin: Admin, entity: _Entity) -> bool:
    if not entity.name or cluster.to_controllers:
        return True
    return entity.name in await _names(cluster, admin, _Entity(entity.kind, None))


def _print(entity: _Entity, entries: list[ConfigEntry], *, is_all: bool) -> None:
    if entity.name:
        print(f"{'All' if is_all else 'Dynamic'} configs for {entity.singular} {entity.name} are:")
    else:
        print(f"Default configs for {entity.kind} in the cluster are:")
    for entry in entries:
        synonyms = ", ".join(f"{s.source.name}:{s.name}={_text(s.value)}" for s in entry.synonyms)
        sensitive = str(entry.is_sensitive).lower()
        print(f"  {entry.name}={_text(entry.value)} sensitive={sensitive} synonyms={{{synonyms}}}")


def _text(value: str | None) -> str:
    return "null" if value is None else value


def _as_json(entity: _Entity, entries: list[ConfigEntry]) -> dict[str, Any]:
    return {
        "entityType": entity.kind,
        "entityName": entity.name,
        "configs": [
            {
                "name": entry.name,
                "value": entry.value,
                "source": entry.source.name,
                "sensitive": entry.is_sensitive,
                "readOnly": entry.is_read_only,
                "synonyms": [
                    {"source": s.source.name, "name": s.name, "value": s.value}
                    for s in entry.synonyms
                ],
            }
            for entry in entries
        ],
    }
