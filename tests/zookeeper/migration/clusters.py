"""Nodes of a migration as processes: our controller, and brokers in both modes."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from sparkraft.security.standard_authorizer import CLASS_NAME as STANDARD_AUTHORIZER
from sparkraft.server.zookeeper_config import ACL_AUTHORIZER
from sparkraft.zookeeper.requests import GetData
from tests.support.jvm import java_command
from tests.support.nodes import START_SECONDS, KafkaNode, SparkraftNode
from tests.support.ports import lasting_ports
from tests.support.turns import JVM_STARTS, turn
from tests.support.zookeeper import controller_of, submit
from tests.support.zookeeper_brokers import KafkaBroker

CONTROLLER_ID = 3000

MIGRATING = {"zookeeper.metadata.migration.enable": "true"}


RELEASE = "3.9-IV0"
"""metadata.version of a migration, unless another one is given."""

_KEYS_OF_A_MIGRATION = (
    *MIGRATING,
    "controller.quorum.voters",
    "controller.listener.names",
    "listener.security.protocol.map",
)


def format_for(ensemble: str, properties: Path, *options: str) -> None:
    """Format the directory of a node for the cluster of an ensemble, whose id may begin with -."""
    data, _ = submit(ensemble, GetData(path="/cluster/id"))
    command = [sys.executable, "-m", "sparkraft.cli.main", "storage", "format"]
    subprocess.run(
        [
            *command, f"--cluster-id={json.loads(data)['id']}", "-c", str(properties),
            "--ignore-formatted", *options,
        ],
        timeout=START_SECONDS, check=True, capture_output=True,
    )  # fmt: skip


class OurController(SparkraftNode):
    """A KRaft controller of sparkraft that may migrate a cluster."""

    clean_exit = 0
    """Exit code after SIGTERM."""

    def __init__(
        self,
        directory: Path,
        ensemble: str,
        overrides: Mapping[str, str] = {},
        *,
        node_id: int = CONTROLLER_ID,
        quorum: Mapping[int, int] | None = None,
        jars: Path | None = None,
        release: str = RELEASE,
    ) -> None:
        """Write the configuration.

        Args:
            directory: of this node alone.
            ensemble: of the cluster.
            overrides: more configuration.
            node_id: of this node.
            quorum: ids and ports of the voters; by default this node is the only one.
            jars: Kafka's, for its controller.
            release: metadata.version of a new quorum.
        """
        self.ensemble, self.migrates, self.node_id = ensemble, True, node_id
        self.release = release
        if quorum is None:
            quorum = {node_id: lasting_ports(1)[0]}
        self.quorum = quorum
        super().__init__(directory, ports=(0, quorum[node_id]), overrides=overrides, jars=jars)

    def write_properties(self) -> None:
        properties = {
            "process.roles": "controller",
            "node.id": str(self.node_id),
            "controller.quorum.voters": self.voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"CONTROLLER://127.0.0.1:{self.controller_port}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(self.log_dir),
            "auto.leader.rebalance.enable": "false",
            **self.overrides,
        }
        if self.migrates:
            properties |= {**MIGRATING, "zookeeper.connect": self.ensemble}
        text = "".join(f"{key}={value}\n" for key, value in properties.items())
        self.properties_path.write_text(text)

    @property
    def voters(self) -> str:
        """The value of `controller.quorum.voters`."""
        return ",".join(f"{each}@127.0.0.1:{port}" for each, port in self.quorum.items())

    @property
    def ready_port(self) -> int:
        return self.controller_port

    def format(self) -> None:
        """Format for the cluster of the ensemble, with the features of a release."""
        format_for(self.ensemble, self.properties_path, "--release-version", self.release)

    def restart(self, *, migrates: bool) -> None:
        assert self.stop() == self.clean_exit
        self.migrates = migrates
        self.write_properties()
        self.start()


class KafkaController(OurController):
    """A KRaft controller of Kafka 3.9."""

    clean_exit = 143

    def start_command(self) -> list[str]:
        """`kafka-server-start.sh`."""
        assert self.jars is not None
        return [*java_command(self.jars, "-Xmx256M"), "kafka.Kafka", str(self.properties_path)]

    def start(self) -> None:
        """Start when it is this process's turn."""
        with turn(JVM_STARTS):
            super().start()


class Quorum:
    """Several controllers of one kind, by id; a context manager."""

    def __init__(
        self,
        folder: Path,
        ensemble: str,
        size: int,
        *,
        kafka_jars: Path | None = None,
        overrides: Mapping[str, str] = {},
    ) -> None:
        """Write their configurations; they are Kafka's if `kafka_jars` is given."""
        ids = range(CONTROLLER_ID, CONTROLLER_ID + size)
        quorum = dict(zip(ids, lasting_ports(size), strict=True))
        kind = OurController if kafka_jars is None else KafkaController
        self.ensemble = ensemble
        self.nodes = {
            each: kind(
                folder / str(each),
                ensemble,
                overrides,
                node_id=each,
                quorum=quorum,
                jars=kafka_jars,
            )
            for each in ids
        }

    @property
    def voters(self) -> str:
        """The value of `controller.quorum.voters`."""
        return self.nodes[CONTROLLER_ID].voters

    def output_tail(self) -> str:
        """The last lines that the nodes printed."""
        return "\n".join(node.output_tail() for node in self.nodes.values())

    def active(self) -> OurController:
        """The one that has /controller."""
        return self.nodes[controller_of(self.ensemble)[0]]

    def restart(self, *, migrates: bool) -> None:
        """Restart one after another."""
        for node in self.nodes.values():
            node.restart(migrates=migrates)

    def stop(self) -> None:
        """Stop all."""
        for node in self.nodes.values():
            assert node.stop() == node.clean_exit

    def __enter__(self) -> Self:
        for node in self.nodes.values():
            node.format()
            node.launch()
        for node in self.nodes.values():
            node.wait_until_ready()
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes.values():
            node.__exit__()


class MigratingBroker(KafkaBroker):
    """A broker of Kafka 3.9, or of ours, that changes its mode."""

    def __init__(
        self,
        directory: Path,
        broker_id: int,
        ensemble: str,
        jars: Path,
        overrides: Mapping[str, str] = {},
        *,
        is_ours: bool = False,
    ) -> None:
        self._is_ours = is_ours
        super().__init__(directory, broker_id, ensemble, jars, overrides)

    def start_command(self) -> list[str]:
        if not self._is_ours:
            return super().start_command()
        command = [sys.executable, "-m", "sparkraft.cli.main", "server-start"]
        return [*command, str(self.properties_path)]

    def join(self, controller: OurController | Quorum) -> None:
        """Restart in ZooKeeper mode, known to the controller."""
        quorum = {
            "controller.quorum.voters": controller.voters,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
        }
        self._restart({**MIGRATING, **quorum})

    def leave_zookeeper(self, *, as_ours: bool = False, jars: Path | None = None) -> None:
        """Restart in KRaft mode, on the same directory.

        As it is, under sparkraft, or under the version of Kafka whose jars are given.
        """
        self._is_ours |= as_ours
        self.jars = jars or self.jars
        if "authorizer.class.name" in self.overrides:
            self.overrides["authorizer.class.name"] = STANDARD_AUTHORIZER
        for key in (*MIGRATING, "zookeeper.connect", "zookeeper.session.timeout.ms", "broker.id"):
            self.overrides.pop(key, None)
        self._restart({"process.roles": "broker", "node.id": str(self.broker_id)})

    def return_to_zookeeper(self, *, migrates: bool) -> None:
        """Restart in ZooKeeper mode, known to the controller or without the keys of a migration."""
        if "authorizer.class.name" in self.overrides:
            self.overrides["authorizer.class.name"] = ACL_AUTHORIZER
        for key in ("process.roles", "node.id", *(() if migrates else _KEYS_OF_A_MIGRATION)):
            self.overrides.pop(key, None)
        self._restart(MIGRATING if migrates else {})

    def write_properties(self) -> None:
        super().write_properties()
        if "process.roles" in self.overrides:
            lines = self.properties_path.read_text().splitlines()
            kept = [each for each in lines if not each.startswith(("zookeeper.", "broker.id="))]
            self.properties_path.write_text("\n".join(kept) + "\n")

    def _restart(self, overrides: Mapping[str, str]) -> None:
        self.stop()  # a JVM ends with 143
        self.overrides |= overrides
        self.write_properties()
        self.start()


class KraftBroker(KafkaNode):
    """A new broker of Kafka in KRaft mode that joins a migrating cluster."""

    def __init__(
        self, directory: Path, broker_id: int, controller: OurController, jars: Path
    ) -> None:
        """Write the configuration.

        Args:
            directory: of this node alone.
            broker_id: its node id.
            controller: of the quorum.
            jars: Kafka's, of any version.
        """
        self._controller = controller
        overrides = {
            "process.roles": "broker",
            "node.id": str(broker_id),
            "controller.quorum.voters": controller.voters,
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
        }
        super().__init__(directory, overrides=overrides, jars=jars)

    def write_properties(self) -> None:
        """As of a combined node, without its controller."""
        super().write_properties()
        listeners = f"listeners=PLAINTEXT://127.0.0.1:{self.port}"
        text = "".join(
            f"{listeners if line.startswith('listeners=') else line}\n"
            for line in self.properties_path.read_text().splitlines()
            if not line.startswith("controller.quorum.bootstrap.servers=")
        )
        self.properties_path.write_text(text)

    def format(self) -> None:
        """Format for the cluster of the ensemble."""
        format_for(self._controller.ensemble, self.properties_path)


def status_of(ensemble: str) -> dict[str, Any]:
    """`zookeeper-migration status`."""
    shown: dict[str, Any] = json.loads(_ask(ensemble, "status", "--output", "json"))
    return shown


def check_conditions(ensemble: str) -> None:
    """`zookeeper-migration check` must print `ok` only."""
    lines = _ask(ensemble, "check").splitlines()
    assert any("brokers are registered" in line for line in lines), lines
    assert not [line for line in lines if line.startswith("NO ")], lines


def _ask(ensemble: str, action: str, *options: str) -> str:
    command = [sys.executable, "-m", "sparkraft.cli.main", "zookeeper-migration", action]
    done = subprocess.run(
        [*command, "--zookeeper", ensemble, *options],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return done.stdout
