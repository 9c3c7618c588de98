"""Written by each client, read by each: seven clients, every codec each of them has.

The same matrix runs against Apache Kafka with SPARKRAFT_MATRIX_PEER=kafka, which tells a fault of
ours from one of a client or of the matrix.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.clients import NAMES, Client, Sent, all_clients
from tests.support.nodes import KafkaNode, NodeProcess, SparkraftNode

pytestmark = [pytest.mark.real_clients, pytest.mark.java]


def records_for(client: Client, codec: str) -> list[Sent]:
    """What `client` writes with `codec`: headers, unicode, nulls, a long one."""
    records = [
        Sent(f"{codec}-1", "first", (("kind", "greeting"), ("from", client.name))),
        Sent(f"{codec}-2", "zweite, größer — 二"),
        Sent(f"{codec}-3", "x" * 5_000, (("size", "5000"),)),
    ]
    if client.null_keys:
        records.append(Sent(None, f"{codec} without a key"))
    if client.null_values:
        records.append(Sent(f"{codec}-tombstone", None))
    return records


@pytest.fixture(scope="module")
def clients(kafka_jars: Path) -> dict[str, Client]:
    return all_clients(kafka_jars)


@pytest.fixture(scope="module")
def node(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    kind = KafkaNode if os.environ.get("SPARKRAFT_MATRIX_PEER") == "kafka" else SparkraftNode
    with kind(tmp_path_factory.mktemp("matrix"), jars=kafka_jars) as started:
        yield started
        assert started.stop() in {0, 143}


def create_topics(bootstrap: str, topics: list[str]) -> None:
    """Create `topics` with one partition each, through librdkafka's admin client."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = [NewTopic(topic, num_partitions=1, replication_factor=1) for topic in topics]
    for future in admin.create_topics(wanted).values():
        future.result(30)


@pytest.fixture(scope="module")
def written() -> dict[str, list[Sent]]:
    """What each topic holds; filled as tests ask for it."""
    return {}


def write(
    node: NodeProcess, client: Client, codecs: list[str], written: dict[str, list[Sent]]
) -> str:
    """Let `client` write with `codecs` into a topic of its own, once; the topic."""
    topic = "-".join(["from", client.name, *codecs])
    if topic not in written:
        client.prepare()
        create_topics(node.bootstrap, [topic])
        written[topic] = []
        for codec in codecs:
            batch = records_for(client, codec)
            client.produce(node.bootstrap, topic, batch, codec)
            written[topic] += batch
    return topic


@pytest.mark.parametrize("reader", NAMES)
@pytest.mark.parametrize("writer", NAMES)
def test_what_one_client_writes_another_reads(
    writer: str,
    reader: str,
    node: NodeProcess,
    clients: dict[str, Client],
    written: dict[str, list[Sent]],
) -> None:
    clients[reader].prepare()
    codecs = [codec for codec in clients[writer].codecs if codec in clients[reader].reads]
    topic = write(node, clients[writer], codecs, written)
    seen = clients[reader].consume(node.bootstrap, topic, len(written[topic]))
    assert seen == written[topic]
