"""One partition hosted by this broker: its log, its role, and who waits for it.

A *leader* appends, answers fetches and moves the high watermark; the rules are those of
`sparkraft.replication.leader`, the log and the waiting are here. Alone (one replica) the high
watermark follows the log's end at once; with followers it follows their fetches:

    append → LEO=5 HW=4 → followers' fetches wake → they fetch from 5 → HW=5 → producers, consumers

Where a topic asks for an fsync first (flush.messages), the leader counts itself only up to what is
synced. The fsync runs off the loop and covers every append that came before it.

A *follower* (`is_follower`) is written by its fetcher alone: `follower_append`,
`follower_truncate`, `follower_start_at`, which refuse an answer of a leader epoch that is over.

Not here: what is fetched from whom (`fetchers`), ISR changes on their way (`isr_changes`).
"""

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.records.validate import Origin
from sparkraft.replication.leader import PartitionLeader
from sparkraft.server.broker.purgatory import OffsetWaiters

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkraft.base.ids import Uuid
    from sparkraft.metadata.partition_state import PartitionState
    from sparkraft.replication.follower import FollowerState
    from sparkraft.server.broker.purgatory import FetchWaiter
    from sparkraft.server.broker.replica_manager import ReplicaManager
    from sparkraft.storage.log import AppendInfo, PartitionLog

UNSEEN_APPENDS_MAX = 4096
"""Appends above the high watermark counted one by one; more are counted together."""


class HostedPartition:
    """See the module docstring. Slots: Produce and Fetch touch one per partition and request."""

    __slots__ = (
        "_acks",
        "_deletions",
        "_flush_running",
        "_flush_waiting",
        "_next_log",
        "_synced_end",
        "_unseen",
        "followers",
        "index",
        "is_leader",
        "leader_epoch",
        "leader_id",
        "leading",
        "log",
        "manager",
        "min_insync",
        "partition_epoch",
        "replica_waiters",
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
        self.min_insync = 1
        self.leading: PartitionLeader | None = None
        """The leader's state, None while somebody else leads."""
        self.followers: dict[int, FollowerState] = {}
        """Those of `leading`; empty where this replica is alone, which is the fast way."""
        self.waiters: dict[FetchWaiter, None] = {}
        """Consumers' fetches: they read up to the high watermark."""
        self.replica_waiters: dict[FetchWaiter, None] = {}
        """Followers' fetches: they read to the log's end."""
        self._acks = OffsetWaiters()
        self._deletions = OffsetWaiters()
        self._unseen: deque[tuple[int, int]] = deque()
        """End offset and bytes of appends that consumers don't see yet."""
        self._synced_end: int | None = None
        """Up to where the leader counts itself while an fsync is due; None: to its log's end."""
        self._flush_running = False
        self._flush_waiting: asyncio.Future[None] | None = None
        self._next_log: Callable[[], PartitionLog] | None = None
        """Puts another log in the place of this one; waits for the end of an fsync."""

    def __str__(self) -> str:
        """`topic-index`, as Kafka names partitions."""
        return f"{self.topic}-{self.index}"

    @property
    def is_follower(self) -> bool:
        """Whether somebody else leads it, whom this replica follows."""
        return self.leader_id >= 0 and not self.is_leader

    # ---- what the cluster decides

    def apply(self, partition: "PartitionState", *, local_id: int) -> bool:
        """Take over what the image says; whether whom we lead or follow changed, or the epoch."""
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
        """Lead as the image says; False where the controller has told us something newer."""
        leading = self.leading or PartitionLeader(
            self.manager.isr_changes, local_id=local_id, lag_ms_max=self.manager.lag_ms_max
        )
        leading.min_insync = self.min_insync
        epoch = leading.leader_epoch
        news = leading.on_metadata(
            replicas=partition.replicas,
            isr=partition.isr,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            log_end_offset=self.log.log_end_offset,
            now_ms=self.manager.clock.mono_ms(),
            offline=self.manager.replicas_offline(partition),
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
        over = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self} is not led here any more")
        self._acks.fail(over)
        self._deletions.fail(over)

    def end(self) -> None:
        """Neither lead nor follow any more: the replica is gone, or its disk."""
        self._stop_leading()
        self.leader_id = -1
        self.wake_all()

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
        if acks == -1 and self.followers:
            self._require_min_insync(ErrorCode.NOT_ENOUGH_REPLICAS)
        info = self.log.append_as_leader(
            records, leader_epoch=self.leader_epoch, now_ms=now_ms, origin=origin
        )
        if info.needs_fsync and self._synced_end is None:
            self._synced_end = info.base_offset
        if self.followers:
            self._on_append(len(records))
        elif self._synced_end is None:
            log = self.log
            log.set_high_watermark(log.log_end_offset)
            if self.waiters:
                self.wake(len(records))
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
        """Records came that followers may fetch, and consumers once they are committed."""
        unseen = self._unseen
        if len(unseen) < UNSEEN_APPENDS_MAX:
            unseen.append((self.log.log_end_offset, size))
        else:
            unseen[-1] = (self.log.log_end_offset, unseen[-1][1] + size)
        for waiter in list(self.replica_waiters):
            waiter.on_bytes(size)
        assert self.leading is not None
        if len(self.leading.in_sync.maximal_isr) == 1:  # else it waits for a fetch anyway
            self.advance()

    def durable(
        self, info: "AppendInfo", *, acks: int, timeout_ms: int | None = None
    ) -> "asyncio.Future[None] | None":
        """A future that ends when `info` may be acknowledged under `acks`; None if it may now.

        It fails with a KafkaError: KAFKA_STORAGE_ERROR when the fsync does, NOT_LEADER_OR_FOLLOWER
        when leadership ends, NOT_ENOUGH_REPLICAS_AFTER_APPEND where the ISR shrank below
        min.insync.replicas meanwhile, REQUEST_TIMED_OUT after `timeout_ms` (None: never).
        """
        flushed = self._flush() if info.needs_fsync else None
        if acks != -1 or not self.followers:
            if flushed is None and acks == -1 and self._synced_end is not None:
                return self._flush() if info.last_offset >= self.log.high_watermark else None
            return flushed
        required = info.last_offset + 1
        if self.log.high_watermark < required or flushed is not None:
            return self._acks.add(required, self.manager.wheel, timeout_ms)
        assert self.leading is not None
        if not self.leading.is_under_min_insync:
            return None
        self._require_min_insync(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        return None

    def committed(self, offset: int) -> "asyncio.Future[None] | None":
        """A future that ends when everything below `offset` is committed; None if it is."""
        if self.log.high_watermark >= offset:
            return None
        return self._acks.add(offset, self.manager.wheel, None)

    # ---- the high watermark

    def advance(self) -> None:
        """Let the leader's high watermark follow what its replicas have."""
        leading, log = self.leading, self.log
        if leading is None:
            return
        own_end = log.log_end_offset if self._synced_end is None else self._synced_end
        offset = leading.high_watermark(own_end, self.manager.clock.mono_ms())
        if offset is None or offset <= log.high_watermark:
            return
        log.set_high_watermark(offset)
        if self._acks:
            self._acks.reach(offset, self._late_refusal())
        self._show(offset)

    def _late_refusal(self) -> KafkaError | None:
        """What producers hear whose records are committed, but by too few (Kafka's DelayedProduce).

        The maximal ISR counts: a follower about to leave has the records too.
        """
        leading = self.leading
        assert leading is not None
        if len(leading.in_sync.maximal_isr) >= leading.min_insync_effective:
            return None
        return KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, f"{self} is short of replicas"
        )

    def _show(self, offset: int) -> None:
        """Tell waiting consumers of what they may read now."""
        size = 0
        unseen = self._unseen
        while unseen and unseen[0][0] <= offset:
            size += unseen.popleft()[1]
        if self.waiters and size:
            self.wake(size)
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
        """Note what a follower has; may move the high watermark and bring it into the ISR.

        Args:
            replica: the follower; assigned, as `PartitionLeader.check_follower` has seen.
            offset: from which it reads.
            log_start_offset: the follower's.
            leader_end: our log end offset at the read.
            broker_epoch: of the follower; -1 where the request has none.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER where the broker epoch is over.
        """
        leading = self.leading
        assert leading is not None
        moved = leading.on_fetch(
            replica,
            offset,
            log_start_offset=log_start_offset,
            leader_end=leader_end,
            broker_epoch=broker_epoch,
            now_ms=self.manager.clock.mono_ms(),
        )
        pending = leading.maybe_expand(replica, self.log.high_watermark)
        if pending is not None:
            self.manager.isr_changes.submit(self, pending)
        if moved:
            self.advance()
        if self._deletions:
            self._on_low_watermark()

    # ---- deleting records

    def delete_records(self, offset: int, timeout_ms: int) -> "asyncio.Future[None] | None":
        """Let the log begin at `offset` (-1: the high watermark), here and at every live replica.

        Gives a future that ends once all have followed; None if they have. It fails with
        REQUEST_TIMED_OUT after `timeout_ms`, and NOT_LEADER_OR_FOLLOWER when leadership ends.

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
        return self._deletions.add(target, self.manager.wheel, timeout_ms)

    @property
    def low_watermark(self) -> int:
        """The smallest log start offset over this and all live replicas."""
        start = self.log.log_start_offset
        return start if self.leading is None else self.leading.low_watermark(start)

    def _on_low_watermark(self) -> None:
        self._deletions.reach(self.low_watermark)

    # ---- fsync

    def _flush(self) -> "asyncio.Future[None]":
        """One fsync for everything appended so far; a running one doesn't cover this append."""
        if self._flush_waiting is None:
            self._flush_waiting = asyncio.get_running_loop().create_future()
        waiting = self._flush_waiting
        if not self._flush_running:
            self._flush_running = True
            self.manager.spawn(self._flush_loop(), f"fsync of {self}")
        return waiting

    async def _flush_loop(self) -> None:
        try:
            while self._flush_waiting is not None:
                self._take_next_log()
                waiting, self._flush_waiting = self._flush_waiting, None
                end = self.log.log_end_offset
                try:
                    await self.manager.off_loop(self.log.flush, end)
                except Exception as error:  # the waiters must hear of it, whatever it was
                    refusal = self.manager.on_disk_error(error, self)
                    waiting.set_exception(refusal)
                    waiting.exception()  # known: perhaps nobody waits for this one
                    self._acks.fail(refusal)
                    continue
                self._on_synced(end)
                waiting.set_result(None)
        finally:
            self._flush_running = False
        self._take_next_log()
        if self.log.fault is None:
            self._on_synced(None)  # what came during the last fsync asked for none

    def _on_synced(self, end: int | None) -> None:
        self._synced_end = end
        self.advance()
        self.wake_all()

    def replace_log(self, swap: "Callable[[], PartitionLog]") -> None:
        """Go on with the log that `swap` gives, which holds the same and is as durable.

        `swap` is called now, or between two fsyncs: none must find the files of its log moved.
        """
        self._next_log = swap
        if not self._flush_running:
            self._take_next_log()

    def _take_next_log(self) -> None:
        swap, self._next_log = self._next_log, None
        if swap is None:
            return
        self.log = swap()
        if self.is_leader:
            self.log.assign_epoch(self.leader_epoch)  # nothing may have been appended in it yet
        self.wake_all()

    # ---- following

    def follower_append(
        self, records: Any, *, leader_epoch: int, leader_hw: int, leader_log_start: int
    ) -> "AppendInfo":
        """Take in what a leader answered: batches, then its high watermark and log start offset.

        Args:
            records: whole batches from our log end offset on, or nothing; bytes stay as they are.
            leader_epoch: of the fetch; batches of a later epoch are left out (KAFKA-18723).
            leader_hw: the leader's; ours becomes it, or our log end offset where that is lower.
            leader_log_start: the leader's; ours never passes our high watermark.

        The next fetch acknowledges what was appended: where `needs_fsync`, `synced` comes first.

        Raises:
            KafkaError: FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH where `leader_epoch` is not ours
                (any more), CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR.
            StorageFault: the disk failed.
        """
        self._check_following(leader_epoch)
        info = self.log.append_as_follower(records, leader_epoch)
        before = self.log.high_watermark
        self.log.set_high_watermark(leader_hw)
        self.log.advance_log_start(min(leader_log_start, self.log.high_watermark))
        if self.waiters and self.log.high_watermark > before:
            self.wake_all()
        return info

    def follower_truncate(self, offset: int, *, leader_epoch: int) -> bool:
        """Remove everything from `offset` on, as the leader's epochs tell; whether there was any.

        Raises:
            As `follower_append`.
        """
        self._check_following(leader_epoch)
        return self.log.truncate_to(offset)

    def follower_start_at(self, offset: int, *, leader_epoch: int) -> None:
        """Remove everything and go on at `offset`: the leader's log begins behind our end.

        Raises:
            As `follower_append`.
        """
        self._check_following(leader_epoch)
        self.log.truncate_fully_and_start_at(offset)

    def synced(self, info: "AppendInfo") -> "asyncio.Future[None] | None":
        """A future that ends when a follower's append may be acknowledged; None if it may now."""
        return self._flush() if info.needs_fsync else None

    def _check_following(self, leader_epoch: int) -> None:
        if self.is_leader or not self.is_follower:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"{self} follows nobody here")
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
        """Refuse to tell a client of offsets while a new leader doesn't know what is committed.

        Raises:
            KafkaError: OFFSET_NOT_AVAILABLE until the high watermark reaches the start of this
                leader epoch: clients have seen offsets that this leader takes for uncommitted.
        """
        leading = self.leading
        if leading is not None and leading.epoch_start_offset > self.log.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_NOT_AVAILABLE,
                f"{self}: the high watermark {self.log.high_watermark} is below the start of "
                f"leader epoch {self.leader_epoch}, {leading.epoch_start_offset}",
            )

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

    def wake(self, readable_bytes: int) -> None:
        """Tell waiting consumers that there is more to read."""
        for waiter in list(self.waiters):
            waiter.on_bytes(readable_bytes)

    def wake_all(self) -> None:
        """Let every waiting fetch look again."""
        for waiter in (*self.waiters, *self.replica_waiters):
            waiter.finish()
