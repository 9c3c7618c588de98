"""`configs --zookeeper`: SCRAM credentials of users, before a broker runs that could change them.

As `kafka-configs.sh --zookeeper` of Kafka 3.9: brokers that authenticate each other by SCRAM need
credentials before the first of them starts. Once brokers run, use --bootstrap-server.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from typing import TYPE_CHECKING

from sparkraft.cli.errors import CommandError, UsageError
from sparkraft.cli.user_scram import credential_of, mechanism_of
from sparkraft.cli.zookeeper_session import ensemble_session
from sparkraft.client.values import ConfigOperation
from sparkraft.security.scram import keys_of, salted_password

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkraft.cli.options import Values
    from sparkraft.cli.quota_configs import Entities
    from sparkraft.client.scram_admin import NewCredential
    from sparkraft.zookeeper.client import ZooKeeperClient

_SALT_BYTES = 20


async def alter_in_zookeeper(
    values: Values, entities: Entities, changes: Iterable[tuple[str, ConfigOperation, str | None]]
) -> int:
    """Set and delete credentials of one user.

    Raises:
        UsageError: another entity than a user, or a change of other configs.
        CommandError: the ensemble refuses it.
    """
    from sparkraft.zookeeper.errors import ZooKeeperError

    user = entities.get("users")
    if set(entities) != {"users"} or not user:
        raise UsageError(
            "--zookeeper changes SCRAM credentials of users only: --entity-type users "
            "--entity-name NAME"
        )
    written: dict[str, str | None] = {}
    for key, operation, value in changes:
        mechanism = mechanism_of(key)
        written[mechanism.name] = None
        if operation is not ConfigOperation.DELETE:
            written[mechanism.name] = _encoded(credential_of(mechanism, value or ""))
    try:
        async with ensemble_session(values.zookeeper, values.zk_tls_config_file) as client:
            await _write(client, user, written)
    except ZooKeeperError as error:
        raise CommandError(str(error)) from error
    if values.output == "text":
        print(f"Completed updating config for entity: user-principal '{user}'.")
    return 0


def _encoded(credential: NewCredential) -> str:
    from sparkraft.metadata.image import ScramCredential
    from sparkraft.zookeeper.znodes.credentials import encode_credential

    salt = secrets.token_bytes(_SALT_BYTES)
    mechanism, iterations = credential.mechanism, credential.iterations
    keys = keys_of(mechanism, salted_password(mechanism, credential.password, salt, iterations))
    return encode_credential(ScramCredential(salt, keys.stored_key, keys.server_key, iterations))


async def _write(client: ZooKeeperClient, user: str, written: dict[str, str | None]) -> None:
    """Change the user's znode, which has its quotas as well, then notify the brokers."""
    from sparkraft.zookeeper.errors import NodeExistsError, NoNodeError
    from sparkraft.zookeeper.requests import Create, GetData, SetData
    from sparkraft.zookeeper.znodes.changes import encode_config_change
    from sparkraft.zookeeper.znodes.entities import sanitized
    from sparkraft.zookeeper.znodes.topics import CONFIG, decode_configs, encode_configs

    entity = f"users/{sanitized(user)}"
    path = f"{CONFIG}/{entity}"
    configs: dict[str, str] = {}
    version = None
    with suppress(NoNodeError):
        data, stat = await client.submit(GetData(path=path))
        configs, version = decode_configs(path, data), stat.version
    missing = sorted(key for key, value in written.items() if value is None and key not in configs)
    if missing:
        raise CommandError(f"not set, so not to delete: {', '.join(missing)}")
    configs |= {key: value for key, value in written.items() if value is not None}
    left = {key: value for key, value in configs.items() if written.get(key, "") is not None}
    if version is None:
        await client.create_recursive(path.rpartition("/")[0])
        await client.submit(Create(path=path, data=encode_configs(left)))
    else:
        await client.submit(SetData(path=path, data=encode_configs(left), version=version))
    with suppress(NodeExistsError):
        await client.create_recursive(f"{CONFIG}/changes")
    notice = encode_config_change(entity)
    await client.submit(
        Create(path=f"{CONFIG}/changes/config_change_", data=notice, sequential=True)
    )
