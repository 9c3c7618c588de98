"""A follower's fetches from one leader, and the processing of the responses.

Kafka's AbstractFetcherThread and ReplicaFetcherThread, without thread or socket.

A driver repeats:

1. `build_in_steps(now)`: truncate pending partitions, then build the next request; None: wait until
   `wake_at`, or until something changes here. `follow` and `leave` may be called between the steps:
   then `has_changes`, and the request should not wait at the leader.
2. send it; `fail(now)` if there is no response, `interrupted()` if it was abandoned.
3. `on_response(response, now)`, then `process_partition(key, data, now)` for each partition.
4. while `out_of_range(now)` returns partitions: request the leader's offsets, `on_bounds`.
5. while `uncertain(now)` returns partitions: request the leader's ends of their newest epochs with
   OffsetForLeaderEpoch, `on_end_of_epoch`. Only before Fetch v12.

Truncation (KIP-101, 279, 595): every request has the epoch of our last record. If the leader's log
diverges there, the response has the largest epoch both may share and its end offset; we truncate to
it and fetch again. Only a log without any epoch is truncated to its high watermark, once, first.
Before Fetch v12 a partition is truncated before its first fetch in a leader epoch, by the end that
the leader has of our newest epoch, and again until both logs have that epoch.

Rules:
    * A partition that returned data or an error moves to the end of the order.
    * A response counts only if offset and leader epoch are still those of the request.
    * Batches above the epoch of the request are not appended (KAFKA-18723).
    * An error makes a partition back off: `BACKOFF_MS_FIRST` at first, then doubling up to
      `replica.fetch.backoff.ms`. Kafka waits that long at once. The usual cause is a leader whose
      metadata lags slightly, and a failover should not wait a second for it.
    * A disk failure, or a fenced epoch, stops fetching until a later leader epoch.

Not here: the stages of a partition (`followed`), sockets (`sparkraft.server.broker.fetchers`), the
session's rules (`fetch_session`).
"""

from collections.abc import Generator, Iterator, Sequence
from itertools import islice
from typing import Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import TopicIdPartition
from sparkraft.base.loop_work import LoopBound
from sparkraft.protocol.messages.k01_fetch import FetchRequest, FetchResponse, PartitionData
from sparkraft.records.batch import BATCH_OVERHEAD, parse_header
from sparkraft.replication.fetch_session import PARTITIONS_PER_STEP, ClientFetchSession
from sparkraft.replication.fetcher_values import FetcherEvent, OutOfRange, Uncertain
from sparkraft.replication.followed import FollowedPartition, Stage
from sparkraft.replication.replica import Quota, Replica
from sparkraft.replication.truncation import truncation_point

BACKOFF_MS_FIRST = 20
"""Backoff after the first error: about the usual lag of a broker's metadata."""

LOOKED_UP_AT_ONCE: LoopBound = 1_000
"""Partitions whose offsets are requested together: the request, its response and both lists are
made in one piece."""

EVENTS_MAX = 1_000
"""Limit of events kept for the driver, which takes them after every step."""


_ROUTINE_ERRORS = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
"""Errors while one of two brokers has not read the newest metadata yet."""


class Fetcher:
    """The partitions fetched over one connection to one leader; see the module docstring.

    Attributes:
        bytes_fetched: bytes of records, since the start.
        requests: the number of requests built.
        failed: the number of partitions that wait for a later leader epoch.
    """

    def __init__(
        self,
        *,
        backoff_ms: int,
        partition_bytes_max: int,
        quota: Quota | None = None,
        truncates_on_fetch: bool = True,
    ) -> None:
        """Create a fetcher without partitions.

        Args:
            backoff_ms: `replica.fetch.backoff.ms`, the longest backoff.
            partition_bytes_max: `replica.fetch.max.bytes`.
            quota: while it is exceeded, throttled partitions that are not in sync wait.
            truncates_on_fetch: whether responses show that logs diverge (Fetch v12, KIP-595).
        """
        self.session = ClientFetchSession(partition_bytes_max)
        self.bytes_fetched = 0
        self.requests = 0
        self.failed = 0
        self._backoff_ms = backoff_ms
        self._quota = quota
        self._truncates_on_fetch = truncates_on_fetch
        self._partitions: dict[TopicIdPartition, FollowedPartition] = {}
        self._dirty: dict[TopicIdPartition, None] = {}
        """Partitions whose entry in the session may have to change."""
        self._aside: dict[TopicIdPartition, int] = {}
        """Partitions that back off, until a monotonic time in ms."""
        self._held: dict[TopicIdPartition, None] = {}
        """Partitions held back by the quota."""
        self._truncating: dict[TopicIdPartition, None] = {}
        self._outside: dict[TopicIdPartition, None] = {}
        """Partitions that are out of range."""
        self._lost_ms = 0
        self._paused_until = 0
        self._events: list[FetcherEvent] = []

    def __len__(self) -> int:
        """The number of partitions, failed ones included."""
        return len(self._partitions)

    def __contains__(self, key: object) -> bool:
        return key in self._partitions

    # -- which partitions ------------------------------------------------------------------------

    def follow(
        self, key: TopicIdPartition, topic: str, *, leader_epoch: int, replica: Replica
    ) -> bool:
        """Fetch a partition; False if it is already fetched in this leader epoch."""
        known = self._partitions.get(key)
        if known is not None:
            if known.leader_epoch >= leader_epoch:
                return False
            self.leave(key)
        partition = FollowedPartition(
            topic, key[1], leader_epoch, replica, truncates_on_fetch=self._truncates_on_fetch
        )
        self._partitions[key] = partition
        self._dirty[key] = None
        self._paused_until = 0  # the leader may have recovered
        if partition.stage is Stage.TRUNCATING:
            self._truncating[key] = None
        return True

    def leave(self, key: TopicIdPartition) -> bool:
        """Stop fetching a partition; returns whether it was fetched."""
        partition = self._partitions.pop(key, None)
        if partition is None:
            return False
        self._aside.pop(key, None)
        self._held.pop(key, None)
        self._truncating.pop(key, None)
        self._outside.pop(key, None)
        self.failed -= partition.stage is Stage.FAILED
        self._dirty[key] = None
        return True

    def touch(self, key: TopicIdPartition) -> None:
        """Report a new local log start offset to the leader."""
        if key in self._partitions:
            self._dirty[key] = None

    def lag_of(self, key: TopicIdPartition) -> int | None:
        """Offsets to the leader's high watermark in the last response; None before the first."""
        partition = self._partitions.get(key)
        return None if partition is None else partition.lag

    def name_of(self, key: TopicIdPartition) -> tuple[str, int] | None:
        """Topic and index of a fetched partition."""
        partition = self._partitions.get(key)
        return None if partition is None else (partition.topic, partition.index)

    def stage_of(self, key: TopicIdPartition) -> Stage | None:
        """The stage of a partition; None if it is not fetched here."""
        partition = self._partitions.get(key)
        return None if partition is None else partition.stage

    @property
    def is_held(self) -> bool:
        """Whether the quota holds partitions back."""
        return bool(self._held)

    def max_lag(self) -> int:
        """The largest lag of all partitions."""
        return max((each.lag or 0 for each in self._partitions.values()), default=0)

    def events(self) -> list[FetcherEvent]:
        """The events since the last call, for the log."""
        taken, self._events = self._events, []
        return taken

    # -- truncate, build fetch -------------------------------------------------------------------

    def build(self, now: int) -> FetchRequest | None:
        """`build_in_steps` in one piece."""
        steps = self.build_in_steps(now)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                request: FetchRequest | None = end.value
                return request

    def build_in_steps(self, now: int) -> Generator[int, None, FetchRequest | None]:
        """Truncate pending partitions; returns the next request, or None if there is none."""
        if now < self._paused_until:
            return None
        self._end_backoffs(now)
        for count, key in enumerate(list(self._truncating), 1):
            self._truncate_to_high_watermark(key, now)
            if not count % PARTITIONS_PER_STEP:
                yield PARTITIONS_PER_STEP
        yield from self._apply_quota()
        yield from self._renew_positions()
        session = self.session
        if not session.has_request():
            return None
        self.requests += 1
        request = FetchRequest()
        yield from session.request(request)
        return request

    def _renew_positions(self) -> Generator[int, None, None]:
        """Update the session; changes between the steps stay for the next request."""
        dirty, self._dirty = self._dirty, {}
        for count, key in enumerate(dirty, 1):
            partition = self._partitions.get(key)
            if partition is not None and self._is_ready(key, partition):
                self.session.add(key, partition.fetch_position())
            else:
                self.session.forget(key)
            if not count % PARTITIONS_PER_STEP:
                yield PARTITIONS_PER_STEP

    @property
    def has_changes(self) -> bool:
        """Whether a partition has been added, removed or changed since the last request."""
        return bool(self._dirty)

    def wake_at(self) -> int | None:
        """When to call `build` again if nothing changes; monotonic ms."""
        if self._paused_until:
            return self._paused_until
        return min(self._aside.values(), default=None)

    def _is_ready(self, key: TopicIdPartition, partition: FollowedPartition) -> bool:
        return (
            partition.stage is Stage.FETCHING and key not in self._aside and key not in self._held
        )

    def _end_backoffs(self, now: int) -> None:
        """Resume partitions whose backoff has ended."""
        self._paused_until = 0
        if self._aside:
            for key in [key for key, due in self._aside.items() if due <= now]:
                del self._aside[key]
                self._dirty[key] = None

    def _apply_quota(self) -> Generator[int, None, None]:
        quota = self._quota
        if quota is None:
            return
        if not quota.is_exceeded:
            self._dirty.update(self._held)
            self._held.clear()
            return
        for count, key in enumerate(list(self._partitions), 1):
            if not count % PARTITIONS_PER_STEP:
                yield PARTITIONS_PER_STEP
            partition = self._partitions.get(key)
            if partition is None:
                continue
            in_sync = partition.lag is not None and partition.lag <= 0
            held = not in_sync and quota.is_throttled(partition.topic, partition.index)
            if held != (key in self._held):
                self._dirty[key] = None
                if held:
                    self._held[key] = None
                else:
                    del self._held[key]

    def _truncate_to_high_watermark(self, key: TopicIdPartition, now: int) -> None:
        """For a log without any leader epoch: an old one, or an empty one."""
        partition = self._partitions.get(key)
        if partition is None or key in self._aside or partition.replica.latest_epoch is not None:
            return
        why = "no leader epoch is known here; truncating to the high watermark"
        if self._truncate(key, partition, partition.replica.high_watermark, why, now):
            partition.enter(Stage.FETCHING)
        if partition.stage is not Stage.TRUNCATING:
            self._truncating.pop(key, None)

    def _truncate(
        self,
        key: TopicIdPartition,
        partition: FollowedPartition,
        offset: int,
        why: str,
        now: int,
        *,
        completed: bool = True,
    ) -> bool:
        """Truncate the log; returns whether that succeeded."""
        replica = partition.replica
        before, committed = replica.log_end_offset, replica.high_watermark
        try:
            replica.truncate_to(offset, leader_epoch=partition.leader_epoch, completed=completed)
        except KafkaError as error:
            self._on_local_error(key, partition, error, now)
            return False
        if offset < before:
            below = f", below the high watermark {committed}" if offset < committed else ""
            self._note(partition, "truncated", f"from {before} to {offset}{below}: {why}")
        partition.read_position()
        self._dirty[key] = None
        return True

    # -- process partition data ------------------------------------------------------------------

    def fail(self, now: int, why: str) -> None:
        """There was no response: open a new session after a backoff of all partitions."""
        self.session.lost()
        self._pause(now, why)

    def interrupted(self) -> None:
        """The driver abandoned the request for a newer one: open a new session at once."""
        self.session.lost()

    def _pause(self, now: int, why: str) -> None:
        before, self._lost_ms = self._lost_ms, self._longer(self._lost_ms)
        self._paused_until = now + self._lost_ms
        if self._is_news(before, self._lost_ms):
            event = FetcherEvent("", -1, "set aside", why, is_routine=before == 0)
            self._events.append(event)

    def _longer(self, backoff_ms: int) -> int:
        return min(max(backoff_ms * 2, BACKOFF_MS_FIRST), self._backoff_ms)

    def _is_news(self, before: int, after: int) -> bool:
        """Whether to report an error: the first one, and the one at the maximum backoff."""
        return before == 0 or before < after == self._backoff_ms

    def on_response(
        self, response: FetchResponse, now: int
    ) -> Iterator[tuple[TopicIdPartition, PartitionData]]:
        """The response's partitions for `process_partition`; none if the session must restart."""
        session = self.session
        code = response.error_code
        if not session.accept(response):
            if code not in _SESSION_ERRORS:
                self._pause(now, f"unusable response from the leader: {session.trouble}")
            return iter(())
        if self._lost_ms:
            self._lost_ms = 0
            self._events.append(FetcherEvent("", -1, "recovered", "the leader responds again"))
        return (
            ((topic.topic_id, part.partition_index), part)
            for topic in response.responses
            for part in topic.partitions
        )

    def process_partition(self, key: TopicIdPartition, data: PartitionData, now: int) -> int:
        """Process one partition of a response; returns the bytes fetched.

        Ignored if the partition was removed, or if its offset or epoch has changed since.
        """
        partition = self._partitions.get(key)
        requested = self.session.partitions.get(key)
        if partition is None or requested is None or partition.stage is not Stage.FETCHING:
            return 0
        if (
            requested.fetch_offset != partition.fetch_offset
            or requested.leader_epoch != partition.leader_epoch
            or key in self._aside
        ):
            return 0
        if data.error_code:
            self._on_error(key, partition, data.error_code, now)
            return 0
        if data.diverging_epoch.epoch >= 0:
            self._on_diverging(key, partition, data, now)
            return 0
        return self._append(key, partition, data, now)

    def _append(
        self, key: TopicIdPartition, partition: FollowedPartition, data: PartitionData, now: int
    ) -> int:
        replica = partition.replica
        records = _one_buffer(data.records)
        if replica.log_end_offset != partition.fetch_offset:
            self._fail(
                key,
                partition,
                f"the log ends at {replica.log_end_offset}, but the fetch was from "
                f"{partition.fetch_offset}: the log has another writer",
            )
            return 0
        try:
            self._start_inside_batch(partition, records)
            replica.append(
                records,
                leader_epoch=partition.leader_epoch,
                leader_high_watermark=data.high_watermark,
                leader_log_start=data.log_start_offset,
            )
        except KafkaError as error:
            self._on_local_error(key, partition, error, now)
            return 0
        if partition.backoff_ms:
            partition.backoff_ms = 0
            self._note(partition, "recovered", f"fetching continues at {partition.fetch_offset}")
        self._dirty[key] = None
        partition.read_position()
        partition.lag = max(0, data.high_watermark - partition.fetch_offset)
        self.bytes_fetched += len(records)
        return len(records)

    @staticmethod
    def _start_inside_batch(partition: FollowedPartition, records: bytes | memoryview) -> None:
        """Start an empty log at the base offset of its first batch.

        The leader's log may start inside a batch (DeleteRecords), which is sent whole.
        """
        replica = partition.replica
        end = replica.log_end_offset
        if replica.log_start_offset != end or len(records) < BATCH_OVERHEAD:
            return
        header = parse_header(records)
        if header.base_offset < end <= header.last_offset:
            replica.start_at(header.base_offset, leader_epoch=partition.leader_epoch)

    def _on_diverging(
        self, key: TopicIdPartition, partition: FollowedPartition, data: PartitionData, now: int
    ) -> None:
        diverging = data.diverging_epoch
        point = truncation_point(
            partition.replica,
            epoch=diverging.epoch,
            end_offset=diverging.end_offset,
            fallback=partition.fetch_offset,
        )
        self._truncate(key, partition, point.offset, point.why, now, completed=point.completed)

    def _on_error(
        self, key: TopicIdPartition, partition: FollowedPartition, code: int, now: int
    ) -> None:
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            partition.enter(Stage.OUT_OF_RANGE)
            self._outside[key] = None
            self._dirty[key] = None
        elif code == ErrorCode.FENCED_LEADER_EPOCH:
            why = f"leader epoch {partition.leader_epoch} has ended; waiting for the next"
            self._fail(key, partition, why, is_routine=True)
        else:
            is_routine = code in _ROUTINE_ERRORS
            self._set_aside(key, partition, now, _name_of(code), is_routine=is_routine)

    def _on_local_error(
        self, key: TopicIdPartition, partition: FollowedPartition, error: KafkaError, now: int
    ) -> None:
        if self._partitions.get(key) is not partition:
            return  # the error removed it: its disk went offline
        if error.code == ErrorCode.KAFKA_STORAGE_ERROR:
            self._fail(key, partition, str(error))
        else:
            self._set_aside(key, partition, now, str(error))

    def _set_aside(
        self,
        key: TopicIdPartition,
        partition: FollowedPartition,
        now: int,
        why: str,
        *,
        is_routine: bool = False,
    ) -> None:
        """Fetch the partition again after a backoff; an error that persists is never routine."""
        before, partition.backoff_ms = partition.backoff_ms, self._longer(partition.backoff_ms)
        self._aside[key] = now + partition.backoff_ms
        self.session.forget(key)  # so it comes last when it is added again
        if self._is_news(before, partition.backoff_ms):
            self._note(partition, "set aside", why, is_routine=is_routine and before == 0)

    def _fail(
        self,
        key: TopicIdPartition,
        partition: FollowedPartition,
        why: str,
        *,
        is_routine: bool = False,
    ) -> None:
        partition.enter(Stage.FAILED)
        self._outside.pop(key, None)
        self.failed += 1
        self._dirty[key] = None
        self._note(partition, "failed", why, is_routine=is_routine)

    # -- ends of epochs --------------------------------------------------------------------------

    def uncertain(self, now: int) -> list[Uncertain]:
        """Partitions that may have diverged, and whose responses to Fetch would not show it.

        At most `LOOKED_UP_AT_ONCE`; Kafka's fetcher looks up all of them together.
        """
        if now < self._paused_until:
            return []
        self._end_backoffs(now)
        found = []
        for key in self._truncating:
            partition = self._partitions.get(key)
            epoch = None if partition is None else partition.replica.latest_epoch
            if partition is not None and epoch is not None and key not in self._aside:
                at = (key, partition.topic, partition.index)
                found.append(Uncertain(*at, partition.leader_epoch, epoch))
                if len(found) >= LOOKED_UP_AT_ONCE:
                    break
        return found

    def on_end_of_epoch(
        self, request: Uncertain, *, error_code: int, epoch: int, end_offset: int, now: int
    ) -> None:
        """Truncate by the leader's end of an epoch (`truncateToEpochEndOffsets`).

        Args:
            request: the partition and its newest epoch.
            error_code: of the leader; FENCED_LEADER_EPOCH: wait for the next leader epoch.
            epoch: the leader's largest at or below the requested one; -1: none.
            end_offset: its end at the leader, exclusive; -1: unknown.
            now: monotonic ms.
        """
        key = request.key
        partition = self._current(request, Stage.TRUNCATING)
        if partition is None:
            return
        if error_code:
            self._on_refused(key, partition, error_code, "end of epoch", now)
        else:
            replica = partition.replica
            committed = replica.high_watermark
            point = truncation_point(
                replica, epoch=epoch, end_offset=end_offset, fallback=committed
            )
            offset, completed = point.offset, point.completed
            done = self._truncate(key, partition, offset, point.why, now, completed=completed)
            if done and completed:
                partition.enter(Stage.FETCHING)
        if partition.stage is not Stage.TRUNCATING:
            self._truncating.pop(key, None)

    # -- out of range ----------------------------------------------------------------------------

    def out_of_range(self, now: int) -> list[OutOfRange]:
        """Partitions that need the leader's log start and end offsets: `LOOKED_UP_AT_ONCE`."""
        if now < self._paused_until:
            return []
        ready = (key for key in self._outside if key not in self._aside)
        found = ((key, self._partitions[key]) for key in islice(ready, LOOKED_UP_AT_ONCE))
        return [OutOfRange(key, each.topic, each.index, each.leader_epoch) for key, each in found]

    def on_bounds(
        self, request: OutOfRange, *, log_start_offset: int, log_end_offset: int, now: int
    ) -> None:
        """Process the leader's log start and end offsets; the end was read first (ListOffsets).

        Kafka's rule: a log that ends after the leader's is truncated to the leader's end. One that
        ends before the leader's start is emptied and continues there. Else it continues at its end.
        """
        partition = self._current(request, Stage.OUT_OF_RANGE)
        if partition is None:
            return
        replica = partition.replica
        ours = replica.log_end_offset
        try:
            if log_end_offset < ours:
                why = f"the leader's log ends at {log_end_offset}"
                if not self._truncate(request.key, partition, log_end_offset, why, now):
                    return
            elif log_start_offset > ours:
                replica.start_at(log_start_offset, leader_epoch=partition.leader_epoch)
                text = f"at the leader's log start {log_start_offset}; our log ended at {ours}"
                self._note(partition, "restarted", text)
        except KafkaError as error:
            self._on_local_error(request.key, partition, error, now)
            return
        partition.read_position()
        partition.lag = max(0, log_end_offset - partition.fetch_offset)
        partition.enter(Stage.FETCHING)
        self._outside.pop(request.key, None)
        self._dirty[request.key] = None

    def on_bounds_refused(self, request: OutOfRange, code: int, now: int) -> None:
        """The leader refused; retry after a backoff, or in the next epoch."""
        partition = self._current(request, Stage.OUT_OF_RANGE)
        if partition is not None:
            self._on_refused(request.key, partition, code, "bounds", now)

    def _on_refused(
        self, key: TopicIdPartition, partition: FollowedPartition, code: int, what: str, now: int
    ) -> None:
        if code == ErrorCode.FENCED_LEADER_EPOCH:
            self._fail(key, partition, f"leader epoch {partition.leader_epoch} has ended")
        else:
            self._set_aside(key, partition, now, f"{what}: {_name_of(code)}")

    def _current(self, request: OutOfRange | Uncertain, stage: Stage) -> FollowedPartition | None:
        partition = self._partitions.get(request.key)
        if partition is None or partition.leader_epoch != request.leader_epoch:
            return None
        return partition if partition.stage is stage else None

    # -- for the log -----------------------------------------------------------------------------

    def _note(
        self, partition: FollowedPartition, kind: str, text: str, *, is_routine: bool = False
    ) -> None:
        if len(self._events) < EVENTS_MAX:
            event = FetcherEvent(partition.topic, partition.index, kind, text, is_routine)
            self._events.append(event)


_SESSION_ERRORS = frozenset(
    {ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH}
)
"""Errors that the next request fixes at once."""


def _one_buffer(records: Any) -> bytes | memoryview:
    """The records of a response as one buffer; empty if there are none."""
    if records is None:
        return b""
    if isinstance(records, Sequence) and not isinstance(records, bytes | memoryview):
        return b"".join(records)
    buffer: bytes | memoryview = records
    return buffer


def _name_of(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
