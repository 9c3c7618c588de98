"""AlterUserScramCredentials while this node is the ZooKeeper controller.

The checks are those of KRaft mode (`controller.scram`), on credentials that were read just before;
the credentials of a user are written into its znode, beside its quotas. As Kafka 3.9
(`ZkAdminManager.alterUserScramCredentials`): a request may change several mechanisms of a user, and
nothing of a user is changed if one of its changes is refused.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import KafkaError
from sparkraft.controller.scram import alter_user_scram_credentials
from sparkraft.metadata.image import ScramCredential
from sparkraft.protocol.messages import k51_alter_user_scram_credentials as k51
from sparkraft.protocol.messages.metadata_records import UserScramCredentialRecord
from sparkraft.security.scram import BY_TYPE
from sparkraft.server.controller.submission import set_error
from sparkraft.server.zookeeper.images import of_newest_version
from sparkraft.zookeeper.znodes.credentials import encode_credential
from sparkraft.zookeeper.znodes.entities import sanitized

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sparkraft.controller.call import Call
    from sparkraft.controller.decision_context import DecisionContext
    from sparkraft.server.zookeeper.config_changes import ConfigChanges
    from sparkraft.server.zookeeper.configs import ZooKeeperConfigs

    Request = k51.AlterUserScramCredentialsRequest
    Result = k51.AlterUserScramCredentialsResult


class ScramChanges:
    """Serves the request; see the module docstring."""

    def __init__(
        self,
        present: "ZooKeeperConfigs",
        changes: "ConfigChanges",
        context: "Callable[[], DecisionContext]",
    ) -> None:
        """Prepare.

        Args:
            present: reads users into the image.
            changes: writes configs of users.
            context: for decisions on the present image.
        """
        self._present = present
        self._changes = changes
        self._context = context

    async def alter(self, call: "Call[Request]") -> k51.AlterUserScramCredentialsResponse:
        """AlterUserScramCredentials: one result per user."""
        request = call.request
        users = {each.name for each in request.deletions}
        users |= {each.name for each in request.upsertions}
        await self._present.read(_entity(user) for user in sorted(users) if user)
        results: dict[str, Result] = {}
        values: dict[str, dict[str, str | None]] = {}
        for part in _by_mechanism(request):
            decision = alter_user_scram_credentials(
                of_newest_version(self._context()), replace(call, request=part)
            )
            for result in decision.response.results:
                if result.user not in results or result.error_code:
                    results[result.user] = result
            for record, _ in decision.records:
                mechanism = BY_TYPE[record.mechanism].name
                values.setdefault(record.name, {})[mechanism] = _value_of(record)
        for user, changed in values.items():
            if not results[user].error_code:
                await self._write(user, changed, results[user])
        return k51.AlterUserScramCredentialsResponse(results=list(results.values()))

    async def _write(self, user: str, changed: "dict[str, str | None]", result: "Result") -> None:
        try:
            await self._changes.merge(_entity(user), changed)
        except KafkaError as error:
            set_error(result, error)


def _entity(user: str) -> str:
    return f"users/{sanitized(user)}"


def _by_mechanism(request: "Request") -> "Iterator[Request]":
    """A request for each mechanism: a user may be in several of them."""
    mechanisms = {each.mechanism for each in request.deletions}
    mechanisms |= {each.mechanism for each in request.upsertions}
    for mechanism in sorted(mechanisms):
        yield k51.AlterUserScramCredentialsRequest(
            deletions=[each for each in request.deletions if each.mechanism == mechanism],
            upsertions=[each for each in request.upsertions if each.mechanism == mechanism],
        )


def _value_of(record: Any) -> str | None:
    """The value in the user's configs; None removes it."""
    if not isinstance(record, UserScramCredentialRecord):
        return None
    return encode_credential(
        ScramCredential(
            bytes(record.salt),
            bytes(record.stored_key),
            bytes(record.server_key),
            record.iterations,
        )
    )
