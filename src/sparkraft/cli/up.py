"""`up`: a cluster on this machine in one command. Ours; Kafka has no such tool."""

from __future__ import annotations

import signal
import time

from sparkraft.cli import local_cluster, local_console
from sparkraft.cli.errors import CommandError, UsageError
from sparkraft.cli.local_cluster import ClusterDirectory, Layout, LocalCluster
from sparkraft.cli.local_ports import is_loopback
from sparkraft.cli.local_process import is_running
from sparkraft.cli.local_security import check_user
from sparkraft.cli.local_zookeeper import ensemble_of
from sparkraft.cli.options import Options, Values, key_values
from sparkraft.cli.session import print_json, warn

_PORT_MAX = 0xFFFF
_LOOK_SECONDS = 0.5
_VOTER_COUNTS = (1, 3, 5)
_BROKERS_MAX = 100
"""One machine's; controllers' ids begin above."""


def _options() -> Options:
    options = Options("up", "Starts a cluster on this machine; existing data in DIR is reused.")
    options.value("--dir", about="directory of the cluster's data", required=True, metavar="DIR")
    options.value(
        "--nodes",
        about="1, 3 or 5 nodes that are broker and controller (default: as before, else 1)",
        type=int,
        metavar="N",
    )
    options.value(
        "--controllers",
        about="1, 3 or 5 controllers, with --brokers and instead of --nodes",
        type=int,
        metavar="C",
    )
    options.value(
        "--brokers", about="brokers, with --controllers or --zookeeper", type=int, metavar="B"
    )
    options.value(
        "--zookeeper",
        about="zookeeper.connect of a running ensemble: the brokers are in ZooKeeper mode, and one "
        "of them becomes the controller",
        metavar="HOST:PORT",
    )
    options.value(
        "--port",
        about="node 1 listens there for clients, node i on PORT+i-1 (default: as before, else "
        "9092); controllers take PORT+1000 and up on 127.0.0.1, /health and /metrics PORT+2000 "
        "and up, the web console PORT+3000 on 127.0.0.1, or the next free ports",
        type=int,
        metavar="P",
    )
    options.value(
        "--listen",
        about="address to listen on for clients, /health and /metrics (default 127.0.0.1); without "
        "--secure, others than loopback open them, without authentication, to everyone who "
        "reaches it",
        metavar="ADDR",
    )
    options.value("--advertise", about="host name that is advertised to clients", metavar="HOST")
    options.values("--override", about="a config of the nodes; repeatable", metavar="KEY=VALUE")
    options.flag("--no-console", "do not start the web console")
    options.flag(
        "--secure",
        "create a cluster that authenticates, authorizes and encrypts; DIR/clients gets the files "
        "with which clients connect",
    )
    options.values(
        "--user",
        about="a user of a secured cluster beside admin, with all rights on topics, groups and "
        "transactional ids that begin with NAME-; repeatable",
        metavar="NAME",
    )
    options.flag("--detach", "return once the cluster serves, and leave it running")
    options.output()
    return options


def main(argv: list[str]) -> int:
    """Start it; in the foreground, stop it at Ctrl-C or SIGTERM."""
    values = _options().parse(argv)
    _check(values)
    directory = ClusterDirectory(values.dir)
    if values.detach:
        with directory.locked():
            cluster, _ = _start(directory, values)
            console = _start_console(directory, cluster, values)
        _tell(values, directory, cluster, console)
        return 0
    return _in_foreground(directory, values)


def _in_foreground(directory: ClusterDirectory, values: Values) -> int:
    # From now on SIGTERM is what Ctrl-C is: an exception, wherever we are.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    is_ours = False
    code = 0
    try:
        with directory.locked():
            cluster, was_up = _start(directory, values)
            is_ours = not was_up
            console = _start_console(directory, cluster, values) if is_ours else None
        if was_up:
            raise CommandError(
                f"it is up already on {cluster.bootstrap}; "
                f"`sparkraft down --dir {values.dir}` stops it"
            )
        _tell(values, directory, cluster, console)
        code = _watch(directory)
    except KeyboardInterrupt:
        if not is_ours:
            raise
    finally:
        if is_ours:
            _stop(directory)
    return code


def _check(values: Values) -> None:
    for name in values.user:
        check_user(name)
    layout = _layout(values) or Layout()
    count = layout.combined or layout.brokers
    if values.port is not None and not 0 < values.port <= values.port + count - 1 <= _PORT_MAX:
        raise UsageError(f"--port is between 1 and {_PORT_MAX}, for every node")


def _layout(values: Values) -> Layout | None:
    """The requested members; None if the options keep the existing ones."""
    if values.zookeeper is not None:
        return _layout_beside_zookeeper(values)
    if values.nodes is None and values.controllers is None and values.brokers is None:
        return None
    if values.nodes is not None:
        if values.controllers is not None or values.brokers is not None:
            raise UsageError("--nodes are both roles in one; leave out --controllers and --brokers")
        return Layout(_voters("--nodes", values.nodes))
    if values.controllers is None or values.brokers is None:
        raise UsageError("--controllers and --brokers go together, or --zookeeper and --brokers")
    return Layout(0, _voters("--controllers", values.controllers), _brokers(values.brokers))


def _layout_beside_zookeeper(values: Values) -> Layout:
    if values.nodes is not None or values.controllers is not None:
        raise UsageError("--zookeeper goes with --brokers; leave out --nodes and --controllers")
    if values.secure:
        raise UsageError("--secure is for clusters without ZooKeeper")
    connect = str(ensemble_of(values.zookeeper))
    return Layout(0, 0, _brokers(1 if values.brokers is None else values.brokers), connect)


def _brokers(count: int) -> int:
    if not 1 <= count <= _BROKERS_MAX:
        raise UsageError(f"--brokers is between 1 and {_BROKERS_MAX}")
    return count


def _voters(option: str, count: int) -> int:
    if count not in _VOTER_COUNTS:
        raise UsageError(
            f"{option} is 1, 3 or 5: an even number of voters survives no more failures than the "
            "odd one below it"
        )
    return count


def _start(directory: ClusterDirectory, values: Values) -> tuple[LocalCluster, bool]:
    """Start the nodes that don't run; the cluster, and whether all of it ran already."""
    known = directory.load() if directory.file.exists() else None
    layout = _layout(values)
    if known is not None and layout in {None, known.layout}:
        running = [is_running(node) for node in known.nodes]
        if any(running):
            _refuse_changes(known, values)
        if all(running):
            if values.detach:
                _create_users(directory, known, values)
            return known, True
    cluster = directory.plan(
        layout,
        port=values.port or (known.nodes[0].port if known else 9092),
        listen=values.listen or (known.listen if known else "127.0.0.1"),
        advertise=values.advertise or (known.advertise if known and not values.listen else None),
        overrides=key_values(values.override, "--override"),
        secure=values.secure,
    )
    _check_users(cluster, values)
    started = [node for node in cluster.nodes if not is_running(node)]
    try:
        local_cluster.start(cluster, started)
        directory.save(cluster)
        for node in started:
            local_cluster.wait_until_serving(cluster, node)
            local_cluster.adopt_identity(cluster, node)
        directory.save(cluster)
        _create_users(directory, cluster, values)
    except BaseException:
        local_cluster.stop(*started)
        directory.save(cluster)
        raise
    return cluster, False


def _check_users(cluster: LocalCluster, values: Values) -> None:
    if values.user and not cluster.secured_in:
        raise UsageError("--user needs a cluster that was created with --secure")


def _create_users(directory: ClusterDirectory, cluster: LocalCluster, values: Values) -> None:
    _check_users(cluster, values)
    if cluster.secured_in:
        from sparkraft.cli.local_users import create_users

        create_users(cluster, values.user)
        directory.save(cluster)


def _start_console(
    directory: ClusterDirectory, cluster: LocalCluster, values: Values
) -> str | None:
    """Start the web console if it is wanted and installed; the address to open."""
    if values.no_console or cluster.secured_in or not local_console.is_installed():
        return None  # its visitors would have the rights of the admin
    return local_console.start(directory, cluster)


def _refuse_changes(known: LocalCluster, values: Values) -> None:
    """Nodes that run keep what they were started with; all nodes of a cluster have the same."""
    overrides = key_values(values.override, "--override")
    asked = {
        f"--port {values.port}": values.port in {None, known.nodes[0].port},
        f"--listen {values.listen}": values.listen in {None, known.listen},
        f"--advertise {values.advertise}": values.advertise in {None, known.advertise},
        "--secure": bool(known.secured_in) or not values.secure,
        **{
            f"--override {key}={value}": known.overrides.get(key) == value
            for key, value in overrides.items()
        },
    }
    changes = [option for option, is_so in asked.items() if not is_so]
    if changes:
        raise CommandError(
            f"it is up on {known.bootstrap}, without {' '.join(changes)}: "
            f"stop it first, `sparkraft down --dir {values.dir}`"
        )


def _tell(
    values: Values,
    directory: ClusterDirectory,
    cluster: LocalCluster,
    console: str | None,
) -> None:
    if values.output == "json":
        document = {"bootstrap": cluster.bootstrap, "file": str(directory.file), "console": console}
        if cluster.security is not None:
            document["clients"] = str(cluster.security.clients)
        print_json(document)
        return
    node = cluster.nodes[0]
    count = len(cluster.nodes)
    nodes = "1 node" if count == 1 else f"{count} nodes"
    print(f"up: {cluster.bootstrap}   (cluster {cluster.cluster_id}, {nodes})")
    print(f"    logs     {node.log if count == 1 else directory.path / 'node-*' / 'node.log'}")
    host = cluster.http_host if cluster.secured_in else cluster.advertise
    print(f"    health   http://{host}:{node.http_port}/health  and /metrics")
    if not values.no_console and not cluster.secured_in:
        print(f"    console  {local_console.NOT_INSTALLED if console is None else console}")
    login = _tell_security(cluster)
    if not values.no_console and cluster.secured_in:
        print(f"    console  {_console_command(cluster, login)}")
    print(f"    try      sparkraft topics --bootstrap-server {cluster.bootstrap}{login} --list")
    stop = f"sparkraft down --dir {values.dir}" if values.detach else "Ctrl-C"
    print(f"    stop     {stop}", flush=True)


def _tell_security(cluster: LocalCluster) -> str:
    """Print who may connect to what; the options with which a command connects."""
    if cluster.security is None:
        print(f"    open     {_opened(cluster)}")
        return ""
    clients = cluster.security.clients
    print(f"    open     {_secured(cluster)}")
    print(
        f"    clients  {clients}/NAME.properties, NAME.librdkafka.properties, NAME.spark.properties"
    )
    return f" --command-config {clients / 'admin.properties'}"


def _console_command(cluster: LocalCluster, login: str) -> str:
    """The command that starts the web console of a secured cluster, which `up` does not."""
    if not local_console.is_installed():
        return local_console.NOT_INSTALLED
    return (
        f"sparkraft console --bootstrap-server {cluster.bootstrap}{login}   "
        "(its visitors have the rights of admin)"
    )


def _secured(cluster: LocalCluster) -> str:
    """Describe who may connect to which listeners."""
    ports = ", ".join(str(node.port) for node in cluster.brokers)
    users = ", ".join(["admin", *cluster.users])
    return (
        f"{cluster.listen} on {ports} to {users} (SASL_SSL, SCRAM-SHA-512); controllers to nodes' "
        "certificates, /health to everyone, both on 127.0.0.1 only"
    )


def _opened(cluster: LocalCluster) -> str:
    """Describe who reaches which listeners."""
    clients = ", ".join(str(node.port) for node in cluster.brokers)
    http = ", ".join(str(node.http_port) for node in cluster.nodes)
    is_local = is_loopback(cluster.listen)
    reach = "on this machine" if is_local else f"who reaches {cluster.listen}"
    rest = "" if is_local else ". Controllers stay on 127.0.0.1"
    return (
        f"to everyone {reach}, without authentication or encryption: "
        f"clients on {clients}; /health and /metrics on {http}{rest}"
    )


def _watch(directory: ClusterDirectory) -> int:
    """Until no node is left that should run; 1 if one ended by itself."""
    lost: set[int] = set()
    while True:
        time.sleep(_LOOK_SECONDS)
        cluster = directory.load()
        running = {node.id for node in cluster.nodes if is_running(node)}
        lost -= running
        for node in cluster.nodes:
            if node.state == local_cluster.RUNNING and node.id not in running | lost:
                lost.add(node.id)
                tail = local_cluster.log_tail(node)
                warn(f"node {node.id} exited; the end of its log:\n{tail}")
        if not running:
            return int(bool(lost))


def _stop(directory: ClusterDirectory) -> None:
    """Stop all nodes; a second Ctrl-C must not leave some of them running."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    with directory.locked():
        cluster = directory.load()
        local_console.stop(directory)
        local_cluster.stop_all(cluster)
        directory.save(cluster)
    print("stopped", flush=True)
