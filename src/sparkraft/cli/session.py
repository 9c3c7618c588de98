"""A command's connection to its cluster, and how it prints."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkraft.cli.client_login import client_login
from sparkraft.cli.errors import CommandError, UsageError
from sparkraft.client.cluster import Cluster
from sparkraft.client.security import SecurityConfigError, secured_connect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Mapping

    from sparkraft.cli.options import Values


def run(work: Coroutine[Any, Any, int]) -> int:
    """Run a command's coroutine to its end."""
    return asyncio.run(work)


def client_properties(path: str | None, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """A client's properties file with `extra` over it; security that we lack is an error."""
    from sparkraft.server.properties import parse_properties

    found = dict(parse_properties(Path(path).read_text())) if path else {}
    found.update(extra or {})
    client_login(found)
    return found


def with_old_config(values: Values, name: str) -> None:
    """Take the file given by `name`, deprecated, for `--command-config`, and say so as Kafka does.

    Kafka's tools say it on standard output; beside JSON it is on standard error.
    """
    if values.old_config is None:
        return
    if values.command_config is not None:
        raise UsageError(f"give {name} or --command-config, not both")
    values.command_config = values.old_config
    print(
        f"Option {name} has been deprecated and will be removed in a future version. "
        "Use --command-config instead.",
        file=sys.stderr if values.output == "json" else sys.stdout,
    )


@asynccontextmanager
async def connected(
    values: Values, *, properties: Mapping[str, str] | None = None, client_id: str = "sparkraft-cli"
) -> AsyncIterator[Cluster]:
    """A cluster by `--bootstrap-server` or `--bootstrap-controller`, reached once, closed after."""
    given = client_properties(values.command_config) if properties is None else properties
    controllers = getattr(values, "bootstrap_controller", None)
    bootstrap = controllers or values.bootstrap_server or given.get("bootstrap.servers")
    if not bootstrap:
        raise UsageError("missing --bootstrap-server")
    if controllers and values.bootstrap_server:
        raise UsageError("give --bootstrap-server or --bootstrap-controller, not both")
    try:
        cluster = Cluster(
            bootstrap,
            client_id=given.get("client.id", client_id),
            request_timeout_ms=int(given.get("request.timeout.ms", 30_000)),
            api_timeout_ms=int(given.get("default.api.timeout.ms", 60_000)),
            to_controllers=bool(controllers),
            login=client_login(given),
            connect=secured_connect(given),
        )
    except SecurityConfigError as error:
        raise CommandError(str(error)) from error
    except ValueError as error:
        raise UsageError(str(error)) from error
    async with cluster:
        await cluster.any_connection()
        yield cluster


def print_json(data: Any) -> None:
    """One JSON document."""
    json.dump(data, sys.stdout, indent=2, default=str)
    print()


def warn(sentence: str) -> None:
    """A sentence on standard error."""
    print(sentence, file=sys.stderr)
