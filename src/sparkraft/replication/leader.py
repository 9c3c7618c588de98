"""A partition's leader: follower progress, the ISR, the high watermark.

Kafka's `Partition`, without its log. The shell passes in metadata, fetches and time; the results
are offsets and pending ISR changes, which the shell sends to the controller.

The high watermark is the smallest log end offset over the leader itself, the maximal ISR, and
followers that are caught up and eligible to join (KAFKA-3334: it would otherwise stay just ahead of
a follower forever). It stays while the ISR is smaller than min.insync.replicas, or than the number
of replicas if there are fewer (KIP-966):

    b1* LEO=9 | b2 LEO=7 | b3 LEO=4 out of sync for long      ISR=[1,2]      HW=7
    b1* LEO=9 | b2 LEO=7 | b3 LEO=7 joining                   ISR=[1,2]+3    HW=7
    b1* LEO=9                                                 ISR=[1] of 2   HW stays

Invariants:
    * Only fetches in this leadership count: the shell rejects other leader epochs, so every offset
      was compared with our epochs (KIP-320).
    * No follower joins the ISR below the high watermark or below the start of this leader epoch:
      its log may lack records that an earlier leader committed (KIP-101's gap, closed by KIP-320).
    * At most one ISR change is pending.

Not here: appending, reading, waiting (`sparkraft.server.broker.partition`).
"""

from collections.abc import Collection, Sequence
from typing import Protocol

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.replication.follower import UNKNOWN_BROKER_EPOCH, FollowerState
from sparkraft.replication.in_sync import (
    Committed,
    InSync,
    Lag,
    Pending,
    PendingExpand,
    PendingShrink,
)


class Brokers(Protocol):
    """A leader's view of other brokers, from the metadata image."""

    def alive_epoch(self, broker_id: int) -> int | None:
        """The broker epoch; None if the broker is unknown or fenced."""

    def may_join_isr(self, broker_id: int) -> bool:
        """Whether it is neither fenced nor in controlled shutdown."""


class PartitionLeader:
    """See the module docstring; lives as long as the leadership."""

    __slots__ = (
        "_brokers",
        "_lag_ms_max",
        "_local_id",
        "_offline",
        "epoch_start_offset",
        "followers",
        "in_sync",
        "leader_epoch",
        "min_insync",
        "partition_epoch",
    )

    def __init__(self, brokers: Brokers, *, local_id: int, lag_ms_max: int) -> None:
        """Create a leader; `on_metadata` must be called first.

        Args:
            brokers: the other brokers.
            local_id: the leader's broker id.
            lag_ms_max: replica.lag.time.max.ms.
        """
        self._brokers = brokers
        self._local_id = local_id
        self._lag_ms_max = lag_ms_max
        self.followers: dict[int, FollowerState] = {}
        """Every assigned replica but this one, in the order of the assignment."""
        self.in_sync: InSync = Committed(isr=(local_id,))
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.epoch_start_offset = 0
        """The log end offset at the start of this leader epoch."""
        self.min_insync = 1
        """min.insync.replicas of the topic."""
        self._offline: Collection[int] = ()
        """Followers whose log directory is offline."""

    # ---- metadata

    def set_min_insync(self, min_insync: int) -> None:
        """Apply the topic's min.insync.replicas."""
        self.min_insync = min_insync

    def on_metadata(  # noqa: PLR0913 (the fields of one image, by name)
        self,
        *,
        replicas: Sequence[int],
        isr: Sequence[int],
        leader_epoch: int,
        partition_epoch: int,
        log_end_offset: int,
        now_ms: int,
        offline: Collection[int] = (),
    ) -> bool:
        """Apply the image; returns whether it was new (Kafka's `Partition.makeLeader`).

        An image older than the controller's last response is ignored. A newer one ends a pending
        change, because it has the outcome.
        """
        if partition_epoch < self.partition_epoch:
            return False
        others = [replica for replica in replicas if replica != self._local_id]
        self.followers = {r: self.followers.get(r) or FollowerState() for r in others}
        self._offline = offline
        if partition_epoch > self.partition_epoch:
            self.in_sync = Committed(isr=tuple(isr))
        self.partition_epoch = partition_epoch
        if leader_epoch > self.leader_epoch:
            self.leader_epoch = leader_epoch
            self.epoch_start_offset = log_end_offset
            for replica, follower in self.followers.items():
                follower.begin_epoch(
                    in_sync=replica in isr, leader_end=log_end_offset, now_ms=now_ms
                )
        return True

    # ---- followers

    def on_fetch(
        self,
        replica: int,
        offset: int,
        *,
        log_start_offset: int,
        leader_end: int,
        broker_epoch: int,
        now_ms: int,
    ) -> bool:
        """Record a follower's fetch; returns whether its log end offset moved.

        Args:
            replica: the follower, see `check_follower`.
            offset: the fetch offset, which is its log end offset.
            log_start_offset: the follower's.
            leader_end: our log end offset at the time of the read.
            broker_epoch: the follower's, -1 if the request has none.
            now_ms: monotonic.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER if the fetch is of an earlier incarnation of the
                broker, whose log may have been another one (KIP-903).
        """
        follower = self.followers[replica]
        if broker_epoch != UNKNOWN_BROKER_EPOCH:
            current = self._brokers.alive_epoch(replica)
            if current is not None and current > broker_epoch:
                raise KafkaError(
                    ErrorCode.NOT_LEADER_OR_FOLLOWER,
                    f"broker epoch {broker_epoch} of replica {replica} is stale, now {current}",
                )
        before = follower.log_end_offset
        follower.on_fetch(
            offset,
            log_start_offset=log_start_offset,
            leader_end=leader_end,
            broker_epoch=broker_epoch,
            now_ms=now_ms,
        )
        return before != offset

    def check_follower(self, replica: int, *, knows_epoch: bool) -> None:
        """Refuse a fetch of a broker that is not an assigned replica, as far as is known here.

        Raises:
            KafkaError: UNKNOWN_LEADER_EPOCH if the fetch has our leader epoch: the assignment may
                be newer than our image, so the broker must retry; else NOT_LEADER_OR_FOLLOWER.
        """
        if replica not in self.followers:
            raise KafkaError(
                ErrorCode.UNKNOWN_LEADER_EPOCH if knows_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {replica} is not a replica in leader epoch {self.leader_epoch}",
            )

    # ---- the high watermark

    @property
    def min_insync_effective(self) -> int:
        """min.insync.replicas, at most the number of replicas."""
        return min(self.min_insync, len(self.followers) + 1)

    @property
    def is_under_min_insync(self) -> bool:
        """Whether fewer replicas are in sync than acks=all requires."""
        return len(self.in_sync.isr) < self.min_insync_effective

    def high_watermark(self, own_end: int, now_ms: int) -> int | None:
        """The end of the committed records; None while min.insync.replicas holds it.

        It may be lower than before; the shell never lowers a leader's high watermark.

        Args:
            own_end: the leader's own share: its log end offset, or the end of its synced records.
            now_ms: monotonic.
        """
        if self.is_under_min_insync:
            return None
        lowest = own_end
        maximal = self.in_sync.maximal_isr
        for replica, follower in self.followers.items():
            if follower.log_end_offset < lowest and (
                replica in maximal or self._is_about_to_join(replica, follower, own_end, now_ms)
            ):
                lowest = follower.log_end_offset
        return lowest

    def _is_about_to_join(
        self, replica: int, follower: FollowerState, leader_end: int, now_ms: int
    ) -> bool:
        caught_up = follower.is_caught_up(leader_end, now_ms, self._lag_ms_max)
        return caught_up and self._is_eligible(replica, follower)

    def low_watermark(self, own_start: int) -> int:
        """The smallest log start offset of all live replicas; DeleteRecords waits for it."""
        lowest = own_start
        for replica, follower in self.followers.items():
            if follower.log_start_offset < lowest and (
                self._brokers.alive_epoch(replica) is not None
            ):
                lowest = follower.log_start_offset
        return lowest

    # ---- the ISR

    def maybe_expand(self, replica: int, high_watermark: int) -> PendingExpand | None:
        """Add a follower that has fetched up to the high watermark and the epoch's start."""
        follower = self.followers[replica]
        if not isinstance(self.in_sync, Committed) or replica in self.in_sync.isr:
            return None
        if follower.log_end_offset < max(high_watermark, self.epoch_start_offset):
            return None
        if not self._is_eligible(replica, follower):
            return None
        pending = PendingExpand(
            committed=self.in_sync,
            joining=replica,
            new_isr=self._with_epochs((*self.in_sync.isr, replica)),
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
        )
        self.in_sync = pending
        return pending

    def maybe_shrink(self, leader_end: int, now_ms: int) -> PendingShrink | None:
        """Remove followers not caught up for longer than replica.lag.time.max.ms."""
        if not isinstance(self.in_sync, Committed):
            return None
        leaving = tuple(
            self._lag(replica, leader_end, now_ms)
            for replica in self.in_sync.isr
            if replica != self._local_id and self._is_out_of_sync(replica, leader_end, now_ms)
        )
        if not leaving:
            return None
        removed = [lag.replica for lag in leaving]
        pending = PendingShrink(
            committed=self.in_sync,
            leaving=leaving,
            new_isr=self._with_epochs([r for r in self.in_sync.isr if r not in removed]),
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
        )
        self.in_sync = pending
        return pending

    def on_altered(
        self, pending: Pending, *, isr: Sequence[int], leader_epoch: int, partition_epoch: int
    ) -> bool:
        """The controller accepted `pending`; returns whether the ISR was updated to its response.

        A response is ignored if the metadata was newer, or if it is of another leader epoch or an
        older partition epoch.
        """
        if self.in_sync is not pending or leader_epoch != self.leader_epoch:
            return False
        if partition_epoch < self.partition_epoch:
            return False
        self.in_sync = Committed(isr=tuple(isr))
        self.partition_epoch = partition_epoch
        return True

    def on_refused(self, pending: Pending, code: ErrorCode) -> bool:
        """The controller refused `pending`; returns whether to retry.

        OPERATION_NOT_ATTEMPTED and INELIGIBLE_REPLICA mean that nothing has changed: the committed
        ISR is valid again. After other final errors the outcome is unknown: the change stays
        pending, with its maximal ISR, until new metadata arrives.
        """
        if self.in_sync is not pending:
            return False
        if code in {ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA}:
            self.in_sync = pending.committed
            return False
        return code not in _FINAL

    def _is_out_of_sync(self, replica: int, leader_end: int, now_ms: int) -> bool:
        follower = self.followers.get(replica)
        return follower is None or not follower.is_caught_up(leader_end, now_ms, self._lag_ms_max)

    def _lag(self, replica: int, leader_end: int, now_ms: int) -> Lag:
        follower = self.followers.get(replica) or FollowerState()
        since = follower.last_caught_up_ms
        return Lag(
            replica=replica,
            log_end_offset=follower.log_end_offset,
            leader_end=leader_end,
            behind_ms=now_ms - since if since >= 0 else None,
        )

    def _is_eligible(self, replica: int, follower: FollowerState) -> bool:
        """Whether it may join: it has fetched, is active, and has not restarted since (KIP-903).

        A follower whose log directory is offline may not join either: the high watermark would wait
        for it for replica.lag.time.max.ms, as it does in Kafka.

        In ZooKeeper mode the epochs of brokers are not known, and any epoch may join, as in Kafka.
        """
        if not follower.has_fetched or not self._brokers.may_join_isr(replica):
            return False
        if replica in self._offline:
            return False
        current = self._brokers.alive_epoch(replica)
        return UNKNOWN_BROKER_EPOCH in {follower.broker_epoch, current} or (
            follower.broker_epoch == current
        )

    def _with_epochs(self, isr: Sequence[int]) -> tuple[tuple[int, int], ...]:
        """Each replica with the broker epoch of its last fetch, ours with our own; -1 if unknown.

        A member that has not fetched yet needs none: if it has failed, the controller has already
        removed it, and the partition epoch of our request is too old. In ZooKeeper mode none has
        one, as in Kafka: a KRaft controller that migrates the cluster knows other epochs.
        """
        return tuple((replica, self._epoch_of(replica)) for replica in isr)

    def _epoch_of(self, replica: int) -> int:
        current = self._brokers.alive_epoch(replica)
        if replica == self._local_id:
            return UNKNOWN_BROKER_EPOCH if current is None else current
        follower = self.followers.get(replica)
        if follower is None or current == UNKNOWN_BROKER_EPOCH:
            return UNKNOWN_BROKER_EPOCH
        return follower.broker_epoch


_FINAL = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)
"""Errors that a retry would repeat; newer metadata will arrive."""
