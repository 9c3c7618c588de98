"""Transactions that no well-behaved client begins."""

import asyncio

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client.cluster import Cluster
from sparkraft.client.producer import Producer, ProducerSettings


class HangingProducer(Producer):
    """Writes transactional batches of an id that no coordinator knows, so nobody ends them."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, ProducerSettings())
        self._transactional_id = "nobody"

    def _produce_version_max(self) -> int:
        return 11  # the last one in which brokers do not add the partition themselves

    async def write(self, topic: str, value: bytes) -> None:
        """Write once the broker verifies no partitions: it applies a new config after the answer.

        A refused batch leaves nothing in the log.
        """
        while True:
            try:
                await (await self.send(topic, value, timestamp=0))
            except KafkaError as error:
                if error.code is not ErrorCode.INVALID_PRODUCER_ID_MAPPING:
                    raise
                await asyncio.sleep(0.05)
            else:
                return
