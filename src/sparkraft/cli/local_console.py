"""The web console of a local cluster; DIR/console.json has its port and its process.

The cluster never depends on it: it is started after the nodes serve, nothing waits for it, and
cluster.json does not mention it.
"""

from __future__ import annotations

import json
import secrets
import sys
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from sparkraft.cli import local_process
from sparkraft.cli.local_ports import choose_console_port

if TYPE_CHECKING:
    from sparkraft.cli.local_cluster import ClusterDirectory, LocalCluster

NOT_INSTALLED = "not installed; `pip install 'sparkraft[console]'` adds it"

_HOST = "127.0.0.1"
"""Visitors need not sign in: it stays on loopback, also under `--listen 0.0.0.0`."""

TOKEN_VARIABLE = "SPARKRAFT_CONSOLE_TOKEN"
"""The one-time token of a console whose parent process prints the address."""


@dataclass(slots=True, kw_only=True)
class LocalConsole:
    """The content of DIR/console.json."""

    port: int = 0
    pid: int | None = None
    started: str | None = None

    @property
    def url(self) -> str:
        """The address to open."""
        return f"http://{_HOST}:{self.port}/"


def is_installed() -> bool:
    """Whether the packages of the extra are installed."""
    return all(find_spec(name) is not None for name in ("starlette", "uvicorn"))


def start(directory: ClusterDirectory, cluster: LocalCluster) -> str:
    """Start it unless it runs; it listens a moment later.

    Returns:
        The address to open. It has the one-time token if the console was started: other users of
        the machine can read neither our output nor the environment of the console.
    """
    console = _load(directory)
    if local_process.is_running(console):
        return console.url
    console.port = choose_console_port(console.port, cluster.nodes)
    command = [sys.executable, "-P", "-m", "sparkraft.cli.main", "console"]
    command += ["--bootstrap-server", cluster.bootstrap, "--listen", f"{_HOST}:{console.port}"]
    token = secrets.token_urlsafe(24)
    local_process.launch(console, command, directory.path / "console.log", {TOKEN_VARIABLE: token})
    _save(directory, console)
    return f"{console.url}#t={token}"


def stop(directory: ClusterDirectory) -> None:
    """Stop it if it runs."""
    console = _load(directory)
    if console.pid is not None:
        local_process.end(console)
        _save(directory, console)


def _load(directory: ClusterDirectory) -> LocalConsole:
    try:
        return LocalConsole(**json.loads((directory.path / "console.json").read_text()))
    except (OSError, ValueError, TypeError):
        return LocalConsole()


def _save(directory: ClusterDirectory, console: LocalConsole) -> None:
    file = directory.path / "console.json"
    fresh = file.with_suffix(".json.new")
    fresh.write_text(json.dumps(asdict(console), indent=2) + "\n")
    fresh.replace(file)
