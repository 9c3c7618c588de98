"""Configs, access control entries, users and quotas as of an offset of the metadata log.

Each document has the shape of the present one (`config_views`, `security_views`), so the same
screens draw both. Only what was set dynamically is in the log: no defaults, no documentation and
no configs of files.
"""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Any

from sparkraft.client.past.settings import (
    access_entries,
    client_quotas,
    config_entries,
    scram_users,
)
from sparkraft.console.config_changes import own_source, resource_of
from sparkraft.console.config_views import entry_json
from sparkraft.console.security_views import (
    COMMANDS,
    ENTITIES,
    Question,
    acl_json,
    quotas_json,
    rows_json,
    security_json,
    users_json,
)

if TYPE_CHECKING:
    from sparkraft.client.past.state import PastState
    from sparkraft.console.timeline import Timeline

Json = dict[str, Any]


class PastSettings:
    """See the module docstring; a request raises KafkaError for a moment that is not known."""

    def __init__(self, timeline: Timeline, *, bootstrap: str) -> None:
        """Use `timeline`, of the cluster that commands name as `bootstrap`."""
        self._timeline = timeline
        self._bootstrap = bootstrap

    async def configs(self, kind: str, name: str, at_offset: int) -> Json:
        """The configs that were set on a resource; the name "" stands for all brokers.

        Raises:
            ValueError: the resource cannot have configs.
        """
        resource = resource_of(kind, name)
        entries = await self._timeline.as_of(
            at_offset, lambda state: config_entries(state, resource)
        )
        own = own_source(resource)
        entity = f"--entity-name {quote(name)} --all" if name else "--entity-default"
        words = f"configs --describe --entity-type {resource[0].name.lower()}s {entity}"
        return {
            "resource": kind,
            "name": name,
            "configs": [entry_json(entry, own) for entry in entries],
            "command": self._command(words, at_offset),
        }

    async def security(self, at_offset: int) -> Json:
        """Access control entries, users with SCRAM credentials, and quotas."""
        commands = [self._command(words, at_offset) for words in COMMANDS]
        return await self._timeline.as_of(at_offset, lambda state: _security(state, commands))

    async def who_may(self, operation: str, kind: str, name: str, at_offset: int) -> Json:
        """The principals that could do `operation` to the resource `name` of type `kind`.

        Raises:
            ValueError: an unknown operation or type, or no name.
        """
        question = Question.parse(operation, kind, name)
        answer = await self._timeline.as_of(
            at_offset, lambda state: question.answer(access_entries(state))
        )
        return {**answer, "command": self._command(question.command, at_offset)}

    def _command(self, words: str, at_offset: int) -> str:
        return f"sparkraft {words} --at-offset {at_offset} --bootstrap-server {self._bootstrap}"


def _security(state: PastState, commands: list[str]) -> Json:
    quotas = [client_quotas(state, dict.fromkeys(types)) for types in ENTITIES]
    return security_json(
        acls=rows_json([acl_json(acl) for acl in access_entries(state)]),
        users=rows_json(users_json(scram_users(state))),
        quotas=rows_json([row for found in quotas for row in quotas_json(found)]),
        commands=commands,
    )
