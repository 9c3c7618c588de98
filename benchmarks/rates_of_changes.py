"""Whether controller_mutation_rate and connection_creation_rate are held, both at the same time.

One client creates topics as fast as it gets through, in a version of CreateTopics whose requests
are served and then held up. Others connect from an address of their own, many at a time; of them
counts who gets a response. Both count once the credit of an idle client is used up.
"""

import asyncio
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from benchmarks.bench_node import ask, request
from benchmarks.report import Row
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k18_api_versions import ApiVersionsRequest
from sparkraft.protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from sparkraft.protocol.messages.k49_alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    EntityData,
    OpData,
)

HOST, STRANGERS = "127.0.0.1", "127.0.0.2"
MUTATIONS, PARTITIONS_EACH = 20.0, 4
SERVED_VERSION = 5
"""From v6 on CreateTopics is refused above the quota (KIP-599)."""

CONNECTIONS, AT_A_TIME = 30.0, 60
CREDIT_S = 22.0
MEASURED_S = 33.0
"""Three times all windows."""


def _limit(port: int, entity: EntityData, key: str, value: float) -> None:
    entry = AlterClientQuotasRequestEntryData(
        entity=[entity], ops=[OpData(key=key, value=value, remove=False)]
    )
    _, answer = ask(port, ApiKey.ALTER_CLIENT_QUOTAS, 1, AlterClientQuotasRequest(entries=[entry]))
    assert answer.entries[0].error_code == 0, answer


def _partitions_created(port: int) -> float:
    """In a second."""
    counted = number = 0
    begun = started = time.monotonic()
    with socket.create_connection((HOST, port), 120) as connection:
        while (now := time.monotonic()) < begun + CREDIT_S + MEASURED_S:
            if now < begun + CREDIT_S:
                started, counted = now, 0
            topic = CreatableTopic(
                name=f"made-{number}", num_partitions=PARTITIONS_EACH, replication_factor=1
            )
            message = CreateTopicsRequest(topics=[topic], timeout_ms=60_000)
            connection.sendall(request(ApiKey.CREATE_TOPICS, SERVED_VERSION, message))
            size = int.from_bytes(_exactly(connection, 4), "big")
            _exactly(connection, size)
            number, counted = number + 1, counted + PARTITIONS_EACH
        return counted / (time.monotonic() - started)


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise ConnectionError("the node closed the connection of a client that creates topics")
        data += part
    return data


async def _connections_served(port: int) -> float:
    """In a second."""
    asked = request(ApiKey.API_VERSIONS, 0, ApiVersionsRequest())
    begun = time.monotonic()
    served = 0

    async def connect() -> None:
        nonlocal served
        while time.monotonic() < begun + CREDIT_S + MEASURED_S:
            with suppress(OSError, asyncio.IncompleteReadError):
                local = (STRANGERS, 0)
                reader, writer = await asyncio.open_connection(HOST, port, local_addr=local)
                writer.write(asked)
                try:
                    await reader.readexactly(4)
                    served += begun + CREDIT_S <= time.monotonic() < begun + CREDIT_S + MEASURED_S
                finally:
                    writer.close()

    await asyncio.gather(*(connect() for _ in range(AT_A_TIME)))
    return served / MEASURED_S


def rates_of_changes(port: int) -> list[Row]:
    """A row for each quota."""
    mutations = EntityData(entity_type="client-id", entity_name="bench")
    _limit(port, mutations, "controller_mutation_rate", MUTATIONS)
    addresses = EntityData(entity_type="ip", entity_name=STRANGERS)
    _limit(port, addresses, "connection_creation_rate", CONNECTIONS)
    time.sleep(1)
    with ThreadPoolExecutor(1) as pool:
        created = pool.submit(_partitions_created, port)
        served = asyncio.run(_connections_served(port))
        partitions = created.result()
    return [
        _held("controller_mutation_rate", "partitions/s", partitions, MUTATIONS),
        _held("connection_creation_rate", "connections/s", served, CONNECTIONS),
    ]


def _held(label: str, unit: str, got: float, limit: float) -> Row:
    return Row(label, f"{got:.1f} {unit}", f"quota {limit:g} {unit}", got / limit, 0.95, 1.05)
