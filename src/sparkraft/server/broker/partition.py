"""One partition hosted by this broker: its log, who leads it, and who waits for it.

`HostedPartition.append` is the leader's append; `visible_to` is how far a reader may see. With one
replica in the ISR the high watermark follows the log's end at once, except where the topic asks for
an fsync first (flush.messages): then it follows the fsync, which runs off the loop and covers every
append that came before it.

    append → LEO=5 HW=4 → fsync … → HW=5 → waiters

Not here: followers and the ISR's changes (the replication issue).
"""

import asyncio
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.records.validate import Origin

if TYPE_CHECKING:
    from sparkraft.base.ids import Uuid
    from sparkraft.metadata.image import Partition
    from sparkraft.server.broker.purgatory import FetchWaiter
    from sparkraft.server.broker.replica_manager import ReplicaManager
    from sparkraft.storage.log import AppendInfo, PartitionLog


class HostedPartition:
    """See the module docstring. Slots: Produce and Fetch touch one per partition and request."""

    __slots__ = (
        "_flush_running",
        "_flush_waiting",
        "in_sync",
        "index",
        "is_leader",
        "leader_epoch",
        "leader_id",
        "log",
        "manager",
        "min_insync",
        "partition_epoch",
        "replicas",
        "topic",
        "topic_id",
        "waiters",
    )

    def __init__(
        self, manager: "ReplicaManager", topic: str, topic_id: "Uuid", index: int, log: Any
    ) -> None:
        """Host `log`, led by nobody yet."""
        self.manager = manager
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log: PartitionLog = log
        self.is_leader = False
        self.leader_id = -1
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.replicas = 1
        self.in_sync = 0
        self.min_insync = 1
        self.waiters: dict[FetchWaiter, None] = {}
        self._flush_running = False
        self._flush_waiting: asyncio.Future[None] | None = None

    def __str__(self) -> str:
        """`topic-index`, as Kafka names partitions."""
        return f"{self.topic}-{self.index}"

    # ---- what the cluster decides

    def apply(self, partition: "Partition", *, local_id: int) -> bool:
        """Take over what the image says; whether leadership here began, moved on or ended."""
        was = (self.is_leader, self.leader_epoch)
        self.leader_id = partition.leader
        self.leader_epoch = partition.leader_epoch
        self.partition_epoch = partition.partition_epoch
        self.replicas = len(partition.replicas)
        self.in_sync = len(partition.isr)
        self.is_leader = partition.leader == local_id
        changed = was != (self.is_leader, self.leader_epoch)
        if changed and self.is_leader:
            self.log.assign_epoch(self.leader_epoch)
        if self.is_leader:
            self._advance()
        if changed:
            self.wake_all()
        return changed

    # ---- appends

    def append(
        self, records: Any, *, acks: int, now_ms: int, origin: Origin = Origin.CLIENT
    ) -> "AppendInfo":
        """Append one batch as the leader.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, and what the log refuses.
            StorageFault: the disk failed.
        """
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self} is not led here")
        if acks == -1 and self.in_sync < min(self.min_insync, self.replicas):
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self} has {self.in_sync} replicas in sync and needs {self.min_insync}",
            )
        info = self.log.append_as_leader(
            records, leader_epoch=self.leader_epoch, now_ms=now_ms, origin=origin
        )
        if not info.needs_fsync:
            self._advance(len(records))
        return info

    def durable(self, info: "AppendInfo", *, acks: int) -> "asyncio.Future[None] | None":
        """A future that ends when `info` may be acknowledged under `acks`; None if it may now.

        It fails with KafkaError(KAFKA_STORAGE_ERROR) when the fsync does.
        """
        if info.needs_fsync:
            return self._flush()
        if acks == -1 and info.last_offset >= self.log.high_watermark and self._flush_running:
            return self._flush()
        return None

    def _advance(self, appended_bytes: int = 0) -> None:
        """Let the high watermark follow the log's end where this is the only replica in sync."""
        if self.in_sync > 1 or self._flush_running:
            return
        log = self.log
        log.set_high_watermark(log.log_end_offset)
        if self.waiters and appended_bytes:
            self.wake(appended_bytes)

    def _flush(self) -> "asyncio.Future[None]":
        """One fsync for everything appended so far; a running one doesn't cover this append."""
        if self._flush_waiting is None:
            self._flush_waiting = asyncio.get_running_loop().create_future()
        waiting = self._flush_waiting
        if not self._flush_running:
            self.manager.spawn(self._flush_loop(), f"fsync of {self}")
        self._flush_running = True
        return waiting

    async def _flush_loop(self) -> None:
        try:
            while self._flush_waiting is not None:
                waiting, self._flush_waiting = self._flush_waiting, None
                end = self.log.log_end_offset
                try:
                    await self.manager.off_loop(self.log.flush, end)
                except Exception as error:  # the waiters must hear of it, whatever it was
                    waiting.set_exception(self.manager.on_disk_error(error, self))
                    continue
                if self.in_sync <= 1 and self.is_leader:
                    self.log.set_high_watermark(end)
                waiting.set_result(None)
                self.wake_all()
        finally:
            self._flush_running = False
        if self.is_leader and self.log.fault is None:
            self._advance()  # over what came during the last fsync and asked for none
            self.wake_all()

    # ---- reads

    def visible_end(self, *, isolation: int, replica: bool) -> int:
        """The offset a reader may see up to, exclusive."""
        log = self.log
        if replica:
            return log.log_end_offset
        if isolation == 1:
            return log.last_stable_offset
        return log.high_watermark

    def check_epoch(self, epoch: int) -> None:
        """Refuse a reader whose idea of the leader epoch is not ours (KIP-320); -1: it has none."""
        if epoch < 0 or epoch == self.leader_epoch:
            return
        if epoch < self.leader_epoch:
            raise KafkaError(
                ErrorCode.FENCED_LEADER_EPOCH,
                f"{self} is at epoch {self.leader_epoch}, not {epoch}",
            )
        raise KafkaError(
            ErrorCode.UNKNOWN_LEADER_EPOCH, f"{self} is only at epoch {self.leader_epoch} here"
        )

    # ---- those who wait

    def wake(self, appended_bytes: int) -> None:
        """Tell waiting fetches that there is more to read."""
        for waiter in list(self.waiters):
            waiter.on_bytes(appended_bytes)

    def wake_all(self) -> None:
        """Let every waiting fetch look again."""
        for waiter in list(self.waiters):
            waiter.finish()
