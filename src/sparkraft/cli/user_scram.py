"""SCRAM users of `configs --entity-type users`, with the options and output of `kafka-configs.sh`.

--add-config 'SCRAM-SHA-256=[iterations=8192,password=…]'   --delete-config SCRAM-SHA-256
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.cli.errors import CommandError
from sparkraft.cli.session import connected
from sparkraft.client.scram_admin import ITERATIONS_DEFAULT, NewCredential, ScramAdmin
from sparkraft.client.values import ConfigOperation
from sparkraft.security.scram import BY_NAME, ITERATIONS_MIN, ScramMechanism
from sparkraft.security.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sparkraft.cli.options import Values
    from sparkraft.client.scram_admin import CredentialInfo

_CREDENTIAL = re.compile(r"(?:iterations=(-?[0-9]*),)?password=(.*)", re.DOTALL)


def credentials_json(
    found: Mapping[str, Sequence[CredentialInfo] | KafkaError],
) -> list[dict[str, Any]]:
    """The users that have credentials."""
    return [
        {
            "user": name,
            "credentials": [
                {"mechanism": info.mechanism.name, "iterations": info.iterations} for info in infos
            ],
        }
        for name, infos in found.items()
        if not isinstance(infos, KafkaError)
    ]


def print_credentials(found: Mapping[str, Sequence[CredentialInfo] | KafkaError]) -> None:
    """A line for each user."""
    for name, infos in found.items():
        if isinstance(infos, KafkaError):
            if infos.code is ErrorCode.RESOURCE_NOT_FOUND:
                continue  # as Kafka's DescribeUserScramCredentialsResult.users
            print(
                f"Error retrieving SCRAM credential configs for user-principal '{name}': "
                f"{infos.detail}"
            )
        else:
            listed = ", ".join(f"{i.mechanism.name}=iterations={i.iterations}" for i in infos)
            print(f"SCRAM credential configs for user-principal '{name}' are {listed}")


async def alter_user(
    values: Values, user: str, changes: Iterable[tuple[str, ConfigOperation, str | None]]
) -> int:
    """Set and delete credentials of a user."""
    if not user:
        raise CommandError("SCRAM credentials need --entity-name; they have no defaults")
    deletions, additions = [], []
    for key, operation, value in changes:
        mechanism = mechanism_of(key)
        if operation is ConfigOperation.DELETE:
            deletions.append(mechanism)
        else:
            additions.append(credential_of(mechanism, value or ""))
    async with connected(values, client_id="configs") as cluster:
        await ScramAdmin(cluster).alter(user, delete=deletions, add=additions)
    if values.output == "text":
        print(f"Completed updating config for user {user}.")
    return 0


def mechanism_of(key: str) -> ScramMechanism:
    """The mechanism that a config names; CommandError for another config."""
    if key not in BY_NAME:
        raise CommandError(
            f"{key} cannot be set for users; SCRAM credentials ({', '.join(BY_NAME)}) can, quotas "
            "are not implemented"
        )
    return BY_NAME[key]


def credential_of(mechanism: ScramMechanism, text: str) -> NewCredential:
    """A credential from its value; errors do not contain the value, which has a password."""
    found = _CREDENTIAL.fullmatch(text.removeprefix("[").removesuffix("]"))
    if found is None:
        raise CommandError(f"{mechanism.name} must be [password=…] or [iterations=…,password=…]")
    iterations = ITERATIONS_DEFAULT if found[1] in {None, "", "-1"} else int(found[1])
    if iterations < ITERATIONS_MIN:
        raise CommandError(
            f"Iterations {iterations} is less than the minimum {ITERATIONS_MIN} required for "
            f"{mechanism.name}"
        )
    return NewCredential(mechanism, Secret(found[2]), iterations)
