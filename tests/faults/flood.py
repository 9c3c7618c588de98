"""Clients that ask for more than nodes can answer: on connections that come and go, and that stay.

Some of it brokers answer by themselves, some they pass on to the controller.

python -m tests.faults.flood SECONDS PORT …      prints how many requests were answered
"""

import asyncio
import contextlib
import sys
import time

from sparkraft.base.errors import KafkaError
from sparkraft.client.connection import Connection
from sparkraft.protocol.messages.k03_metadata import MetadataRequest
from sparkraft.protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from sparkraft.protocol.messages.k22_init_producer_id import InitProducerIdRequest
from sparkraft.protocol.messages.k60_describe_cluster import DescribeClusterRequest

CONNECTIONS = 60
"""To each port; every second one is closed and opened again all the time."""

WINDOW = 40
"""Requests that a connection sends before it reads an answer."""


async def _talker(port: int, until: float, *, stays: bool) -> int:
    """How many answers came."""
    answered = 0
    new_producer = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    new_topic = CreatableTopic(name="never-made", num_partitions=9, replication_factor=1)
    forwarded = CreateTopicsRequest(topics=[new_topic], validate_only=True)
    while time.monotonic() < until:
        with contextlib.suppress(KafkaError):
            connection = await Connection.open("127.0.0.1", port, client_id="flood")
            try:
                while time.monotonic() < until and not connection.is_closed:
                    asked = (
                        MetadataRequest(topics=None),
                        DescribeClusterRequest(),
                        new_producer,
                        forwarded,
                    )
                    futures = [
                        connection.send_nowait(request)
                        for _ in range(WINDOW // len(asked))
                        for request in asked
                    ]
                    # No longer than the flood: what is not answered by then is not waited for.
                    done, late = await asyncio.wait(futures, timeout=until - time.monotonic())
                    answered += sum(future.exception() is None for future in done)
                    for future in late:
                        future.cancel()
                    if not stays:
                        break
            finally:
                await connection.close()
    return answered


async def _flood(seconds: float, ports: list[int]) -> int:
    until = time.monotonic() + seconds
    talkers = [
        _talker(port, until, stays=bool(n % 2)) for port in ports for n in range(CONNECTIONS)
    ]
    return sum(await asyncio.gather(*talkers))


if __name__ == "__main__":
    count = asyncio.run(_flood(float(sys.argv[1]), list(map(int, sys.argv[2:]))))
    sys.stdout.write(f"{count}\n")
