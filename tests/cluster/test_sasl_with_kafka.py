"""A quorum of both kinds in which every connection is authenticated.

Nodes log in by PLAIN at controllers and by SCRAM at brokers; clients by either.
"""

from pathlib import Path
from typing import Any

import pytest

from sparkraft.security.login import Login
from sparkraft.security.secret import Secret
from tests.support.clusters import Cluster, Kind, Member
from tests.support.replicas import until_in_sync
from tests.support.sasl import PASSWORDS, PLAIN, SHA_512, server_module

pytestmark = [pytest.mark.real_clients, pytest.mark.java, pytest.mark.long]

WAIT_SECONDS = 90
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": PLAIN,
    "sasl.mechanism.controller.protocol": PLAIN,
    "listener.name.controller.plain.sasl.jaas.config": server_module(PLAIN),
    "listener.name.plaintext.sasl.enabled.mechanisms": f"{PLAIN},{SHA_512}",
    "sasl.mechanism.inter.broker.protocol": SHA_512,
    "listener.name.plaintext.plain.sasl.jaas.config": server_module(PLAIN),
    "listener.name.plaintext.scram-sha-512.sasl.jaas.config": server_module(SHA_512),
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "3",
}


def settings(cluster: Cluster, mechanism: str) -> dict[str, Any]:
    """librdkafka's."""
    return {
        "bootstrap.servers": cluster.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "admin",
        "sasl.password": PASSWORDS["admin"],
    }


@pytest.mark.parametrize(
    "kinds", [("sparkraft", "sparkraft", "kafka"), ("kafka", "kafka", "sparkraft")]
)
def test_nodes_of_both_kinds_authenticate_each_other(
    tmp_path: Path, kafka_jars: Path, kinds: tuple[Kind, Kind, Kind]
) -> None:
    from confluent_kafka import Consumer, Producer

    cluster = Cluster(
        tmp_path,
        [Member(n, kind) for n, kind in enumerate(kinds, 1)],
        overrides=SETTINGS,
        jars=kafka_jars,
        login=Login(PLAIN, "admin", Secret(PASSWORDS["admin"])),
    )
    user = f"{SHA_512}=[name=admin,password={PASSWORDS['admin']}]"
    for node in cluster.nodes.values():
        node.format_as = (*node.format_as, "--add-scram", user)
    with cluster:
        cluster.create_topic("authenticated", partitions=3, replicas=3)
        for leads in range(2):  # then without the node that leads the quorum
            for mechanism in (PLAIN, SHA_512):
                producer = Producer(settings(cluster, mechanism))
                for partition in range(3):
                    producer.produce("authenticated", mechanism.encode(), partition=partition)
                assert producer.flush(WAIT_SECONDS) == 0
            if leads == 0:
                until_in_sync(cluster, "authenticated", 3, 3)
                cluster.kill(cluster.leader())
        more = {"group.id": "readers", "auto.offset.reset": "earliest"}
        consumer = Consumer(settings(cluster, SHA_512) | more)
        consumer.subscribe(["authenticated"])
        read = [consumer.poll(WAIT_SECONDS) for _ in range(12)]
        assert all(message is not None and message.error() is None for message in read)
        consumer.close()
        for node in cluster.nodes.values():
            assert PASSWORDS["admin"] not in node.output_path.read_text()
