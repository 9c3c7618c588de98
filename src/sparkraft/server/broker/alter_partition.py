"""ISR changes on their way to the controller (Kafka's `AlterPartitionManager`, KIP-497).

    leader decides → submit → one AlterPartition with all that are queued → response → leader
                        ▲                                                      │ retriable error
                        └──────────────────────────────────────────────────────┘

One request is in flight at a time and carries every queued partition. It names topics by id and by
name: before AlterPartition v2 there are no ids.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Any, TypeAlias

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.placeholder_ids import wire_id
from sparkraft.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from sparkraft.base.ids import TopicPartition
    from sparkraft.replication.in_sync import Pending
    from sparkraft.server.broker.broker_epoch import BrokerEpoch
    from sparkraft.server.broker.controller_channel import RequestSender
    from sparkraft.server.broker.isr_journal import IsrJournal
    from sparkraft.server.broker.partition import HostedPartition

    Batch: TypeAlias = dict[TopicPartition, tuple[HostedPartition, Pending]]

log = logging.getLogger(__name__)

RETRY_MS_FIRST = 50
"""Before a failed request or a partition with a retriable error is sent again; doubles each time.
Kafka waits this long every time."""

RETRY_MS_MAX = 1_000
"""The longest of these pauses. A broker whose epoch is stale, because another process has its id,
is refused indefinitely; one request a second is bearable, and a short outage costs little."""

ATTEMPT_MS_MAX = 30_000
"""Timeout of one request; unanswered partitions are sent again, with newly queued ones."""

PARTITIONS_MAX = 10_000
"""In one request: the records of one decision of a controller."""

RECOVERED = 0
"""Leader recovery state: leaders here never recover records, as in Kafka's `makeLeader`."""


class AlterPartitionQueue:
    """See the module docstring.

    Attributes:
        failures: requests and partitions that were refused, for metrics.
    """

    def __init__(
        self,
        channel: "RequestSender",
        journal: "IsrJournal",
        *,
        node_id: int,
        broker_epoch: "BrokerEpoch",
    ) -> None:
        self._channel = channel
        self._journal = journal
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._queued: Batch = {}
        self._wake = asyncio.Event()
        self.failures = 0

    def submit(self, hosted: "HostedPartition", pending: "Pending") -> None:
        """Queue a change; it replaces an older one of the same partition.

        The older one was superseded by metadata, else the leader could not have made another; its
        response would no longer matter.
        """
        key = (hosted.topic, hosted.index)
        known = self._queued.get(key)
        if known is not None and known[0] is hosted and known[1] is pending:
            return
        self._queued[key] = (hosted, pending)
        self._wake.set()

    async def run(self) -> None:
        """Send until cancelled; changes queued during a pause join the next attempt."""
        pause_ms = RETRY_MS_FIRST
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._queued:
                batch = dict(list(self._queued.items())[:PARTITIONS_MAX])
                if await self._send(batch):
                    pause_ms = RETRY_MS_FIRST
                    continue
                await asyncio.sleep(pause_ms / 1000)
                pause_ms = min(pause_ms * 2, RETRY_MS_MAX)

    async def _send(self, batch: "Batch") -> bool:
        """Send one request; whether every partition got its final response."""
        try:
            response = await self._channel.send(
                self._request(batch), ApiKey.ALTER_PARTITION, timeout_ms=ATTEMPT_MS_MAX
            )
        except KafkaError as error:
            log.warning("AlterPartition failed: %s", error)
            self._on_failed(batch)
            return False
        if response.error_code:
            log.warning("AlterPartition was refused: %s", ErrorCode(response.error_code).name)
            self._on_failed(batch)
            return False
        return self._on_response(batch, response)

    def _on_failed(self, batch: "Batch") -> None:
        """Drop superseded changes; the other ones stay queued."""
        self.failures += 1
        for key, (hosted, pending) in batch.items():
            superseded = hosted.leading is None or hosted.leading.in_sync is not pending
            if superseded and self._queued.get(key) == (hosted, pending):
                del self._queued[key]

    def _on_response(self, batch: "Batch", response: Any) -> bool:
        final = True
        names = {wire_id(hosted.topic_id): topic for (topic, _), (hosted, _) in batch.items()}
        parts = {
            (topic.topic_name or names.get(topic.topic_id, ""), part.partition_index): part
            for topic in response.topics
            for part in topic.partitions
        }
        for key, (hosted, pending) in batch.items():
            part = parts.get(key)
            if part is None:
                final = False  # missing from the response: stays queued
                continue
            if self._queued.get(key) == (hosted, pending):
                del self._queued[key]
            final = self._on_partition_response(hosted, pending, part) and final
        return final

    def _on_partition_response(
        self, hosted: "HostedPartition", pending: "Pending", part: Any
    ) -> bool:
        """Pass one partition's response to its leader; whether it was final."""
        leading = hosted.leading
        if leading is None:
            return True
        if part.error_code:
            return self._on_refused(hosted, pending, ErrorCode(part.error_code))
        # Noted even if the metadata with the change arrived before this response.
        self._journal.note(hosted, pending, part)
        if leading.on_altered(
            pending,
            isr=part.isr,
            leader_epoch=part.leader_epoch,
            partition_epoch=part.partition_epoch,
        ):
            hosted.on_isr_changed(part.partition_epoch)
        return True

    def _on_refused(self, hosted: "HostedPartition", pending: "Pending", code: ErrorCode) -> bool:
        self.failures += 1
        leading = hosted.leading
        retriable = leading is not None and leading.on_refused(pending, code)
        log.log(
            logging.WARNING if retriable else logging.INFO,
            "The controller refused to change the ISR of %s: %s",
            hosted,
            code.name,
        )
        if retriable:
            self.submit(hosted, pending)
        return not retriable

    def _request(self, batch: "Batch") -> Any:
        from sparkraft.protocol.messages import k56_alter_partition as k56

        topics: dict[str, Any] = {}
        for (name, index), (hosted, pending) in sorted(batch.items(), key=lambda item: item[0]):
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = k56.AlterPartitionRequestTopicData(
                    topic_name=name, topic_id=wire_id(hosted.topic_id)
                )
            topic.partitions.append(
                k56.AlterPartitionRequestPartitionData(
                    partition_index=index,
                    leader_epoch=pending.leader_epoch,
                    new_isr_with_epochs=[
                        k56.BrokerState(broker_id=replica, broker_epoch=epoch)
                        for replica, epoch in pending.new_isr
                    ],
                    leader_recovery_state=RECOVERED,
                    partition_epoch=pending.partition_epoch,
                )
            )
        return k56.AlterPartitionRequest(
            broker_id=self._node_id,
            broker_epoch=self._broker_epoch.value,
            topics=list(topics.values()),
        )
