"""Brokers in ZooKeeper mode as processes: Kafka 3.9's and ours, with the same server.properties."""

from collections.abc import Mapping
from pathlib import Path

from tests.support.nodes import KafkaNode, SparkraftNode
from tests.support.ports import lasting_ports


def broker_properties(
    broker_id: int, ensemble: str, log_dir: Path, port: int, overrides: Mapping[str, str]
) -> str:
    """The text of server.properties."""
    properties = {
        "broker.id": str(broker_id),
        "zookeeper.connect": ensemble,
        "zookeeper.session.timeout.ms": "6000",
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "log.dirs": str(log_dir),
        "offsets.topic.num.partitions": "4",
        "offsets.topic.replication.factor": "2",
        "transaction.state.log.num.partitions": "2",
        "transaction.state.log.replication.factor": "2",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "controlled.shutdown.retry.backoff.ms": "200",
        "auto.leader.rebalance.enable": "false",
        "replica.lag.time.max.ms": "6000",
        **overrides,
    }
    return "".join(f"{key}={value}\n" for key, value in properties.items())


class OurBroker(SparkraftNode):
    """A broker of sparkraft; unless overridden, it does not stand for the controller."""

    def __init__(
        self, directory: Path, broker_id: int, ensemble: str, overrides: Mapping[str, str] = {}
    ) -> None:
        self.broker_id, self.ensemble = broker_id, ensemble
        super().__init__(directory, overrides=overrides, ports=_two_ports())

    def write_properties(self) -> None:
        overrides = {"sparkraft.controllership.enable": "false", **self.overrides}
        self.properties_path.write_text(
            broker_properties(self.broker_id, self.ensemble, self.log_dir, self.port, overrides)
        )

    def format(self) -> None:
        """Nothing: a directory is not formatted in ZooKeeper mode."""


class KafkaBroker(KafkaNode):
    """A broker of Kafka 3.9."""

    def __init__(
        self,
        directory: Path,
        broker_id: int,
        ensemble: str,
        jars: Path,
        overrides: Mapping[str, str] = {},
    ) -> None:
        self.broker_id, self.ensemble = broker_id, ensemble
        super().__init__(directory, overrides=overrides, jars=jars, ports=_two_ports())

    def write_properties(self) -> None:
        self.properties_path.write_text(
            broker_properties(
                self.broker_id, self.ensemble, self.log_dir, self.port, self.overrides
            )
        )

    def format(self) -> None:
        """Nothing: a directory is not formatted in ZooKeeper mode."""


def _two_ports() -> tuple[int, int]:
    client, unused = lasting_ports(2)
    return client, unused
