"""Which broker coordinates a key: this one, another one, or none.

    key type → internal topic → partition of the key → its leader, if that broker is able to serve

A key type is served here if this broker has a `CoordinatorService` for it, externally if another
broker of the cluster serves it (`external_coordinators.py`), otherwise not at all. Brokers of
earlier versions lack the transaction coordinator: while one of them leads a partition, its
transactional ids have no coordinator. It hands the partition over by itself.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from sparkraft.base.java_hash import partition_of
from sparkraft.coordinator.internal_topics import INTERNAL_TOPICS, KeyType

if TYPE_CHECKING:
    from sparkraft.metadata.image import Topic
    from sparkraft.server.coordinator.coordinator_service import CoordinatorService
    from sparkraft.server.coordinator.external_coordinators import ExternalCoordinators
    from sparkraft.server.coordinator.host import ImageSource

NO_LEADER = -1


class Location(NamedTuple):
    """The coordinator of a key.

    Attributes:
        broker_id: NO_LEADER if no broker can serve the key at present; clients retry.
        problem: the reason then, if it is not obvious.
    """

    broker_id: int
    problem: str = ""


class CoordinatorDirectory:
    """Finds coordinators. See the module docstring."""

    def __init__(
        self,
        metadata: "ImageSource",
        *,
        node_id: int,
        services: "Mapping[KeyType, CoordinatorService[Any, Any]]",
        external: "ExternalCoordinators",
        create_topic: Callable[[list[str]], None],
    ) -> None:
        """Look up keys in the current image.

        Args:
            metadata: holds the current image.
            node_id: this broker.
            services: the coordinators of this broker.
            external: the coordinators of other brokers.
            create_topic: requests internal topics of this broker's coordinators.
        """
        self._metadata = metadata
        self._node_id = node_id
        self._services = services
        self._external = external
        self._create_topic = create_topic

    def needs_discovery(self, key_type: int) -> bool:
        """Whether `discover` must be awaited before `locate` and `is_served`."""
        if key_type in self._services:
            return key_type == KeyType.TRANSACTION and self._external.has_unknown
        return key_type in INTERNAL_TOPICS

    async def discover(self, key_type: KeyType, keys: list[str]) -> None:
        """Learn which brokers serve `key_type`; one of them creates the topic if there are keys."""
        await self._external.learn()
        if key_type in self._services:
            return
        topic = INTERNAL_TOPICS[key_type]
        if keys and self._metadata.image.topic(topic) is None and self._external.able(topic):
            await self._external.request_topic(key_type, keys[0])

    def is_served(self, key_type: int) -> bool:
        """Whether a broker of the cluster is known to coordinate `key_type`."""
        if key_type in self._services:
            return True
        topic = self._topic(key_type)
        return topic is not None and bool(self._external.able(topic))

    def has_topic(self, key_type: KeyType) -> bool:
        """Whether the internal topic of `key_type` exists."""
        return self._metadata.image.topic(INTERNAL_TOPICS[key_type]) is not None

    def locate(self, key_type: int, key: str) -> Location | None:
        """The broker that coordinates `key`; None if no broker serves `key_type`.

        Requests the internal topic if it is this broker's and does not exist.
        """
        topic = self._topic(key_type)
        if topic is None or not self.is_served(key_type):
            return None
        known = self._metadata.image.topic(topic)
        if known is None:
            if key_type in self._services:
                self._create_topic([topic])
            return Location(NO_LEADER)
        index = self._index(key_type, key, known)
        leader = _leader(known, index)
        if not self._is_able(key_type, leader):
            return Location(NO_LEADER, f"the leader of {topic}-{index} is about to move")
        return Location(leader)

    def _is_able(self, key_type: int, leader: int) -> bool:
        """Whether the leader of a partition serves its keys. Every broker serves groups."""
        if key_type in self._services and (
            key_type != KeyType.TRANSACTION or leader in {NO_LEADER, self._node_id}
        ):
            return True
        return leader in self._external.able(INTERNAL_TOPICS[KeyType(key_type)])

    def leader_of(self, key_type: KeyType, key: str) -> int:
        """The leader of the partition of `key`, able to serve it or not; NO_LEADER if unknown."""
        topic = self._metadata.image.topic(INTERNAL_TOPICS[key_type])
        if topic is None:
            return NO_LEADER
        return _leader(topic, self._index(key_type, key, topic))

    def _index(self, key_type: int, key: str, topic: "Topic") -> int:
        """The partition of a key, here or at other brokers."""
        service = self._services.get(KeyType(key_type))
        if service is not None:
            return service.partition_for(key)
        return partition_of(key, len(topic.partitions))

    @staticmethod
    def _topic(key_type: int) -> str | None:
        return INTERNAL_TOPICS[KeyType(key_type)] if key_type in INTERNAL_TOPICS else None


def _leader(topic: "Topic", index: int) -> int:
    partition = topic.partitions.get(index)
    return NO_LEADER if partition is None else partition.leader
