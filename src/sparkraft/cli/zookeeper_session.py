"""Sessions of commands with an ensemble, secured by the configs of `--zk-tls-config-file`.

The option and the keys of the file are those of Kafka 3.9's tools: `zookeeper.ssl.client.enable`
and `zookeeper.ssl.*`. `sparkraft.zookeeper.sasl.jaas.config` names the user, and with
`zookeeper.set.acl=true` new znodes get access control lists as brokers create them.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sparkraft.cli.errors import CommandError, UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sparkraft.cli.options import Options
    from sparkraft.tls.dialing import Connect
    from sparkraft.zookeeper.client import ZooKeeperClient
    from sparkraft.zookeeper.security import EnsembleSecurity

CONNECT_MS_MAX = 30_000
"""As Kafka's tools."""

SESSION_MS = 18_000


def add_security(options: Options) -> None:
    """Add the option for the configs of the session."""
    options.value(
        "--zk-tls-config-file",
        about="a file with zookeeper.ssl.* and sparkraft.zookeeper.sasl.jaas.config",
        metavar="FILE",
    )


@asynccontextmanager
async def ensemble_session(
    server: str, file: str | None, *, session_timeout_ms: int = SESSION_MS
) -> AsyncIterator[ZooKeeperClient]:
    """An open session, which ends with the context.

    Args:
        server: `HOST:PORT[/chroot]` of the ensemble.
        file: the value of `--zk-tls-config-file`; None: connections are not secured.
        session_timeout_ms: wanted.

    Raises:
        UsageError: a value is malformed.
        CommandError: no server accepts a session.
    """
    from sparkraft.security.tls_settings import TlsConfigError
    from sparkraft.server.env import SystemClock, SystemEntropy, SystemNetwork
    from sparkraft.tls.dialing import client_dialing
    from sparkraft.zookeeper.client import ZooKeeperClient
    from sparkraft.zookeeper.connect_string import parse_connect_string

    try:
        ensemble = parse_connect_string(server)
    except ValueError as error:
        raise UsageError(str(error)) from error
    security = security_of(file)
    connect: Connect = SystemNetwork().connect
    if security.tls is not None:
        try:
            connect = client_dialing(security.tls, connect)
        except TlsConfigError as error:
            raise UsageError(f"{file}: zookeeper.ssl.*: {error}") from error
    client = ZooKeeperClient(
        ensemble,
        connect=connect,
        clock=SystemClock(),
        entropy=SystemEntropy(),
        session_timeout_ms=session_timeout_ms,
        security=security,
    )
    try:
        await client.start(CONNECT_MS_MAX)
    except TimeoutError as error:
        raise CommandError(str(error)) from error
    try:
        yield client
    finally:
        await client.close()


def security_of(file: str | None) -> EnsembleSecurity:
    """The configs in a file; UsageError if they are invalid."""
    from sparkraft.server.properties import parse_properties
    from sparkraft.zookeeper.security import UNSECURED, read_ensemble_security

    if file is None:
        return UNSECURED
    try:
        return read_ensemble_security(parse_properties(Path(file).read_text(encoding="utf-8")))
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{file}: {error}") from error
