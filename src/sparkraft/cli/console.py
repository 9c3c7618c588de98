"""`console`: the cluster in a web browser. Ours; Kafka has no such tool."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkraft.cli.errors import CommandError, UsageError
from sparkraft.cli.options import Options
from sparkraft.cli.session import client_properties, connected, run
from sparkraft.console.listen import DEFAULT_PORT, bind, parse_listen

if TYPE_CHECKING:
    import socket

    from sparkraft.cli.options import Values

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
        about=f"loopback address to listen on (default 127.0.0.1:{DEFAULT_PORT}, or the next free "
        "port)",
        metavar="HOST:PORT",
    )
    options.values(
        "--host",
        about="accept requests for this name too: that of a tunnel or proxy; repeatable",
        metavar="HOST:PORT",
    )
    values = options.parse(argv)
    try:
        address = parse_listen(values.listen)
    except ValueError as error:
        raise UsageError(f"--listen: {error}") from error
    _check_extra()
    try:
        listening = bind(address)
    except OSError as error:
        raise CommandError(
            f"cannot listen on {address.host}:{address.port}: {error.strerror}"
        ) from error
    with listening:
        return run(_main(values, listening))


def _check_extra() -> None:
    try:
        import starlette  # noqa: F401 (only whether it is installed)
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as error:
        raise CommandError(f"{error.name} is not installed; the console needs {INSTALL}") from error


async def _main(values: Values, listening: socket.socket) -> int:
    from sparkraft.console.serve import serve_console

    properties = client_properties(values.command_config)
    properties.setdefault("request.timeout.ms", _REQUEST_MS)
    properties.setdefault("default.api.timeout.ms", _API_MS)
    async with connected(values, properties=properties, client_id="sparkraft-console") as cluster:
        host, port = listening.getsockname()[:2]
        print(f"console  http://{f'[{host}]' if ':' in host else host}:{port}/", flush=True)
        await serve_console(
            cluster, listening, bootstrap=values.bootstrap_server, hosts=tuple(values.host)
        )
    return 0
