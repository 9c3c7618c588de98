"""One partition hosted by this broker: its log, its role and the requests parked on it.

A *leader* appends, serves fetches and advances the high watermark; the rules are in
`sparkraft.replication.leader`, the log and the parked requests are here. With a single replica the
high watermark follows the log's end at once; with followers it follows their fetches:

    append → LEO=5 HW=4 → followers' fetches wake → they fetch from 5 → HW=5 → producers, consumers

If a topic requires an fsync first (flush.messages), the leader counts itself only up to its synced
offset. The fsync runs off the loop and covers every append before it.

A *follower* (`is_follower`) is written by its fetcher alone: `follower_append`,
`follower_truncate`, `follower_start_at`, which reject responses of an earlier leader epoch.

Not here: fetching from leaders (`fetchers`), ISR changes in flight (`alter_partition`).
"""

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.records.validate import Origin
from sparkraft.replication.leader import PartitionLeader
from sparkraft.server.broker.purgatory import OffsetWaiters
from sparkraft.server.broker.topic_traffic import TopicTraffic

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkraft.base.ids import Uuid
    from sparkraft.metadata.partition_state import PartitionState
    from sparkraft.records.validate import Prepared
    from sparkraft.replication.follower import FollowerState
    from sparkraft.server.broker.partition_host import PartitionHost
    from sparkraft.server.broker.purgatory import FetchWaiter, PartitionReader
    from sparkraft.storage.config import LogConfig
    from sparkraft.storage.log import AppendInfo, PartitionLog

log = logging.getLogger(__name__)

UNSEEN_APPENDS_MAX = 4096
"""Appends above the high watermark counted one by one; more are counted together."""


class HostedPartition:
    """See the module docstring. Slots: Produce and Fetch use one for each partition they name."""

    __slots__ = (
        "_acks",
        "_deletions",
        "_flush_running",
        "_flush_waiting",
        "_next_log",
        "_synced_end",
        "_unseen",
        "appends",
        "bytes_in",
        "followers",
        "host",
        "index",
        "is_leader",
        "leader_epoch",
        "leader_id",
        "leading",
        "log",
        "messages_in",
        "min_insync",
        "partition_epoch",
        "replica_waiters",
        "topic",
        "topic_id",
        "traffic",
        "waiters",
    )

    def __init__(
        self,
        host: "PartitionHost",
        topic: str,
        topic_id: "Uuid",
        index: int,
        log: Any,
        traffic: TopicTraffic,
    ) -> None:
        self.host = host
        self.traffic = traffic
        self.appends = self.messages_in = self.bytes_in = 0
        """Batches, records and bytes appended as the leader; see `topic_traffic`."""
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log: PartitionLog = log
        log.report_starts(self._on_bounds)
        self.is_leader = False
        self.leader_id = -1
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.min_insync = 1
        self.leading: PartitionLeader | None = None
        """The leader's state; None while another broker leads."""
        self.followers: dict[int, FollowerState] = {}
        """Those of `leading`; empty for a single replica, which is the fast path."""
        self.waiters: dict[PartitionReader, None] = {}
        """Consumers' parked fetches and sessions, which read up to the high watermark."""
        self.replica_waiters: dict[FetchWaiter, None] = {}
        """Followers' fetches, which read to the log's end."""
        self._acks = OffsetWaiters()
        self._deletions = OffsetWaiters()
        self._unseen: deque[tuple[int, int]] = deque()
        """End offset and bytes of appends above the high watermark."""
        self._synced_end: int | None = None
        """End of the synced records while an fsync is pending; None: the log's end counts."""
        self._flush_running = False
        self._flush_waiting: asyncio.Future[None] | None = None
        self._next_log: Callable[[], PartitionLog] | None = None
        """Returns the log that replaces this one; called when no fsync is running."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def is_follower(self) -> bool:
        """Whether this replica follows another broker."""
        return self.leader_id >= 0 and not self.is_leader

    def identify(self, topic_id: "Uuid") -> None:
        """Take another id of the topic; its host knows the partition by it."""
        self.topic_id = topic_id

    # ---- following the image

    def apply(self, partition: "PartitionState", *, local_id: int) -> bool:
        """Take the role of a new image; whether the leader or its epoch changed."""
        was = (self.is_leader, self.leader_id, self.leader_epoch)
        if partition.leader == local_id:
            if not self._lead(partition, local_id):
                return False
        else:
            self._stop_leading()
        self.leader_id = partition.leader
        self.leader_epoch = partition.leader_epoch
        self.partition_epoch = partition.partition_epoch
        changed = was != (self.is_leader, self.leader_id, self.leader_epoch)
        if changed:
            self.wake_all()
        if self.is_leader:
            self.advance()
        return changed

    def _lead(self, partition: "PartitionState", local_id: int) -> bool:
        """Lead as in the image; False if an AlterPartition response was already newer."""
        leading = self.leading or PartitionLeader(
            self.host.brokers, local_id=local_id, lag_ms_max=self.host.lag_ms_max
        )
        leading.set_min_insync(self.min_insync)
        epoch = leading.leader_epoch
        news = leading.on_metadata(
            replicas=partition.replicas,
            isr=partition.isr,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            log_end_offset=self.log.log_end_offset,
            now_ms=self.host.clock.mono_ms(),
            offline=self.host.replicas_offline(partition),
        )
        if not news:
            return False
        self.leading = leading
        self.followers = leading.followers
        self.is_leader = True
        if leading.leader_epoch != epoch:
            self.log.assign_epoch(leading.leader_epoch)
        self._on_low_watermark()
        return True

    def _stop_leading(self) -> None:
        if self.leading is None:
            return
        self.is_leader = False
        self.leading = None
        self.followers = {}
        self._unseen.clear()
        over = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self} is no longer led here")
        self._acks.fail(over)
        self._deletions.fail(over)

    def configure(self, config: "LogConfig", *, min_insync: int) -> None:
        """Apply the topic's configs; min.insync.replicas takes effect with the next `apply`."""
        self.log.configure(config)
        self.min_insync = min_insync

    def on_isr_changed(self, partition_epoch: int) -> None:
        """Continue with an ISR change that the controller accepted."""
        self.partition_epoch = partition_epoch
        self.advance()

    def maybe_shrink_isr(self, now_ms: int) -> None:
        """Ask the controller to remove followers that have fallen behind."""
        leading = self.leading
        if leading is None or not self.followers:
            return
        pending = leading.maybe_shrink(self.log.log_end_offset, now_ms)
        if pending is not None:
            log.info("Shrinking the ISR of %s: %s", self, pending.leaving)
            self.host.isr_changes.submit(self, pending)
        self.advance()  # a follower about to join may have fallen behind

    def end(self) -> None:
        """Stop leading or following: the replica was removed, or its disk failed."""
        self._stop_leading()
        self.leader_id = -1
        self.wake_all()
        self.log.report_starts(None)  # no cycle: see `server.garbage`

    # ---- appends

    def append(
        self,
        records: Any,
        *,
        acks: int,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        prepared: "Prepared | None" = None,
    ) -> "AppendInfo":
        """Append one batch as the leader; `prepared`: checked already, in a thread.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, and what the log refuses.
            StorageFault: the disk failed.
        """
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self} is not led here")
        if acks == -1 and self.followers:
            self._require_min_insync(ErrorCode.NOT_ENOUGH_REPLICAS)
        info = self.log.append_as_leader(
            records,
            leader_epoch=self.leader_epoch,
            now_ms=now_ms,
            origin=origin,
            prepared=prepared,
        )
        size = len(records)
        self.appends += 1
        self.bytes_in += size
        self.messages_in += info[1] - info[0] + 1
        if info.needs_fsync and self._synced_end is None:
            self._synced_end = info.base_offset
        if self.followers:
            self._on_append(size)
        elif self._synced_end is None:
            log = self.log
            log.set_high_watermark(log.log_end_offset)
            if self.waiters:
                self.wake(size)
        return info

    def _require_min_insync(self, code: ErrorCode) -> None:
        leading = self.leading
        assert leading is not None
        if leading.is_under_min_insync:
            raise KafkaError(
                code,
                f"{self} has {len(leading.in_sync.isr)} replicas in sync "
                f"and needs {leading.min_insync_effective}",
            )

    def _on_append(self, size: int) -> None:
        """Wake followers; the high watermark may advance too."""
        unseen = self._unseen
        if len(unseen) < UNSEEN_APPENDS_MAX:
            unseen.append((self.log.log_end_offset, size))
        else:
            unseen[-1] = (self.log.log_end_offset, unseen[-1][1] + size)
        for waiter in list(self.replica_waiters):
            waiter.on_bytes(size)
        assert self.leading is not None
        if len(self.leading.in_sync.maximal_isr) == 1:  # else it depends on fetches
            self.advance()

    def durable(
        self, info: "AppendInfo", *, acks: int, timeout_ms: int | None = None
    ) -> "asyncio.Future[None] | None":
        """A future that completes when `info` may be acknowledged; None if it may be now.

        It fails with a KafkaError: KAFKA_STORAGE_ERROR if the fsync fails, NOT_LEADER_OR_FOLLOWER
        if leadership ends, NOT_ENOUGH_REPLICAS_AFTER_APPEND if the ISR has shrunk below
        min.insync.replicas, REQUEST_TIMED_OUT after `timeout_ms` (None: never).
        """
        flushed = self._flush() if info.needs_fsync else None
        if acks != -1 or not self.followers:
            if flushed is None and acks == -1 and self._synced_end is not None:
                return self._flush() if info.last_offset >= self.log.high_watermark else None
            return flushed
        required = info.last_offset + 1
        if self.log.high_watermark < required or flushed is not None:
            return self._acks.add(required, self.host.wheel, timeout_ms)
        assert self.leading is not None
        if not self.leading.is_under_min_insync:
            return None
        self._require_min_insync(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        return None

    def committed(self, offset: int) -> "asyncio.Future[None] | None":
        """A future that completes when everything below `offset` is committed; None if it is."""
        if self.log.high_watermark >= offset:
            return None
        return self._acks.add(offset, self.host.wheel, None)

    @property
    def waiting(self) -> tuple[int, int]:
        """Produce and DeleteRecords requests that wait for followers."""
        return len(self._acks), len(self._deletions)

    # ---- the high watermark

    def advance(self) -> None:
        """Advance the leader's high watermark to what enough replicas have."""
        leading, log = self.leading, self.log
        if leading is None:
            return
        own_end = log.log_end_offset if self._synced_end is None else self._synced_end
        offset = leading.high_watermark(own_end, self.host.clock.mono_ms())
        if offset is None or offset <= log.high_watermark:
            return
        log.set_high_watermark(offset)
        if self._acks:
            self._acks.reach(offset, self._late_refusal())
        self._wake_readers(offset)

    def _late_refusal(self) -> KafkaError | None:
        """The error of producers whose records too few replicas have (Kafka's DelayedProduce).

        The maximal ISR counts: a follower about to be removed has the records too.
        """
        leading = self.leading
        assert leading is not None
        if len(leading.in_sync.maximal_isr) >= leading.min_insync_effective:
            return None
        return KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, f"{self} has too few replicas in sync"
        )

    def _wake_readers(self, offset: int) -> None:
        """Wake fetches after the high watermark advanced to `offset`."""
        size = 0
        unseen = self._unseen
        while unseen and unseen[0][0] <= offset:
            size += unseen.popleft()[1]
        if self.waiters:
            self.wake(max(size, 1))  # appends of an earlier leader are not counted
        for waiter in self.replica_waiters:
            waiter.on_watermark()

    # ---- followers' fetches

    def on_follower_fetch(
        self,
        replica: int,
        offset: int,
        *,
        log_start_offset: int,
        leader_end: int,
        broker_epoch: int,
    ) -> None:
        """Record a follower's position; may advance the high watermark or expand the ISR.

        Args:
            replica: the follower; assigned, as checked by `PartitionLeader.check_follower`.
            offset: the fetch offset.
            log_start_offset: the follower's.
            leader_end: the leader's log end offset at the read.
            broker_epoch: of the follower; -1 if the request has none.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER if the broker epoch is stale.
        """
        leading = self.leading
        assert leading is not None
        moved = leading.on_fetch(
            replica,
            offset,
            log_start_offset=log_start_offset,
            leader_end=leader_end,
            broker_epoch=broker_epoch,
            now_ms=self.host.clock.mono_ms(),
        )
        pending = leading.maybe_expand(replica, self.log.high_watermark)
        if pending is not None:
            self.host.isr_changes.submit(self, pending)
        if moved:
            self.advance()
        if self._deletions:
            self._on_low_watermark()

    # ---- deleting records

    def delete_records(self, offset: int, timeout_ms: int) -> "asyncio.Future[None] | None":
        """Delete records before `offset` (-1: the high watermark), here and at every live replica.

        Returns a future that completes once all replicas have; None if they have. It fails with
        REQUEST_TIMED_OUT after `timeout_ms`, and NOT_LEADER_OR_FOLLOWER if leadership ends.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE.
            StorageFault: the disk failed.
        """
        target = self.log.high_watermark if offset == -1 else offset
        self.log.delete_records_before(target)
        if self.low_watermark >= target:
            return None
        for waiter in self.replica_waiters:
            waiter.on_watermark()
        return self._deletions.add(target, self.host.wheel, timeout_ms)

    @property
    def low_watermark(self) -> int:
        """The smallest log start offset over this and all live replicas."""
        start = self.log.log_start_offset
        return start if self.leading is None else self.leading.low_watermark(start)

    def _on_low_watermark(self) -> None:
        self._deletions.reach(self.low_watermark)

    # ---- fsync

    def _flush(self) -> "asyncio.Future[None]":
        """One fsync for everything appended so far; a running one does not cover this append."""
        if self._flush_waiting is None:
            self._flush_waiting = asyncio.get_running_loop().create_future()
        waiting = self._flush_waiting
        if not self._flush_running:
            self._flush_running = True
            self.host.spawn(self._flush_loop(), f"fsync of {self}")
        return waiting

    async def _flush_loop(self) -> None:
        try:
            while self._flush_waiting is not None:
                self._take_next_log()
                waiting, self._flush_waiting = self._flush_waiting, None
                end = self.log.log_end_offset
                try:
                    await self.host.off_loop(self.log.flush, end)
                except Exception as error:  # the waiters must fail, whatever it was
                    refusal = self.host.on_disk_error(error, self)
                    waiting.set_exception(refusal)
                    waiting.exception()  # retrieved: it may have no waiter
                    self._acks.fail(refusal)
                    continue
                self._on_synced(end)
                waiting.set_result(None)
        finally:
            self._flush_running = False
        self._take_next_log()
        if self.log.fault is None:
            self._on_synced(None)  # appends during the last fsync did not need one

    def _on_synced(self, end: int | None) -> None:
        self._synced_end = end
        self.advance()
        self.wake_all()

    def replace_log(self, swap: "Callable[[], PartitionLog]") -> None:
        """Continue with the log that `swap` returns: equal records, equally durable.

        `swap` is called now or between two fsyncs, because it moves files.
        """
        self._next_log = swap
        if not self._flush_running:
            self._take_next_log()

    def _take_next_log(self) -> None:
        swap, self._next_log = self._next_log, None
        if swap is None:
            return
        self.log = swap()
        self.log.report_starts(self._on_bounds)
        if self.is_leader:
            self.log.assign_epoch(self.leader_epoch)  # the copy may have no record of it
        self.wake_all()

    # ---- following

    def follower_append(
        self, records: Any, *, leader_epoch: int, leader_hw: int, leader_log_start: int
    ) -> "AppendInfo":
        """Apply a fetch response: batches, then the leader's high watermark and log start offset.

        Args:
            records: whole batches from our log end offset on, or nothing; appended unchanged.
            leader_epoch: of the fetch; batches of a later epoch are skipped (KAFKA-18723).
            leader_hw: the leader's; ours becomes it, or our log end offset if lower.
            leader_log_start: the leader's; ours never passes our high watermark.

        The next fetch acknowledges the records: if they need an fsync, wait for `synced` first.

        Raises:
            KafkaError: FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH if `leader_epoch` is not the
                current one, CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR.
            StorageFault: the disk failed.
        """
        self._check_following(leader_epoch)
        info = self.log.append_as_follower(records, leader_epoch)
        self.traffic.on_replicated(len(records))
        before = self.log.high_watermark
        self.log.set_high_watermark(leader_hw)
        self.log.advance_log_start(min(leader_log_start, self.log.high_watermark))
        if self.waiters and self.log.high_watermark > before:
            self.wake_all()
        return info

    def follower_truncate(self, offset: int, *, leader_epoch: int) -> bool:
        """Truncate to `offset`, at which the logs diverge; return whether records were removed.

        Raises:
            As `follower_append`.
        """
        self._check_following(leader_epoch)
        truncated = self.log.truncate_to(offset)
        self._on_bounds()
        return truncated

    def follower_start_at(self, offset: int, *, leader_epoch: int) -> None:
        """Remove everything and start at `offset`: the leader's log starts after our end.

        Raises:
            As `follower_append`.
        """
        self._check_following(leader_epoch)
        self.log.truncate_fully_and_start_at(offset)
        self._on_bounds()

    def synced(self, info: "AppendInfo") -> "asyncio.Future[None] | None":
        """A future that completes when a follower's append may be acknowledged; None if now."""
        return self._flush() if info.needs_fsync else None

    def _check_following(self, leader_epoch: int) -> None:
        if self.is_leader or not self.is_follower:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"{self} is not a follower here")
        self.check_epoch(leader_epoch)

    # ---- reads

    def visible_end(self, *, isolation: int, replica: bool) -> int:
        """The offset a reader may see up to, exclusive."""
        log = self.log
        if replica:
            return log.log_end_offset
        if isolation == 1:
            return log.last_stable_offset
        return log.high_watermark

    def check_caught_up(self) -> None:
        """Reject offset lookups while a new leader may not know the high watermark (KIP-207).

        Raises:
            KafkaError: OFFSET_NOT_AVAILABLE until the high watermark reaches the start of this
                leader epoch: clients may have seen offsets that this leader considers uncommitted.
        """
        leading = self.leading
        if leading is not None and leading.epoch_start_offset > self.log.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_NOT_AVAILABLE,
                f"{self}: the high watermark {self.log.high_watermark} is below the start of "
                f"leader epoch {self.leader_epoch}, {leading.epoch_start_offset}",
            )

    def check_epoch(self, epoch: int) -> None:
        """Reject a reader with another leader epoch (KIP-320); -1: it sent none."""
        if epoch < 0 or epoch == self.leader_epoch:
            return
        if epoch < self.leader_epoch:
            raise KafkaError(
                ErrorCode.FENCED_LEADER_EPOCH,
                f"{self} is at epoch {self.leader_epoch}, not {epoch}",
            )
        raise KafkaError(
            ErrorCode.UNKNOWN_LEADER_EPOCH, f"{self} is still at epoch {self.leader_epoch} here"
        )

    # ---- parked fetches

    def wake(self, readable_bytes: int) -> None:
        """Report new readable bytes to consumers' fetches."""
        for waiter in self.waiters:
            waiter.on_bytes(readable_bytes)

    def wake_all(self) -> None:
        """Complete every parked fetch."""
        for waiter in (*self.waiters, *self.replica_waiters):
            waiter.finish()

    def _on_bounds(self) -> None:
        """Report a moved start or a truncation to consumers' sessions; no fetch wakes."""
        for waiter in self.waiters:
            waiter.on_bounds()
