"""A cluster on this machine: what `up`, `down` and `node` share.

DIR/cluster.json    who is in it, where it listens, which process it is; the only state
DIR/.lock           held while a command changes that
DIR/node-N/         server.properties, node.log and the node's data

Every node is a process of its own, led by `server-start`. A process is only ever ended by its id,
and only if it still is the one we started: its start time is kept beside the id.

Not done: more than one node; it waits for a quorum of several voters.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from base64 import urlsafe_b64encode
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from sparkraft.cli.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

START_SECONDS_MAX = 60
"""A node that does not serve after that has failed; recovery of a large directory needs time."""

STOP_SECONDS_MAX = 60
"""A node that still runs this long after SIGTERM is killed."""

_POLL_SECONDS = 0.02
_CONTROLLER_PORT_DISTANCE = 1_000
_HTTP_PORT_DISTANCE = 2_000
_PORTS_TRIED_MAX = 500
_LOG_LINES_SHOWN = 15

RUNNING = "running"
PAUSED = "paused"
STOPPED = "stopped"
KILLED = "killed"


@dataclass(slots=True, kw_only=True)
class LocalNode:
    """One node of a local cluster."""

    id: int
    port: int
    controller_port: int
    http_port: int
    properties: str
    data: str
    log: str
    pid: int | None = None
    started: str | None = None
    """When process `pid` began, in the system's own words; tells it from a later one."""
    state: str = STOPPED
    """What it was last told to do."""


@dataclass(slots=True, kw_only=True)
class LocalCluster:
    """What DIR/cluster.json holds."""

    cluster_id: str
    listen: str
    advertise: str
    bootstrap: str = ""
    nodes: list[LocalNode] = field(default_factory=list)
    overrides: dict[str, str] = field(default_factory=dict)

    def node(self, node_id: int) -> LocalNode:
        """The node of that id; `CommandError` where there is none."""
        for node in self.nodes:
            if node.id == node_id:
                return node
        ids = ", ".join(str(node.id) for node in self.nodes)
        raise CommandError(f"there is no node {node_id} here; there are: {ids}")


class ClusterDirectory:
    """DIR, read and changed under its lock."""

    def __init__(self, path: str) -> None:
        """Name the directory; nothing is read yet."""
        self.path = Path(path).absolute()
        self.file = self.path / "cluster.json"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the directory's lock: two commands must not start the same node."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / ".lock").open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    def load(self) -> LocalCluster:
        """What is recorded; `CommandError` if nothing is."""
        if not self.file.exists():
            raise CommandError(f"no cluster lives in {self.path}; `sparkraft up` makes one")
        try:
            raw = json.loads(self.file.read_text())
            nodes = [LocalNode(**node) for node in raw.pop("nodes")]
            return LocalCluster(**raw, nodes=nodes)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CommandError(f"{self.file} can't be read: {error}") from error

    def save(self, cluster: LocalCluster) -> None:
        """Record it, in one step."""
        fresh = self.file.with_suffix(".json.new")
        fresh.write_text(json.dumps(asdict(cluster), indent=2) + "\n")
        fresh.replace(self.file)

    def plan(
        self, *, port: int, listen: str, advertise: str | None, overrides: Mapping[str, str]
    ) -> LocalCluster:
        """The cluster to run: the one recorded with these addresses, or a new one."""
        cluster = self._recorded_or_new(listen)
        cluster.listen = listen
        cluster.advertise = advertise or _default_host(listen)
        cluster.overrides.update(overrides)
        for node in cluster.nodes:
            node.port = port + node.id - 1
        cluster.bootstrap = ",".join(f"{cluster.advertise}:{node.port}" for node in cluster.nodes)
        return cluster

    def _recorded_or_new(self, listen: str) -> LocalCluster:
        if self.file.exists():
            return self.load()
        home = self.path / "node-1"
        node = LocalNode(
            id=1,
            port=0,
            controller_port=0,
            http_port=0,
            properties=str(home / "server.properties"),
            data=str(home / "data"),
            log=str(home / "node.log"),
        )
        return LocalCluster(cluster_id=_new_cluster_id(), listen=listen, advertise="", nodes=[node])


def _new_cluster_id() -> str:
    while True:
        text = urlsafe_b64encode(secrets.token_bytes(16)).rstrip(b"=").decode()
        if not text.startswith("-"):
            return text


def _default_host(listen: str) -> str:
    return socket.gethostname() if listen in {"0.0.0.0", "::", ""} else listen


# starting


def start(cluster: LocalCluster, node: LocalNode) -> None:
    """Write its properties, format its directory if it is new, and start its process."""
    if is_running(node):
        raise CommandError(f"node {node.id} is running already (process {node.pid})")
    _choose_ports(cluster, node)
    home = Path(node.properties).parent
    home.mkdir(parents=True, exist_ok=True)
    Path(node.properties).write_text(_properties(cluster, node))
    _format(cluster, node)
    with Path(node.log).open("ab") as log:
        # Its own session: Ctrl-C at our terminal reaches us alone, and we end it in order.
        process = subprocess.Popen(
            [sys.executable, "-m", "sparkraft.cli.main", "server-start", node.properties],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    _children[process.pid] = process
    node.pid = process.pid
    node.started = _start_of(process.pid)
    node.state = RUNNING


_children: dict[int, subprocess.Popen[bytes]] = {}
"""Nodes that this very process started; they must be waited for, or they stay as zombies."""


def _choose_ports(cluster: LocalCluster, node: LocalNode) -> None:
    """Keep recorded ports; choose near the node's port, below what systems hand out at random."""
    if not _is_free(cluster.listen, node.port):
        raise CommandError(
            f"port {node.port} on {cluster.listen} is taken by another program; "
            "free it or choose another with --port"
        )
    taken = {n.port for n in cluster.nodes} | {n.controller_port for n in cluster.nodes}
    if not node.controller_port or not _is_free("127.0.0.1", node.controller_port):
        node.controller_port = _free_port(node.port + _CONTROLLER_PORT_DISTANCE, taken)
    taken.add(node.controller_port)
    if not node.http_port or not _is_free(cluster.listen, node.http_port):
        node.http_port = _free_port(node.port + _HTTP_PORT_DISTANCE, taken)


def _free_port(first: int, taken: set[int]) -> int:
    for port in range(first, first + _PORTS_TRIED_MAX):
        usable = port if port <= 0xFFFF else port - 0xFFFF + 0x3FF  # noqa: PLR2004 (port numbers)
        if usable not in taken and _is_free("127.0.0.1", usable):
            return usable
    raise CommandError(f"no free port near {first}")


def _is_free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _properties(cluster: LocalCluster, node: LocalNode) -> str:
    listen = f"[{cluster.listen}]" if ":" in cluster.listen else cluster.listen
    lines = {
        "process.roles": "broker,controller",
        "node.id": str(node.id),
        "listeners": f"PLAINTEXT://{listen}:{node.port},"
        f"CONTROLLER://127.0.0.1:{node.controller_port}",
        "advertised.listeners": f"PLAINTEXT://{cluster.advertise}:{node.port},"
        f"CONTROLLER://127.0.0.1:{node.controller_port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{node.controller_port}",
        "log.dirs": node.data,
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "sparkraft.http.listener": f"{listen}:{node.http_port}",
        **cluster.overrides,
    }
    head = "# Written by `sparkraft up` at every start; change it with --override.\n"
    return head + "".join(f"{key}={_escaped(value)}\n" for key, value in lines.items())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\")


def _format(cluster: LocalCluster, node: LocalNode) -> None:
    if (Path(node.data) / "meta.properties").exists():
        return
    import contextlib
    import io

    from sparkraft.cli import storage

    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = storage.main(
            ["format", "--standalone", "-t", cluster.cluster_id, "-c", node.properties]
        )
    if code:
        raise CommandError(f"{node.data} can't be formatted: {said.getvalue().strip()}")


def wait_until_serving(cluster: LocalCluster, node: LocalNode) -> None:
    """Return when the node answers Metadata and names itself; `CommandError` if it does not."""
    deadline = time.monotonic() + START_SECONDS_MAX
    host = cluster.listen if cluster.listen not in {"0.0.0.0", "::", ""} else "127.0.0.1"
    while not _serves(host, node):
        if not is_running(node):
            raise CommandError(f"node {node.id} ended at once; its log says:\n{log_tail(node)}")
        if time.monotonic() > deadline:
            raise CommandError(
                f"node {node.id} does not serve after {START_SECONDS_MAX} s; its log says:\n"
                f"{log_tail(node)}"
            )
        time.sleep(_POLL_SECONDS)


def _serves(host: str, node: LocalNode) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.settimeout(1)
        if probe.connect_ex((host, node.port)):
            return False
    import asyncio

    return asyncio.run(_is_in_metadata(host, node))


async def _is_in_metadata(host: str, node: LocalNode) -> bool:
    from sparkraft.base.errors import KafkaError
    from sparkraft.client.cluster import Cluster

    address = f"[{host}]:{node.port}" if ":" in host else f"{host}:{node.port}"
    async with Cluster(address, client_id="sparkraft-up", request_timeout_ms=5_000) as cluster:
        try:
            view = await cluster.refresh(())
        except KafkaError:
            return False
        return node.id in view.nodes


def log_tail(node: LocalNode) -> str:
    """The last lines of the node's log."""
    path = Path(node.log)
    if not path.exists():
        return "(nothing)"
    with path.open("rb") as log:
        size = log.seek(0, os.SEEK_END)
        log.seek(max(0, size - 16_384))
        lines = log.read().decode(errors="replace").splitlines()
    return "\n".join(lines[-_LOG_LINES_SHOWN:]) or "(nothing)"


# ending


def stop(node: LocalNode) -> None:
    """SIGTERM, and wait for a clean end; SIGKILL if it takes too long."""
    if is_running(node):
        pid = _own_pid(node)
        os.kill(pid, signal.SIGTERM)
        # A paused process takes SIGTERM only when it goes on.
        os.kill(pid, signal.SIGCONT)
        if not _wait_for_end(node, STOP_SECONDS_MAX):
            os.kill(pid, signal.SIGKILL)
            _wait_for_end(node, STOP_SECONDS_MAX)
    _forget_process(node, STOPPED)


def kill(node: LocalNode) -> None:
    """End it as kill -9 does."""
    os.kill(_own_pid(node), signal.SIGKILL)
    _wait_for_end(node, STOP_SECONDS_MAX)
    _forget_process(node, KILLED)


def pause(node: LocalNode) -> None:
    """SIGSTOP: it answers nobody but keeps its sockets."""
    os.kill(_own_pid(node), signal.SIGSTOP)
    node.state = PAUSED


def resume(node: LocalNode) -> None:
    """SIGCONT."""
    os.kill(_own_pid(node), signal.SIGCONT)
    node.state = RUNNING


def is_running(node: LocalNode) -> bool:
    """Whether the process we started for it still runs."""
    if node.pid is None:
        return False
    child = _children.get(node.pid)
    if child is not None and child.poll() is not None:
        return False
    return node.started is not None and _start_of(node.pid) == node.started


def exit_code(node: LocalNode) -> int | None:
    """How the node's process ended, if it was ours to wait for and has ended."""
    child = _children.get(node.pid) if node.pid is not None else None
    return None if child is None else child.poll()


def _own_pid(node: LocalNode) -> int:
    if not is_running(node) or node.pid is None:
        raise CommandError(f"node {node.id} is not running")
    return node.pid


def _forget_process(node: LocalNode, state: str) -> None:
    node.pid = None
    node.started = None
    node.state = state


def _wait_for_end(node: LocalNode, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while is_running(node):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _start_of(pid: int) -> str | None:
    """When process `pid` began; None if there is none or it is a zombie."""
    stat = Path(f"/proc/{pid}/stat")
    if Path("/proc/self/stat").exists():
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return None if fields[0] in "ZX" else fields[19]
    asked = subprocess.run(
        ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return asked.stdout.strip() or None


def for_each_running(cluster: LocalCluster, act: Callable[[LocalNode], None]) -> None:
    """Do `act` to the nodes that run, last one first."""
    for node in reversed(cluster.nodes):
        if is_running(node):
            act(node)
