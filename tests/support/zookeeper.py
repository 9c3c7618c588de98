"""ZooKeeper ensembles of one or three real servers on loopback."""

import asyncio
import json
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sparkraft.server.env import SystemClock, SystemEntropy, SystemNetwork
from sparkraft.zookeeper.client import ZooKeeperClient
from sparkraft.zookeeper.connect_string import parse_connect_string
from sparkraft.zookeeper.errors import NoNodeError
from sparkraft.zookeeper.requests import GetData, Request
from sparkraft.zookeeper.security import read_ensemble_security
from tests.support.certificates import Authority
from tests.support.jvm import java_command
from tests.support.ports import accepts, lasting_ports, wait_until

_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
TICK_MS = 500
"""Sessions last 2 to 20 ticks."""


class ZooKeeperServer:
    """One server of an ensemble: start, stop, kill."""

    def __init__(
        self,
        jars: Path,
        folder: Path,
        index: int,
        ports: list[list[int]],
        *,
        more: Sequence[str] = (),
        flags: Sequence[str] = (),
    ) -> None:
        """Write its configuration.

        Args:
            jars: the folder of ZooKeeper's jars.
            folder: an empty folder of this server.
            index: of this server in `ports`.
            ports: for each server, the ports of clients, peers and elections.
            more: lines of the configuration.
            flags: options of its JVM.
        """
        self._flags = tuple(flags)
        self.port = ports[index][0]
        self._jars = jars
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        data = folder / "data"
        data.mkdir(parents=True)
        (data / "myid").write_text(f"{index + 1}\n")
        lines = [
            f"tickTime={TICK_MS}",
            "initLimit=20",
            "syncLimit=10",
            f"dataDir={data}",
            f"clientPort={self.port}",
            "clientPortAddress=127.0.0.1",
            "admin.enableServer=false",
            "4lw.commands.whitelist=*",
            "maxClientCnxns=0",
        ]
        lines += more
        if len(ports) > 1:
            for server, (_, peer, election) in enumerate(ports, 1):
                lines.append(f"server.{server}=127.0.0.1:{peer}:{election}")
        (folder / "zoo.cfg").write_text("\n".join(lines) + "\n")

    def start(self) -> None:
        command = java_command(self._jars, "-Xmx128M", "-Djava.awt.headless=true", *self._flags)
        with (self._folder / "log.txt").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, _MAIN, str(self._folder / "zoo.cfg")], stdout=log, stderr=log
            )

    def wait_until_it_serves(self) -> None:
        wait_until(lambda: self.mode() in {"standalone", "leader", "follower"}, self.log(), 60)

    def mode(self) -> str:
        """`standalone`, `leader` or `follower`; empty if it does not serve."""
        if not accepts(self.port):
            return ""
        lines = four_letters(self.port, "srvr").splitlines()
        return next((line[6:] for line in lines if line.startswith("Mode: ")), "")

    def log(self) -> str:
        path = self._folder / "log.txt"
        return path.read_text()[-2000:] if path.exists() else ""

    def kill(self) -> None:
        """End it at once, as a power loss of its process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)
            self._process = None


class Ensemble:
    """Servers that form one ensemble; a context manager."""

    def __init__(
        self,
        jars: Path,
        folder: Path,
        size: int = 1,
        *,
        more: Sequence[str] = (),
        flags: Sequence[str] = (),
    ) -> None:
        """Write the configurations.

        Args:
            jars: the folder of ZooKeeper's jars.
            folder: an empty folder.
            size: number of servers.
            more: lines of each configuration.
            flags: options of each JVM.
        """
        taken = lasting_ports(3 * size)
        ports = [taken[3 * at : 3 * at + 3] for at in range(size)]
        self.servers = [
            ZooKeeperServer(jars, folder / f"zookeeper-{at}", at, ports, more=more, flags=flags)
            for at in range(size)
        ]

    @property
    def connect(self) -> str:
        """The value of `zookeeper.connect`."""
        return ",".join(f"127.0.0.1:{server.port}" for server in self.servers)

    def leader(self) -> ZooKeeperServer:
        return next(each for each in self.servers if each.mode() in {"leader", "standalone"})

    def __enter__(self) -> "Ensemble":
        for server in self.servers:
            server.start()
        for server in self.servers:
            server.wait_until_it_serves()
        return self

    def __exit__(self, *_: object) -> None:
        for server in self.servers:
            server.kill()


USER, PASSWORD = "kafka", "kafka-at-zookeeper-6630"
"""The user of `SecuredEnsemble`."""

_DIGEST_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"


def digest_login(password: str = PASSWORD) -> dict[str, str]:
    """The config by which a node of ours is `USER`."""
    module = f'{_DIGEST_MODULE} required username="{USER}" password="{password}";'
    return {"sparkraft.zookeeper.sasl.jaas.config": module}


class SecuredEnsemble(Ensemble):
    """One server with a plain and a TLS port; clients may be `USER`, or have a certificate."""

    def __init__(self, jars: Path, folder: Path, authority: Authority) -> None:
        self.authority = authority
        self.jaas_path = folder / "jaas.conf"
        """For the server (section Server), and for brokers of Kafka (section Client)."""
        self.jaas_path.write_text(
            f'Server {{ {_DIGEST_MODULE} required user_{USER}="{PASSWORD}"; }};\n'
            f'Client {{ {_DIGEST_MODULE} required username="{USER}" password="{PASSWORD}"; }};\n'
        )
        key = authority.issue("zookeeper")
        taken = lasting_ports(4)
        self.secure_port = taken.pop()
        more = [
            f"secureClientPort={self.secure_port}",
            "secureClientPortAddress=127.0.0.1",
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
            f"ssl.keyStore.location={key}",
            "ssl.keyStore.type=PEM",
            f"ssl.trustStore.location={authority.ca_path}",
            "ssl.trustStore.type=PEM",
            "ssl.clientAuth=want",
            "authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
            "authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider",
        ]
        flags = [f"-Djava.security.auth.login.config={self.jaas_path}"]
        self.servers = [
            ZooKeeperServer(jars, folder / "zookeeper-0", 0, [list(taken)], more=more, flags=flags)
        ]

    @property
    def secure_connect(self) -> str:
        """The value of `zookeeper.connect` for clients with TLS."""
        return f"127.0.0.1:{self.secure_port}"

    def tls_configs(self) -> dict[str, str]:
        """The configs of clients without a certificate; Kafka's brokers have the same ones."""
        return {
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
            "zookeeper.ssl.truststore.location": str(self.authority.ca_path),
            "zookeeper.ssl.truststore.type": "PEM",
        }


def submit(connect: str, request: Request) -> Any:
    """Send one request in a session of its own, as an operator does."""

    async def ask() -> Any:
        client = ZooKeeperClient(
            parse_connect_string(connect),
            connect=SystemNetwork().connect,
            clock=SystemClock(),
            entropy=SystemEntropy(),
        )
        await client.start()
        try:
            return await client.submit(request)
        finally:
            await client.close()

    return asyncio.run(ask())


def secured_submit(ensemble: SecuredEnsemble, ask: Callable[[ZooKeeperClient], Any]) -> Any:
    """Return the result of `ask`, called with a session of `USER`."""

    async def session() -> Any:
        client = ZooKeeperClient(
            parse_connect_string(ensemble.connect),
            connect=SystemNetwork().connect,
            clock=SystemClock(),
            entropy=SystemEntropy(),
            security=read_ensemble_security(digest_login()),
        )
        await client.start()
        try:
            return await ask(client)
        finally:
            await client.close()

    return asyncio.run(session())


def controller_of(connect: str) -> tuple[int, int]:
    """The broker in /controller, and the controller epoch; (-1, 0) without a controller."""
    try:
        data, _ = submit(connect, GetData(path="/controller"))
        epoch, _ = submit(connect, GetData(path="/controller_epoch"))
    except NoNodeError:
        return -1, 0
    return json.loads(data)["brokerid"], int(epoch)


def four_letters(port: int, word: str) -> str:
    """Send one of ZooKeeper's four-letter commands; empty if the server hangs up."""
    deadline = time.monotonic() + 5
    received = b""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as link:
            link.sendall(word.encode())
            while time.monotonic() < deadline and (piece := link.recv(65536)):
                received += piece
    except OSError:
        return ""
    return received.decode(errors="replace")
