"""Withdraws a follower with a damaged replica from the ISR.

A leader considers a follower that has fetched everything in sync, however long it is silent
(KIP-16, Kafka's `Replica.isCaughtUp`). While nothing is written to the partition, it would keep a
lost replica in the ISR indefinitely and offer it to consumers of its rack, and the replica could
not be rebuilt.

    fetch the last record again, drop the response → not caught up for replica.lag.time.max.ms
    → the leader shrinks the ISR → new image → `ReplicaManager` sets the damaged log aside

This never moves the leader's high watermark back. A new leader does not know its followers' log end
offsets, so it gets the same fetches. Kafka has nothing like it: it serves damaged replicas.
"""

import asyncio
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import KafkaError
from sparkraft.base.placeholder_ids import is_placeholder
from sparkraft.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from sparkraft.metadata.partition_state import PartitionState
    from sparkraft.server.broker.follower_client import FollowerClient
    from sparkraft.server.broker.metadata_cache import MetadataCache
    from sparkraft.server.broker.partition import HostedPartition

_NO_EPOCH = -1
_NO_SESSION = -1


class IsrWithdrawal:
    """See the module docstring."""

    def __init__(
        self,
        metadata: "MetadataCache",
        client: "FollowerClient",
        *,
        node_id: int,
        lag_ms_max: int,
        spawn: "Callable[[Coroutine[Any, Any, Any], str], Any]",
    ) -> None:
        """Withdraw nothing yet.

        Args:
            metadata: has the leader and the ISR.
            client: sends the fetches.
            node_id: of this broker.
            lag_ms_max: replica.lag.time.max.ms.
            spawn: runs a coroutine under the node's task group, with a name.
        """
        self._metadata = metadata
        self._client = client
        self._node_id = node_id
        self._pause_s = lag_ms_max / 2 / 1000
        """As often as a leader checks its followers."""
        self._spawn = spawn

    def start(self, hosted: "HostedPartition") -> None:
        """Withdraw the replica in the background, however long that takes."""
        self._spawn(self._withdraw(hosted), f"ISR withdrawal of {hosted}")

    async def _withdraw(self, hosted: "HostedPartition") -> None:
        while (known := self._in_isr_elsewhere(hosted)) is not None:
            if known.leader >= 0:
                await self._fetch(known.leader, _last_record(hosted, known.leader_epoch))
            await asyncio.sleep(self._pause_s)

    def _in_isr_elsewhere(self, hosted: "HostedPartition") -> "PartitionState | None":
        """The partition, while another broker leads it with this one in the ISR; else None."""
        known = self._metadata.image.partition(hosted.topic_id, hosted.index)
        if known is None or self._node_id not in known.isr or known.leader == self._node_id:
            return None
        return known

    async def _fetch(self, leader_id: int, topic: FetchTopic) -> None:
        """Send one fetch; errors are ignored, the image shows whether it had an effect."""
        request = FetchRequest(
            session_epoch=_NO_SESSION, topics=[topic], max_wait_ms=0, min_bytes=0, max_bytes=1
        )
        try:
            connection = await self._client.connect(leader_id, "leaves")
            try:
                by_id = not is_placeholder(topic.topic_id)
                await self._client.fetch(connection, request, by_id=by_id)
            finally:
                await connection.close()
        except KafkaError:
            return


def _last_record(hosted: "HostedPartition", leader_epoch: int) -> FetchTopic:
    """Return a fetch of the last record, which shows the leader that this replica lacks it."""
    log = hosted.log
    return FetchTopic(
        topic=hosted.topic,
        topic_id=hosted.topic_id,
        partitions=[
            FetchPartition(
                partition=hosted.index,
                current_leader_epoch=leader_epoch,
                fetch_offset=max(log.log_end_offset - 1, log.log_start_offset),
                last_fetched_epoch=_NO_EPOCH,
                log_start_offset=log.log_start_offset,
                partition_max_bytes=1,
            )
        ],
    )
