"""The same requests of limited clients to Apache Kafka and to us: which throttles are reported.

Requests that a broker forwards, also in the envelope of another broker, and a consumer over its
quota that comes again on another connection.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sparkraft.client.connection import Connection
from sparkraft.protocol.messages.k49_alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    EntityData,
    OpData,
)
from sparkraft.security.principal import KafkaPrincipal
from tests.server.harness import append, batch, create_topic, fetch
from tests.server.test_forwarded_quotas import creation, forwarded
from tests.support.nodes import KafkaNode, NodeProcess, SparkraftNode

pytestmark = [pytest.mark.real_clients, pytest.mark.java, pytest.mark.long]

PATIENCE_S = 120
TINY, SLOW = 0.0001, 0.1
BYTE_RATE = 1_000


async def limit(connection: Connection, kind: str, name: str, key: str, value: float) -> None:
    entry = AlterClientQuotasRequestEntryData(
        entity=[EntityData(entity_type=kind, entity_name=name)], ops=[OpData(key=key, value=value)]
    )
    response = await connection.send(AlterClientQuotasRequest(entries=[entry]))
    assert response.entries[0].error_code == 0
    await asyncio.sleep(1)  # neither kind of node reports when it applies a quota


async def dialogue(port: int, controller_port: int) -> list[Any]:
    async def connect(client_id: str, to: int = port) -> Connection:
        return await Connection.open("127.0.0.1", to, client_id=client_id, timeout_ms=60_000)

    found: list[Any] = []
    admin = await connect("admin")
    broker = await connect("broker-9", controller_port)
    topic_id = await create_topic(admin, "t")
    for _ in range(4):
        await append(admin, topic_id, batch(bytes(4_000)), acks=1)
    await limit(admin, "client-id", "timed", "request_percentage", TINY)
    timed = await connect("timed")
    found.append((await timed.send(creation("a"))).throttle_time_ms)
    await limit(admin, "user", "alice", "request_percentage", TINY)
    await limit(admin, "user", "carol", "controller_mutation_rate", SLOW)
    for user in ("alice", "bob", "alice"):
        response = await forwarded(broker, creation(f"of-{user}"), KafkaPrincipal("User", user))
        found.append((user, response.topics[0].error_code, response.throttle_time_ms))
    for number, partitions in enumerate((12, 1)):
        request = creation(f"of-carol-{number}", partitions)
        response = await forwarded(broker, request, KafkaPrincipal("User", "carol"))
        is_throttled = response.throttle_time_ms > 0
        found.append(("carol", response.topics[0].error_code, is_throttled))
    await limit(admin, "client-id", "reader", "consumer_byte_rate", BYTE_RATE)
    reader = await connect("reader")
    await reader.send(fetch(topic_id), timeout_ms=60_000)
    await reader.send(fetch(topic_id, 2), timeout_ms=60_000)
    again = await (await connect("reader")).send(fetch(topic_id, session_epoch=0))
    is_throttled = again.throttle_time_ms > BYTE_RATE
    found.append((again.error_code, again.session_id, again.responses, is_throttled))
    return found


def answers(node: NodeProcess) -> list[Any]:
    async def bounded() -> list[Any]:
        async with asyncio.timeout(PATIENCE_S):
            return await dialogue(node.port, node.controller_port)

    with node:
        return asyncio.run(bounded())


def test_limited_clients_get_the_throttles_of_kafka(tmp_path: Path, kafka_jars: Path) -> None:
    ours = answers(SparkraftNode(tmp_path / "ours"))
    assert ours == answers(KafkaNode(tmp_path / "kafka", jars=kafka_jars))
    assert ours[:4] == [1_000, ("alice", 0, 1_000), ("bob", 0, 0), ("alice", 36, 1_000)]
