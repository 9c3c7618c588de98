"""pytest fixtures that run a real node; installed with the package, nothing to import.

    def test_orders(sparkraft_cluster):
        producer = Producer({"bootstrap.servers": sparkraft_cluster.bootstrap})

    sparkraft_cluster             one node for the whole session; use unique topic names
    fresh_sparkraft_cluster       a node for one test, which may break it
    sparkraft_cluster_overrides   node configs; override this fixture in conftest.py
    sparkraft_cluster_security    "sasl_ssl" for TLS, users and access control; the same
    sparkraft_cluster_users       names of its users beside admin; the same

        producer = Producer(sparkraft_cluster.client_configs("alice"))

Users have the rights that `sparkraft up --secure` gives them: `alice` may use what begins with
`alice-`.

The node is a process on free loopback ports with a temporary directory from pytest. It starts when
a test first requests the fixture. Transactions and both group protocols are on, as in Kafka.

Invariant: importing this module is cheap, since every pytest run loads it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

SASL_SSL = "sasl_ssl"
"""The `security` of a cluster that `sparkraft up --secure` creates."""

_COMMAND_SECONDS_MAX = 120


class SparkraftCluster:
    """A running cluster of one node; `str()` of it is its bootstrap string."""

    def __init__(
        self, directory: Path, *, security: str | None = None, users: Sequence[str] = ()
    ) -> None:
        """Prepare a cluster in `directory`; `start` creates it.

        Args:
            directory: of its data.
            security: None, or "sasl_ssl": clients connect by SASL_SSL as `admin` or a user.
            users: of a secured cluster, beside `admin`.

        Raises:
            ValueError: `security` is unknown, or there are users without it.
        """
        if security not in {None, SASL_SSL}:
            raise ValueError(f"security is None or {SASL_SSL!r}, not {security!r}")
        if users and security is None:
            raise ValueError(f"users need security={SASL_SSL!r}")
        self.directory = directory
        self.security = security
        self.users = tuple(users)
        self.bootstrap = ""
        """`host:port`, for `bootstrap.servers`."""

    def __str__(self) -> str:

        return self.bootstrap

    def __repr__(self) -> str:

        return f"<SparkraftCluster {self.bootstrap}>"

    @property
    def http(self) -> str:
        """Base URL of /health and /metrics."""
        node = self._described()["nodes"][0]
        return f"http://127.0.0.1:{node['http_port']}"

    @property
    def log(self) -> str:
        """The contents of the node's log."""
        with open(self._described()["nodes"][0]["log"], encoding="utf-8") as file:
            return file.read()

    def client_configs(self, user: str = "admin") -> dict[str, str]:
        """Return librdkafka's configs with which a user connects, `bootstrap.servers` among them.

        Without security they are the same for every user. `sasl.username`, `sasl.password` and
        `ssl.ca.location` are also what other clients than librdkafka need.
        """
        if self.security is None:
            return {"bootstrap.servers": self.bootstrap}
        return self._client_file(f"{user}.librdkafka.properties")

    def spark_options(self, user: str = "admin") -> dict[str, str]:
        """Return the options of a Spark source or sink with which a user connects."""
        if self.security is None:
            return {"kafka.bootstrap.servers": self.bootstrap}
        return self._client_file(f"{user}.spark.properties")

    def command_config(self, user: str = "admin") -> Path:
        """Return the properties file of a user, for Java clients and `--command-config`.

        Raises:
            ValueError: the cluster is not secured.
        """
        if self.security is None:
            raise ValueError(f"only a cluster with security={SASL_SSL!r} has such files")
        return self.directory / "clients" / f"{user}.properties"

    def _client_file(self, name: str) -> dict[str, str]:
        text = (self.directory / "clients" / name).read_text(encoding="utf-8")
        return dict(line.split("=", 1) for line in text.splitlines())

    def start(self, overrides: Mapping[str, str] | None = None) -> None:
        """Start the cluster on free ports."""
        settings = [f"--override={key}={value}" for key, value in (overrides or {}).items()]
        if self.security is not None:
            settings += ["--secure", *(f"--user={name}" for name in self.users)]
        port = ["--port", str(_free_port())]
        self._command("up", "--no-console", "--detach", "--listen", "127.0.0.1", *port, *settings)
        self.bootstrap = self._described()["bootstrap"]

    def stop(self) -> None:
        """Stop the cluster cleanly."""
        self._command("down")

    def kill(self) -> None:
        """Kill the node with SIGKILL; `restart` starts it again."""
        self._command("node", "kill", "1")

    def pause(self) -> None:
        """Freeze the node: its sockets stay open, but it does not respond."""
        self._command("node", "pause", "1")

    def resume(self) -> None:
        """Resume a paused node."""
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
    """Return a port that can be bound now, outside the ephemeral range.

    The controller and HTTP ports are a thousand and two thousand above it.
    """
    import random
    import socket
    from contextlib import suppress

    rng = random.SystemRandom()
    for _ in range(100):
        port = rng.randrange(12_000, 28_000)
        # Bind instead of connecting: a process may hold a port without listening yet.
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no free port found in 100 attempts")


def _running(
    directory: Path, overrides: Mapping[str, str], security: str | None, users: Sequence[str]
) -> Iterator[SparkraftCluster]:
    cluster = SparkraftCluster(directory, security=security, users=users)
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
def sparkraft_cluster_security() -> str | None:
    """None, or "sasl_ssl" for a secured cluster; override this fixture in conftest.py."""
    return None


@pytest.fixture(scope="session")
def sparkraft_cluster_users() -> Sequence[str]:
    """Users of a secured cluster, beside `admin`; override this fixture in conftest.py."""
    return ()


@pytest.fixture(scope="session")
def sparkraft_cluster(
    tmp_path_factory: pytest.TempPathFactory,
    sparkraft_cluster_overrides: Mapping[str, str],
    sparkraft_cluster_security: str | None,
    sparkraft_cluster_users: Sequence[str],
) -> Iterator[SparkraftCluster]:
    """One node for the whole session."""
    yield from _running(
        tmp_path_factory.mktemp("sparkraft"),
        sparkraft_cluster_overrides,
        sparkraft_cluster_security,
        sparkraft_cluster_users,
    )


@pytest.fixture
def fresh_sparkraft_cluster(
    tmp_path: Path,
    sparkraft_cluster_overrides: Mapping[str, str],
    sparkraft_cluster_security: str | None,
    sparkraft_cluster_users: Sequence[str],
) -> Iterator[SparkraftCluster]:
    """One node for this test alone."""
    yield from _running(
        tmp_path / "sparkraft",
        sparkraft_cluster_overrides,
        sparkraft_cluster_security,
        sparkraft_cluster_users,
    )
