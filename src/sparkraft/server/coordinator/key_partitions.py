"""The partitions of an internal topic by which its keys are found: those that it had at the start.

Partitions that are added to __consumer_offsets or __transaction_state would move most keys away
from their state: groups would lose their offsets, and open transactions their end. As in Kafka, a
broker counts the partitions once (`GroupCoordinatorService.startup`,
`TransactionStateManager.startup`), so keys move when it restarts. A topic that is created later, or
again, is counted then.

Difference: Kafka's transaction coordinator loads no partition of a topic with another count
(`validateTransactionTopicPartitionCountIsStable`); ours continues with the former ones.
"""

import logging
from typing import TYPE_CHECKING

from sparkraft.base.java_hash import positive_hash
from sparkraft.base.placeholder_ids import is_same_topic

if TYPE_CHECKING:
    from sparkraft.base.ids import Uuid
    from sparkraft.server.coordinator.host import ImageSource

log = logging.getLogger(__name__)

HASHES_MAX = 5_000
"""Above it hashes start over: a megabyte with keys of some 40 characters."""

KEY_LENGTH_MAX = 256
"""Hashes of longer keys are not kept."""


class KeyPartitions:
    """See the module docstring."""

    def __init__(self, topic: str, metadata: "ImageSource", configured: int) -> None:
        """Nothing is counted yet.

        Args:
            topic: the internal topic.
            metadata: holds the current image.
            configured: how many partitions it has until it exists.
        """
        self._topic = topic
        self._metadata = metadata
        self._configured = configured
        self._counted: tuple[Uuid, int] | None = None
        self._warned_of: int | None = None
        self._hashes: dict[str, int] = {}
        """Of keys in use: a transaction looks its partition up five times, and a hash takes as long
        as a small append."""

    @property
    def count(self) -> int:
        """Partitions of the topic when it was seen first; as configured until it exists."""
        topic = self._metadata.image.topic(self._topic)
        if topic is None:
            return self._configured
        found = len(topic.partitions)
        counted = found
        if self._counted is not None and is_same_topic(self._counted[0], topic.id):
            counted = self._counted[1]
        self._counted = topic.id, counted
        if found not in {counted, self._warned_of}:
            self._warned_of = found
            log.warning(
                "%s has %d partitions, and keys stay in the first %d until this broker restarts; "
                "restart all brokers, and expect keys to lose their state",
                self._topic, found, counted,
            )  # fmt: skip
        return counted

    def of(self, key: str) -> int:
        """The partition that `key` (a group id, a transactional id) hashes to."""
        known = self._hashes.get(key)
        return (self._hash_of(key) if known is None else known) % self.count

    def _hash_of(self, key: str) -> int:
        value = positive_hash(key)
        if len(key) <= KEY_LENGTH_MAX:
            if len(self._hashes) >= HASHES_MAX:
                self._hashes.clear()
            self._hashes[key] = value
        return value
