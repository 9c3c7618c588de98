"""Removes secrets from metadata records before they leave a node: the one rule for all readers.

As in Kafka's `RecordRedactor` and `MetadataNodeRedactionCriteria.Normal`: SCRAM salts and keys,
delegation tokens, and the values of configs that are passwords or unknown. A redacted record still
replays onto the same image, except that delegation tokens are missing from it.
"""

from collections.abc import Mapping
from typing import Any

from sparkraft.metadata.configs import (
    CLIENT_METRICS_CONFIGS,
    GROUP_CONFIGS,
    TOPIC_CONFIGS,
    ConfigDef,
)
from sparkraft.metadata.configs.broker import dynamic_definition_of
from sparkraft.metadata.image import ResourceType
from sparkraft.protocol.messages.metadata_records import (
    ConfigRecord,
    DelegationTokenRecord,
    NoOpRecord,
    RemoveDelegationTokenRecord,
    UserScramCredentialRecord,
)

REDACTED = "(redacted)"
"""Kafka's text."""

SECRET_TYPES = frozenset(
    cls.SCHEMA.key
    for cls in (
        ConfigRecord,
        DelegationTokenRecord,
        RemoveDelegationTokenRecord,
        UserScramCredentialRecord,
    )
)
"""Types of records that `redacted` may change."""

NO_CONFIGS: Mapping[str, ConfigDef] = {}

_DEFINITIONS: Mapping[int, Mapping[str, ConfigDef]] = {
    ResourceType.TOPIC: TOPIC_CONFIGS,
    ResourceType.GROUP: GROUP_CONFIGS,
    ResourceType.CLIENT_METRICS: CLIENT_METRICS_CONFIGS,
}


def is_sensitive(
    resource_type: int, key: str, *, extensions: Mapping[str, ConfigDef] = NO_CONFIGS
) -> bool:
    """Whether a config's value is secret; an unknown key may be a secret of a plug-in.

    Args:
        resource_type: the type of the resource that it is set on.
        key: its name.
        extensions: broker configs of this node that Kafka does not have.
    """
    if resource_type == ResourceType.BROKER:
        definition = extensions.get(key) or dynamic_definition_of(key)
    else:
        definition = _DEFINITIONS.get(resource_type, NO_CONFIGS).get(key)
    return definition is None or definition.sensitive


def redacted(record: Any, *, extensions: Mapping[str, ConfigDef] = NO_CONFIGS) -> Any:
    """Return `record` without its secrets: itself, a copy, or a NoOpRecord for a token."""
    kind = type(record)
    if kind is ConfigRecord:
        if record.value is None or not is_sensitive(
            record.resource_type, record.name, extensions=extensions
        ):
            return record
        return ConfigRecord(
            resource_type=record.resource_type,
            resource_name=record.resource_name,
            name=record.name,
            value=REDACTED,
        )
    if kind is UserScramCredentialRecord:
        return UserScramCredentialRecord(
            name=record.name, mechanism=record.mechanism, iterations=record.iterations
        )
    if kind in {DelegationTokenRecord, RemoveDelegationTokenRecord}:
        return NoOpRecord()
    return record
