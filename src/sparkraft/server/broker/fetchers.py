"""Replica fetchers: one task and one connection for each leader that partitions here follow.

    image → ReplicaManager → on_following → Fetcher.follow      (num.replica.fetchers per leader)
    build → Fetch (replica id, broker epoch, session) → leader → process_partition → log → log

The rules are in `sparkraft.replication.fetcher`; this module drives them: one request at a time,
records pass from the socket's buffer to the log unchanged. A fetcher starts with its first
partition, ends with its last, and sends nothing before the broker has an epoch (KIP-903).

A partition that is new to a fetcher must not wait for a long poll in flight: until its first fetch
in the leader's epoch, nothing written to it can be committed. So the poll is aborted, with its
connection, and everything is requested again; rarely enough not to matter (`ABORT_MS_MIN`). Kafka
waits for the poll, at most replica.fetch.wait.max.ms.

Each fetcher's memory is bounded by `replica.fetch.response.max.bytes`, or one batch if larger.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.java_hash import java_string_hash
from sparkraft.base.loop_work import LoopBound
from sparkraft.replication.fetcher import Fetcher
from sparkraft.replication.fetcher_values import FetcherEvent, OutOfRange, Uncertain
from sparkraft.storage.disk import StorageFault

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from sparkraft.base.env import Clock
    from sparkraft.base.ids import TopicIdPartition
    from sparkraft.client.connection import Connection
    from sparkraft.protocol.messages.k01_fetch import FetchRequest
    from sparkraft.server.broker.follower_client import FollowerClient
    from sparkraft.server.broker.partition import HostedPartition
    from sparkraft.server.broker.replication_throttles import ReplicationThrottle
    from sparkraft.server.config import NodeConfig
    from sparkraft.storage.log import AppendInfo

    TruncationListener = Callable[[HostedPartition, int], None]

log = logging.getLogger(__name__)

EPOCH_CHECK_MS = 10
"""How often a fetcher checks for the broker epoch while the broker starts."""

GATHER_MS = 5
"""Delay before a poll is aborted for new partitions: they arrive a topic at a time."""

ABORT_MS_MIN = 50
"""Least time between two aborts; a full request costs some time for each partition."""

ABORT_MS_PER_PARTITION = 0.2
"""Added for every partition of the fetcher, so that aborts take a small share of its time."""

IDLE_MS_MAX = 60_000
"""The longest an idle fetcher sleeps without being woken; a safety net."""

BYTES_BETWEEN_YIELDS: LoopBound = 4 << 20
"""Appended before yielding to the event loop: some milliseconds of copying and checksums."""

PARTITIONS_BETWEEN_YIELDS: LoopBound = 500
"""The same if they bring few bytes: a full response has all partitions of the fetcher."""

_LATEST = -1
_EARLIEST = -2


class ReplicaFetchers:
    """All fetchers of a broker; see the module docstring."""

    def __init__(
        self,
        config: "NodeConfig",
        clock: "Clock",
        client: "FollowerClient",
        *,
        throttle: "ReplicationThrottle",
        on_truncated: "TruncationListener",
        spawn: "Callable[[Coroutine[Any, Any, Any], str], Any]",
    ) -> None:
        """Fetch nothing yet.

        Args:
            config: static configs of this node.
            clock: for backoffs and throttling.
            client: sends the requests.
            throttle: of the follower's side.
            on_truncated: called with a replica and the offset its log was truncated to.
            spawn: runs a coroutine under the node's task group, with a name.
        """
        self.config = config
        self.clock = clock
        self.client = client
        self.throttle = throttle
        self.on_truncated = on_truncated
        self._spawn = spawn
        self._per_leader = config.number("num.replica.fetchers")
        self._fetchers: dict[tuple[int, int], LeaderFetcher] = {}
        self._of: dict[TopicIdPartition, LeaderFetcher] = {}
        self._followed: dict[TopicIdPartition, tuple[HostedPartition, int, int]] = {}
        """Replica, leader and leader epoch of what `_of` fetches."""

    # ---- which leaders to follow

    def on_following(
        self, hosted: "HostedPartition", leader_id: int | None, leader_epoch: int
    ) -> None:
        """A `FetcherListener`: following began, moved to another leader or epoch, or ended."""
        key = (hosted.topic_id, hosted.index)
        known = self._of.get(key)
        if known is not None and known.leader_id != leader_id:
            known.leave(key)
            del self._of[key]
        if leader_id is None:
            self._followed.pop(key, None)
            return
        self._followed[key] = (hosted, leader_id, leader_epoch)
        place = (leader_id, self._fetcher_id(hosted))
        fetcher = self._fetchers.get(place)
        if fetcher is None:
            fetcher = self._fetchers[place] = LeaderFetcher(self, *place)
            self._spawn(fetcher.run(), f"replica fetcher {place[1]} of leader {place[0]}")
        self._of[key] = fetcher
        fetcher.follow(key, hosted, leader_epoch)

    def resize(self, per_leader: int) -> None:
        """Use `per_leader` fetchers for each leader (num.replica.fetchers) from now on."""
        if per_leader == self._per_leader:
            return
        log.info("num.replica.fetchers changed from %d to %d", self._per_leader, per_leader)
        self._per_leader = per_leader
        for key, (hosted, leader_id, leader_epoch) in list(self._followed.items()):
            self._of.pop(key).leave(key)
            self.on_following(hosted, leader_id, leader_epoch)

    def _fetcher_id(self, hosted: "HostedPartition") -> int:
        """Kafka's `AbstractFetcherManager.getFetcherId`: one partition, always the same fetcher."""
        number = (31 * java_string_hash(hosted.topic) + hosted.index) & 0xFFFFFFFF
        signed = number - (1 << 32) if number >> 31 else number
        return abs(signed) % self._per_leader

    def on_ended(self, fetcher: "LeaderFetcher") -> None:
        """Remove a fetcher that has no partition left."""
        del self._fetchers[fetcher.leader_id, fetcher.fetcher_id]

    # ---- status

    def in_order(self) -> "Iterator[LeaderFetcher]":
        """Every fetcher, by leader and fetcher id."""
        for place in sorted(self._fetchers):
            yield self._fetchers[place]

    def lag_of(self, hosted: "HostedPartition") -> int | None:
        """Records below the leader's high watermark as of its last response; None if unknown."""
        key = (hosted.topic_id, hosted.index)
        fetcher = self._of.get(key)
        return None if fetcher is None else fetcher.core.lag_of(key)

    @property
    def failed(self) -> int:
        """Partitions that wait for a later leader epoch (Kafka's FailedPartitionsCount)."""
        return sum(each.core.failed for each in self._fetchers.values())


class LeaderFetcher:
    """One connection's worth of partitions that follow one leader."""

    def __init__(self, owner: ReplicaFetchers, leader_id: int, fetcher_id: int) -> None:
        config = owner.config
        self.leader_id = leader_id
        self.fetcher_id = fetcher_id
        self.core = Fetcher(
            backoff_ms=config.number("replica.fetch.backoff.ms"),
            partition_bytes_max=config.number("replica.fetch.max.bytes"),
            quota=owner.throttle,
            truncates_on_fetch=owner.client.truncates_on_fetch,
        )
        self._owner = owner
        self._clock = owner.clock
        self._client = owner.client
        self._wait_ms = config.number("replica.fetch.wait.max.ms")
        self._min_bytes = config.number("replica.fetch.min.bytes")
        self._max_bytes = config.number("replica.fetch.response.max.bytes")
        self._connection: Connection | None = None
        self._wake = asyncio.Event()
        self._abort_timer: asyncio.TimerHandle | None = None
        self._aborted_at_ms = 0
        self._is_aborted = False
        self._polling = False
        """A request is in flight that lacks partitions followed since."""
        self.on_truncated = owner.on_truncated
        self.syncs: list[asyncio.Future[None]] = []
        """Fsyncs that must end before the next fetch, which acknowledges the records."""

    def follow(self, key: "TopicIdPartition", hosted: "HostedPartition", leader_epoch: int) -> None:
        """Fetch a partition, or continue at a later epoch."""
        replica = HostedReplica(self, hosted)
        if self.core.follow(key, hosted.topic, leader_epoch=leader_epoch, replica=replica):
            self._wake.set()
            self._abort_soon()

    def leave(self, key: "TopicIdPartition") -> None:
        """Stop fetching a partition."""
        self.core.leave(key)
        self._wake.set()

    def _abort_soon(self) -> None:
        """Request a new partition soon, even if a poll is in flight."""
        if not self._polling or self._abort_timer is not None:
            return
        pause_ms = max(ABORT_MS_MIN, len(self.core) * ABORT_MS_PER_PARTITION)
        due_ms = self._aborted_at_ms + pause_ms - self._clock.mono_ms()
        loop = asyncio.get_running_loop()
        self._abort_timer = loop.call_later(max(due_ms, GATHER_MS) / 1000, self._abort_poll)

    def _abort_poll(self) -> None:
        self._abort_timer = None
        connection = self._connection
        if not self._polling or connection is None or connection.is_receiving:
            return  # the next request is near
        self._aborted_at_ms = self._clock.mono_ms()
        self._is_aborted = True
        connection.abort("a new partition must be fetched")

    # ---- the loop

    async def run(self) -> None:
        """Fetch until no partition is left, or cancelled."""
        try:
            while not self._client.is_registered:  # noqa: ASYNC110 (once for each start of a node)
                await asyncio.sleep(EPOCH_CHECK_MS / 1000)
            while len(self.core):
                await self._step()
                self._log_events()
        finally:
            self._owner.on_ended(self)
            if self._abort_timer is not None:
                self._abort_timer.cancel()
            if self._connection is not None:
                self._connection.abort("the fetcher ended")

    async def _step(self) -> None:
        out_of_range = self.core.out_of_range(self._clock.mono_ms())
        if out_of_range:
            await self._fetch_bounds(out_of_range)
            return
        uncertain = self.core.uncertain(self._clock.mono_ms())
        if uncertain:
            await self._fetch_ends_of_epochs(uncertain)
            return
        if self._abort_timer is not None:
            self._abort_timer.cancel()  # this request names every partition
            self._abort_timer = None
        request = await self._client.turn().carry_out(
            self.core.build_in_steps(self._clock.mono_ms())
        )
        if request is None:
            await self._rest()
            return
        try:
            response = await self._fetch(request)
        except KafkaError as error:
            if self._is_aborted:
                self.core.interrupted()
            else:
                self._fail(error)
            return
        finally:
            self._polling = self._is_aborted = False
        await self._append(response)

    def _fail(self, error: KafkaError) -> None:
        self.core.fail(self._clock.mono_ms(), f"no response from leader {self.leader_id}: {error}")

    async def _rest(self) -> None:
        """Wait for a new partition, or until a delayed one may be fetched."""
        self._log_events()
        try:
            async with asyncio.timeout(self._until_due_ms() / 1000):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()

    def _until_due_ms(self) -> int:
        """Time until a delayed or throttled partition may be fetched: no poll is longer."""
        due = self.core.wake_at()
        wait_ms = IDLE_MS_MAX if due is None else due - self._clock.mono_ms()
        if self.core.is_held:
            wait_ms = min(wait_ms, self._owner.throttle.wait_ms)
        return min(max(wait_ms, 1), IDLE_MS_MAX)

    async def _fetch(self, request: "FetchRequest") -> Any:
        connection = await self._connected()
        # A partition that was added while the request was built must not wait for a long poll.
        longest_ms = 0 if self.core.has_changes else self._wait_ms
        request.max_wait_ms = min(longest_ms, self._until_due_ms())
        request.min_bytes = self._min_bytes
        request.max_bytes = self._max_bytes
        self._polling = True
        return await self._client.fetch(connection, request, by_id=self.core.session.has_ids)

    async def _connected(self) -> "Connection":
        if self._connection is None or self._connection.is_closed:
            purpose = f"fetcher-{self.fetcher_id}"
            self._connection = await self._client.connect(self.leader_id, purpose)
        return self._connection

    async def _append(self, response: Any) -> None:
        """Append a response's records, yielding in between; then wait for the fsyncs they need."""
        now = self._clock.mono_ms()
        appended = count = 0
        for key, data in self.core.on_response(response, now):
            size = self.core.process_partition(key, data, now)
            appended += size
            count += 1
            name = self.core.name_of(key)
            if size and name is not None:
                self._owner.throttle.record(*name, size)
            if appended >= BYTES_BETWEEN_YIELDS or count >= PARTITIONS_BETWEEN_YIELDS:
                appended = count = 0
                await asyncio.sleep(0)
        if self.syncs:
            syncs, self.syncs = self.syncs, []
            # A failed one has taken its log offline; the next append there reports it.
            await asyncio.gather(*syncs, return_exceptions=True)

    def _log_events(self) -> None:
        for event in self.core.events():
            log.log(level_of(event), "%s", self._sentence(event))

    def _sentence(self, event: FetcherEvent) -> str:
        if event.partition < 0:
            return f"Fetching from leader {self.leader_id}, {event.kind}: {event.text}"
        return (
            f"{event.topic}-{event.partition} {event.kind}, leader {self.leader_id}: {event.text}"
        )

    # ---- the start and end of the leader's logs

    async def _fetch_bounds(self, out_of_range: list[OutOfRange]) -> None:
        """Look up the end offsets of the leader's logs, then the start offsets: Kafka's order."""
        try:
            ends = await self._list_offsets(out_of_range, _LATEST)
            starts = await self._list_offsets(out_of_range, _EARLIEST)
        except KafkaError as error:
            self._fail(error)
            return
        now = self._clock.mono_ms()
        unknown = (ErrorCode.UNKNOWN_SERVER_ERROR, -1)
        turn = self._client.turn()
        for each in out_of_range:
            if turn.is_over(1):  # which logs have to be truncated is not known before
                await turn.next()
            place = (each.topic, each.partition)
            (error_code, end), (start_error, start) = (
                ends.get(place, unknown),
                starts.get(place, unknown),
            )
            if error_code or start_error:
                self.core.on_bounds_refused(each, error_code or start_error, now)
            else:
                self.core.on_bounds(each, log_start_offset=start, log_end_offset=end, now=now)

    async def _list_offsets(
        self, out_of_range: list[OutOfRange], timestamp: int
    ) -> dict[tuple[str, int], tuple[int, int]]:
        """(topic, index) → error code and offset."""
        from sparkraft.protocol.messages.k02_list_offsets import (
            ListOffsetsPartition,
            ListOffsetsTopic,
        )

        topics: dict[str, ListOffsetsTopic] = {}
        for each in out_of_range:
            topics.setdefault(each.topic, ListOffsetsTopic(name=each.topic)).partitions.append(
                ListOffsetsPartition(
                    partition_index=each.partition,
                    current_leader_epoch=each.leader_epoch,
                    timestamp=timestamp,
                )
            )
        connection = await self._connected()
        response = await self._client.list_offsets(connection, list(topics.values()))
        return {
            (topic.name, part.partition_index): (part.error_code, part.offset)
            for topic in response.topics
            for part in topic.partitions
        }

    # ---- the end of an epoch in the leader's logs

    async def _fetch_ends_of_epochs(self, uncertain: list[Uncertain]) -> None:
        """Look up the ends of our newest epochs in the leader's logs."""
        from sparkraft.protocol.messages.k23_offset_for_leader_epoch import (
            OffsetForLeaderPartition,
            OffsetForLeaderTopic,
        )

        topics: dict[str, OffsetForLeaderTopic] = {}
        for each in uncertain:
            topics.setdefault(each.topic, OffsetForLeaderTopic(topic=each.topic)).partitions.append(
                OffsetForLeaderPartition(
                    partition=each.partition,
                    current_leader_epoch=each.leader_epoch,
                    leader_epoch=each.epoch,
                )
            )
        try:
            connection = await self._connected()
            response = await self._client.ends_of_epochs(connection, list(topics.values()))
        except KafkaError as error:
            self._fail(error)
            return
        now = self._clock.mono_ms()
        found = {
            (topic.topic, part.partition): (part.error_code, part.leader_epoch, part.end_offset)
            for topic in response.topics
            for part in topic.partitions
        }
        unknown = (ErrorCode.UNKNOWN_SERVER_ERROR, -1, -1)
        turn = self._client.turn()
        for each in uncertain:
            if turn.is_over(1):  # which logs have to be truncated is not known before
                await turn.next()
            code, epoch, end = found.get((each.topic, each.partition), unknown)
            self.core.on_end_of_epoch(each, error_code=code, epoch=epoch, end_offset=end, now=now)


_LEVELS = {"set aside": logging.WARNING, "failed": logging.ERROR}


def level_of(event: FetcherEvent) -> int:
    """Return the log level of an event: ordinary moves, restarts and deletions cause no warnings.

    A routine event of a single partition is logged at DEBUG, since there may be thousands.
    """
    if event.is_routine:
        return logging.INFO if event.partition < 0 else logging.DEBUG
    return _LEVELS.get(event.kind, logging.INFO)


class HostedReplica:
    """A hosted partition as a `sparkraft.replication.fetcher.Replica`.

    A failed disk operation raises KAFKA_STORAGE_ERROR.
    """

    __slots__ = ("_fetcher", "_hosted")

    def __init__(self, fetcher: LeaderFetcher, hosted: "HostedPartition") -> None:
        self._fetcher = fetcher
        self._hosted = hosted

    @property
    def log_start_offset(self) -> int:
        return self._hosted.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self._hosted.log.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self._hosted.log.high_watermark

    @property
    def latest_epoch(self) -> int | None:
        return self._hosted.log.latest_epoch

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int] | None:
        return self._hosted.log.end_offset_for_epoch(epoch)

    def append(
        self, records: Any, *, leader_epoch: int, leader_high_watermark: int, leader_log_start: int
    ) -> None:
        """Append batches; the fetcher's next request waits for the fsync, if they need one."""
        hosted = self._hosted
        try:
            info: AppendInfo = hosted.follower_append(
                records,
                leader_epoch=leader_epoch,
                leader_hw=leader_high_watermark,
                leader_log_start=leader_log_start,
            )
        except StorageFault as fault:
            raise hosted.host.on_disk_error(fault, hosted) from fault
        sync = hosted.synced(info)
        if sync is not None:
            self._fetcher.syncs.append(sync)

    def truncate_to(self, offset: int, *, leader_epoch: int, completed: bool) -> None:
        hosted = self._hosted
        try:
            hosted.follower_truncate(offset, leader_epoch=leader_epoch)
        except StorageFault as fault:
            raise hosted.host.on_disk_error(fault, hosted) from fault
        if completed:
            self._fetcher.on_truncated(hosted, offset)

    def start_at(self, offset: int, *, leader_epoch: int) -> None:
        hosted = self._hosted
        try:
            hosted.follower_start_at(offset, leader_epoch=leader_epoch)
        except StorageFault as fault:
            raise hosted.host.on_disk_error(fault, hosted) from fault
        self._fetcher.on_truncated(hosted, offset)
