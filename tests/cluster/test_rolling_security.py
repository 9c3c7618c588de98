"""A running cluster is secured node by node and gets new certificates, under load: nothing is lost.

The steps are those of docs/SECURITY.md ("From open to closed"), without the controllers, which stop
together: a second listener, clients move to it, brokers move to it, the first one is removed. All
nodes are ours, or one is Kafka's.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from sparkraft.client.admin import Admin
from sparkraft.client.scram_admin import NewCredential, ScramAdmin
from sparkraft.client.security import secured_connect
from sparkraft.client.values import ConfigOperation, ResourceType
from sparkraft.security.login import Login
from sparkraft.security.scram import BY_NAME
from sparkraft.security.secret import Secret
from sparkraft.simulation.workload.history import History, acknowledged, check
from tests.cluster.conftest import STEADY
from tests.support.certificates import Authority, pem_configs
from tests.support.clusters import Cluster, Kind, Member
from tests.support.ports import lasting_ports, wait_until
from tests.support.record_clients import LibrdkafkaProducer, TailReader, read_everything
from tests.support.replicas import until_in_sync
from tests.support.sasl import PASSWORDS, SHA_512, server_module

pytestmark = [pytest.mark.real_clients, pytest.mark.long]

IDS = (1, 2, 3)
TOPIC, PARTITIONS, RATE = "orders", 3, 200
SETTINGS = {
    **STEADY,
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "3",
}
USER = Login(SHA_512, "admin", Secret(PASSWORDS["admin"]))


class Rolled:
    """The cluster, its load, and each step."""

    def __init__(self, directory: Path, kinds: Sequence[Kind], jars: Path | None = None) -> None:
        members = [Member(n, kind) for n, kind in zip(IDS, kinds, strict=True)]
        self.cluster = Cluster(directory, members, overrides=SETTINGS, jars=jars)
        self.authority = Authority(directory / "authority")
        self.ports = dict(zip(IDS, lasting_ports(len(IDS)), strict=True))
        self.stores = {n: self.authority.issue(f"node-{n}") for n in IDS}
        self.clients: list[Any] = []
        self.history = History()

    @property
    def security(self) -> dict[str, str]:
        """Configuration of librdkafka."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.authority.ca_path),
            "sasl.mechanism": SHA_512,
            "sasl.username": "admin",
            "sasl.password": PASSWORDS["admin"],
        }

    @property
    def secured(self) -> str:
        """Addresses of the listeners with SASL_SSL."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def start_clients(self, name: str, bootstrap: str, security: Mapping[str, str]) -> None:
        """Start a producer and a reader beside those that run."""
        producer = LibrdkafkaProducer(
            f"p-{name}", bootstrap, TOPIC, partitions=PARTITIONS, rate=RATE,
            requests_in_flight=1, security=security,
        )  # fmt: skip
        reader = TailReader(f"r-{name}", bootstrap, TOPIC, partitions=PARTITIONS, security=security)
        self.clients += [producer.__enter__(), reader.__enter__()]

    def stop_clients(self, count: int) -> None:
        """Stop the first `count` clients, and keep what they did."""
        for client in self.clients[:count]:
            client.__exit__(None, None, None)
            client.tell(self.history)
            assert not getattr(client, "failures", []), client.failures[:5]
            assert not getattr(client, "errors", []), client.errors[:5]
        del self.clients[:count]

    def continues(self) -> None:
        """Return once each client got further."""

        def progress() -> list[int]:
            return [getattr(c, "acknowledged", getattr(c, "count", 0)) for c in self.clients]

        before = progress()
        wait_until(
            lambda: all(
                now >= then + RATE // 4 for then, now in zip(before, progress(), strict=True)
            ),
            f"the clients get further than {before}",
        )

    def roll(self, change: Any) -> None:
        """Change the configuration of each node and restart it, while the load continues."""
        for node_id in IDS:
            until_in_sync(self.cluster, TOPIC, PARTITIONS, len(IDS))
            node = self.cluster.nodes[node_id]
            self.cluster.stop(node_id)
            change(node_id, node)
            node.write_properties()
            self.cluster.start([node_id])
            self.continues()

    def add_listener(self, node_id: int, node: Any) -> None:
        """Add SASL_SSL beside PLAINTEXT."""
        place = f"SECURE://127.0.0.1:{self.ports[node_id]}"
        node.overrides |= {
            "listeners": f"{node.overrides['listeners']},{place}",
            "advertised.listeners": f"{node.overrides['advertised.listeners']},{place}",
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL"
            ),
            "listener.name.secure.sasl.enabled.mechanisms": SHA_512,
            "listener.name.secure.scram-sha-512.sasl.jaas.config": server_module(SHA_512),
            "sasl.mechanism.inter.broker.protocol": SHA_512,
            **pem_configs(self.stores[node_id], self.authority.ca_path, "listener.name.secure."),
        }

    def use_listener(self, node_id: int, node: Any) -> None:
        """Let brokers use it."""
        del node_id
        node.overrides["inter.broker.listener.name"] = "SECURE"

    def remove_listener(self, node_id: int, node: Any) -> None:
        """Remove PLAINTEXT."""
        for key in ("listeners", "advertised.listeners"):
            kept = [
                each for each in node.overrides[key].split(",") if not each.startswith("PLAINTEXT:")
            ]
            node.overrides[key] = ",".join(kept)
        node.port = self.ports[node_id]
        self.cluster.ports[node_id] = (node.port, node.controller_port)

    def replace_certificates(self) -> None:
        """Write a new key and certificate over each old one, and let the broker read them."""
        for node_id in IDS:
            self.authority.issue(f"node-{node_id}")

            async def work(admin: Admin, node_id: int = node_id) -> None:
                resource = (ResourceType.BROKER, str(node_id))
                key = "listener.name.secure.ssl.keystore.location"
                change = (key, ConfigOperation.SET, str(self.stores[node_id]))
                outcome = await admin.alter_configs({resource: [change]})
                assert outcome[resource] is None

            self.cluster.ask(work)


def serial_number(port: int) -> int:
    """Of the certificate that a listener presents."""
    import ssl

    from cryptography import x509

    text = ssl.get_server_certificate(("127.0.0.1", port))
    return x509.load_pem_x509_certificate(text.encode()).serial_number


def test_an_open_cluster_is_secured_and_its_certificates_are_replaced_under_load(
    tmp_path: Path,
) -> None:
    is_secured_under_load(Rolled(tmp_path, ("sparkraft",) * 3))


@pytest.mark.java
def test_so_is_a_cluster_with_a_node_of_kafka(tmp_path: Path, kafka_jars: Path) -> None:
    """Brokers of either kind connect to the new listener of the other."""
    is_secured_under_load(Rolled(tmp_path, ("sparkraft", "sparkraft", "kafka"), kafka_jars))


def is_secured_under_load(rolled: Rolled) -> None:
    cluster = rolled.cluster
    with cluster:
        cluster.create_topic(TOPIC, partitions=PARTITIONS, replicas=len(IDS))

        async def add_user(admin: Admin) -> None:
            credential = NewCredential(BY_NAME[SHA_512], USER.password)
            await ScramAdmin(admin.cluster).alter("admin", add=[credential])

        cluster.ask(add_user)
        rolled.start_clients("open", cluster.bootstrap, {})
        rolled.continues()
        rolled.roll(rolled.add_listener)
        rolled.start_clients("secured", rolled.secured, rolled.security)
        rolled.roll(rolled.use_listener)
        rolled.stop_clients(2)
        cluster.login = USER
        trusting = {"security.protocol": "SASL_SSL"}
        cluster.connect = secured_connect(trusting | pem_configs(None, rolled.authority.ca_path))
        cluster.ports = {n: (rolled.ports[n], cluster.ports[n][1]) for n in IDS}
        rolled.roll(rolled.remove_listener)
        before = [serial_number(port) for port in rolled.ports.values()]
        rolled.replace_certificates()
        wait_until(
            lambda: not set(before) & {serial_number(port) for port in rolled.ports.values()},
            "every node presents its new certificate",
        )
        rolled.start_clients("new", rolled.secured, rolled.security)
        rolled.continues()
        rolled.stop_clients(4)
        final = read_everything(rolled.secured, TOPIC, PARTITIONS, security=rolled.security)
        final.tell(rolled.history)
    anomalies = [str(anomaly) for anomaly in check(rolled.history)]
    assert not anomalies, "\n".join(anomalies[:20])
    assert acknowledged(rolled.history) > 10 * RATE
