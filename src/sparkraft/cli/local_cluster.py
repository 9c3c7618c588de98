"""A cluster on this machine, as used by `up`, `down` and `node`.

DIR/cluster.json    members, addresses, process ids; the only state
DIR/.lock           held while a command changes that
DIR/node-N/         server.properties, node.log and the node's data
DIR/security/, DIR/clients/    of a secured cluster (`local_security`)

Every node is a process of its own, led by `server-start` (`local_process`).

Nodes are combined (1 to N), or brokers (1 to B) beside controllers (101 to 100+C). The controllers
are a dynamic quorum: all of them are its initial voters, named when they are formatted. Brokers in
ZooKeeper mode are 1 to B without controllers, beside an ensemble (`local_zookeeper`). Partitions
of all topics, internal ones included, have three replicas, or one per broker if there are fewer;
all but one of them, and at least one, must be in sync to accept records (`min.insync.replicas`).
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import signal
import socket
import sys
import time
from base64 import urlsafe_b64encode
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from sparkraft.cli import local_process, local_security, local_zookeeper
from sparkraft.cli.errors import CommandError
from sparkraft.cli.local_ports import choose_ports
from sparkraft.cli.local_process import is_running
from sparkraft.cli.local_security import LocalSecurity
from sparkraft.cli.private_files import escaped, make_private_directory, write_private

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sparkraft.client.cluster import Cluster
    from sparkraft.storage.meta_properties import MetaProperties

START_SECONDS_MAX = 60
"""A node that does not serve after that has failed; recovery of a large directory needs time."""

_POLL_SECONDS = 0.02
_REQUEST_MS_MAX = 5_000
_LOG_LINES_SHOWN = 15
_REPLICAS = 3
_LOOPBACK = "127.0.0.1"
_ANY_ADDRESS = frozenset({"0.0.0.0", "::", ""})

FIRST_CONTROLLER_ID = 101
"""Ids of dedicated controllers; brokers count from 1."""

COMBINED = "broker,controller"

RUNNING = "running"
PAUSED = "paused"
STOPPED = "stopped"
KILLED = "killed"


@dataclass(slots=True, kw_only=True)
class LocalNode:
    """One node of a local cluster."""

    id: int
    port: int
    """For clients; unused if it is not a broker."""
    controller_port: int
    """Unused if it is not a controller."""
    http_port: int
    properties: str
    data: str
    log: str
    pid: int | None = None
    started: str | None = None
    """Start time of process `pid`, as the system prints it; distinguishes it from a later
    process."""
    state: str = STOPPED
    """The last action requested."""
    roles: str = COMBINED
    directory_id: str = ""
    """Of its metadata directory, by which the other voters know it; empty: chosen by formatting."""

    @property
    def is_broker(self) -> bool:
        """Whether clients may use it."""
        return "broker" in self.roles

    @property
    def is_controller(self) -> bool:
        """Whether it is a voter."""
        return "controller" in self.roles


@dataclass(frozen=True, slots=True)
class Layout:
    """The members of a cluster."""

    combined: int = 1
    controllers: int = 0
    brokers: int = 0
    zookeeper: str = ""
    """`zookeeper.connect` of brokers in ZooKeeper mode."""

    def __str__(self) -> str:
        """As the options of `up` say it."""
        if self.combined:
            return f"--nodes {self.combined}"
        if self.zookeeper:
            return f"--zookeeper {self.zookeeper} --brokers {self.brokers}"
        return f"--controllers {self.controllers} --brokers {self.brokers}"

    def members(self) -> Iterator[tuple[int, str]]:
        """Ids and roles."""
        for number in range(self.combined):
            yield 1 + number, COMBINED
        for number in range(self.brokers):
            yield 1 + number, "broker"
        for number in range(self.controllers):
            yield FIRST_CONTROLLER_ID + number, "controller"


@dataclass(slots=True, kw_only=True)
class LocalCluster:
    """The content of DIR/cluster.json."""

    cluster_id: str
    listen: str
    advertise: str
    bootstrap: str = ""
    nodes: list[LocalNode] = field(default_factory=list)
    overrides: dict[str, str] = field(default_factory=dict)
    secured_in: str = ""
    """DIR if it was created with `up --secure` (`cli.local_security`)."""
    users: list[str] = field(default_factory=list)
    """Of a secured cluster, beside `admin`."""
    zookeeper: str = ""
    """`zookeeper.connect` if the brokers are in ZooKeeper mode."""

    @property
    def security(self) -> LocalSecurity | None:
        """None if everyone who reaches it may do everything."""
        return LocalSecurity(self.secured_in) if self.secured_in else None

    @property
    def http_host(self) -> str:
        """The host of /health and /metrics, which have no authentication."""
        return _LOOPBACK if self.secured_in else self.listen

    @property
    def layout(self) -> Layout:
        """Its members."""
        roles = [node.roles for node in self.nodes]
        return Layout(
            roles.count(COMBINED), roles.count("controller"), roles.count("broker"), self.zookeeper
        )

    @property
    def controllers(self) -> list[LocalNode]:
        """The voters."""
        return [node for node in self.nodes if node.is_controller]

    @property
    def brokers(self) -> list[LocalNode]:
        """Those that clients use."""
        return [node for node in self.nodes if node.is_broker]

    @property
    def has_majority(self) -> bool:
        """Whether enough controllers run to elect one; ZooKeeper's brokers need none."""
        if self.zookeeper:
            return True
        running = sum(is_running(n) and n.state != PAUSED for n in self.controllers)
        return running > len(self.controllers) // 2

    def node(self, node_id: int) -> LocalNode:
        """Return the node with that id; `CommandError` if there is none."""
        for node in self.nodes:
            if node.id == node_id:
                return node
        ids = ", ".join(str(node.id) for node in self.nodes)
        raise CommandError(f"node {node_id} does not exist; the nodes are {ids}")


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
        """Return the recorded state; `CommandError` if there is none."""
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
        content = asdict(cluster)
        if not cluster.secured_in:  # earlier versions, which do not know these fields, can read it
            del content["secured_in"], content["users"]
        if not cluster.zookeeper:
            del content["zookeeper"]
        fresh.write_text(json.dumps(content, indent=2) + "\n")
        fresh.replace(self.file)

    def plan(
        self,
        layout: Layout | None,
        *,
        port: int,
        listen: str,
        advertise: str | None,
        overrides: Mapping[str, str],
        secure: bool,
    ) -> LocalCluster:
        """The cluster to run: the one recorded with these addresses, or a new one.

        Raises:
            CommandError: another layout than `layout` is recorded, or one that is not secured.
        """
        is_new = not self.file.exists()
        cluster = self._recorded_or_new(layout, listen)
        if is_new:
            self._check_security(cluster, secure=secure)
            cluster.secured_in = str(self.path) if secure else ""
        elif secure and not cluster.secured_in:
            raise CommandError(
                f"the cluster in {self.path} was created without --secure; secure it as described "
                "in docs/SECURITY.md, or choose another --dir"
            )
        cluster.listen = listen
        cluster.advertise = advertise or _default_host(listen)
        cluster.overrides.update(overrides)
        for node in cluster.nodes:
            node.port = port + node.id - 1
        cluster.bootstrap = ",".join(f"{cluster.advertise}:{node.port}" for node in cluster.brokers)
        return cluster

    def _check_security(self, cluster: LocalCluster, *, secure: bool) -> None:
        """Check that a directory without cluster.json is used as it was created."""
        was_secured = LocalSecurity(self.path).exists
        if was_secured and not secure:
            raise CommandError(f"the cluster in {self.path} is secured; start it with --secure")
        if secure and not was_secured and any(_meta_of(node) for node in cluster.nodes):
            raise CommandError(f"the data in {self.path} is of a cluster without --secure")

    def _recorded_or_new(self, layout: Layout | None, listen: str) -> LocalCluster:
        if self.file.exists():
            recorded = self.load()
            if layout is not None and layout != recorded.layout:
                raise CommandError(
                    f"a cluster of {recorded.layout} lives in {self.path}, and its members stay "
                    f"as they are: start it with {recorded.layout}, or choose another --dir"
                )
            return recorded
        layout = layout or Layout()
        nodes = [self._new_node(node_id, roles) for node_id, roles in layout.members()]
        # ZooKeeper decides the cluster id, and a broker the id of its directory.
        cluster_id = _cluster_id_on_disk(nodes) or ("" if layout.zookeeper else _random_id())
        if layout.zookeeper:
            for node in nodes:
                node.directory_id = ""
        return LocalCluster(
            cluster_id=cluster_id, listen=listen, advertise="", nodes=nodes,
            zookeeper=layout.zookeeper,
        )  # fmt: skip

    def _new_node(self, node_id: int, roles: str) -> LocalNode:
        home = self.path / f"node-{node_id}"
        return LocalNode(
            id=node_id,
            port=0,
            controller_port=0,
            http_port=0,
            properties=str(home / "server.properties"),
            data=str(home / "data"),
            log=str(home / "node.log"),
            roles=roles,
            directory_id=_random_id(),
        )


def _cluster_id_on_disk(nodes: Sequence[LocalNode]) -> str | None:
    """The cluster id of data that is there already, as after cluster.json was lost.

    Raises:
        CommandError: the nodes' data is of different clusters.
    """
    found = {node.id: meta.cluster_id for node in nodes if (meta := _meta_of(node)) is not None}
    if len(set(found.values())) > 1:
        shown = ", ".join(f"node {node} has {cluster}" for node, cluster in found.items())
        raise CommandError(f"the data here is of different clusters: {shown}")
    return next(iter(found.values()), None)


def _meta_of(node: LocalNode) -> MetaProperties | None:
    from sparkraft.storage.disk import OsDisk
    from sparkraft.storage.meta_properties import BadMetaProperties, read_meta_properties

    try:
        return read_meta_properties(OsDisk(), node.data)
    except BadMetaProperties as error:
        raise CommandError(f"{node.data}: {error}") from error


def _random_id() -> str:
    while True:
        text = urlsafe_b64encode(secrets.token_bytes(16)).rstrip(b"=").decode()
        if not text.startswith("-"):
            return text


def _default_host(listen: str) -> str:
    return socket.gethostname() if listen in _ANY_ADDRESS else listen


# starting


def start(cluster: LocalCluster, nodes: Sequence[LocalNode]) -> None:
    """Write their properties, format directories that are new, and start their processes."""
    for node in nodes:
        if is_running(node):
            raise CommandError(f"node {node.id} is running already (process {node.pid})")
        choose_ports(node, cluster.nodes, cluster.listen, cluster.http_host)
    if cluster.zookeeper:
        local_zookeeper.check_ensemble(cluster.zookeeper)
    # All ports are known before the first node is formatted: the voters are named by them.
    for node in nodes:
        _write_properties(cluster, node)
        if not cluster.zookeeper:
            _format(cluster, node)
        adopt_identity(cluster, node)
        _launch(node)


def adopt_identity(cluster: LocalCluster, node: LocalNode) -> None:
    """Record the directory id that the node's meta.properties has, and ZooKeeper's cluster id.

    Raises:
        CommandError: the data is of another cluster.
    """
    meta = _meta_of(node)
    if meta is None:
        return
    if cluster.zookeeper and not cluster.cluster_id:
        cluster.cluster_id = meta.cluster_id
    if meta.cluster_id != cluster.cluster_id:
        raise CommandError(
            f"{node.data} is of cluster {meta.cluster_id}, but cluster.json has "
            f"{cluster.cluster_id}: move the directory away, or correct cluster.json"
        )
    if meta.directory_id is not None:
        node.directory_id = str(meta.directory_id)


def _launch(node: LocalNode) -> None:
    command = [sys.executable, "-P", "-m", "sparkraft.cli.main", "server-start", node.properties]
    local_process.launch(node, command, Path(node.log))
    node.state = RUNNING


def _write_properties(cluster: LocalCluster, node: LocalNode) -> None:
    path = Path(node.properties)
    if cluster.security is None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_properties(cluster, node))
        return
    make_private_directory(path.parent)
    cluster.security.create_directories()
    write_private(path, _properties(cluster, node))


def _properties(cluster: LocalCluster, node: LocalNode) -> str:
    lines = {
        **_membership(cluster, node),
        **_listeners(cluster, node),
        "log.dirs": node.data,
        **_replication(sum(each.is_broker for each in cluster.nodes), shares=not cluster.zookeeper),
        "group.initial.rebalance.delay.ms": "0",
        "sparkraft.http.listener": f"{_in_url(cluster.http_host)}:{node.http_port}",
        **_security_configs(cluster, node),
        **cluster.overrides,
    }
    head = "# Written by `sparkraft up` at every start; change it with --override.\n"
    return head + "".join(f"{key}={escaped(value)}\n" for key, value in lines.items())


def _membership(cluster: LocalCluster, node: LocalNode) -> dict[str, str]:
    if cluster.zookeeper:
        return local_zookeeper.broker_configs(cluster.zookeeper, node.id)
    return {
        "process.roles": node.roles,
        "node.id": str(node.id),
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": ",".join(
            f"127.0.0.1:{voter.controller_port}" for voter in cluster.controllers
        ),
    }


def _replication(brokers: int, *, shares: bool) -> dict[str, str]:
    """Three replicas if there are three brokers; two must have a record before it is acknowledged.

    One broker can then be down without any effect on clients.
    """
    copies = str(min(brokers, _REPLICAS))
    in_sync = str(max(min(brokers, _REPLICAS) - 1, 1))
    configs = {
        "default.replication.factor": copies,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
    }
    if shares:
        configs["share.coordinator.state.topic.replication.factor"] = copies
        configs["share.coordinator.state.topic.min.isr"] = in_sync
    return configs


def _listeners(cluster: LocalCluster, node: LocalNode) -> dict[str, str]:
    listening, advertised = [], []
    if node.is_broker:
        name = local_security.LISTENER if cluster.secured_in else "PLAINTEXT"
        listening.append(f"{name}://{_in_url(cluster.listen)}:{node.port}")
        advertised.append(f"{name}://{cluster.advertise}:{node.port}")
    if node.is_controller:
        listening.append(f"CONTROLLER://127.0.0.1:{node.controller_port}")
        advertised.append(f"CONTROLLER://127.0.0.1:{node.controller_port}")
    return {"listeners": ",".join(listening), "advertised.listeners": ",".join(advertised)}


def _security_configs(cluster: LocalCluster, node: LocalNode) -> dict[str, str]:
    if cluster.security is None:
        return {}
    return cluster.security.node_configs(
        node.id,
        is_broker=node.is_broker,
        hosts={cluster.listen, cluster.advertise} - _ANY_ADDRESS,
        node_ids=[each.id for each in cluster.nodes],
    )


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _format(cluster: LocalCluster, node: LocalNode) -> None:
    if (Path(node.data) / "meta.properties").exists():
        return
    import contextlib
    import io

    from sparkraft.cli import storage

    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = storage.main(
            [
                "format",
                *_format_as(cluster, node),
                "-t",
                cluster.cluster_id,
                "-c",
                node.properties,
            ]
        )
    if code:
        raise CommandError(f"{node.data} can't be formatted: {said.getvalue().strip()}")


def _format_as(cluster: LocalCluster, node: LocalNode) -> list[str]:
    voters = cluster.controllers
    if not node.is_controller:
        return ["--no-initial-controllers"]
    named = [f"{v.id}@127.0.0.1:{v.controller_port}:{v.directory_id}" for v in voters]
    options = ["--initial-controllers", ",".join(named)]
    if cluster.security is not None:
        for credential in cluster.security.first_credentials(b.id for b in cluster.brokers):
            options += ["--add-scram", credential]
    return options


def wait_until_serving(cluster: LocalCluster, node: LocalNode) -> None:
    """Return when a broker answers Metadata and names itself, a controller when it listens.

    Raises:
        CommandError: it ended, or doesn't serve in time.
    """
    deadline = time.monotonic() + START_SECONDS_MAX
    while not _serves(cluster, node):
        if not is_running(node):
            raise CommandError(f"node {node.id} exited; the end of its log:\n{log_tail(node)}")
        if time.monotonic() > deadline:
            raise CommandError(
                f"node {node.id} does not serve after {START_SECONDS_MAX} s; the end of its log:\n"
                f"{log_tail(node)}"
            )
        time.sleep(_POLL_SECONDS)


def _serves(cluster: LocalCluster, node: LocalNode) -> bool:
    host = _LOOPBACK if cluster.listen in _ANY_ADDRESS else cluster.listen
    if not node.is_broker:
        return _accepts("127.0.0.1", node.controller_port)
    if not _accepts(host, node.port):
        return False
    import asyncio

    address = f"{_in_url(host)}:{node.port}"
    return asyncio.run(_is_in_metadata(client_of(cluster, node, address), node))


def _accepts(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.settimeout(1)
        return not probe.connect_ex((host, port))


def client_of(cluster: LocalCluster, node: LocalNode, address: str) -> Cluster:
    """A client of a cluster; of a secured one it has the user of `node`."""
    from sparkraft.client.cluster import Cluster

    if cluster.security is not None:
        user = local_security.node_user(node.id)
        return cluster.security.connection_of(user, address, timeout_ms=_REQUEST_MS_MAX)
    return Cluster(address, client_id="sparkraft-up", request_timeout_ms=_REQUEST_MS_MAX)


async def _is_in_metadata(client: Cluster, node: LocalNode) -> bool:
    from sparkraft.base.errors import KafkaError

    async with client:
        try:
            view = await client.refresh(())
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


def stop(*nodes: LocalNode) -> None:
    """Send SIGTERM and wait for a clean stop of all; SIGKILL if it takes too long."""
    local_process.end(*nodes)
    for node in nodes:
        node.state = STOPPED


def stop_all(cluster: LocalCluster) -> bool:
    """Stop brokers, then controllers, which brokers need to leave in order; whether any ran."""
    brokers = [n for n in cluster.nodes if not n.is_controller and is_running(n)]
    controllers = [n for n in cluster.controllers if is_running(n)]
    stop(*brokers)
    stop(*controllers)
    return bool(brokers or controllers)


def kill(node: LocalNode) -> None:
    """End it as kill -9 does."""
    os.kill(_own_pid(node), signal.SIGKILL)
    local_process.wait_for_end(node, local_process.STOP_SECONDS_MAX)
    local_process.forget(node)
    node.state = KILLED


def pause(node: LocalNode) -> None:
    """Send SIGSTOP: the node stops responding but keeps its sockets."""
    os.kill(_own_pid(node), signal.SIGSTOP)
    node.state = PAUSED


def resume(node: LocalNode) -> None:
    """SIGCONT."""
    os.kill(_own_pid(node), signal.SIGCONT)
    node.state = RUNNING


def _own_pid(node: LocalNode) -> int:
    return local_process.own_pid(node, f"node {node.id}")
