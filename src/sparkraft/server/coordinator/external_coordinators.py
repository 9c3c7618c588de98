"""Coordinators of other brokers, and the leadership of internal topics that this one lacks.

    __transaction_state    served by brokers that advertise EndTxn
    __share_group_state    served by brokers that advertise ReadShareGroupState
    __consumer_offsets     served by every broker, but for its share and streams groups: a partition
                           with such groups by brokers that advertise their heartbeats

While this broker hosts partitions of such a topic and does not serve it, it checks them every
`CHECK_MS` and requests the reassignments and elections of `replication.coordinator_placement`, so
that able brokers lead.
Each broker is asked once per incarnation what it serves (ApiVersions). Nothing is done if no broker
serves the topic, or once this broker does.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.coordinator.internal_topics import (
    INTERNAL_TOPICS,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
    KeyType,
)
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.replication.coordinator_placement import (
    ElectPreferred,
    Reassign,
    next_reassignment,
)
from sparkraft.server.sasl_config import inter_broker_login

if TYPE_CHECKING:
    from collections.abc import Collection

    from sparkraft.client.connection import Connection
    from sparkraft.metadata.image import BrokerRegistration
    from sparkraft.server.broker.controller_channel import ControllerChannel
    from sparkraft.server.broker.partition import HostedPartition
    from sparkraft.server.config import NodeConfig
    from sparkraft.server.coordinator.host import ImageSource
    from sparkraft.tls.dialing import Connect

log = logging.getLogger(__name__)

CHECK_MS = 500
"""Bounds the time that a new partition, or one whose able leader came back, is not served."""

REQUEST_MS_MAX = 5_000
"""For requests to other brokers."""

SERVED_BY = {
    TRANSACTION_STATE_TOPIC: ApiKey.END_TXN,
    SHARE_GROUP_STATE_TOPIC: ApiKey.READ_SHARE_GROUP_STATE,
}
"""The API that a broker advertises if it serves the topic's coordinators."""

GROUPS_SERVED_BY = {
    "share": ApiKey.SHARE_GROUP_HEARTBEAT,
    "streams": ApiKey.STREAMS_GROUP_HEARTBEAT,
}
"""The API that a broker advertises if it serves groups of the type."""

_PREFERRED = 0


class ExternalCoordinators:
    """See the module docstring."""

    def __init__(
        self,
        config: "NodeConfig",
        connect: "Connect",
        metadata: "ImageSource",
        channel: "ControllerChannel",
        *,
        own_topics: "Collection[str]",
    ) -> None:
        """Know no broker yet.

        Args:
            config: of this broker.
            connect: opens connections to other brokers.
            metadata: holds the current image.
            channel: to the active controller.
            own_topics: internal topics whose coordinators this broker serves.
        """
        self._config = config
        self._login = inter_broker_login(config)
        self._connect = connect
        self._metadata = metadata
        self._channel = channel
        self._topics = [topic for topic in SERVED_BY if topic not in own_topics]
        self._served: dict[tuple[int, bytes], frozenset[str]] = {}
        """Broker id and incarnation → the topics and group types that it serves."""
        self._hosted = asyncio.Event()

    def on_placement(self, hosted: "HostedPartition", _: bytes) -> None:
        """A replica was placed on this broker; start checking if it is of one of the topics."""
        if hosted.topic in self._topics:
            self._hosted.set()

    def able(self, service: str) -> list[int]:
        """Unfenced brokers known to serve a topic or a group type, in ascending order."""
        brokers = self._metadata.image.brokers
        return [
            broker_id
            for broker_id in sorted(brokers)
            if not brokers[broker_id].fenced and service in self._served_by(brokers[broker_id])
        ]

    def _served_by(self, other: "BrokerRegistration") -> frozenset[str]:
        return self._served.get((other.id, bytes(other.incarnation_id)), frozenset())

    async def run(self) -> None:
        """Check until cancelled."""
        while self._topics:
            await self._hosted.wait()
            await asyncio.sleep(CHECK_MS / 1000)
            await self.learn()
            for topic in self._topics:
                try:
                    await self._check(topic)
                except KafkaError as error:
                    log.warning("Failed to move leaders of %s: %s", topic, error)

    @property
    def has_unknown(self) -> bool:
        """Whether an unfenced broker has not been asked yet what it serves."""
        return any(
            not other.fenced
            and other.id != self._config.node_id
            and (other.id, bytes(other.incarnation_id)) not in self._served
            for other in self._metadata.image.brokers.values()
        )

    async def learn(self) -> None:
        """Ask new incarnations of brokers what they serve."""
        brokers = self._metadata.image.brokers
        known = {
            (broker_id, bytes(brokers[broker_id].incarnation_id)) for broker_id in sorted(brokers)
        }
        self._served = {key: topics for key, topics in self._served.items() if key in known}
        for broker_id in sorted(brokers):
            other = brokers[broker_id]
            key = (broker_id, bytes(other.incarnation_id))
            if broker_id == self._config.node_id or other.fenced or key in self._served:
                continue
            try:
                self._served[key] = await self._served_topics(other)
            except KafkaError as error:
                log.info("Failed to learn what broker %d serves: %s", broker_id, error)

    async def _served_topics(self, other: "BrokerRegistration") -> frozenset[str]:
        connection = await self.connect(other)
        try:
            return frozenset(
                service
                for service, key in (SERVED_BY | GROUPS_SERVED_BY).items()
                if key in connection.versions
            )
        finally:
            await connection.close()

    async def request_topic(self, key_type: KeyType, key: str) -> None:
        """Send FindCoordinator for `key` to a broker that serves it, which creates the topic."""
        from sparkraft.protocol.messages.k10_find_coordinator import FindCoordinatorRequest

        broker_id = self.able(INTERNAL_TOPICS[key_type])[0]
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        try:
            connection = await self.connect(self._metadata.image.brokers[broker_id])
            try:
                await connection.send(request, timeout_ms=REQUEST_MS_MAX)
            finally:
                await connection.close()
        except KafkaError as error:
            log.info("Failed to request a coordinator from broker %d: %s", broker_id, error)

    async def connect(self, other: "BrokerRegistration") -> "Connection":
        """A connection to the inter-broker listener of `other`; KafkaError if it has none."""
        from sparkraft.client.connection import Connection

        endpoint = other.endpoint(self._config.inter_broker_listener_name)
        if endpoint is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "it has no such listener")
        return await Connection.open(
            endpoint.host,
            endpoint.port,
            client_id=f"broker-{self._config.node_id}",
            timeout_ms=REQUEST_MS_MAX,
            connect=self._connect,
            login=self._login,
        )

    async def move_leader(self, name: str, index: int, group_types: frozenset[str]) -> None:
        """Request once that a broker leads the partition that serves these types of groups."""
        await self.learn()
        able = [set(self.able(one)) for one in sorted(group_types)]
        try:
            await self._move(name, sorted(set.intersection(*able)), only=index)
        except KafkaError as error:
            log.warning("Failed to move the leader of %s-%d: %s", name, index, error)

    async def _check(self, name: str) -> None:
        await self._move(name, self.able(name))

    async def _move(self, name: str, able: list[int], *, only: int | None = None) -> None:
        topic = self._metadata.image.topic(name)
        if topic is None or not able:
            return
        moves: dict[int, tuple[int, ...]] = {}
        elections: list[int] = []
        for index, partition in topic.in_order():
            if only not in {None, index}:
                continue
            step = next_reassignment(partition, index, able=able, local_id=self._config.node_id)
            if isinstance(step, Reassign):
                moves[index] = step.replicas
            elif isinstance(step, ElectPreferred):
                elections.append(index)
        if moves:
            log.info("Brokers %s serve %s: reassigning partitions to %s", able, name, moves)
            await self._reassign(name, moves)
        if elections:
            log.info("Brokers %s serve %s: electing leaders of %s", able, name, elections)
            await self._elect(name, elections)

    async def _reassign(self, name: str, moves: dict[int, tuple[int, ...]]) -> None:
        from sparkraft.protocol.messages import k45_alter_partition_reassignments as k45

        timeout_ms = self._config.number("request.timeout.ms")
        partitions = [
            k45.ReassignablePartition(partition_index=index, replicas=list(replicas))
            for index, replicas in moves.items()
        ]
        request = k45.AlterPartitionReassignmentsRequest(
            timeout_ms=timeout_ms,
            topics=[k45.ReassignableTopic(name=name, partitions=partitions)],
        )
        await self._channel.send(
            request, ApiKey.ALTER_PARTITION_REASSIGNMENTS, timeout_ms=timeout_ms
        )

    async def _elect(self, name: str, indexes: list[int]) -> None:
        from sparkraft.protocol.messages import k43_elect_leaders as k43

        timeout_ms = self._config.number("request.timeout.ms")
        request = k43.ElectLeadersRequest(
            election_type=_PREFERRED,
            topic_partitions=[k43.TopicPartitions(topic=name, partitions=indexes)],
            timeout_ms=timeout_ms,
        )
        await self._channel.send(request, ApiKey.ELECT_LEADERS, timeout_ms=timeout_ms)
