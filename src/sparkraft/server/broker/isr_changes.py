"""ISR changes on their way to the controller (Kafka's `AlterPartitionManager`, KIP-497), and why.

    leader decides → submit → one AlterPartition with all that wait → answer → the leader takes it
                        ▲                                               │ refused, but not for good
                        └───────────────────────────────────────────────┘

One request is on its way at a time and carries every partition that waits. Followers that fell
behind are looked for every half replica.lag.time.max.ms. What leaders changed, and which follower
was how far behind, stays in a bounded journal: nobody else knows it (DESIGN D8).
"""

import asyncio
import logging
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.replication.in_sync import Lag, Pending, PendingExpand

if TYPE_CHECKING:
    from sparkraft.base.ids import TopicIdPartition, Uuid
    from sparkraft.server.broker.partition import HostedPartition
    from sparkraft.server.broker.services import BrokerServices

log = logging.getLogger(__name__)

RETRY_MS_FIRST = 50
"""Before a request that failed as a whole, or a partition refused for now, is sent again; each
time after that twice as long. Kafka waits this long every time."""

RETRY_MS_MAX = 1_000
"""The longest of these pauses. A broker whose epoch is stale, since another process has its id, is
refused for ever; one a second bears that, and whoever is refused for a moment hardly notices."""

STALL_SHARE = 0.25
"""A round that comes later than this share of its interval was held up by a stall."""

ATTEMPT_MS_MAX = 30_000
"""One try; what was not answered is sent again, with what came meanwhile."""

PARTITIONS_MAX = 10_000
"""In one request: the records of one decision of a controller."""

JOURNAL_MAX = 1_000
"""Changes remembered."""

RECOVERED = 0
"""Leader recovery state: no leader here recovers anything, as in Kafka's `Partition.makeLeader`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrChange:
    """One change that the controller agreed to.

    Attributes:
        topic: the topic's name.
        partition: its number.
        leader_epoch: of the leader that asked for it, this broker.
        partition_epoch: after the change.
        wall_ms: when the answer came, ms since 1970.
        isr_before: as committed before.
        isr: as committed now.
        joined: the follower that had caught up; None where followers left.
        left: the followers that had fallen behind.
    """

    topic: str
    partition: int
    leader_epoch: int
    partition_epoch: int
    wall_ms: int
    isr_before: tuple[int, ...]
    isr: tuple[int, ...]
    joined: int | None
    left: tuple[Lag, ...]


class IsrChanges:
    """See the module docstring. It is also the leaders' view of other brokers."""

    def __init__(self, broker: "BrokerServices") -> None:
        """Nothing is on its way."""
        self._broker = broker
        self._waiting: dict[TopicIdPartition, tuple[HostedPartition, Pending]] = {}
        self._wake = asyncio.Event()
        self.journal: deque[IsrChange] = deque(maxlen=JOURNAL_MAX)
        self.expansions = self.shrinkings = self.failures = 0
        """Counted for metrics."""

    # ---- other brokers, as `sparkraft.replication.leader.Brokers`

    def alive_epoch(self, broker_id: int) -> int | None:
        """The broker epoch; None where the broker is unknown or fenced."""
        broker = self._broker.replica_manager.image.brokers.get(broker_id)
        return None if broker is None or broker.fenced else broker.epoch

    def may_join_isr(self, broker_id: int) -> bool:
        """Whether it is neither fenced nor on its way out."""
        broker = self._broker.replica_manager.image.brokers.get(broker_id)
        return broker is not None and broker.active

    # ---- changes

    def submit(self, hosted: "HostedPartition", pending: Pending) -> None:
        """Send a change, with what else waits."""
        key = (hosted.topic_id, hosted.index)
        known = self._waiting.get(key)
        if known is not None and known[0] is hosted and known[1] is pending:
            return
        # An older change of this partition was overtaken by metadata, or the leader could not have
        # made another: its answer would say nothing any more.
        self._waiting[key] = (hosted, pending)
        self._wake.set()

    async def run(self) -> None:
        """Send until cancelled; what comes during a pause goes with the next attempt."""
        pause_ms = RETRY_MS_FIRST
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                batch = dict(list(self._waiting.items())[:PARTITIONS_MAX])
                if await self._send(batch):
                    pause_ms = RETRY_MS_FIRST
                    continue
                await asyncio.sleep(pause_ms / 1000)
                pause_ms = min(pause_ms * 2, RETRY_MS_MAX)

    async def shrink(self) -> None:
        """Look for followers that fell behind until cancelled.

        After a stall of this node their fetches still wait in the sockets: that round is left out.
        """
        clock = self._broker.clock
        interval_ms = self._broker.replica_manager.lag_ms_max / 2
        while True:
            begun_ms = clock.mono_ms()
            await asyncio.sleep(interval_ms / 1000)
            if clock.mono_ms() - begun_ms < interval_ms * (1 + STALL_SHARE):
                self.shrink_now()

    def shrink_now(self) -> None:
        """Let leaders ask for the ISR without those that fell behind."""
        manager = self._broker.replica_manager
        now_ms = self._broker.clock.mono_ms()
        for hosted in list(manager.all_hosted()):
            if hosted.leading is None or not hosted.followers:
                continue
            pending = hosted.leading.maybe_shrink(hosted.log.log_end_offset, now_ms)
            if pending is not None:
                log.info("Shrinking the ISR of %s: %s", hosted, pending.leaving)
                self.submit(hosted, pending)
            hosted.advance()  # it may have waited for one that is caught up no longer

    async def _send(self, batch: "dict[TopicIdPartition, tuple[HostedPartition, Pending]]") -> bool:
        """Whether everything was answered for good."""
        try:
            answer = await self._broker.channel.send(
                self._request(batch), ApiKey.ALTER_PARTITION, timeout_ms=ATTEMPT_MS_MAX
            )
        except KafkaError as error:
            log.warning("AlterPartition failed: %s", error)
            self.failures += 1
            self._drop_overtaken(batch)
            return False
        if answer.error_code:
            log.warning("AlterPartition was refused: %s", ErrorCode(answer.error_code).name)
            self.failures += 1
            self._drop_overtaken(batch)
            return False
        done = True
        answered = {
            (topic.topic_id, part.partition_index): part
            for topic in answer.topics
            for part in topic.partitions
        }
        for key, (hosted, pending) in batch.items():
            part = answered.get(key)
            if part is None:
                done = False  # left out of the answer: it stays, and is sent again
                continue
            if self._waiting.get(key) == (hosted, pending):
                del self._waiting[key]
            done = self._take(hosted, pending, part) and done
        return done

    def _drop_overtaken(
        self, batch: "dict[TopicIdPartition, tuple[HostedPartition, Pending]]"
    ) -> None:
        """Forget changes that metadata has overtaken: nobody waits for their answer."""
        for key, (hosted, pending) in batch.items():
            overtaken = hosted.leading is None or hosted.leading.in_sync is not pending
            if overtaken and self._waiting.get(key) == (hosted, pending):
                del self._waiting[key]

    def _take(self, hosted: "HostedPartition", pending: Pending, part: Any) -> bool:
        """Hand an answer to its leader; whether it was final."""
        leading = hosted.leading
        if leading is None:
            return True
        if part.error_code:
            self.failures += 1
            code = ErrorCode(part.error_code)
            again = leading.on_refused(pending, code)
            log.log(
                logging.WARNING if again else logging.INFO,
                "The controller refused to change the ISR of %s: %s",
                hosted,
                code.name,
            )
            if again:
                self.submit(hosted, pending)
            return not again
        # Also where the metadata with the change came before its answer.
        self._note(hosted, pending, part)
        if leading.on_altered(
            pending,
            isr=part.isr,
            leader_epoch=part.leader_epoch,
            partition_epoch=part.partition_epoch,
        ):
            hosted.partition_epoch = part.partition_epoch
            hosted.advance()
        return True

    def _note(self, hosted: "HostedPartition", pending: Pending, part: Any) -> None:
        expanded = isinstance(pending, PendingExpand)
        self.expansions += expanded
        self.shrinkings += not expanded
        change = IsrChange(
            topic=hosted.topic,
            partition=hosted.index,
            leader_epoch=part.leader_epoch,
            partition_epoch=part.partition_epoch,
            wall_ms=self._broker.clock.wall_ms(),
            isr_before=pending.committed.isr,
            isr=tuple(part.isr),
            joined=pending.joining if isinstance(pending, PendingExpand) else None,
            left=() if isinstance(pending, PendingExpand) else pending.leaving,
        )
        self.journal.append(change)
        log.info("The ISR of %s is %s now, before %s", hosted, change.isr, change.isr_before)

    def _request(self, batch: "dict[TopicIdPartition, tuple[HostedPartition, Pending]]") -> Any:
        from sparkraft.protocol.messages import k56_alter_partition as k56

        topics: dict[Uuid, Any] = {}
        for (topic_id, index), (_, pending) in sorted(batch.items(), key=lambda item: item[0]):
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = k56.AlterPartitionRequestTopicData(topic_id=topic_id)
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
            broker_id=self._broker.node_id,
            broker_epoch=self._broker.lifecycle.broker_epoch,
            topics=list(topics.values()),
        )
