"""Which replicas are throttled, and how fast: the leader's side and the follower's (KIP-73).

    topic    leader.replication.throttled.replicas     * or partition:broker pairs
             follower.replication.throttled.replicas
    broker   leader.replication.throttled.rate         bytes a second, of this broker or of all
             follower.replication.throttled.rate

A leader sends nothing of a throttled partition to a follower that isn't in sync while its rate is
exceeded, a follower asks for nothing; those in sync are counted and never held back, lest a
reassignment shrink the ISR of others.

The rates and lists are read from the image when they are needed: dynamic configs take effect there.
"""

from typing import TYPE_CHECKING, Any, Literal

from sparkraft.metadata.image import ResourceType
from sparkraft.replication.quota import UNLIMITED, ReplicationQuota

if TYPE_CHECKING:
    from sparkraft.server.broker.services import BrokerServices

Side = Literal["leader", "follower"]
EVERY = "*"


class ReplicationThrottle:
    """One side's throttle."""

    def __init__(self, broker: "BrokerServices", side: Side) -> None:
        """Count nothing yet."""
        config = broker.config
        self._broker = broker
        self._rate_key = f"{side}.replication.throttled.rate"
        self._replicas_key = f"{side}.replication.throttled.replicas"
        self._quota = ReplicationQuota(
            windows=config.number("replication.quota.window.num"),
            window_ms=config.number("replication.quota.window.size.seconds") * 1000,
        )
        self._rates_seen: tuple[Any, Any] = (None, None)
        self._topics: dict[str, tuple[Any, frozenset[int] | None]] = {}
        """Topic → its configs as last seen, and the throttled partitions; None: every one."""

    @property
    def is_exceeded(self) -> bool:
        """Whether throttled partitions have had their share for now."""
        self._follow_rate()
        return self._quota.is_exceeded(self._broker.clock.mono_ms())

    @property
    def wait_ms(self) -> int:
        """How long until that is over."""
        return self._quota.wait_ms(self._broker.clock.mono_ms())

    def is_throttled(self, topic: str, index: int) -> bool:
        """Whether this broker's replica of the partition counts."""
        configs = self._broker.image.config(ResourceType.TOPIC, topic)
        known = self._topics.get(topic)
        if known is None or known[0] is not configs:
            text = configs.get(self._replicas_key) or ""
            known = self._topics[topic] = (configs, self._parse(text))
        throttled = known[1]
        return throttled is None or index in throttled

    def record(self, topic: str, index: int, count: int) -> None:
        """`count` bytes of a partition's records went over the wire."""
        if count and self.is_throttled(topic, index):
            self._quota.record(count, self._broker.clock.mono_ms())

    @property
    def bytes_per_second(self) -> float:
        """What was counted lately."""
        return self._quota.rate(self._broker.clock.mono_ms())

    def _parse(self, text: str) -> frozenset[int] | None:
        found = set()
        for pair in text.split(","):
            if pair.strip() == EVERY:
                return None
            partition, _, broker = pair.strip().partition(":")
            if partition.isdigit() and broker == str(self._broker.node_id):
                found.add(int(partition))
        return frozenset(found)

    def _follow_rate(self) -> None:
        image = self._broker.image
        own = image.config(ResourceType.BROKER, str(self._broker.node_id))
        every = image.config(ResourceType.BROKER, "")
        if self._rates_seen[0] is own and self._rates_seen[1] is every:
            return
        self._rates_seen = (own, every)
        text = (own.get(self._rate_key) or every.get(self._rate_key) or "").strip()
        self._quota.bytes_per_second = int(text) if text.isdigit() else UNLIMITED
