"""SCRAM credentials of users (KIP-554): described, set and deleted.

The salted password is computed here, so that the password itself never leaves the client.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client.cluster import check, code_of
from sparkraft.security.scram import BY_TYPE, ScramMechanism, salted_password

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkraft.client.cluster import Cluster
    from sparkraft.security.secret import Secret

ITERATIONS_DEFAULT = 4096
"""As `kafka-configs.sh`."""

_SALT_BYTES = 20


@dataclass(frozen=True, slots=True)
class NewCredential:
    """A credential to set."""

    mechanism: ScramMechanism
    password: Secret
    iterations: int = ITERATIONS_DEFAULT


@dataclass(frozen=True, slots=True)
class CredentialInfo:
    """The public part of a credential."""

    mechanism: ScramMechanism
    iterations: int


class ScramAdmin:
    """Describes and changes SCRAM credentials."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def describe(
        self, users: Sequence[str] = ()
    ) -> dict[str, tuple[CredentialInfo, ...] | KafkaError]:
        """The credentials of each user, or the error; of all users if none is named."""
        from sparkraft.protocol.messages import k50_describe_user_scram_credentials as k50

        names = [k50.UserName(name=user) for user in users]
        request = k50.DescribeUserScramCredentialsRequest(users=names or None)
        answer = await self._cluster.retrying(partial(self._ask, request))
        return {result.user: _described(result) for result in answer.results}

    async def alter(
        self, user: str, *, delete: Sequence[ScramMechanism] = (), add: Sequence[NewCredential] = ()
    ) -> None:
        """Delete and set credentials of one user.

        A node changes one credential of a user per request, so several changes are not atomic.

        Raises:
            KafkaError: one was rejected; later ones are not made.
        """
        from sparkraft.protocol.messages import k51_alter_user_scram_credentials as k51

        for mechanism in delete:
            deletion = k51.ScramCredentialDeletion(name=user, mechanism=mechanism.type)
            await self._alter(k51.AlterUserScramCredentialsRequest(deletions=[deletion]))
        for credential in add:
            upsertion = self._upsertion(user, credential)
            await self._alter(k51.AlterUserScramCredentialsRequest(upsertions=[upsertion]))

    def _upsertion(self, user: str, credential: NewCredential) -> Any:
        from sparkraft.protocol.messages import k51_alter_user_scram_credentials as k51

        salt = secrets.token_bytes(_SALT_BYTES)
        return k51.ScramCredentialUpsertion(
            name=user,
            mechanism=credential.mechanism.type,
            iterations=credential.iterations,
            salt=salt,
            salted_password=salted_password(
                credential.mechanism, credential.password, salt, credential.iterations
            ),
        )

    async def _alter(self, request: Any) -> None:
        async def attempt() -> None:
            answer = await self._cluster.ask_controller(request)
            for result in answer.results:
                if result.error_code == ErrorCode.NOT_CONTROLLER:
                    self._cluster.forget_controller(ErrorCode.NOT_CONTROLLER)
                check(result.error_code, result.error_message)

        await self._cluster.retrying(attempt)

    async def _ask(self, request: Any) -> Any:
        answer = await self._cluster.ask_any(request)
        check(answer.error_code, answer.error_message)
        return answer


def _described(result: Any) -> tuple[CredentialInfo, ...] | KafkaError:
    if result.error_code:
        return KafkaError(code_of(result.error_code), result.error_message or "")
    return tuple(
        CredentialInfo(BY_TYPE[info.mechanism], info.iterations)
        for info in result.credential_infos
        if info.mechanism in BY_TYPE
    )
