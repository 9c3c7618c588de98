"""Nodes of a migration as processes: our controller, and brokers in both modes."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sparkraft.security.standard_authorizer import CLASS_NAME as STANDARD_AUTHORIZER
from sparkraft.zookeeper.requests import GetData
from tests.support.nodes import START_SECONDS, SparkraftNode
from tests.support.ports import lasting_ports
from tests.support.zookeeper import submit
from tests.support.zookeeper_brokers import KafkaBroker

CONTROLLER_ID = 3000

MIGRATING = {"zookeeper.metadata.migration.enable": "true"}


_KEYS_OF_A_MIGRATION = (
    *MIGRATING,
    "controller.quorum.voters",
    "controller.listener.names",
    "listener.security.protocol.map",
)


class OurController(SparkraftNode):
    """A KRaft controller of sparkraft that may migrate a cluster, the only voter of its quorum."""

    def __init__(self, directory: Path, ensemble: str, overrides: Mapping[str, str] = {}) -> None:
        self.ensemble, self.migrates = ensemble, True
        unused, port = lasting_ports(2)
        super().__init__(directory, ports=(unused, port), overrides=overrides)

    def write_properties(self) -> None:
        properties = {
            "process.roles": "controller",
            "node.id": str(CONTROLLER_ID),
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
        return f"{CONTROLLER_ID}@127.0.0.1:{self.controller_port}"

    @property
    def ready_port(self) -> int:
        return self.controller_port

    def format(self) -> None:
        """Format for the cluster of the ensemble, with the features of Kafka 3.9."""
        data, _ = submit(self.ensemble, GetData(path="/cluster/id"))
        command = [sys.executable, "-m", "sparkraft.cli.main", "storage", "format"]
        subprocess.run(
            [
                *command, "-t", json.loads(data)["id"], "-c", str(self.properties_path),
                "--release-version", "3.9-IV0", "--ignore-formatted",
            ],
            timeout=START_SECONDS, check=True, capture_output=True,
        )  # fmt: skip

    def restart(self, *, migrates: bool) -> None:
        assert self.stop() == 0
        self.migrates = migrates
        self.write_properties()
        self.start()


class MigratingBroker(KafkaBroker):
    """A broker of Kafka 3.9 that changes its mode."""

    _is_ours = False

    def start_command(self) -> list[str]:
        if not self._is_ours:
            return super().start_command()
        command = [sys.executable, "-m", "sparkraft.cli.main", "server-start"]
        return [*command, str(self.properties_path)]

    def join(self, controller: OurController) -> None:
        """Restart in ZooKeeper mode, known to the controller."""
        quorum = {
            "controller.quorum.voters": controller.voters,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
        }
        self._restart({**MIGRATING, **quorum})

    def leave_zookeeper(self, *, as_ours: bool = False) -> None:
        """Restart in KRaft mode, on the same directory: under Kafka 3.9, or under sparkraft."""
        self._is_ours = as_ours
        if "authorizer.class.name" in self.overrides:
            self.overrides["authorizer.class.name"] = STANDARD_AUTHORIZER
        for key in (*MIGRATING, "zookeeper.connect", "zookeeper.session.timeout.ms", "broker.id"):
            self.overrides.pop(key, None)
        self._restart({"process.roles": "broker", "node.id": str(self.broker_id)})

    def return_to_zookeeper(self, *, migrates: bool) -> None:
        """Restart in ZooKeeper mode, known to the controller or without the keys of a migration."""
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


def status_of(ensemble: str) -> dict[str, Any]:
    """`zookeeper-migration status`."""
    command = [sys.executable, "-m", "sparkraft.cli.main", "zookeeper-migration", "status"]
    done = subprocess.run(
        [*command, "--zookeeper", ensemble, "--output", "json"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    shown: dict[str, Any] = json.loads(done.stdout)
    return shown
