"""pytest fixtures that run a real node; installed with the package, nothing to import.

    def test_orders(sparkraft_cluster):
        producer = Producer({"bootstrap.servers": sparkraft_cluster.bootstrap})

    sparkraft_cluster             one node for the whole session; use fresh topic names
    fresh_sparkraft_cluster       a node of its own for one test, which may break it
    sparkraft_cluster_overrides   override it in conftest.py: configs of the session's node

The node is a process on free loopback ports, its directory a temporary one of pytest's. It starts
when a test first asks for it.

Invariant: importing this module costs a pytest run nothing; it loads with every one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_COMMAND_SECONDS_MAX = 120


class SparkraftCluster:
    """A running cluster of one node; `str()` of it is its bootstrap string."""

    def __init__(self, directory: Path) -> None:
        """Describe the cluster that `start` makes in `directory`."""
        self.directory = directory
        self.bootstrap = ""
        """`host:port`, for `bootstrap.servers`."""

    def __str__(self) -> str:
        """The bootstrap string."""
        return self.bootstrap

    def __repr__(self) -> str:
        """Where it listens."""
        return f"<SparkraftCluster {self.bootstrap}>"

    @property
    def http(self) -> str:
        """Base URL of /health and /metrics."""
        node = self._described()["nodes"][0]
        return f"http://127.0.0.1:{node['http_port']}"

    @property
    def log(self) -> str:
        """What the node has logged."""
        with open(self._described()["nodes"][0]["log"], encoding="utf-8") as file:
            return file.read()

    def start(self, overrides: Mapping[str, str] | None = None) -> None:
        """Start it, on ports that are free now."""
        settings = [f"--override={key}={value}" for key, value in (overrides or {}).items()]
        port = ["--port", str(_free_port())]
        self._command("up", "--detach", "--listen", "127.0.0.1", *port, *settings)
        self.bootstrap = self._described()["bootstrap"]

    def stop(self) -> None:
        """Stop it cleanly."""
        self._command("down")

    def kill(self) -> None:
        """End the node as kill -9 does; `restart` brings it back."""
        self._command("node", "kill", "1")

    def pause(self) -> None:
        """Freeze the node: its sockets stay, nobody answers."""
        self._command("node", "pause", "1")

    def resume(self) -> None:
        """Let it go on."""
        self._command("node", "resume", "1")

    def restart(self) -> None:
        """Start the node again after `stop` or `kill`, on the same port with the same data."""
        self._command("node", "start", "1")

    def _described(self) -> dict[str, Any]:
        described: dict[str, Any] = json.loads((self.directory / "cluster.json").read_text())
        return described

    def _command(self, *arguments: str) -> None:
        done = subprocess.run(
            [
                sys.executable,
                "-P",
                "-m",
                "sparkraft.cli.main",
                *arguments,
                "--dir",
                str(self.directory),
            ],
            capture_output=True,
            text=True,
            timeout=_COMMAND_SECONDS_MAX,
            check=False,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        if done.returncode:
            raise RuntimeError(f"sparkraft {arguments[0]}: {done.stderr.strip()}")


def _free_port() -> int:
    """A port that can be bound now, outside the range systems hand out to clients.

    The controller and HTTP ports follow from it, a thousand and two thousand above.
    """
    import random
    import socket
    from contextlib import suppress

    dice = random.SystemRandom()
    for _ in range(100):
        port = dice.randrange(12_000, 28_000)
        # Not by connecting: a port may be held by somebody who does not listen yet.
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("a hundred ports were tried and all of them are taken")


def _running(directory: Path, overrides: Mapping[str, str]) -> Iterator[SparkraftCluster]:
    cluster = SparkraftCluster(directory)
    cluster.start(overrides)
    try:
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(scope="session")
def sparkraft_cluster_overrides() -> Mapping[str, str]:
    """Node configs over the defaults; override this fixture in conftest.py."""
    return {}


@pytest.fixture(scope="session")
def sparkraft_cluster(
    tmp_path_factory: pytest.TempPathFactory, sparkraft_cluster_overrides: Mapping[str, str]
) -> Iterator[SparkraftCluster]:
    """One node for the whole session."""
    yield from _running(tmp_path_factory.mktemp("sparkraft"), sparkraft_cluster_overrides)


@pytest.fixture
def fresh_sparkraft_cluster(
    tmp_path: Path, sparkraft_cluster_overrides: Mapping[str, str]
) -> Iterator[SparkraftCluster]:
    """A node for this test alone."""
    yield from _running(tmp_path / "sparkraft", sparkraft_cluster_overrides)
