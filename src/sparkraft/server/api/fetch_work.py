"""The work of one Fetch request: its session, its reads, its waiting and its response.

Small requests are read and answered in one piece (`read`, `answer`), large ones in slices
(`read_in_slices`, `answer_in_slices`). Each partition is one step: between two of them, appends,
truncations and changes of leadership may happen.

Not here: when to wait (`k01_fetch`), sessions and their changed partitions (`fetch_sessions`).
"""

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.base.loop_work import LoopBound
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.codec import encode_parts
from sparkraft.protocol.messages.k01_fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import denied
from sparkraft.server.api.encoded_array import CHUNK, EncodedArray
from sparkraft.server.api.fetch_reading import FetchReading, Found
from sparkraft.server.api.registry import RequestContext
from sparkraft.server.broker.cluster_view import add_node_endpoint, leader_hint
from sparkraft.server.broker.cold_reads import ATTEMPTS_MAX
from sparkraft.server.broker.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    FetchSession,
    Key,
    SessionPartition,
)
from sparkraft.server.broker.purgatory import FetchWaiter
from sparkraft.server.broker.read_replica import NO_PREFERENCE, preferred_read_replica
from sparkraft.server.broker.shared_reads import COLD
from sparkraft.storage.disk import FilePart, StorageFault

if TYPE_CHECKING:
    from collections.abc import Generator

    from sparkraft.protocol.declare import Records
    from sparkraft.server.broker.partition import HostedPartition
    from sparkraft.server.broker_services import BrokerServices

_IDS_VERSION = 13
_HINTS_VERSION = 16
_STORAGE_ERROR_VERSION = 6
_RACK_VERSION = 11
_WITHOUT_ISOLATION = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)
"""Errors that Kafka returns without looking at the isolation level."""

_EXPECTED_ERRORS = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Errors of a read that Kafka's ReplicaManager does not count as failures."""

_REPLICA_STATE_VERSION = 15
_LEADER_ERRORS = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})

HIGH_WATERMARK_LINGER_MS = 10
"""How long a moved high watermark waits for records to travel with, before it is sent alone.

Consumers that read from followers wait for it, and a new leader starts with it. Sending it at once,
as the quorum does, would double the fetches of a partition that is written now and then."""

WHOLE_PARTITIONS_MAX: LoopBound = 400
"""Partitions that one piece of work reads: 0.4 ms of errors, 7 ms if each has records."""

QUIET_SHARE = 5
"""A follower's partition without changes costs less than this part of a read."""

READ_CHUNK: LoopBound = 100
"""Partitions read between two chances to interrupt a large fetch."""

_CONSUMER = -1

DEBUGGING_REPLICA = -2
"""Reads any replica to its log end without being a follower: Kafka's replica-verification tool."""

Asked = dict[Key, SessionPartition]


class FetchWork:
    """One request: the partitions it reads, and how its response is made."""

    __slots__ = (
        "allows_all",
        "asked",
        "attempts_left",
        "broker",
        "broker_epoch",
        "cold",
        "cold_bytes",
        "context",
        "held",
        "is_behind",
        "is_cut",
        "maps",
        "max_bytes",
        "quiet",
        "rack",
        "reads_changed",
        "replica",
        "replica_id",
        "request",
        "session",
    )

    def __init__(
        self, broker: "BrokerServices", context: RequestContext, request: FetchRequest
    ) -> None:
        self.broker = broker
        self.context = context
        self.request = request
        if context.api_version >= _REPLICA_STATE_VERSION:
            self.replica_id = request.replica_state.replica_id
            self.broker_epoch = request.replica_state.replica_epoch
        else:
            self.replica_id = request.replica_id
            self.broker_epoch = -1
        self.replica = self.replica_id >= 0
        if self.replica:
            broker.replica_manager.traffic.on_follower_fetch(context.api_version)
        self.allows_all = context.session.authorizer.allows_all or (
            self.replica
            and context.is_allowed(AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER)
        )
        # Records visible to consumers are never truncated, except by an unclean election; records
        # for others might be truncated before they have left.
        self.maps = self.replica_id == _CONSUMER and context.connection.takes_views
        self.rack = request.rack_id if self.replica_id < 0 and broker.reads_by_rack else ""
        self.max_bytes = min(request.max_bytes, broker.config.number("fetch.max.bytes"))
        self.session: FetchSession | None = None
        self.asked: Asked = {}
        self.reads_changed = False
        """Whether only the partitions that changed are read: an incremental fetch of a consumer."""
        self.is_behind = False
        """Whether a partition probably has more records than the response."""
        self.is_cut = False
        """Whether more partitions have changed than were read."""
        self.held: set[tuple[str | None, int]] = set()
        """Partitions that the throttle kept out of the response."""
        self.quiet = 0
        """Partitions without changes at the last read."""
        self.cold: list[FilePart] | None = []
        """Parts that the last read would have waited for; None: the next read may wait."""
        self.cold_bytes = 0
        """Bytes of these."""
        self.attempts_left = ATTEMPTS_MAX

    # ---- the requested partitions

    @property
    def is_large(self) -> bool:
        """Whether the partitions are too many for one piece of work."""
        named = sum(len(topic.partitions) for topic in self.request.topics)
        if self.replica and self.request.session_id:
            named += self.broker.fetch_sessions.size_of(self.request.session_id) // QUIET_SHARE
        return named > WHOLE_PARTITIONS_MAX

    @property
    def may_wait(self) -> bool:
        """Whether it is an incremental fetch of a consumer that keeps up (`network.gathering`)."""
        request = self.request
        return (
            self.replica_id == _CONSUMER
            and request.session_epoch > INITIAL_EPOCH
            and self.broker.fetch_sessions.keeps_up(request.session_id)
        )

    def open_session(self) -> "Generator[int, None, bool]":
        """Find or prepare the session and `asked`; returns whether the response is incremental."""
        request = self.request
        sessions = self.broker.fetch_sessions
        uses_ids = self.context.api_version >= _IDS_VERSION
        if request.session_epoch not in {INITIAL_EPOCH, FINAL_EPOCH}:
            session = sessions.find(request.session_id, request.session_epoch, uses_ids=uses_ids)
            self._forget(session)
            if not sessions.has_room(sum(len(topic.partitions) for topic in request.topics)):
                sessions.end(session.id)
                raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            yield from self._take(session.partitions, session.add)
            self.asked = session.partitions
            if not self.asked:
                sessions.end(session.id)
                return False
            self.session = session
            if session.is_consumers:
                self._find_changed(session)
            return True
        if request.session_id:
            sessions.end(request.session_id)
        yield from self._take(self.asked, self.asked.__setitem__)
        if request.session_epoch == INITIAL_EPOCH and self.asked:
            is_consumers = self.replica_id == _CONSUMER
            self.session = sessions.make(
                len(self.asked), uses_ids=uses_ids, is_consumers=is_consumers
            )
            if self.session is not None:
                for number, (key, asked) in enumerate(self.asked.items()):
                    self.session.add(key, asked)
                    if number % CHUNK == CHUNK - 1:
                        yield CHUNK // 10
                self.session.read_as(self._reads_as)
        return False

    def _forget(self, session: FetchSession) -> None:
        for topic in self.request.forgotten_topics_data:
            for index in topic.partitions:
                session.forget(session.key_of(topic, index))

    def _take(
        self, known: Asked, add: Callable[[Key, SessionPartition], None]
    ) -> "Generator[int, None, None]":
        """Note the request's partitions in `known`, and `add` those that are new."""
        uses_ids = self.context.api_version >= _IDS_VERSION
        for topic in self.request.topics:
            for number, part in enumerate(topic.partitions):
                key: Key = (topic.topic_id if uses_ids else topic.topic, part.partition)
                asked = known.get(key)
                if asked is None:
                    asked = SessionPartition(
                        None if uses_ids else topic.topic, topic.topic_id, part.partition
                    )
                    add(key, asked)
                asked.on_request(part)
                if number % CHUNK == CHUNK - 1:
                    yield CHUNK // 4
            yield 1

    @property
    def _reads_as(self) -> object:
        """The parts of the request that reads depend on, other than partitions and offsets."""
        return self.replica_id, self.request.isolation_level, self.context.api_version

    def _find_changed(self, session: FetchSession) -> None:
        """Let the session's `changed` be what this request must read."""
        session.read_as(self._reads_as)
        self.reads_changed = self.replica_id == _CONSUMER and not self.rack
        if self.reads_changed and not self.allows_all:
            topics = {asked.topic for asked in self.asked.values() if asked.topic is not None}
            session.recheck({topic for topic in topics if not self._may_read(topic)})

    # ---- reading

    def read(self, *, parked: bool = False) -> tuple[Found, int, bool]:
        """The data of the partitions to read, the bytes of all, and whether to respond at once.

        `parked`: it was read before, and waited; its fetch offsets are not news of the follower.
        """
        reading = self._begin(parked=parked)
        for asked in reading.wanted:
            self._read_next(reading, asked)
        return reading.found, reading.total, reading.urgent

    def read_in_slices(
        self, *, parked: bool = False
    ) -> "Generator[int, None, tuple[Found, int, bool]]":
        """As `read`."""
        reading = self._begin(parked=parked)
        for number, asked in enumerate(list(reading.wanted)):
            self._read_next(reading, asked)
            if number % READ_CHUNK == READ_CHUNK - 1:
                yield 2 * READ_CHUNK
        return reading.found, reading.total, reading.urgent

    def must_warm(self, total: int, *, urgent: bool) -> bool:
        """Whether to wait for cold parts, as `total` bytes are too few to respond now."""
        wanted = max(1, min(self.request.min_bytes, self.max_bytes))
        return bool(self.cold) and not urgent and total < wanted

    async def warm(self) -> None:
        """Wait until the cold parts of the last read are in the page cache; read again then.

        Raises:
            KafkaError: FETCH_SESSION_ID_NOT_FOUND if the session ended meanwhile: its partitions
                report no changes any more.
        """
        await self.broker.cold_reads.wait(self.cold or [])
        if self.session is not None and not self.broker.fetch_sessions.has(self.session):
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        self.attempts_left -= 1
        if not self.attempts_left:
            self.cold = None

    def _warm_meanwhile(self) -> None:
        """Warm the parts that the response goes without; the client asks for them again."""
        for part in self.cold or ():
            self.broker.cold_reads.start(part)

    def _begin(self, *, parked: bool) -> FetchReading:
        self.held.clear()
        if self.cold is not None:
            self.cold = []
            self.cold_bytes = 0
        self.quiet = 0
        self.is_behind = False
        room = self.max_bytes
        if self.replica_id == _CONSUMER:
            room = min(room, self.context.connection.response_room)
        wanted: Iterable[SessionPartition] = self.asked.values()
        urgent = False
        if self.reads_changed and self.session is not None:
            wanted, self.is_cut = self.session.to_read(WHOLE_PARTITIONS_MAX)
            urgent = self.is_cut  # the client asks for the others at once
        return FetchReading(
            wanted,
            room,
            now_ms=None if parked else self.broker.clock.mono_ms(),
            may_skip=(
                self.session is not None and self.replica and self.allows_all and self._is_alive()
            ),
            urgent=urgent,
        )

    def _read_next(self, reading: FetchReading, asked: SessionPartition) -> None:
        if (
            reading.may_skip
            and asked.quiet is not None
            and self._is_quiet(asked, asked.quiet, reading.now_ms)
        ):
            self.quiet += 1
            return
        data = PartitionData(partition_index=asked.index, high_watermark=-1, records=b"")
        try:
            left = reading.left - self.cold_bytes
            size = self._read_one(asked, data, left, first=not (reading.total or self.cold))
            if self.replica and not reading.parked and data.diverging_epoch.epoch < 0:
                self._note_follower(asked, data)
        except KafkaError as error:
            self._refuse_partition(asked, data, error)
            reading.add(asked, data, 0, urgent=True)
        else:
            urgent = data.diverging_epoch.epoch >= 0 or data.preferred_read_replica >= 0
            reading.add(asked, data, size, urgent=urgent)

    def _is_alive(self) -> bool:
        """Whether the follower has its broker's current epoch; if not, partitions are refused."""
        alive = self.broker.replica_manager.brokers.alive_epoch(self.replica_id)
        return alive is None or alive <= self.broker_epoch

    def _is_quiet(
        self, asked: SessionPartition, hosted: "HostedPartition", now_ms: int | None
    ) -> bool:
        """Whether a follower in sync misses nothing; records its fetch at `now_ms` unless None."""
        follower = hosted.followers.get(self.replica_id)
        if (
            follower is None
            or not asked.is_quiet(hosted)
            or follower.broker_epoch != self.broker_epoch
            or hosted.leading is None
            or self.replica_id not in hosted.leading.in_sync.isr
        ):
            asked.note_end(None)
            return False
        if now_ms is not None:
            follower.fetched_again(now_ms)
        return True

    def _read_one(
        self, asked: SessionPartition, data: PartitionData, left: int, *, first: bool
    ) -> int:
        partition = self._partition(asked)
        asked.read_from(partition.traffic)
        if asked.session is not None:
            asked.watch(partition)
        partition.check_epoch(asked.current_leader_epoch)
        if self.replica:
            assert partition.leading is not None
            partition.leading.check_follower(
                self.replica_id, knows_epoch=asked.current_leader_epoch >= 0
            )
        log = partition.log
        data.high_watermark = log.high_watermark
        data.last_stable_offset = log.last_stable_offset
        data.log_start_offset = log.log_start_offset
        data.aborted_transactions = [] if self.request.isolation_level == 1 else None
        if asked.last_fetched_epoch >= 0 and self._diverges(partition, asked, data):
            return 0
        if self.rack and self._is_read_elsewhere(partition, asked, data):
            return 0
        if self.replica:
            asked.note_end(partition)
        if self.replica and self._must_wait(partition):
            self.held.add((asked.topic, asked.index))
            return 0
        to_end = self.replica or self.replica_id == DEBUGGING_REPLICA
        end = partition.visible_end(isolation=self.request.isolation_level, replica=to_end)
        room = max(min(asked.max_bytes, left), 0)
        try:
            result = self.broker.shared_reads.read(
                log,
                asked.fetch_offset,
                max_bytes=room,
                up_to=end,
                min_one_batch=first,
                to_send=self.maps,
                cold=self.cold,
            )
        except StorageFault as fault:
            raise self.broker.replica_manager.on_disk_error(fault, partition) from fault
        if result is COLD:
            assert self.cold
            self.cold_bytes += self.cold[-1].size
            return 0
        data.records = result.pieces
        # Whole batches fit in: less than half of the room was taken if all of them did.
        self.is_behind |= result.size * 2 >= room
        if self.request.isolation_level == 1:
            data.aborted_transactions = [
                AbortedTransaction(producer_id=entry.producer_id, first_offset=entry.first_offset)
                for entry in log.aborted_in(asked.fetch_offset, result.size, end)
            ]
        return result.size

    def _is_read_elsewhere(
        self, partition: "HostedPartition", asked: SessionPartition, data: PartitionData
    ) -> bool:
        """Whether a follower in the consumer's rack shall serve it; sets it in `data`."""
        data.preferred_read_replica = preferred_read_replica(
            self.broker.image,
            partition,
            offset=asked.fetch_offset,
            rack=self.rack,
            listener=self.context.listener_name,
        )
        return data.preferred_read_replica != NO_PREFERENCE

    def _must_wait(self, partition: "HostedPartition") -> bool:
        """Whether the leader's throttle holds this follower back (KIP-73); never one in sync."""
        throttle = self.broker.leader_throttle
        assert partition.leading is not None
        return (
            throttle.is_throttled(partition.topic, partition.index)
            and self.replica_id not in partition.leading.in_sync.isr
            and throttle.is_exceeded
        )

    def _note_follower(self, asked: SessionPartition, data: PartitionData) -> None:
        """Report the follower's offset to the leader, and the resulting high watermark back."""
        partition = self._partition(asked)
        partition.on_follower_fetch(
            self.replica_id,
            asked.fetch_offset,
            log_start_offset=asked.replica_log_start_offset,
            leader_end=partition.log.log_end_offset,
            broker_epoch=self.broker_epoch,
        )
        data.high_watermark = partition.log.high_watermark

    def lacks_high_watermark(self, found: Found) -> bool:
        """Whether a follower with a session has a lower high watermark than the leader."""
        if not self.replica or self.session is None:
            return False
        return any(asked.high_watermark < data.high_watermark for asked, data in found)

    def _partition(self, asked: SessionPartition) -> "HostedPartition":
        manager = self.broker.replica_manager
        from_follower = self.replica_id == DEBUGGING_REPLICA or (
            not self.replica and self.context.api_version >= _RACK_VERSION
        )
        find = manager.replica if from_follower else manager.leader
        name = asked.topic
        if self.context.api_version >= _IDS_VERSION:
            known = self.broker.image.topics_by_id.get(asked.topic_id)
            if known is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            name = known.name
            asked.name_topic(name)
        assert name is not None
        if not self.allows_all:
            self._authorize(name)
        return find(name, asked.index)

    def _authorize(self, topic: str) -> None:
        """Refuse a topic the client may not read; every fetch asks again, sessions included."""
        if self.replica or not self._may_read(topic):
            raise denied(AclResourceType.TOPIC)

    def _may_read(self, topic: str) -> bool:
        return self.context.is_allowed(AclOperation.READ, AclResourceType.TOPIC, topic)

    def _diverges(
        self, partition: "HostedPartition", asked: SessionPartition, data: PartitionData
    ) -> bool:
        found = partition.log.end_offset_for_epoch(asked.last_fetched_epoch)
        if found is None:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"no epoch up to {asked.last_fetched_epoch} is known of {partition}",
            )
        epoch, end_offset = found
        if epoch == asked.last_fetched_epoch and end_offset >= asked.fetch_offset:
            return False
        data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
        return True

    def _refuse_partition(
        self, asked: SessionPartition, data: PartitionData, error: KafkaError
    ) -> None:
        code = error.code
        if code == ErrorCode.KAFKA_STORAGE_ERROR and (
            self.context.api_version < _STORAGE_ERROR_VERSION
        ):
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        data.error_code = int(code)
        self.broker.replica_manager.traffic.on_error(ApiKey.FETCH, data.error_code)
        if asked.traffic is not None and error.code not in _EXPECTED_ERRORS:
            asked.traffic.on_failed_read()
        data.high_watermark = data.last_stable_offset = data.log_start_offset = -1
        early = code in _WITHOUT_ISOLATION
        data.aborted_transactions = [] if early or self.request.isolation_level == 1 else None

    # ---- waiting

    def queues(self) -> "Iterable[dict[Any, None]]":
        """The queues in which the request waits: its session's, or those of its partitions."""
        session = self.session
        if self.replica_id == _CONSUMER and session is not None and session.is_consumers:
            return [session.waiters]
        manager = self.broker.replica_manager
        hosted = (
            asked.quiet or manager.hosted(asked.topic, asked.index)
            for asked in self.asked.values()
            if asked.topic is not None and (asked.topic, asked.index) not in self.held
        )
        if self.replica:
            return [each.replica_waiters for each in hosted if each is not None]
        return [each.waiters for each in hosted if each is not None]

    def wait_everywhere(self, waiter: FetchWaiter) -> "Generator[int, None, None]":
        """Let `waiter` wait for every partition, in slices.

        Records that came after a partition was read, and before it waits there, complete it.
        """
        session = self.session
        if self.replica_id == _CONSUMER and session is not None and session.is_consumers:
            waiter.join(session.waiters)
        manager = self.broker.replica_manager
        to_end = self.replica or self.replica_id == DEBUGGING_REPLICA
        for number, asked in enumerate(list(self.asked.values())):
            if number % CHUNK == CHUNK - 1:
                yield CHUNK // 4
            if asked.topic is None or (asked.topic, asked.index) in self.held:
                continue
            hosted = manager.hosted(asked.topic, asked.index)
            if hosted is None:
                continue
            if asked.session is None:
                waiter.join(hosted.replica_waiters if self.replica else hosted.waiters)
            end = hosted.visible_end(isolation=self.request.isolation_level, replica=to_end)
            if end > asked.fetch_offset:
                waiter.finish()

    # ---- the response

    def note_read(self, asked: SessionPartition, data: PartitionData) -> None:
        """Leave a consumer's partition alone from now on if there is nothing more to say of it."""
        session = asked.session
        if session is not None:
            committed = self.request.isolation_level == 1
            end = data.last_stable_offset if committed else data.high_watermark
            session.on_read(asked, data, end)

    def answer(self, found: Found, *, incremental: bool) -> FetchResponse:
        """The response; records in the session what it contains."""
        self._warm_meanwhile()
        response = FetchResponse(session_id=self.session.id if self.session is not None else 0)
        for asked, data in found:
            if self._tell(response, asked, data, incremental=incremental):
                _put(response, asked, data)
        self._end_response(found, incremental=incremental)
        return response

    def answer_in_slices(
        self, found: Found, *, incremental: bool
    ) -> "Generator[int, None, list[bytes | memoryview]]":
        """As `answer`, encoded."""
        version = self.context.api_version
        self._warm_meanwhile()
        response = FetchResponse(session_id=self.session.id if self.session is not None else 0)
        topics = EncodedArray(FetchResponse, version)
        for (topic_id, topic), each in groupby(found, key=_topic_of):
            partitions = EncodedArray(FetchResponse, version)
            for number, (asked, data) in enumerate(each):
                if self._tell(response, asked, data, incremental=incremental):
                    partitions.add(data)
                if number % CHUNK == CHUNK - 1:
                    yield CHUNK
            if partitions.count:
                topics.add(
                    FetchableTopicResponse(
                        topic=topic, topic_id=Uuid(topic_id), partitions=partitions.encoded()
                    )
                )
            yield 1
        self._end_response(found, incremental=incremental)
        response.responses = topics.encoded()
        return encode_parts(response, version)

    def _tell(
        self,
        response: FetchResponse,
        asked: SessionPartition,
        data: PartitionData,
        *,
        incremental: bool,
    ) -> bool:
        """Record `data` in the session and the throttle; False if the response leaves it out."""
        news = asked.has_news(data) if self.session is not None else True
        if asked.session is not None:
            self.note_read(asked, data)
        if incremental and not news:
            return False
        if self.context.api_version >= _HINTS_VERSION and data.error_code in _LEADER_ERRORS:
            self._add_hint(response, asked, data)
        if data.records:
            self._count_sent(asked, _size_of(data.records))
        return True

    def _count_sent(self, asked: SessionPartition, size: int) -> None:
        assert asked.traffic is not None, "records come from a read"
        asked.traffic.on_sent(size, to_follower=self.replica)
        if self.replica:
            self.broker.leader_throttle.record(asked.topic or "", asked.index, size)

    def _end_response(self, found: Found, *, incremental: bool) -> None:
        """Let the session read these partitions last the next time."""
        session = self.session
        if session is None:
            return
        session.on_response(keeps_up=not (self.is_behind or self.is_cut or self.cold))
        if incremental:
            session.move_to_end(
                (asked.topic_id if session.uses_ids else asked.topic or "", asked.index)
                for asked, data in found
                if data.records or self.is_cut
            )

    def _add_hint(
        self, response: FetchResponse, asked: SessionPartition, data: PartitionData
    ) -> None:
        broker = self.broker
        topic_id = asked.topic_id
        if asked.topic is not None:
            topic_id = broker.topic_id(asked.topic) or Uuid.ZERO
        leader, epoch = leader_hint(broker.image, topic_id, asked.index)
        data.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
        if self.replica:
            return  # Kafka sends brokers no endpoints (KafkaApis.handleFetchRequest)
        add_node_endpoint(
            broker.image, response.node_endpoints, NodeEndpoint, leader, self.context.listener_name
        )


def _size_of(records: "Records") -> int:
    if isinstance(records, bytes | bytearray | memoryview):
        return len(records)
    return sum(len(piece) for piece in records)


def _put(response: FetchResponse, asked: SessionPartition, data: PartitionData) -> None:
    """Add a partition to the entry of its topic, if that is the last one."""
    last = response.responses[-1] if response.responses else None
    if last is None or last.topic_id != asked.topic_id or last.topic != (asked.topic or ""):
        last = FetchableTopicResponse(topic=asked.topic or "", topic_id=Uuid(asked.topic_id))
        response.responses.append(last)
    last.partitions.append(data)


def _topic_of(found: tuple[SessionPartition, PartitionData]) -> tuple[bytes, str]:
    asked = found[0]
    return asked.topic_id, asked.topic or ""
