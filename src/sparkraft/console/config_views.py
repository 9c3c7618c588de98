"""Configs of a topic, a broker, all brokers or a group: value, source, default, documentation."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import KafkaError
from sparkraft.client.admin import Admin
from sparkraft.client.values import ConfigEntry, ConfigSource, ResourceType
from sparkraft.console.config_changes import own_source, resource_of

if TYPE_CHECKING:
    from sparkraft.client.cluster import Cluster

Json = dict[str, Any]


class ConfigViews:
    """Documents of configs; a request raises the `KafkaError` of the cluster."""

    def __init__(self, cluster: Cluster, *, bootstrap: str) -> None:
        """Use `cluster`, which commands name as `bootstrap`."""
        self._admin = Admin(cluster)
        self._bootstrap = bootstrap

    async def configs(self, kind: str, name: str) -> Json:
        """All configs of a resource; the name "" stands for the defaults of all brokers.

        Raises:
            ValueError: the resource cannot have configs.
        """
        resource = resource_of(kind, name)
        described = await self._admin.describe_configs([resource], documentation=True)
        found = described[resource]
        if isinstance(found, KafkaError):
            raise found
        own = own_source(resource)
        return {
            "resource": kind,
            "name": name,
            "configs": [
                entry_json(entry, own) for entry in sorted(found, key=lambda each: each.name)
            ],
            "command": self._command(resource[0], name),
        }

    def _command(self, kind: ResourceType, name: str) -> str:
        entity = f"--entity-name {quote(name)} --all" if name else "--entity-default"
        return (
            f"sparkraft configs --describe --entity-type {kind.name.lower()}s {entity} "
            f"--bootstrap-server {self._bootstrap}"
        )


def entry_json(entry: ConfigEntry, own: ConfigSource) -> Json:
    """A config for a page; `own` is the source of values that are set for the resource itself."""
    defaults = [one for one in entry.synonyms if one.source is ConfigSource.DEFAULT_CONFIG]
    is_default = entry.source is ConfigSource.DEFAULT_CONFIG
    return {
        "name": entry.name,
        "value": entry.value,
        "source": entry.source.name,
        "isOwn": any(one.source is own for one in entry.synonyms),
        "isReadOnly": entry.is_read_only,
        "isSensitive": entry.is_sensitive,
        "isDefault": is_default,
        # Kafka lists no synonyms for a config whose default has another unit, as retention.ms.
        "default": defaults[0].value if defaults else entry.value if is_default else None,
        "hasDefault": bool(defaults) or is_default,
        "documentation": entry.documentation or "",
        "synonyms": [
            {"source": one.source.name, "name": one.name, "value": one.value}
            for one in entry.synonyms
        ],
    }
