"""Three brokers on ZooKeeper become three brokers of sparkraft in KRaft mode.

python run.py --libs kafka_2.13-3.9.2/libs
python run.py --libs kafka_2.13-3.9.2/libs --from sparkraft

The folder has the jars of Kafka 3.9, which include ZooKeeper's. The brokers in ZooKeeper mode are
those of Kafka 3.9, or of sparkraft. Everything runs on this machine, in a temporary folder, and
ends with this program.
"""

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from sparkraft.client.admin import Admin
from sparkraft.client.cluster import Cluster
from sparkraft.client.consumer import Consumer, ConsumerSettings
from sparkraft.client.producer import Producer
from sparkraft.client.values import NewTopic

BROKERS = (1, 2, 3)
CONTROLLER = 3000
TOPIC = "orders"
PARTITIONS = 6
RECORDS = 300
WAIT_SECONDS_MAX = 180
SPARKRAFT = [sys.executable, "-m", "sparkraft.cli.main"]
NAMES = {"kafka": "Kafka 3.9", "sparkraft": "sparkraft"}


class Process:
    """A program that runs until it is stopped; its output goes into a file."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder / name
        self.folder.mkdir()
        self.properties: dict[str, str] = {"log.dirs": str(self.folder / "data")}
        self._running: subprocess.Popen[bytes] | None = None

    def start(self, command: list[str], port: int) -> None:
        """Write the properties, start the program with them, and wait until it listens."""
        path = self.folder / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in self.properties.items()))
        with (self.folder / "output.txt").open("ab") as output:
            self._running = subprocess.Popen([*command, str(path)], stdout=output, stderr=output)
        wait_until(lambda: listens(port) or self._fail_if_ended())

    def _fail_if_ended(self) -> bool:
        if self._running is not None and self._running.poll() is not None:
            text = (self.folder / "output.txt").read_text(errors="replace")
            raise SystemExit(f"{self.folder.name} ended:\n{text[-2000:]}")
        return False

    def stop(self) -> None:
        """End the program with SIGTERM, and wait."""
        running, self._running = self._running, None
        if running is not None:
            running.terminate()
            running.wait(WAIT_SECONDS_MAX)


class Migration:
    """The processes, and their ports."""

    def __init__(self, libs: Path, folder: Path, *, kind: str) -> None:
        self.java = ["java", "-Xmx256M", "-cp", f"{libs}/*"]
        self.kind = kind
        start_kafka = [*self.java, "kafka.Kafka"]
        self.start_before = start_kafka if kind == "kafka" else [*SPARKRAFT, "server-start"]
        """Starts a broker in ZooKeeper mode."""
        self.ensemble, self.controller_port, *ports = free_ports(2 + len(BROKERS))
        self.ports = dict(zip(BROKERS, ports, strict=True))
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports)
        self.zookeeper = Process(folder, "zookeeper")
        self.controller = Process(folder, "controller")
        self.brokers = {each: Process(folder, f"broker-{each}") for each in BROKERS}

    def start_zookeeper(self) -> None:
        self.zookeeper.properties = {
            "dataDir": str(self.zookeeper.folder / "data"),
            "clientPort": str(self.ensemble),
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
            "maxClientCnxns": "0",
        }
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        self.zookeeper.start([*self.java, main], self.ensemble)

    def start_broker(self, broker: int, *, command: list[str], **changes: str | None) -> None:
        """Start a broker with changed properties; None removes one. `_` stands for a dot."""
        process = self.brokers[broker]
        for key, value in changes.items():
            name = key.replace("_", ".")
            if value is None:
                process.properties.pop(name, None)
            else:
                process.properties[name] = value
        process.start(command, self.ports[broker])

    def start_in_zookeeper_mode(self, broker: int) -> None:
        listener = f"PLAINTEXT://127.0.0.1:{self.ports[broker]}"
        self.start_broker(
            broker,
            command=self.start_before,
            broker_id=str(broker),
            zookeeper_connect=f"127.0.0.1:{self.ensemble}",
            listeners=listener,
            advertised_listeners=listener,
            sparkraft_controllership_enable=None if self.kind == "kafka" else "true",
        )

    def start_controller(self, *, migrates: bool) -> None:
        """Format the controller for the cluster in ZooKeeper, once, and start it."""
        listener = f"CONTROLLER://127.0.0.1:{self.controller_port}"
        self.controller.properties |= {
            "process.roles": "controller",
            "node.id": str(CONTROLLER),
            "controller.quorum.voters": self.voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": listener,
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "zookeeper.connect": f"127.0.0.1:{self.ensemble}",
            "zookeeper.metadata.migration.enable": "true",
        }
        if migrates:
            path = self.controller.folder / "format.properties"
            lines = [f"{key}={value}\n" for key, value in self.controller.properties.items()]
            path.write_text("".join(lines))
            options = ["--cluster-id", self.cluster_id(), "--config", str(path)]
            release = ["--release-version", "3.9-IV0"]
            sparkraft("storage", "format", *options, *release)
        else:
            for key in ("zookeeper.connect", "zookeeper.metadata.migration.enable"):
                del self.controller.properties[key]
        self.controller.start([*SPARKRAFT, "server-start"], self.controller_port)

    @property
    def voters(self) -> str:
        return f"{CONTROLLER}@127.0.0.1:{self.controller_port}"

    def cluster_id(self) -> str:
        shown = sparkraft("zookeeper-check", f"127.0.0.1:{self.ensemble}", "--output", "json")
        found: str = json.loads(shown)["clusterId"]
        return found

    def ask(self, action: str) -> str:
        """`sparkraft zookeeper-migration`."""
        return sparkraft("zookeeper-migration", action, "--zookeeper", f"127.0.0.1:{self.ensemble}")

    def wait_for_stage(self, stage: str) -> None:
        wait_until(lambda: f"Stage:      {stage}\n" in self.ask("status"))
        print(f"Stage: {stage}")

    def stop(self) -> None:
        for process in (*self.brokers.values(), self.controller, self.zookeeper):
            process.stop()

    def run(self) -> None:
        """Migrate, step by step as in docs/ZOOKEEPER.md."""
        self.start_zookeeper()
        for broker in BROKERS:
            self.start_in_zookeeper_mode(broker)
        asyncio.run(produce(self.bootstrap))
        kind = NAMES[self.kind]
        print(f"In ZooKeeper mode: {len(BROKERS)} brokers of {kind}, {RECORDS} records")
        print(self.ask("check").splitlines()[0])
        self.start_controller(migrates=True)
        self.wait_for_stage("waiting")
        for broker in BROKERS:
            self.brokers[broker].stop()
            self.start_broker(
                broker,
                command=self.start_before,
                zookeeper_metadata_migration_enable="true",
                controller_quorum_voters=self.voters,
                controller_listener_names="CONTROLLER",
                listener_security_protocol_map="CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            )
        self.wait_for_stage("dual write")
        for broker in BROKERS:
            self.brokers[broker].stop()
            self.start_broker(
                broker,
                command=[*SPARKRAFT, "server-start"],
                process_roles="broker",
                node_id=str(broker),
                broker_id=None,
                zookeeper_connect=None,
                zookeeper_metadata_migration_enable=None,
                sparkraft_controllership_enable=None,
            )
            print(f"Broker {broker} runs sparkraft, in KRaft mode")
        self.wait_for_stage("kraft brokers")
        self.controller.stop()
        self.start_controller(migrates=False)
        found = asyncio.run(consume(self.bootstrap))
        right = found == list(range(RECORDS))
        print(f"Finalized; {len(found)} records, each once and right: {right}")
        if not right:
            raise SystemExit(1)


async def produce(bootstrap: str) -> None:
    """Create the topic and write the numbers below RECORDS."""
    async with Cluster(bootstrap) as cluster:
        topic = NewTopic(name=TOPIC, partitions=PARTITIONS, replication_factor=len(BROKERS))
        for name, outcome in (await Admin(cluster).create_topics([topic])).items():
            if isinstance(outcome, Exception):
                raise SystemExit(f"{name}: {outcome}")
        async with Producer(cluster) as producer:
            for number in range(RECORDS):
                await producer.send(TOPIC, str(number).encode(), key=str(number).encode())


async def consume(bootstrap: str) -> list[int]:
    """Read all records of the topic."""
    found: list[int] = []
    settings = ConsumerSettings(auto_offset_reset="earliest")
    async with Cluster(bootstrap) as cluster, Consumer(cluster, settings) as consumer:
        consumer.assign([(TOPIC, partition) for partition in range(PARTITIONS)])
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while len(found) < RECORDS and time.monotonic() < deadline:
            found += [int(record.value or b"-1") for record in await consumer.poll(500)]
    return sorted(found)


def sparkraft(*arguments: str) -> str:
    """Run one command of sparkraft and return its output."""
    done = subprocess.run(
        [*SPARKRAFT, *arguments], capture_output=True, text=True, check=False, env=os.environ
    )
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return done.stdout


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that nothing uses."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def listens(port: int) -> bool:
    """Whether a program accepts connections at a port."""
    with socket.socket() as link:
        return link.connect_ex(("127.0.0.1", port)) == 0


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, but not longer than `WAIT_SECONDS_MAX`."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit("the migration did not continue")
        time.sleep(0.2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--libs", type=Path, required=True, help="the jars of Kafka 3.9")
    parser.add_argument(
        "--from", dest="kind", choices=NAMES, default="kafka", help="the brokers in ZooKeeper mode"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        migration = Migration(options.libs, Path(folder), kind=options.kind)
        try:
            migration.run()
        finally:
            migration.stop()


if __name__ == "__main__":
    main()
