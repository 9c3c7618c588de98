"""What a follower fetches from one leader, and what it does with the answers.

The mechanism of Kafka's AbstractFetcherThread and ReplicaFetcherThread, without thread or socket:

A driver repeats:

1. `build(now)`: truncate what waits for it, then the next request; None: wait until `wake_at`, or
   until something changes here.
2. send it; `fail(now)` if no answer came, `interrupted()` if it was given up.
3. `on_response(response, now)`, then `process_partition(key, data, now)` for each partition.
4. while `out_of_range(now)` gives partitions: ask the leader for their bounds, `on_bounds`.

Truncation (KIP-101, 279, 595): every request carries the epoch of our last record; a leader that
doesn't know it at our offset answers with the epoch that it does know, and where that ended; we cut
there and ask again. Only a log without any epoch is cut to its high watermark, once, before.

Rules:
    * A partition that delivered, or failed to, stands last in the order.
    * An answer counts only if offset and leader epoch are still those that were asked.
    * Batches above the epoch of the request are not appended (KAFKA-18723).
    * An error puts a partition aside: `BACKOFF_MS_FIRST` at first, doubled until
      `replica.fetch.backoff.ms`. Kafka waits that long at once; a leader that lags a moment behind
      in metadata is the usual cause, and a failover shouldn't wait a second for it.
    * A disk's failure, or an epoch that is over, ends fetching until a later leader epoch.

Not here: the stages of a partition (`followed`), sockets (`sparkraft.server.broker.fetchers`), the
session's rules (`fetch_session`).
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import TopicIdPartition
from sparkraft.protocol.messages.k01_fetch import FetchRequest, FetchResponse, PartitionData
from sparkraft.records.batch import BATCH_OVERHEAD, parse_header
from sparkraft.replication.fetch_session import ClientFetchSession
from sparkraft.replication.followed import FollowedPartition, Stage
from sparkraft.replication.replica import Quota, Replica
from sparkraft.replication.truncation import truncation_point

BACKOFF_MS_FIRST = 20
"""After a first error: about as long as a broker lags behind in metadata."""

EVENTS_MAX = 1_000
"""Events kept for the driver, which takes them after every step."""


class FetcherEvent(NamedTuple):
    """Something to tell the operator."""

    topic: str
    partition: int
    """-1, with an empty topic, for all of them."""
    kind: str
    """`truncated`, `restarted`, `set aside`, `failed`, `recovered`."""
    text: str


class OutOfRange(NamedTuple):
    """A partition whose bounds the leader is asked for."""

    key: TopicIdPartition
    topic: str
    partition: int
    leader_epoch: int


class Fetcher:
    """The partitions fetched over one connection to one leader; see the module docstring.

    Attributes:
        bytes_fetched: of records, since the start.
        requests: that were built.
        failed: how many partitions wait for a later leader epoch.
    """

    def __init__(
        self,
        *,
        backoff_ms: int,
        partition_bytes_max: int,
        quota: Quota | None = None,
    ) -> None:
        """Fetch nothing yet.

        Args:
            backoff_ms: `replica.fetch.backoff.ms`, the longest a partition is set aside.
            partition_bytes_max: `replica.fetch.max.bytes`.
            quota: holds throttled partitions back while it is exceeded, those in sync excepted.
        """
        self.session = ClientFetchSession(partition_bytes_max)
        self.bytes_fetched = 0
        self.requests = 0
        self.failed = 0
        self._backoff_ms = backoff_ms
        self._quota = quota
        self._partitions: dict[TopicIdPartition, FollowedPartition] = {}
        self._dirty: dict[TopicIdPartition, None] = {}
        """Whose place in the session may have to change."""
        self._aside: dict[TopicIdPartition, int] = {}
        """Set aside until a time, ms of the monotonic clock."""
        self._held: dict[TopicIdPartition, None] = {}
        """Held back by the quota."""
        self._truncating: dict[TopicIdPartition, None] = {}
        self._lost_ms = 0
        self._paused_until = 0
        self._events: list[FetcherEvent] = []

    def __len__(self) -> int:
        """How many partitions it fetches, failed ones included."""
        return len(self._partitions)

    def __contains__(self, key: object) -> bool:
        """Whether it fetches `key`."""
        return key in self._partitions

    # -- which partitions ------------------------------------------------------------------------

    def follow(
        self, key: TopicIdPartition, topic: str, *, leader_epoch: int, replica: Replica
    ) -> bool:
        """Fetch a partition; False where it is fetched at this leader epoch already."""
        known = self._partitions.get(key)
        if known is not None:
            if known.leader_epoch >= leader_epoch:
                return False
            self.leave(key)
        partition = FollowedPartition(topic, key[1], leader_epoch, replica)
        self._partitions[key] = partition
        self._dirty[key] = None
        self._paused_until = 0  # there is news of the leader
        if partition.stage is Stage.TRUNCATING:
            self._truncating[key] = None
        return True

    def leave(self, key: TopicIdPartition) -> bool:
        """Fetch a partition no longer; whether it was."""
        partition = self._partitions.pop(key, None)
        if partition is None:
            return False
        self._aside.pop(key, None)
        self._held.pop(key, None)
        self._truncating.pop(key, None)
        self.failed -= partition.stage is Stage.FAILED
        self._dirty[key] = None
        return True

    def touch(self, key: TopicIdPartition) -> None:
        """The replica's log start offset moved by itself: the leader must hear of it."""
        if key in self._partitions:
            self._dirty[key] = None

    def lag_of(self, key: TopicIdPartition) -> int | None:
        """Offsets to the leader's high watermark as of the last answer; None before the first."""
        partition = self._partitions.get(key)
        return None if partition is None else partition.lag

    def name_of(self, key: TopicIdPartition) -> tuple[str, int] | None:
        """Topic and index of a partition that is fetched here."""
        partition = self._partitions.get(key)
        return None if partition is None else (partition.topic, partition.index)

    def stage_of(self, key: TopicIdPartition) -> Stage | None:
        """Where a partition stands, None where it isn't fetched here."""
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
        """What happened since the last call, for the log."""
        taken, self._events = self._events, []
        return taken

    # -- truncate, build fetch -------------------------------------------------------------------

    def build(self, now: int) -> FetchRequest | None:
        """Truncate what waits for it; the next request, or None where nothing can be fetched."""
        if now < self._paused_until:
            return None
        self._take_back(now)
        for key in list(self._truncating):
            self._truncate_to_high_watermark(key, now)
        self._apply_quota()
        session = self.session
        for key in self._dirty:
            partition = self._partitions.get(key)
            if partition is not None and self._is_ready(key, partition):
                session.add(key, partition.fetch_position())
            else:
                session.forget(key)
        self._dirty.clear()
        if not session.has_request():
            return None
        self.requests += 1
        request = FetchRequest()
        session.request(request)
        return request

    def wake_at(self) -> int | None:
        """When `build` should be called again though nothing changed; monotonic ms."""
        if self._paused_until:
            return self._paused_until
        return min(self._aside.values(), default=None)

    def _is_ready(self, key: TopicIdPartition, partition: FollowedPartition) -> bool:
        return (
            partition.stage is Stage.FETCHING and key not in self._aside and key not in self._held
        )

    def _take_back(self, now: int) -> None:
        """Let partitions go on whose time aside is over."""
        self._paused_until = 0
        if self._aside:
            for key in [key for key, due in self._aside.items() if due <= now]:
                del self._aside[key]
                self._dirty[key] = None

    def _apply_quota(self) -> None:
        quota = self._quota
        if quota is None:
            return
        if not quota.is_exceeded:
            self._dirty.update(self._held)
            self._held.clear()
            return
        for key, partition in self._partitions.items():
            in_sync = partition.lag is not None and partition.lag <= 0
            held = not in_sync and quota.is_throttled(partition.topic, partition.index)
            if held != (key in self._held):
                self._dirty[key] = None
                if held:
                    self._held[key] = None
                else:
                    del self._held[key]

    def _truncate_to_high_watermark(self, key: TopicIdPartition, now: int) -> None:
        """Only where no epoch is known at all: an old log's, or an empty one's."""
        partition = self._partitions.get(key)
        if partition is None or key in self._aside:
            return
        why = "no leader epoch is known here: cut to the high watermark"
        if self._cut(key, partition, partition.replica.high_watermark, why, now):
            partition.enter(Stage.FETCHING)
        if partition.stage is not Stage.TRUNCATING:
            self._truncating.pop(key, None)

    def _cut(
        self,
        key: TopicIdPartition,
        partition: FollowedPartition,
        offset: int,
        why: str,
        now: int,
        *,
        completed: bool = True,
    ) -> bool:
        """Truncate the log; whether that worked."""
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
        """No answer came: a new session after a pause, for all partitions."""
        self.session.lost()
        self._pause(now, why)

    def interrupted(self) -> None:
        """The driver gave the request up, for one that has more to ask: a new session at once."""
        self.session.lost()

    def _pause(self, now: int, why: str) -> None:
        before, self._lost_ms = self._lost_ms, self._longer(self._lost_ms)
        self._paused_until = now + self._lost_ms
        if self._is_news(before, self._lost_ms):
            self._events.append(FetcherEvent("", -1, "set aside", why))

    def _longer(self, backoff_ms: int) -> int:
        return min(max(backoff_ms * 2, BACKOFF_MS_FIRST), self._backoff_ms)

    def _is_news(self, before: int, after: int) -> bool:
        """Whether an error is told: the first one, and the one after which tries are rare."""
        return before == 0 or before < after == self._backoff_ms

    def on_response(
        self, response: FetchResponse, now: int
    ) -> Iterator[tuple[TopicIdPartition, PartitionData]]:
        """The response's partitions for `process_partition`; none if the session must restart."""
        session = self.session
        code = response.error_code
        if not session.accept(response):
            if code not in _SESSION_ERRORS:
                self._pause(now, f"the leader's answer is of no use: {session.trouble}")
            return iter(())
        if self._lost_ms:
            self._lost_ms = 0
            self._events.append(FetcherEvent("", -1, "recovered", "the leader answers again"))
        return (
            ((topic.topic_id, part.partition_index), part)
            for topic in response.responses
            for part in topic.partitions
        )

    def process_partition(self, key: TopicIdPartition, data: PartitionData, now: int) -> int:
        """Process one partition of an answer; how many bytes were fetched.

        Dropped: an answer for a partition that left, or whose offset or epoch changed meanwhile.
        """
        partition = self._partitions.get(key)
        asked = self.session.partitions.get(key)
        if partition is None or asked is None or partition.stage is not Stage.FETCHING:
            return 0
        if (
            asked.fetch_offset != partition.fetch_offset
            or asked.leader_epoch != partition.leader_epoch
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
                f"the log ends at {replica.log_end_offset}, and {partition.fetch_offset} "
                "was fetched: somebody else wrote it",
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
            self._note(partition, "recovered", f"fetching goes on at {partition.fetch_offset}")
        self._dirty[key] = None
        partition.read_position()
        partition.lag = max(0, data.high_watermark - partition.fetch_offset)
        self.bytes_fetched += len(records)
        return len(records)

    @staticmethod
    def _start_inside_batch(partition: FollowedPartition, records: bytes | memoryview) -> None:
        """Let an empty log begin where its first batch does.

        The leader's log may start in the middle of a batch (DeleteRecords); that batch comes whole.
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
        told = data.diverging_epoch
        point = truncation_point(
            partition.replica,
            epoch=told.epoch,
            end_offset=told.end_offset,
            fallback=partition.fetch_offset,
        )
        self._cut(key, partition, point.offset, point.why, now, completed=point.completed)

    def _on_error(
        self, key: TopicIdPartition, partition: FollowedPartition, code: int, now: int
    ) -> None:
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            partition.enter(Stage.OUT_OF_RANGE)
            self._dirty[key] = None
        elif code == ErrorCode.FENCED_LEADER_EPOCH:
            why = f"leader epoch {partition.leader_epoch} is over; waiting for the next"
            self._fail(key, partition, why)
        else:
            self._set_aside(key, partition, now, _name_of(code))

    def _on_local_error(
        self, key: TopicIdPartition, partition: FollowedPartition, error: KafkaError, now: int
    ) -> None:
        if self._partitions.get(key) is not partition:
            return  # it left because of the error: its disk went offline
        if error.code == ErrorCode.KAFKA_STORAGE_ERROR:
            self._fail(key, partition, str(error))
        else:
            self._set_aside(key, partition, now, str(error))

    def _set_aside(
        self, key: TopicIdPartition, partition: FollowedPartition, now: int, why: str
    ) -> None:
        before, partition.backoff_ms = partition.backoff_ms, self._longer(partition.backoff_ms)
        self._aside[key] = now + partition.backoff_ms
        self.session.forget(key)  # and so stands last when it is asked again
        if self._is_news(before, partition.backoff_ms):
            self._note(partition, "set aside", why)

    def _fail(self, key: TopicIdPartition, partition: FollowedPartition, why: str) -> None:
        partition.enter(Stage.FAILED)
        self.failed += 1
        self._dirty[key] = None
        self._note(partition, "failed", why)

    # -- out of range ----------------------------------------------------------------------------

    def out_of_range(self, now: int) -> list[OutOfRange]:
        """Partitions whose bounds the leader is to be asked for."""
        if now < self._paused_until:
            return []
        return [
            OutOfRange(key, each.topic, each.index, each.leader_epoch)
            for key, each in self._partitions.items()
            if each.stage is Stage.OUT_OF_RANGE and key not in self._aside
        ]

    def on_bounds(
        self, asked: OutOfRange, *, log_start_offset: int, log_end_offset: int, now: int
    ) -> None:
        """The leader's log begins and ends there; the end was asked first (ListOffsets).

        Kafka's rule: a log that ends behind the leader's is cut to the leader's end; one that ends
        before the leader's start is emptied and goes on at that start; else it goes on at its end.
        """
        partition = self._current(asked)
        if partition is None:
            return
        replica = partition.replica
        ours = replica.log_end_offset
        try:
            if log_end_offset < ours:
                why = f"the leader's log ends at {log_end_offset}"
                if not self._cut(asked.key, partition, log_end_offset, why, now):
                    return
            elif log_start_offset > ours:
                replica.start_at(log_start_offset, leader_epoch=partition.leader_epoch)
                text = f"at {log_start_offset}, where the leader's log begins; ours ended at {ours}"
                self._note(partition, "restarted", text)
        except KafkaError as error:
            self._on_local_error(asked.key, partition, error, now)
            return
        partition.read_position()
        partition.lag = max(0, log_end_offset - partition.fetch_offset)
        partition.enter(Stage.FETCHING)
        self._dirty[asked.key] = None

    def on_bounds_refused(self, asked: OutOfRange, code: int, now: int) -> None:
        """The leader won't tell; asked again later, or at its next epoch."""
        partition = self._current(asked)
        if partition is None:
            return
        if code == ErrorCode.FENCED_LEADER_EPOCH:
            self._fail(asked.key, partition, f"leader epoch {partition.leader_epoch} is over")
        else:
            self._set_aside(asked.key, partition, now, f"bounds: {_name_of(code)}")

    def _current(self, asked: OutOfRange) -> FollowedPartition | None:
        partition = self._partitions.get(asked.key)
        if partition is None or partition.leader_epoch != asked.leader_epoch:
            return None
        return partition if partition.stage is Stage.OUT_OF_RANGE else None

    # -- for the log -----------------------------------------------------------------------------

    def _note(self, partition: FollowedPartition, kind: str, text: str) -> None:
        if len(self._events) < EVENTS_MAX:
            self._events.append(FetcherEvent(partition.topic, partition.index, kind, text))


_SESSION_ERRORS = frozenset(
    {ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH}
)
"""Mended by the next request, at once."""


def _one_buffer(records: Any) -> bytes | memoryview:
    """A decoded answer's records are one buffer; None where there are none."""
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
