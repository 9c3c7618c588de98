"""Configs, access control entries, users and quotas of an earlier moment, as requests return them.

Only what was set dynamically is in the metadata log: no defaults and no configs of files. Nodes
hide the values of passwords and of unknown configs, which are None here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkraft.client.scram_admin import CredentialInfo
from sparkraft.client.values import ConfigEntry, ConfigSource, ConfigSynonym, ResourceType
from sparkraft.security.acls import Acl
from sparkraft.security.quotas import quota_entity
from sparkraft.security.scram import BY_TYPE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkraft.client.past.state import PastState
    from sparkraft.client.values import Resource
    from sparkraft.security.quotas import QuotaEntity

REDACTED = "(redacted)"
"""The text of nodes in the place of a secret."""

_SOURCES = {
    ResourceType.TOPIC: ConfigSource.DYNAMIC_TOPIC_CONFIG,
    ResourceType.BROKER: ConfigSource.DYNAMIC_BROKER_CONFIG,
    ResourceType.GROUP: ConfigSource.DYNAMIC_GROUP_CONFIG,
    ResourceType.CLIENT_METRICS: ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG,
}


def config_entries(state: PastState, resource: Resource) -> list[ConfigEntry]:
    """The configs that are set on a resource, by name; on a broker also those of all brokers."""
    sources = _layers(state, resource)
    names = sorted({name for _, configs in sources for name in configs})
    return [_entry(name, sources) for name in names]


def configured_names(state: PastState, kind: ResourceType) -> list[str]:
    """The resources of a type that have configs."""
    return sorted(name for each, name in state.configs if each == kind)


Layers = list[tuple[ConfigSource, "Mapping[str, str]"]]
"""Sources of configs by precedence."""


def _layers(state: PastState, resource: Resource) -> Layers:
    kind, name = resource
    found: Layers = []
    if name:
        found.append((_SOURCES[kind], state.configs.get((kind, name), {})))
    if kind is ResourceType.BROKER:
        of_all = state.configs.get((kind, ""), {})
        found.append((ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, of_all))
    return found


def _entry(name: str, sources: Layers) -> ConfigEntry:
    values = [(source, configs[name]) for source, configs in sources if name in configs]
    synonyms = tuple(
        ConfigSynonym(name=name, value=None if value == REDACTED else value, source=source)
        for source, value in values
    )
    return ConfigEntry(
        name=name,
        value=synonyms[0].value,
        source=synonyms[0].source,
        is_read_only=False,
        is_sensitive=any(value == REDACTED for _, value in values),
        synonyms=synonyms,
        documentation=None,
    )


def access_entries(state: PastState) -> list[Acl]:
    """All access control entries, in their order."""
    return sorted(Acl(*each) for each in state.acls.values())


def scram_users(state: PastState) -> dict[str, tuple[CredentialInfo, ...]]:
    """The credentials of each user that has some."""
    found: dict[str, tuple[CredentialInfo, ...]] = {}
    for kind, user in sorted(state.scram, key=lambda each: (each[1], each[0])):
        if kind in BY_TYPE:
            info = CredentialInfo(BY_TYPE[kind], state.scram[kind, user])
            found[user] = (*found.get(user, ()), info)
    return found


def client_quotas(
    state: PastState, wanted: Mapping[str, str | None]
) -> dict[QuotaEntity, dict[str, float]]:
    """The quotas of entities that have exactly the types in `wanted`.

    Args:
        state: the moment.
        wanted: entity type → a name, "" for the default of the type, None for any name.
    """
    found: dict[QuotaEntity, dict[str, float]] = {}
    for parts, quotas in state.quotas.items():
        entity = quota_entity(parts)
        names = dict(entity)
        if names.keys() == wanted.keys() and all(
            name is None or (name or None) == names[kind] for kind, name in wanted.items()
        ):
            found[entity] = dict(sorted(quotas.items()))
    return dict(sorted(found.items(), key=repr))
