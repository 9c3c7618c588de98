"""`console`: the cluster in a web browser. Ours; Kafka has no such tool."""

from __future__ import annotations

import ipaddress
import os
import secrets
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sparkraft.base.errors import InputError
from sparkraft.base.malloc import tune_malloc
from sparkraft.cli.errors import CommandError, UsageError
from sparkraft.cli.local_console import TOKEN_VARIABLE
from sparkraft.cli.options import Options
from sparkraft.cli.session import client_properties, connected, run
from sparkraft.console.access import AccessSettings
from sparkraft.console.listen import DEFAULT_PORT, bind, parse_listen
from sparkraft.console.roles import Role
from sparkraft.console.users import parse_users

if TYPE_CHECKING:
    import socket

    from sparkraft.cli.options import Values
    from sparkraft.console.message_config import MessageConfig

_MAPPED_BYTES_MIN = 256 << 10
_KEPT_BYTES = 1 << 20
"""The console has one thread that allocates large buffers: pages of the metadata log and answers.
Freed ones go back to the system at once."""

INSTALL = "pip install 'sparkraft[console]'"

_REQUEST_MS = "5000"
_API_MS = "10000"
"""A page shows within seconds that a node does not respond; commands wait longer."""


def main(argv: list[str]) -> int:
    options = Options(
        "console", "Show the cluster in a web browser: its health, its elections and their reasons."
    )
    options.connection()
    options.value(
        "--listen",
        about=f"address to listen on (default 127.0.0.1:{DEFAULT_PORT}, or the next free port); "
        "others than loopback need --users or --trusted-proxy",
        metavar="HOST:PORT",
    )
    options.values(
        "--host",
        about="also accept requests for this address: that of a tunnel or proxy; repeatable",
        metavar="HOST:PORT",
    )
    options.value(
        "--users",
        about="visitors must sign in; FILE has their roles and passwords (see console-users)",
        metavar="FILE",
    )
    options.values(
        "--trusted-proxy",
        about="address or network of a proxy that names the visitor in a header; repeatable",
        metavar="ADDRESS",
    )
    options.value(
        "--user-header",
        about="the header of the proxy (default X-Forwarded-User)",
        metavar="NAME",
        default="X-Forwarded-User",
    )
    options.value(
        "--pipelines",
        about="also show pipelines whose checkpoints are below this folder",
        metavar="DIR",
    )
    options.value(
        "--config",
        about="a TOML file with schemas of records and fields to hide",
        metavar="FILE",
    )
    options.flag("--read-only", "let no visitor change the cluster")
    options.flag("--hide-messages", "let no visitor read records")
    values = options.parse(argv)
    access = _access(values)
    if values.pipelines is not None and not Path(values.pipelines).is_dir():
        raise UsageError(f"--pipelines {values.pipelines}: not a folder")
    try:
        address = parse_listen(values.listen, is_open=access.is_open)
    except ValueError as error:
        raise UsageError(f"--listen: {error}") from error
    check_extra()
    tune_malloc(mapped_bytes_min=_MAPPED_BYTES_MIN, kept_bytes=_KEPT_BYTES, arenas=1)
    messages = _messages(values)
    try:
        listening = bind(address)
    except OSError as error:
        raise CommandError(
            f"cannot listen on {address.host}:{address.port}: {error.strerror}"
        ) from error
    with listening:
        return run(_main(values, listening, access, messages))


def _messages(values: Values) -> MessageConfig:
    """The content of `--config`; nothing without it."""
    from sparkraft.console.message_config import MessageConfig, load_message_config
    from sparkraft.console.registered_schemas import RegisteredSchemas

    if values.config is None:
        return MessageConfig()
    try:
        found = load_message_config(Path(values.config))
        if found.registry:
            RegisteredSchemas(found.registry)  # whether it is a URL
    except InputError as error:
        raise UsageError(f"--config {error}") from error
    return found


def _access(values: Values) -> AccessSettings:
    """The settings of the options; a new token if visitors need not sign in."""
    users = None
    if values.users is not None:
        try:
            users = parse_users(Path(values.users).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UsageError(f"--users {values.users}: {error}") from error
    try:
        proxies = tuple(ipaddress.ip_network(text) for text in values.trusted_proxy)
    except ValueError as error:
        raise UsageError(f"--trusted-proxy: {error}") from error
    role_max = Role.EDITOR
    if values.read_only:
        role_max = Role.READER
    if values.hide_messages:
        role_max = Role.VIEWER
    settings = AccessSettings(
        users=users, proxies=proxies, user_header=values.user_header.lower(), role_max=role_max
    )
    if settings.is_open and role_max is Role.EDITOR:
        token = os.environ.get(TOKEN_VARIABLE) or secrets.token_urlsafe(24)
        settings = replace(settings, token=token)
    return settings


def check_extra() -> None:
    try:
        import starlette  # noqa: F401 (only whether it is installed)
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as error:
        raise CommandError(f"{error.name} is not installed; the console needs {INSTALL}") from error


async def _main(
    values: Values, listening: socket.socket, access: AccessSettings, messages: MessageConfig
) -> int:
    from sparkraft.console.serve import serve_console

    properties = client_properties(values.command_config)
    properties.setdefault("request.timeout.ms", _REQUEST_MS)
    properties.setdefault("default.api.timeout.ms", _API_MS)
    async with connected(values, properties=properties, client_id="sparkraft-console") as cluster:
        host, port = listening.getsockname()[:2]
        authority = f"{f'[{host}]' if ':' in host else host}:{port}"
        is_printed = access.token is not None and TOKEN_VARIABLE not in os.environ
        token = f"#t={access.token}" if is_printed else ""
        print(f"console  http://{authority}/{token}", flush=True)
        await serve_console(
            cluster,
            listening,
            bootstrap=values.bootstrap_server,
            access=access,
            messages=messages,
            hosts=(authority, *values.host),
            pipelines_folder=None if values.pipelines is None else Path(values.pipelines),
        )
    return 0
