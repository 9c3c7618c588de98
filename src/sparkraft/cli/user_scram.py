"""SCRAM users of `configs --entity-type users`, with the options and output of `kafka-configs.sh`.

    --add-config 'SCRAM-SHA-256=[iterations=8192,password=…]'   --delete-config SCRAM-SHA-256

Not done: quotas of users.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sparkraft.base.errors import KafkaError
from sparkraft.cli.errors import CommandError
from sparkraft.cli.session import connected, print_json
from sparkraft.client.scram_admin import ITERATIONS_DEFAULT, NewCredential, ScramAdmin
from sparkraft.client.values import ConfigOperation
from sparkraft.security.scram import BY_NAME, ITERATIONS_MIN, ScramMechanism
from sparkraft.security.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkraft.cli.options import Values

_CREDENTIAL = re.compile(r"(?:iterations=(-?[0-9]*),)?password=(.*)", re.DOTALL)


async def describe_users(values: Values, user: str | None) -> int:
    """Print the credentials of one user, or of all."""
    async with connected(values, client_id="configs") as cluster:
        found = await ScramAdmin(cluster).describe([] if user is None else [user])
    if values.output == "json":
        print_json(
            [
                {
                    "user": name,
                    "credentials": [
                        {"mechanism": info.mechanism.name, "iterations": info.iterations}
                        for info in infos
                    ],
                }
                for name, infos in found.items()
                if not isinstance(infos, KafkaError)
            ]
        )
        return 0
    for name, infos in found.items():
        if isinstance(infos, KafkaError):
            print(
                f"Error retrieving SCRAM credential configs for user-principal '{name}': "
                f"{infos.detail}"
            )
        else:
            listed = ", ".join(f"{i.mechanism.name}=iterations={i.iterations}" for i in infos)
            print(f"SCRAM credential configs for user-principal '{name}' are {listed}")
    return 0


async def alter_user(
    values: Values, user: str, changes: Iterable[tuple[str, ConfigOperation, str | None]]
) -> int:
    """Set and delete credentials of a user."""
    if not user:
        raise CommandError("SCRAM credentials need --entity-name; there are no defaults of them")
    deletions, additions = [], []
    for key, operation, value in changes:
        mechanism = _mechanism(key)
        if operation is ConfigOperation.DELETE:
            deletions.append(mechanism)
        else:
            additions.append(_credential(mechanism, value or ""))
    async with connected(values, client_id="configs") as cluster:
        await ScramAdmin(cluster).alter(user, delete=deletions, add=additions)
    if values.output == "text":
        print(f"Completed updating config for user {user}.")
    return 0


def _mechanism(key: str) -> ScramMechanism:
    if key not in BY_NAME:
        raise CommandError(
            f"{key} cannot be set for users; SCRAM credentials ({', '.join(BY_NAME)}) can, quotas "
            "are not implemented"
        )
    return BY_NAME[key]


def _credential(mechanism: ScramMechanism, text: str) -> NewCredential:
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
