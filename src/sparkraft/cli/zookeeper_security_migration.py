"""`zookeeper-security-migration`: the access control lists of a cluster's znodes, set or removed.

As `zookeeper-security-migration.sh` of Kafka 3.9, with its options. `secure` gives each znode the
list with which brokers create it (zookeeper.set.acl), `unsecure` opens all. Before `secure`,
restart the brokers twice, one after another: as a user of the ensemble, then with
zookeeper.set.acl.

The session's user comes from `--zk-tls-config-file`. Znodes that disappear meanwhile are left out.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from sparkraft.cli.errors import CommandError, UsageError
from sparkraft.cli.options import Options
from sparkraft.cli.zookeeper_session import add_security, ensemble_session, security_of

if TYPE_CHECKING:
    from sparkraft.cli.options import Values
    from sparkraft.zookeeper.client import ZooKeeperClient
    from sparkraft.zookeeper.security import EnsembleSecurity

SECURE_ROOTS = (
    "/admin",
    "/brokers",
    "/cluster",
    "/config",
    "/controller",
    "/controller_epoch",
    "/isr_change_notification",
    "/latest_producer_id_block",
    "/log_dir_event_notification",
    "/delegation_token",
    "/kafka-acl-extended",
    "/migration",
    "/feature",
    "/kafka-acl",
    "/kafka-acl-changes",
    "/kafka-acl-extended-changes",
)
"""Kafka's `ZkData.SecureRootPaths`: the command changes these and all below them."""

ZNODES_AT_ONCE = 500
"""Requests that wait for replies together."""


def main(argv: list[str]) -> int:
    """Change the lists."""
    options = Options(
        "zookeeper-security-migration",
        "Sets or removes the access control lists of a cluster's znodes.",
    )
    options.value(
        "--zookeeper.acl",
        about="secure: lists as with zookeeper.set.acl=true; unsecure: open to all",
        choices=["secure", "unsecure"],
        dest="acl",
        required=True,
    )
    options.value(
        "--zookeeper.connect",
        about="the ensemble's servers",
        metavar="HOST:PORT[/chroot]",
        dest="connect",
        required=True,
    )
    options.add_argument(
        "--enable.path.check",
        help="end without a change if a znode of a cluster is missing",
        dest="checks_paths",
        action="store_true",
    )
    add_security(options)
    return asyncio.run(_main(options.parse(argv)))


async def _main(values: Values) -> int:
    from sparkraft.zookeeper.errors import ZooKeeperError

    security = security_of(values.zk_tls_config_file)
    if not security.has_user:
        raise UsageError(
            "--zk-tls-config-file must name a user: sparkraft.zookeeper.sasl.jaas.config, or "
            "zookeeper.ssl.client.enable=true and zookeeper.ssl.keystore.location"
        )
    security = replace(security, sets_acls=values.acl == "secure")
    try:
        async with ensemble_session(values.connect, values.zk_tls_config_file) as client:
            if values.checks_paths:
                await _check_paths(client)
            count = await _set_all(client, security)
    except ZooKeeperError as error:
        raise CommandError(str(error)) from error
    print(f"Completed setting the access control lists of {count} znodes: {values.acl}.")
    return 0


async def _check_paths(client: ZooKeeperClient) -> None:
    from sparkraft.zookeeper.errors import NoNodeError
    from sparkraft.zookeeper.requests import Exists

    found = await client.submit_all([Exists(path=path) for path in SECURE_ROOTS])
    missing = [
        path
        for path, each in zip(SECURE_ROOTS, found, strict=True)
        if isinstance(each, NoNodeError)
    ]
    if missing:
        raise CommandError(f"missing znodes: {', '.join(missing)}; nothing was changed")


async def _set_all(client: ZooKeeperClient, security: EnsembleSecurity) -> int:
    """Set the list of the root, and of everything below the cluster's znodes; how many were set."""
    done = await _set(client, security, ["/"])
    left = [path for path in SECURE_ROOTS if path != "/controller"]
    for path in left:
        await client.create_recursive(path)
    left.append("/controller")
    while left:
        piece, left = left[:ZNODES_AT_ONCE], left[ZNODES_AT_ONCE:]
        done += await _set(client, security, piece)
        left += await _children(client, piece)
    return done


async def _set(client: ZooKeeperClient, security: EnsembleSecurity, paths: list[str]) -> int:
    from sparkraft.zookeeper.errors import NoNodeError
    from sparkraft.zookeeper.requests import SetAcl

    requests = [SetAcl(path=path, acl=security.acl_of(path)) for path in paths]
    count = 0
    for result in await client.submit_all(list(requests)):
        if isinstance(result, BaseException):
            if not isinstance(result, NoNodeError):
                raise result
        else:
            count += 1
    return count


async def _children(client: ZooKeeperClient, paths: list[str]) -> list[str]:
    from sparkraft.zookeeper.errors import NoNodeError
    from sparkraft.zookeeper.requests import GetChildren

    found: list[str] = []
    results = await client.submit_all([GetChildren(path=path) for path in paths])
    for path, result in zip(paths, results, strict=True):
        if isinstance(result, BaseException):
            if not isinstance(result, NoNodeError):
                raise result
        else:
            found += [f"{path}/{name}" for name in sorted(result[0])]
    return found
