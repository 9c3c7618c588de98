"""The state of other brokers that partition leaders need, read from the metadata image."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparkraft.server.broker.metadata_cache import MetadataCache


class ActiveBrokers:
    """Implements `sparkraft.replication.leader.Brokers`."""

    def __init__(self, metadata: "MetadataCache") -> None:
        self._metadata = metadata

    def alive_epoch(self, broker_id: int) -> int | None:
        """The broker epoch; None if the broker is unknown or fenced."""
        broker = self._metadata.image.brokers.get(broker_id)
        return None if broker is None or broker.fenced else broker.epoch

    def may_join_isr(self, broker_id: int) -> bool:
        """Whether it is neither fenced nor in controlled shutdown."""
        broker = self._metadata.image.brokers.get(broker_id)
        return broker is not None and broker.active
