"""Replica fetchers: one task and one connection to each leader that partitions here follow.

    image → ReplicaManager → on_following → Fetcher.follow      (num.replica.fetchers per leader)
    build → Fetch (replica id, broker epoch, session) → leader → take → HostedPartition → log

The rules are `sparkraft.replication.fetcher`'s; this drives them: one request at a time, records
from the socket's buffer to the log as they are. A fetcher begins with its first partition, ends
with its last, and asks nobody before the broker has an epoch: a leader must be able to tell this
life of the broker from an earlier one (KIP-903).

A partition that is new to a fetcher doesn't wait behind a long poll: until its first fetch in the
leader's epoch, nothing written to it can be committed. The poll is cut, its connection with it, and
everything asked anew; seldom enough that it doesn't matter (`CUT_MS_MIN`). Kafka lets it wait, for
replica.fetch.wait.max.ms at most.

Memory is bounded for each fetcher by `replica.fetch.response.max.bytes`, or one batch if larger.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k01_fetch import FetchRequest, ReplicaState
from sparkraft.replication.fetcher import Fetcher, FetcherEvent, OutOfRange
from sparkraft.server.broker.replication_throttles import ReplicationThrottle
from sparkraft.server.coordinator.partitions import java_string_hash
from sparkraft.storage.disk import StorageFault

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from sparkraft.base.ids import TopicIdPartition
    from sparkraft.client.connection import Connection
    from sparkraft.server.broker.partition import HostedPartition
    from sparkraft.server.broker.services import BrokerServices
    from sparkraft.storage.log import AppendInfo

log = logging.getLogger(__name__)

EPOCH_CHECK_MS = 10
"""How often a fetcher looks whether the broker has its epoch, while the broker starts."""

GATHER_MS = 5
"""How long more partitions are awaited before a poll is cut: they come a topic at a time."""

CUT_MS_MIN = 50
"""The shortest time between two cuts, at least; a full request costs a while for each partition."""

CUTS_MS_PER_PARTITION = 0.2
"""And that long for every partition of the fetcher: cuts take a small share of its time."""

IDLE_MS_MAX = 60_000
"""The longest a fetcher without work sleeps if nobody wakes it; it would do for ever."""

BYTES_BETWEEN_TURNS = 4 << 20
"""Appended before others get a turn of the loop: some milliseconds of copying and checksums."""

REPLICA_STATE_VERSION = 15
"""From this Fetch version on, a follower names its broker epoch (KIP-903)."""

_LATEST = -1
_EARLIEST = -2

_FETCH_VERSIONS = ((27, 18), (21, 17), (19, 16), (10, 15), (9, 14), (0, 13))
"""(metadata.version from which, Fetch version): Kafka's `MetadataVersion.fetchRequestVersion`."""

_LIST_OFFSETS_VERSIONS = ((29, 11), (25, 10), (21, 9), (9, 8), (0, 7))


def fetch_version(metadata_version: int) -> int:
    """The Fetch version that every broker of a cluster at this metadata.version knows."""
    return next(v for level, v in _FETCH_VERSIONS if metadata_version >= level)


def list_offsets_version(metadata_version: int) -> int:
    """The same for ListOffsets."""
    return next(v for level, v in _LIST_OFFSETS_VERSIONS if metadata_version >= level)


async def connect_to(broker: "BrokerServices", other_id: int, purpose: str) -> "Connection":
    """A connection to another broker, whose client id tells `purpose`.

    Raises:
        KafkaError: BROKER_NOT_AVAILABLE where the image has no place for it, and as `open`.
    """
    from sparkraft.client.connection import Connection

    registration = broker.image.brokers.get(other_id)
    listener = broker.config.inter_broker_listener_name
    endpoint = None if registration is None else registration.endpoint(listener)
    if endpoint is None:
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {other_id} has no {listener}")
    return await Connection.open(
        endpoint.host,
        endpoint.port,
        client_id=f"broker-{broker.node_id}-{purpose}",
        timeout_ms=broker.config.number("replica.socket.timeout.ms"),
    )


async def send_as_follower(
    broker: "BrokerServices", connection: "Connection", request: FetchRequest
) -> Any:
    """The leader's answer to a Fetch of this life of the broker (KIP-903)."""
    highest = fetch_version(broker.image.metadata_version)
    version = connection.version_for(ApiKey.FETCH, at_most=highest)
    if version >= REPLICA_STATE_VERSION:
        request.replica_state = ReplicaState(
            replica_id=broker.node_id, replica_epoch=broker.lifecycle.broker_epoch
        )
    else:
        request.replica_id = broker.node_id
    timeout_ms = broker.config.number("replica.socket.timeout.ms")
    return await connection.send(request, version=version, timeout_ms=timeout_ms)


class ReplicaFetchers:
    """All fetchers of a broker; see the module docstring."""

    def __init__(
        self,
        broker: "BrokerServices",
        spawn: "Callable[[Coroutine[Any, Any, Any], str], asyncio.Task[Any]]",
    ) -> None:
        """Fetch nothing yet.

        Args:
            broker: whose replicas follow.
            spawn: runs a coroutine under the node's task group, with a name.
        """
        self.broker = broker
        self.throttle = ReplicationThrottle(broker, "follower")
        self._spawn = spawn
        self._per_leader = broker.config.number("num.replica.fetchers")
        self._fetchers: dict[tuple[int, int], LeaderFetcher] = {}
        self._of: dict[TopicIdPartition, LeaderFetcher] = {}
        self._followed: dict[TopicIdPartition, tuple[HostedPartition, int, int]] = {}
        """Replica, leader and leader epoch of what `_of` fetches."""

    # -- whom to follow --------------------------------------------------------------------------

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
        """Use that many fetchers for each leader (num.replica.fetchers) from now on."""
        if per_leader == self._per_leader:
            return
        log.info("%d fetchers for each leader, before %d", per_leader, self._per_leader)
        self._per_leader = per_leader
        for key, (hosted, leader_id, leader_epoch) in list(self._followed.items()):
            self._of.pop(key).leave(key)
            self.on_following(hosted, leader_id, leader_epoch)

    def _fetcher_id(self, hosted: "HostedPartition") -> int:
        """Kafka's `AbstractFetcherManager.getFetcherId`: one partition, always the same fetcher."""
        number = (31 * java_string_hash(hosted.topic) + hosted.index) & 0xFFFFFFFF
        signed = number - (1 << 32) if number >> 31 else number
        return abs(signed) % self._per_leader

    def ended(self, fetcher: "LeaderFetcher") -> None:
        """A fetcher has no partition left and goes."""
        del self._fetchers[fetcher.leader_id, fetcher.fetcher_id]

    # -- what is told ----------------------------------------------------------------------------

    def in_order(self) -> "Iterator[LeaderFetcher]":
        """Every fetcher, by leader and number."""
        for place in sorted(self._fetchers):
            yield self._fetchers[place]

    def lag_of(self, hosted: "HostedPartition") -> int | None:
        """Offsets behind the leader's high watermark as of its last answer; None: not known."""
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
        """Connect to nobody yet; `run` is its task."""
        broker = owner.broker
        config = broker.config
        self.leader_id = leader_id
        self.fetcher_id = fetcher_id
        self.core = Fetcher(
            backoff_ms=config.number("replica.fetch.backoff.ms"),
            partition_bytes_max=config.number("replica.fetch.max.bytes"),
            quota=owner.throttle,
        )
        self._owner = owner
        self._broker = broker
        self._wait_ms = config.number("replica.fetch.wait.max.ms")
        self._min_bytes = config.number("replica.fetch.min.bytes")
        self._max_bytes = config.number("replica.fetch.response.max.bytes")
        self._timeout_ms = config.number("replica.socket.timeout.ms")
        self._connection: Connection | None = None
        self._wake = asyncio.Event()
        self._cut_timer: asyncio.TimerHandle | None = None
        self._cut_at_ms = 0
        self._is_cut = False
        self._polling = False
        """A request is under way that knows nothing of partitions followed since."""
        self.moves = broker.log_dir_moves
        self.syncs: list[asyncio.Future[None]] = []
        """Ends of fsyncs that the next fetch, which acknowledges, has to wait for."""

    def follow(self, key: "TopicIdPartition", hosted: "HostedPartition", leader_epoch: int) -> None:
        """Fetch a partition, or go on at a later epoch."""
        replica = HostedReplica(self, hosted)
        if self.core.follow(key, hosted.topic, leader_epoch=leader_epoch, replica=replica):
            self._wake.set()
            self._cut_soon()

    def leave(self, key: "TopicIdPartition") -> None:
        """Fetch it no longer."""
        self.core.leave(key)
        self._wake.set()

    def _cut_soon(self) -> None:
        """Let a new partition be asked for soon, though a poll is under way."""
        if not self._polling or self._cut_timer is not None:
            return
        pause_ms = max(CUT_MS_MIN, len(self.core) * CUTS_MS_PER_PARTITION)
        due_ms = self._cut_at_ms + pause_ms - self._broker.clock.mono_ms()
        loop = asyncio.get_running_loop()
        self._cut_timer = loop.call_later(max(due_ms, GATHER_MS) / 1000, self._cut)

    def _cut(self) -> None:
        self._cut_timer = None
        connection = self._connection
        if not self._polling or connection is None or connection.is_receiving:
            return  # the next request is near
        self._cut_at_ms = self._broker.clock.mono_ms()
        self._is_cut = True
        connection.abort("there is a partition more to fetch")

    # -- the loop --------------------------------------------------------------------------------

    async def run(self) -> None:
        """Fetch until no partition is left, or cancelled."""
        try:
            while self._broker.lifecycle.broker_epoch < 0:  # noqa: ASYNC110 (once in a node's life)
                await asyncio.sleep(EPOCH_CHECK_MS / 1000)
            while len(self.core):
                await self._turn()
                self._tell()
        finally:
            self._owner.ended(self)
            if self._cut_timer is not None:
                self._cut_timer.cancel()
            if self._connection is not None:
                self._connection.abort("the fetcher ended")

    async def _turn(self) -> None:
        clock = self._broker.clock
        asked = self.core.out_of_range(clock.mono_ms())
        if asked:
            await self._ask_bounds(asked)
            return
        if self._cut_timer is not None:
            self._cut_timer.cancel()  # this request asks for all
            self._cut_timer = None
        request = self.core.build(clock.mono_ms())
        if request is None:
            await self._rest()
            return
        try:
            response = await self._fetch(request)
        except KafkaError as error:
            if self._is_cut:
                self.core.interrupted()
            else:
                self.core.fail(clock.mono_ms(), f"no answer from leader {self.leader_id}: {error}")
            return
        finally:
            self._polling = self._is_cut = False
        await self._take_in(response)

    async def _rest(self) -> None:
        """Wait for a partition, or for one set aside."""
        self._tell()
        try:
            async with asyncio.timeout(self._until_due_ms() / 1000):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()

    def _until_due_ms(self) -> int:
        """How long until a partition set aside or held back may go on: no poll is longer."""
        due = self.core.wake_at()
        wait_ms = IDLE_MS_MAX if due is None else due - self._broker.clock.mono_ms()
        if self.core.is_held:
            wait_ms = min(wait_ms, self._owner.throttle.wait_ms)
        return min(max(wait_ms, 1), IDLE_MS_MAX)

    async def _fetch(self, request: FetchRequest) -> Any:
        connection = await self._connected()
        request.max_wait_ms = min(self._wait_ms, self._until_due_ms())
        request.min_bytes = self._min_bytes
        request.max_bytes = self._max_bytes
        self._polling = True
        return await send_as_follower(self._broker, connection, request)

    async def _connected(self) -> "Connection":
        if self._connection is None or self._connection.is_closed:
            self._connection = await connect_to(
                self._broker, self.leader_id, f"fetcher-{self.fetcher_id}"
            )
        return self._connection

    async def _take_in(self, response: Any) -> None:
        """Append what came; others get a turn in between; then wait for the fsyncs it needs."""
        now = self._broker.clock.mono_ms()
        taken = 0
        for key, data in self.core.on_response(response, now):
            size = self.core.process_partition(key, data, now)
            taken += size
            name = self.core.name_of(key)
            if size and name is not None:
                self._owner.throttle.record(*name, size)
            if taken >= BYTES_BETWEEN_TURNS:
                taken = 0
                await asyncio.sleep(0)
        if self.syncs:
            syncs, self.syncs = self.syncs, []
            # One that failed has taken its log offline: the next append there tells.
            await asyncio.gather(*syncs, return_exceptions=True)

    def _tell(self) -> None:
        for event in self.core.events():
            log.log(_LEVELS.get(event.kind, logging.INFO), "%s", self._sentence(event))

    def _sentence(self, event: FetcherEvent) -> str:
        if event.partition < 0:
            return f"Fetching from leader {self.leader_id}, {event.kind}: {event.text}"
        return (
            f"{event.topic}-{event.partition} {event.kind}, leader {self.leader_id}: {event.text}"
        )

    # -- a leader's bounds -----------------------------------------------------------------------

    async def _ask_bounds(self, asked: list[OutOfRange]) -> None:
        """Where the leader's logs end, and then where they begin: Kafka's order."""
        clock = self._broker.clock
        try:
            ends = await self._list_offsets(asked, _LATEST)
            starts = await self._list_offsets(asked, _EARLIEST)
        except KafkaError as error:
            self.core.fail(clock.mono_ms(), f"no answer from leader {self.leader_id}: {error}")
            return
        now = clock.mono_ms()
        unknown = (ErrorCode.UNKNOWN_SERVER_ERROR, -1)
        for each in asked:
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
        self, asked: list[OutOfRange], timestamp: int
    ) -> dict[tuple[str, int], tuple[int, int]]:
        """(topic, index) → error code and offset."""
        from sparkraft.protocol.messages.k02_list_offsets import (
            ListOffsetsPartition,
            ListOffsetsRequest,
            ListOffsetsTopic,
        )

        topics: dict[str, ListOffsetsTopic] = {}
        for each in asked:
            topics.setdefault(each.topic, ListOffsetsTopic(name=each.topic)).partitions.append(
                ListOffsetsPartition(
                    partition_index=each.partition,
                    current_leader_epoch=each.leader_epoch,
                    timestamp=timestamp,
                )
            )
        request = ListOffsetsRequest(
            replica_id=self._broker.node_id,
            topics=list(topics.values()),
            timeout_ms=self._timeout_ms,
        )
        connection = await self._connected()
        highest = list_offsets_version(self._broker.image.metadata_version)
        answer = await connection.send(
            request,
            version=connection.version_for(ApiKey.LIST_OFFSETS, at_most=highest),
            timeout_ms=self._timeout_ms,
        )
        return {
            (topic.name, part.partition_index): (part.error_code, part.offset)
            for topic in answer.topics
            for part in topic.partitions
        }


_LEVELS = {"set aside": logging.WARNING, "failed": logging.ERROR}


class HostedReplica:
    """A hosted partition as the fetcher's rules see it; a disk's failure is KAFKA_STORAGE_ERROR."""

    __slots__ = ("_fetcher", "_hosted")

    def __init__(self, fetcher: LeaderFetcher, hosted: "HostedPartition") -> None:
        """`fetcher` is told of fsyncs that its next request must wait for."""
        self._fetcher = fetcher
        self._hosted = hosted

    @property
    def log_start_offset(self) -> int:
        """See `Replica`."""
        return self._hosted.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """See `Replica`."""
        return self._hosted.log.log_end_offset

    @property
    def high_watermark(self) -> int:
        """See `Replica`."""
        return self._hosted.log.high_watermark

    @property
    def latest_epoch(self) -> int | None:
        """See `Replica`."""
        return self._hosted.log.latest_epoch

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int] | None:
        """See `EpochsOfLog`."""
        return self._hosted.log.end_offset_for_epoch(epoch)

    def append(
        self, records: Any, *, leader_epoch: int, leader_high_watermark: int, leader_log_start: int
    ) -> None:
        """See `Replica`."""
        hosted = self._hosted
        try:
            info: AppendInfo = hosted.follower_append(
                records,
                leader_epoch=leader_epoch,
                leader_hw=leader_high_watermark,
                leader_log_start=leader_log_start,
            )
        except StorageFault as fault:
            raise hosted.manager.on_disk_error(fault, hosted) from fault
        sync = hosted.synced(info)
        if sync is not None:
            self._fetcher.syncs.append(sync)

    def truncate_to(self, offset: int, *, leader_epoch: int, completed: bool) -> None:
        """See `Replica`."""
        hosted = self._hosted
        try:
            hosted.follower_truncate(offset, leader_epoch=leader_epoch)
        except StorageFault as fault:
            raise hosted.manager.on_disk_error(fault, hosted) from fault
        if completed:
            self._fetcher.moves.on_truncated(hosted, offset)

    def start_at(self, offset: int, *, leader_epoch: int) -> None:
        """See `Replica`."""
        hosted = self._hosted
        try:
            hosted.follower_start_at(offset, leader_epoch=leader_epoch)
        except StorageFault as fault:
            raise hosted.manager.on_disk_error(fault, hosted) from fault
        self._fetcher.moves.on_truncated(hosted, offset)
