"""Replication throttles: which replicas and how fast, on the leader's and follower's side (KIP-73).

    topic    leader.replication.throttled.replicas     * or partition:broker pairs
             follower.replication.throttled.replicas
    broker   leader.replication.throttled.rate         bytes per second, of this broker or of all
             follower.replication.throttled.rate

While its rate is exceeded, a leader sends no records of a throttled partition to an out-of-sync
follower, and a follower does not fetch throttled partitions. In-sync followers are counted but
never throttled; otherwise a reassignment could shrink other partitions' ISRs.

Rates and lists are read from the image on use, so dynamic configs take effect at once.
"""

from typing import TYPE_CHECKING, Any, Literal

from sparkraft.metadata.image import ResourceType
from sparkraft.replication.quota import UNLIMITED, ReplicationQuota

if TYPE_CHECKING:
    from sparkraft.base.env import Clock
    from sparkraft.server.broker.metadata_cache import MetadataCache
    from sparkraft.server.config import NodeConfig

Side = Literal["leader", "follower"]
EVERY = "*"


class ReplicationThrottle:
    """The throttle of one side."""

    def __init__(
        self, side: Side, config: "NodeConfig", metadata: "MetadataCache", clock: "Clock"
    ) -> None:
        self._node_name = str(config.node_id)
        self._metadata = metadata
        self._clock = clock
        self._rate_key = f"{side}.replication.throttled.rate"
        self._replicas_key = f"{side}.replication.throttled.replicas"
        self._quota = ReplicationQuota(
            windows=config.number("replication.quota.window.num"),
            window_ms=config.number("replication.quota.window.size.seconds") * 1000,
        )
        self._rates_seen: tuple[Any, Any] = (None, None)
        self._topics: dict[str, tuple[Any, frozenset[int] | None]] = {}
        """Topic → its configs as last seen, and the throttled partitions; None: all of them."""

    @property
    def is_exceeded(self) -> bool:
        """Whether throttled partitions must wait."""
        self._follow_rate()
        return self._quota.is_exceeded(self._clock.mono_ms())

    @property
    def wait_ms(self) -> int:
        """How long until the rate is no longer exceeded."""
        return self._quota.wait_ms(self._clock.mono_ms())

    def is_throttled(self, topic: str, index: int) -> bool:
        """Whether this broker's replica of the partition is throttled."""
        configs = self._metadata.image.config(ResourceType.TOPIC, topic)
        known = self._topics.get(topic)
        if known is None or known[0] is not configs:
            text = configs.get(self._replicas_key) or ""
            known = self._topics[topic] = (configs, self._parse(text))
        throttled = known[1]
        return throttled is None or index in throttled

    def record(self, topic: str, index: int, count: int) -> None:
        """Count `count` bytes of a partition's records, if it is throttled."""
        if count and self.is_throttled(topic, index):
            self._quota.record(count, self._clock.mono_ms())

    @property
    def bytes_per_second(self) -> float:
        """The current rate of throttled bytes."""
        return self._quota.rate(self._clock.mono_ms())

    def _parse(self, text: str) -> frozenset[int] | None:
        found = set()
        for pair in text.split(","):
            if pair.strip() == EVERY:
                return None
            partition, _, broker = pair.strip().partition(":")
            if partition.isdigit() and broker == self._node_name:
                found.add(int(partition))
        return frozenset(found)

    def _follow_rate(self) -> None:
        image = self._metadata.image
        own = image.config(ResourceType.BROKER, self._node_name)
        every = image.config(ResourceType.BROKER, "")
        if self._rates_seen[0] is own and self._rates_seen[1] is every:
            return
        self._rates_seen = (own, every)
        text = (own.get(self._rate_key) or every.get(self._rate_key) or "").strip()
        self._quota.set_rate(int(text) if text.isdigit() else UNLIMITED)
