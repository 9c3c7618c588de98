"""A config of a topic, a broker, all brokers or a group that an editor sets or resets."""

from __future__ import annotations

from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING, Any, Self

from sparkraft.base.errors import KafkaError
from sparkraft.client.errors import PlanError
from sparkraft.client.values import ConfigEntry, ConfigOperation, ConfigSource, ResourceType
from sparkraft.console.change import Difference, Plan, raise_refusal, text_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkraft.client.leadership import LeadershipAdmin
    from sparkraft.client.values import Resource

VALUE_CHARS_MAX = 32_000
"""Kafka's own limit of a config's value is an int16."""

HIDDEN = "(hidden)"

ALL_BROKERS = (ResourceType.BROKER, "")
"""The defaults of all brokers."""

RESOURCES = {
    "topic": (ResourceType.TOPIC, ConfigSource.DYNAMIC_TOPIC_CONFIG),
    "broker": (ResourceType.BROKER, ConfigSource.DYNAMIC_BROKER_CONFIG),
    "group": (ResourceType.GROUP, ConfigSource.DYNAMIC_GROUP_CONFIG),
}
"""By the name in a request: the type, and the source of values that are set for one of it."""


def resource_of(kind: str, name: str) -> Resource:
    """The resource that a request names; the name "" stands for all brokers.

    Raises:
        ValueError: it cannot have configs.
    """
    if kind not in RESOURCES:
        raise ValueError(f"a config belongs to a {', '.join(RESOURCES)}, not to {kind[:60]!r}")
    if kind == "broker" and name and not name.isdecimal():
        raise ValueError(f"a broker's name is a number, not {name[:60]!r}")
    if kind != "broker" and not name:
        raise ValueError(f"the name of the {kind} is missing")
    return RESOURCES[kind][0], name


def own_source(resource: Resource) -> ConfigSource:
    """The source of values that are set for this resource itself."""
    if resource == ALL_BROKERS:
        return ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    return next(source for each, source in RESOURCES.values() if each is resource[0])


def _value_of(entry: ConfigEntry, source: ConfigSource) -> str | None:
    return next((each.value for each in entry.synonyms if each.source is source), None)


def inherited(entry: ConfigEntry, own: ConfigSource) -> str | None:
    """The value without the one that is set for the resource itself; None if it is unknown."""
    return next((each.value for each in entry.synonyms if each.source is not own), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterConfig:
    """`{"resource": "topic" | "broker" | "group", "name", "config", "value"}`.

    A value of null removes the config, so that the inherited value counts.
    """

    kind: str
    resource: Resource
    config: str
    value: str | None

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Self:
        kind, value = text_of(document, "resource"), document["value"]
        if value is not None and (not isinstance(value, str) or len(value) > VALUE_CHARS_MAX):
            raise ValueError(
                f"value must be null or a text of at most {VALUE_CHARS_MAX} characters"
            )
        resource = resource_of(kind, str(document["name"]))
        return cls(kind=kind, resource=resource, config=text_of(document, "config"), value=value)

    @property
    def _subject(self) -> str:
        return f"{self.kind} {self.resource[1]}" if self.resource[1] else "all brokers"

    @property
    def wish(self) -> str:
        return f"change the config {self.config!r} of {self._subject}"

    async def _entry(self, admin: LeadershipAdmin) -> ConfigEntry | None:
        """The config now; None if the cluster does not know it."""
        resource = self.resource
        if resource == ALL_BROKERS:
            # Of all brokers only what is set is described; each broker describes every config.
            nodes = (await admin.describe_cluster()).nodes
            resource = (ResourceType.BROKER, str(nodes[0].id))
        found = (await admin.describe_configs([resource]))[resource]
        if isinstance(found, KafkaError):
            raise found
        return next((entry for entry in found if entry.name == self.config), None)

    async def _alter(self, admin: LeadershipAdmin, *, validate_only: bool) -> None:
        operation = ConfigOperation.DELETE if self.value is None else ConfigOperation.SET
        changes = {self.resource: [(self.config, operation, self.value)]}
        raise_refusal((await admin.alter_configs(changes, validate_only=validate_only)).values())

    async def plan(self, admin: LeadershipAdmin, servers: str) -> Plan:
        own, entry = own_source(self.resource), await self._entry(admin)
        is_own = entry is not None and any(each.source is own for each in entry.synonyms)
        if self.value is None and not is_own:
            raise PlanError(f"{self.config} is not set for {self._subject}")
        await self._alter(admin, validate_only=True)
        is_secret = _is_secret(entry)
        before: str | None = HIDDEN
        after: str | None = HIDDEN
        if entry is not None and not is_secret:
            is_default = self.resource == ALL_BROKERS
            before = _value_of(entry, own) if is_default else entry.value
            after = self.value
            if after is None and not is_default:
                after = inherited(entry, own)
        does = "is set" if self.value is not None else "is removed"
        return Plan(
            sentence=f"{self.config} {does} for {self._subject}.",
            differences=[Difference(what=self.config, before=before, after=after)],
            command=self._command(servers, is_secret=is_secret),
        )

    def _command(self, servers: str, *, is_secret: bool) -> str | None:
        kind, name = self.resource
        entity = f"--entity-name {quote(name)}" if name else "--entity-default"
        command = (
            f"sparkraft configs --bootstrap-server {servers} --alter "
            f"--entity-type {kind.name.lower()}s {entity}"
        )
        if self.value is None:
            return f"{command} --delete-config {quote(self.config)}"
        if is_secret:
            return f'{command} --add-config {self.config}="$VALUE"'
        # The tool takes a list in brackets and drops spaces around a value.
        if any(c in self.value for c in "[]\n\\") or self.value != self.value.strip():
            return None
        value = f"[{self.value}]" if "," in self.value else self.value
        return f"{command} --add-config {quote(f'{self.config}={value}')}"

    async def apply(self, admin: LeadershipAdmin) -> str:
        is_secret = _is_secret(await self._entry(admin))
        await self._alter(admin, validate_only=False)
        if self.value is None:
            return f"removed the config {self.config!r} of {self._subject}"
        value = HIDDEN if is_secret else repr(self.value)
        return f"set the config {self.config!r} of {self._subject} to {value}"


def _is_secret(entry: ConfigEntry | None) -> bool:
    """Whether the value must not be shown: also if the cluster does not know the config."""
    return entry is None or entry.is_sensitive
