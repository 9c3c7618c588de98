"""Clients that ask for more than nodes can answer: on connections that come and go, and that stay.

Some of it brokers answer by themselves, some they pass on to the controller.

python -m tests.faults.flood SECONDS ANSWERS PORT …      prints how many requests were answered

It lasts SECONDS, and on a slow machine longer: until ANSWERS have come.
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

LONGER_SECONDS_MAX = 60
"""How much longer than asked it lasts where answers are slow."""


class _Flood:
    def __init__(self, seconds: float, answers: int) -> None:
        self.answered = 0
        self._wanted = answers
        self._until = time.monotonic() + seconds

    @property
    def is_over(self) -> bool:
        late = time.monotonic() - self._until
        return late >= LONGER_SECONDS_MAX or (late >= 0 and self.answered >= self._wanted)

    def count(self, future: asyncio.Future[object]) -> None:
        self.answered += not future.cancelled() and future.exception() is None

    async def talk(self, port: int, *, stays: bool) -> None:
        new_producer = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        new_topic = CreatableTopic(name="never-made", num_partitions=9, replication_factor=1)
        forwarded = CreateTopicsRequest(topics=[new_topic], validate_only=True)
        asked = (MetadataRequest(topics=None), DescribeClusterRequest(), new_producer, forwarded)
        while not self.is_over:
            with contextlib.suppress(KafkaError):
                connection = await Connection.open("127.0.0.1", port, client_id="flood")
                try:
                    while not self.is_over and not connection.is_closed:
                        late = {
                            connection.send_nowait(request)
                            for _ in range(WINDOW // len(asked))
                            for request in asked
                        }
                        for future in late:
                            future.add_done_callback(self.count)
                        # No longer than the flood: what is late by then is not waited for.
                        while late and not self.is_over:
                            _, late = await asyncio.wait(late, timeout=0.25)
                        for future in late:
                            future.cancel()
                        if not stays:
                            break
                finally:
                    await connection.close()


async def _main(seconds: float, answers: int, ports: list[int]) -> int:
    flood = _Flood(seconds, answers)
    talkers = [flood.talk(port, stays=bool(n % 2)) for port in ports for n in range(CONNECTIONS)]
    await asyncio.gather(*talkers)
    return flood.answered


if __name__ == "__main__":
    count = asyncio.run(_main(float(sys.argv[1]), int(sys.argv[2]), list(map(int, sys.argv[3:]))))
    sys.stdout.write(f"{count}\n")
