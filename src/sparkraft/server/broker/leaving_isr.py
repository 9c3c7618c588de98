"""A follower that gave up its damaged replica lets the leader see that it lacks records.

To a leader, whoever has fetched everything is in sync however long it is silent (KIP-16, Kafka's
`Replica.isCaughtUp`): while nobody writes to the partition, it would count for ever on a replica
that is gone, name it to consumers of its rack, and nobody could begin it anew.

    fetch from the last record on, drop the answer → not caught up for replica.lag.time.max.ms
    → the leader shrinks the ISR → the image says so → `ReplicaManager` sets the damaged log aside

The leader's high watermark never goes back for it. A new leader knows nothing of its followers'
ends, and is asked like the one before. Kafka has no such thing: it serves what is damaged.
"""

import asyncio
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import KafkaError
from sparkraft.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from sparkraft.server.broker.fetchers import connect_to, send_as_follower

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from sparkraft.metadata.partition_state import PartitionState
    from sparkraft.server.broker.partition import HostedPartition
    from sparkraft.server.broker.services import BrokerServices

_NO_EPOCH = -1
_NO_SESSION = -1


class LeavingIsr:
    """See the module docstring."""

    def __init__(
        self,
        broker: "BrokerServices",
        spawn: "Callable[[Coroutine[Any, Any, Any], str], asyncio.Task[Any]]",
    ) -> None:
        """Nobody leaves yet; `spawn` runs a coroutine under the node's task group, with a name."""
        self._broker = broker
        self._spawn = spawn

    def leave(self, hosted: "HostedPartition") -> None:
        """The replica was given up: leave the ISR, however long that takes."""
        self._spawn(self._leave(hosted), f"{hosted} leaves the ISR")

    async def _leave(self, hosted: "HostedPartition") -> None:
        broker = self._broker
        topic = FetchTopic(
            topic=hosted.topic,
            topic_id=hosted.topic_id,
            partitions=[
                FetchPartition(
                    partition=hosted.index,
                    fetch_offset=max(hosted.log.log_end_offset - 1, hosted.log.log_start_offset),
                    last_fetched_epoch=_NO_EPOCH,
                    log_start_offset=hosted.log.log_start_offset,
                    partition_max_bytes=1,
                )
            ],
        )
        while (known := self._counted_on(hosted)) is not None:
            if known.leader >= 0:
                topic.partitions[0].current_leader_epoch = known.leader_epoch
                await self._fetch(known.leader, topic)
            # Half of what a leader waits, as often as it looks for those who are behind.
            await asyncio.sleep(broker.replica_manager.lag_ms_max / 2 / 1000)

    def _counted_on(self, hosted: "HostedPartition") -> "PartitionState | None":
        """The partition as the image has it, while it is led elsewhere and we are in its ISR."""
        broker = self._broker
        known = broker.image.partition(hosted.topic_id, hosted.index)
        if known is None or broker.node_id not in known.isr or known.leader == broker.node_id:
            return None
        return known

    async def _fetch(self, leader_id: int, topic: FetchTopic) -> None:
        """Once; whatever comes of it, the image tells whether it was of use."""
        request = FetchRequest(
            session_epoch=_NO_SESSION, topics=[topic], max_wait_ms=0, min_bytes=0, max_bytes=1
        )
        try:
            connection = await connect_to(self._broker, leader_id, "leaves")
            try:
                await send_as_follower(self._broker, connection, request)
            finally:
                await connection.close()
        except KafkaError:
            return
