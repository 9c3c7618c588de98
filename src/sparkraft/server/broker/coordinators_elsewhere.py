"""Coordinators that this broker doesn't serve and others of the cluster do: Apache Kafka's brokers.

    __transaction_state    whoever advertises EndTxn
    __share_group_state    whoever advertises ReadShareGroupState

While partitions of these topics lie here, they are looked at every `CHECK_MS`, and the controller
is asked for what `replication.coordinator_placement` says: leadership stays with brokers that serve
it. What a broker serves is asked of it once in its life (ApiVersions). Nothing is done in a cluster
where nobody serves it, and nothing once this broker does.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.replication.coordinator_placement import ElectPreferred, Reassign, next_reassignment
from sparkraft.server.api.registry import load_api
from sparkraft.server.coordinator.partitions import partition_of

if TYPE_CHECKING:
    from sparkraft.client.connection import Connection
    from sparkraft.metadata.image import BrokerRegistration
    from sparkraft.server.broker.partition import HostedPartition
    from sparkraft.server.broker.services import BrokerServices

log = logging.getLogger(__name__)

CHECK_MS = 500
"""A new partition led here is unserved about so long, and so is one whose able leader came back."""

ASK_MS_MAX = 5_000
"""For a broker to say what it serves."""

TRANSACTION_STATE = "__transaction_state"
SHARE_GROUP_STATE = "__share_group_state"

SERVED_BY = {
    TRANSACTION_STATE: ApiKey.END_TXN,
    SHARE_GROUP_STATE: ApiKey.READ_SHARE_GROUP_STATE,
}
"""The request that a coordinator of the topic's partitions answers."""

_PREFERRED = 0


class CoordinatorsElsewhere:
    """See the module docstring."""

    def __init__(self, broker: "BrokerServices") -> None:
        """Ask nobody yet."""
        self._broker = broker
        self._topics = [
            topic
            for topic, key in SERVED_BY.items()
            if load_api(key, controller_listener=False) is None
        ]
        self._served: dict[tuple[int, bytes], frozenset[str]] = {}
        """Broker id and incarnation → the topics whose coordinators it serves."""
        self._hosted = asyncio.Event()

    def note(self, hosted: "HostedPartition", _: bytes) -> None:
        """A replica is placed here; one of these topics has to be watched from now on."""
        if hosted.topic in self._topics:
            self._hosted.set()

    def index_of(self, topic: str, key: str) -> int | None:
        """The partition whose leader coordinates `key`; None where the topic isn't there."""
        known = self._broker.image.topic(topic)
        return None if known is None else partition_of(key, len(known.partitions))

    def able(self, topic: str) -> list[int]:
        """Live brokers known to serve the coordinators of `topic`, rising."""
        brokers = self._broker.image.brokers
        return [
            broker_id
            for broker_id in sorted(brokers)
            if not brokers[broker_id].fenced and topic in self._known(brokers[broker_id])
        ]

    def _known(self, other: "BrokerRegistration") -> frozenset[str]:
        return self._served.get((other.id, bytes(other.incarnation_id)), frozenset())

    async def run(self) -> None:
        """Look until cancelled."""
        while self._topics:
            await self._hosted.wait()
            await asyncio.sleep(CHECK_MS / 1000)
            await self.learn()
            for topic in self._topics:
                try:
                    await self._look_at(topic)
                except KafkaError as error:
                    log.warning("Leaders of %s can't be moved: %s", topic, error)

    async def learn(self) -> None:
        """Ask brokers what they serve that came, or came back, since the last time."""
        brokers = self._broker.image.brokers
        known = {
            (broker_id, bytes(brokers[broker_id].incarnation_id)) for broker_id in sorted(brokers)
        }
        self._served = {key: topics for key, topics in self._served.items() if key in known}
        for broker_id in sorted(brokers):
            other = brokers[broker_id]
            key = (broker_id, bytes(other.incarnation_id))
            if broker_id == self._broker.node_id or other.fenced or key in self._served:
                continue
            try:
                self._served[key] = await self._ask(other)
            except KafkaError as error:
                log.info("Broker %d doesn't say yet what it serves: %s", broker_id, error)

    async def _ask(self, other: "BrokerRegistration") -> frozenset[str]:
        connection = await self.connect(other)
        try:
            return frozenset(
                topic for topic, key in SERVED_BY.items() if key in connection.versions
            )
        finally:
            await connection.close()

    async def have_topic_made(self, key_type: int, key: str, able: list[int]) -> None:
        """Ask one that serves it for the coordinator of `key`: it makes the topic for that."""
        from sparkraft.protocol.messages.k10_find_coordinator import FindCoordinatorRequest

        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        try:
            connection = await self.connect(self._broker.image.brokers[able[0]])
            try:
                await connection.send(request, timeout_ms=ASK_MS_MAX)
            finally:
                await connection.close()
        except KafkaError as error:
            log.info("Broker %d was not asked for a coordinator: %s", able[0], error)

    async def connect(self, other: "BrokerRegistration") -> "Connection":
        """A connection to another broker's listener for brokers; KafkaError where it has none."""
        from sparkraft.client.connection import Connection

        endpoint = other.endpoint(self._broker.config.inter_broker_listener_name)
        if endpoint is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "it has no such listener")
        return await Connection.open(
            endpoint.host,
            endpoint.port,
            client_id=f"broker-{self._broker.node_id}",
            timeout_ms=ASK_MS_MAX,
        )

    async def _look_at(self, name: str) -> None:
        image = self._broker.image
        topic = image.topic(name)
        able = self.able(name)
        if topic is None or not able:
            return
        moves: dict[int, tuple[int, ...]] = {}
        elections: list[int] = []
        for index, partition in topic.in_order():
            step = next_reassignment(partition, index, able=able, local_id=self._broker.node_id)
            if isinstance(step, Reassign):
                moves[index] = step.replicas
            elif isinstance(step, ElectPreferred):
                elections.append(index)
        if moves:
            log.info("%s is served by brokers %s: new replicas %s", name, able, moves)
            await self._reassign(name, moves)
        if elections:
            log.info("%s is served by brokers %s: they shall lead %s", name, able, elections)
            await self._elect(name, elections)

    async def _reassign(self, name: str, moves: dict[int, tuple[int, ...]]) -> None:
        from sparkraft.protocol.messages import k45_alter_partition_reassignments as k45

        timeout_ms = self._broker.config.number("request.timeout.ms")
        partitions = [
            k45.ReassignablePartition(partition_index=index, replicas=list(replicas))
            for index, replicas in moves.items()
        ]
        request = k45.AlterPartitionReassignmentsRequest(
            timeout_ms=timeout_ms,
            topics=[k45.ReassignableTopic(name=name, partitions=partitions)],
        )
        await self._broker.channel.send(
            request, ApiKey.ALTER_PARTITION_REASSIGNMENTS, timeout_ms=timeout_ms
        )

    async def _elect(self, name: str, indexes: list[int]) -> None:
        from sparkraft.protocol.messages import k43_elect_leaders as k43

        timeout_ms = self._broker.config.number("request.timeout.ms")
        request = k43.ElectLeadersRequest(
            election_type=_PREFERRED,
            topic_partitions=[k43.TopicPartitions(topic=name, partitions=indexes)],
            timeout_ms=timeout_ms,
        )
        await self._broker.channel.send(request, ApiKey.ELECT_LEADERS, timeout_ms=timeout_ms)
