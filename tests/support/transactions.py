"""Transactions that no well-behaved client begins."""

from sparkraft.client.cluster import Cluster
from sparkraft.client.producer import Producer, ProducerSettings


class HangingProducer(Producer):
    """Writes transactional batches of an id that no coordinator knows, so nobody ends them."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, ProducerSettings())
        self._transactional_id = "nobody"

    def _produce_version_max(self) -> int:
        return 11  # the last one in which brokers do not add the partition themselves
