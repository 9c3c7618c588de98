"""Users of a secured local cluster: their credentials, and entries for what begins with `NAME-`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sparkraft.base.errors import KafkaError
from sparkraft.cli.errors import CommandError
from sparkraft.cli.local_cluster import client_of
from sparkraft.cli.local_security import MECHANISM
from sparkraft.client.acl_admin import AclAdmin
from sparkraft.client.scram_admin import NewCredential, ScramAdmin
from sparkraft.security.acls import (
    WILDCARD,
    Acl,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
)
from sparkraft.security.scram import BY_NAME
from sparkraft.security.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sparkraft.cli.local_cluster import LocalCluster
    from sparkraft.client.cluster import Cluster

_OWN_RESOURCES = (AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.TRANSACTIONAL_ID)


def create_users(cluster: LocalCluster, names: Sequence[str]) -> None:
    """Create the users that a running secured cluster lacks, and write the files of all clients.

    Raises:
        CommandError: the cluster refuses one.
    """
    security = cluster.security
    assert security is not None
    new = {name: security.password_of(name) for name in names if name not in cluster.users}
    if new:
        client = client_of(cluster, cluster.brokers[0], cluster.bootstrap)
        asyncio.run(_create(client, new))
        cluster.users += new
    security.write_client_files(cluster.users, cluster.bootstrap)


async def _create(client: Cluster, passwords: Mapping[str, str]) -> None:
    async with client:
        for name, password in passwords.items():
            credential = NewCredential(BY_NAME[MECHANISM], Secret(password))
            try:
                await ScramAdmin(client).alter(name, add=[credential])
                for refusal in await AclAdmin(client).create_acls(_entries_of(name)):
                    _raise(refusal)
            except KafkaError as error:
                raise CommandError(f"user {name} cannot be created: {error}") from error


def _raise(error: KafkaError | None) -> None:
    if error is not None:
        raise error


def _entries_of(user: str) -> list[Acl]:
    return [
        Acl(
            resource,
            f"{user}-",
            PatternType.PREFIXED,
            f"User:{user}",
            WILDCARD,
            AclOperation.ALL,
            AclPermissionType.ALLOW,
        )
        for resource in _OWN_RESOURCES
    ]
