"""Fetch: v4-18. Read record batches from partitions. (KIP-74, KIP-227, KIP-320, KIP-516, KIP-951)

Behaviour:
    * Waits up to `max_wait_ms` for `min_bytes`; answers at once on any error or a diverging epoch.
    * The first partition with data gives at least one whole batch, however large; the rest keep to
      `partition_max_bytes` and `max_bytes` (at most `fetch.max.bytes`).
    * Consumers see up to the high watermark (isolation 0) or the last stable offset (1).
    * Incremental sessions: an answer carries only partitions with news.
    * `last_fetched_epoch` that isn't ours: `diverging_epoch` instead of records.
Versions: v5 log start; v7 sessions; v9 leader epochs; v11 rack; v12 flexible; v13 topic ids; v15
    replica state; v16 leader hints; v17 directory id; v18 the follower's high watermark.
Not done: fetch from followers (replica.selector.class); aborted transactions, as there are none.
"""

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k01_fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from sparkraft.server.api.registry import Api, RequestContext
from sparkraft.server.broker.cluster_view import add_node_endpoint, leader_hint
from sparkraft.server.broker.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    FetchSession,
    Key,
    SessionPartition,
)
from sparkraft.server.broker.purgatory import FetchWaiter
from sparkraft.storage.disk import StorageFault

if TYPE_CHECKING:
    from sparkraft.server.broker import Broker
    from sparkraft.server.broker.partition import HostedPartition

_IDS_VERSION = 13
_HINTS_VERSION = 16
_STORAGE_ERROR_VERSION = 6
_UNKNOWN_PARTITION = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
_REPLICA_STATE_VERSION = 15
_LEADER_ERRORS = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})

Asked = dict[Key, SessionPartition]


class _Fetch:
    """One request on its way: what it reads, and how its answer is made."""

    __slots__ = ("asked", "broker", "context", "max_bytes", "replica", "request", "session")

    def __init__(self, broker: "Broker", context: RequestContext, request: FetchRequest) -> None:
        self.broker = broker
        self.context = context
        self.request = request
        replica_id = (
            request.replica_state.replica_id
            if context.api_version >= _REPLICA_STATE_VERSION
            else request.replica_id
        )
        self.replica = replica_id >= 0
        self.max_bytes = min(request.max_bytes, broker.config.number("fetch.max.bytes"))
        self.session: FetchSession | None = None
        self.asked: Asked = {}

    # ---- what is asked

    def open_session(self) -> bool:
        """Find or prepare the session and `asked`; whether the answer is incremental."""
        request = self.request
        sessions = self.broker.fetch_sessions
        uses_ids = self.context.api_version >= _IDS_VERSION
        if request.session_epoch not in {INITIAL_EPOCH, FINAL_EPOCH}:
            session = sessions.find(request.session_id, request.session_epoch, uses_ids=uses_ids)
            self._forget(session)
            self._take(session.partitions)
            self.asked = session.partitions
            if not self.asked:
                sessions.end(session.id)
                return False
            self.session = session
            return True
        if request.session_id:
            sessions.end(request.session_id)
        self._take(self.asked)
        if request.session_epoch == INITIAL_EPOCH and self.asked:
            self.session = sessions.make(uses_ids=uses_ids)
            if self.session is not None:
                self.session.partitions = self.asked
        return False

    def _forget(self, session: FetchSession) -> None:
        for topic in self.request.forgotten_topics_data:
            for index in topic.partitions:
                session.partitions.pop(session.key_of(topic, index), None)

    def _take(self, into: Asked) -> None:
        """Put what the request names into `into`."""
        uses_ids = self.context.api_version >= _IDS_VERSION
        for topic in self.request.topics:
            for part in topic.partitions:
                key: Key = (topic.topic_id if uses_ids else topic.topic, part.partition)
                asked = into.get(key)
                if asked is None:
                    asked = SessionPartition(
                        None if uses_ids else topic.topic, topic.topic_id, part.partition
                    )
                    into[key] = asked
                asked.ask(part)

    # ---- reading

    def read(self) -> tuple[list[tuple[SessionPartition, PartitionData]], int, bool]:
        """Every asked partition's data, the bytes of it all, and whether that can't wait."""
        found: list[tuple[SessionPartition, PartitionData]] = []
        left = self.max_bytes
        total = 0
        urgent = False
        for asked in self.asked.values():
            data = PartitionData(partition_index=asked.index, high_watermark=-1, records=b"")
            try:
                size = self._read_one(asked, data, left, first=total == 0)
            except KafkaError as error:
                urgent = True
                self._refuse_partition(data, error)
            else:
                total += size
                left -= size
                urgent = urgent or data.diverging_epoch.epoch >= 0
            found.append((asked, data))
        return found, total, urgent

    def _read_one(
        self, asked: SessionPartition, data: PartitionData, left: int, *, first: bool
    ) -> int:
        partition = self._partition(asked)
        partition.check_epoch(asked.current_leader_epoch)
        log = partition.log
        data.high_watermark = log.high_watermark
        data.last_stable_offset = log.last_stable_offset
        data.log_start_offset = log.log_start_offset
        data.aborted_transactions = [] if self.request.isolation_level == 1 else None
        if asked.last_fetched_epoch >= 0 and self._diverges(partition, asked, data):
            return 0
        end = partition.visible_end(isolation=self.request.isolation_level, replica=self.replica)
        try:
            result = log.read(
                asked.fetch_offset,
                max_bytes=max(min(asked.max_bytes, left), 0),
                up_to=end,
                min_one_batch=first,
            )
        except StorageFault as fault:
            raise self.broker.replica_manager.on_disk_error(fault, partition) from fault
        data.records = result.pieces
        return result.size

    def _partition(self, asked: SessionPartition) -> "HostedPartition":
        manager = self.broker.replica_manager
        if self.context.api_version < _IDS_VERSION:
            assert asked.topic is not None
            return manager.leader(asked.topic, asked.index)
        known = self.broker.image.topics_by_id.get(asked.topic_id)
        if known is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        asked.topic = known.name
        return manager.leader(known.name, asked.index)

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

    def _refuse_partition(self, data: PartitionData, error: KafkaError) -> None:
        code = error.code
        if code == ErrorCode.KAFKA_STORAGE_ERROR and (
            self.context.api_version < _STORAGE_ERROR_VERSION
        ):
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        data.error_code = int(code)
        data.high_watermark = data.last_stable_offset = data.log_start_offset = -1
        # Kafka answers for a partition it does not know without looking at the isolation level.
        unknown = code in _UNKNOWN_PARTITION
        data.aborted_transactions = [] if unknown or self.request.isolation_level == 1 else None

    # ---- answering

    def answer(
        self, found: list[tuple[SessionPartition, PartitionData]], *, incremental: bool
    ) -> FetchResponse:
        """The response; remembers in the session what it tells."""
        session = self.session
        response = FetchResponse(session_id=session.id if session is not None else 0)
        told: list[Key] = []
        for asked, data in found:
            news = asked.has_news(data) if session is not None else True
            if incremental and not news:
                continue
            if self.context.api_version >= _HINTS_VERSION and data.error_code in _LEADER_ERRORS:
                self._add_hint(response, asked, data)
            if session is not None and data.records:
                told.append(
                    (asked.topic_id if session.uses_ids else asked.topic or "", asked.index)
                )
            _put(response, asked, data)
        if session is not None and incremental:
            session.move_to_end(told)
        return response

    def _add_hint(
        self, response: FetchResponse, asked: SessionPartition, data: PartitionData
    ) -> None:
        broker = self.broker
        topic_id = asked.topic_id
        if asked.topic is not None:
            topic_id = broker.topic_id(asked.topic) or Uuid.ZERO
        leader, epoch = leader_hint(broker.image, topic_id, asked.index)
        data.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
        add_node_endpoint(
            broker.image, response.node_endpoints, NodeEndpoint, leader, self.context.listener_name
        )


def _put(response: FetchResponse, asked: SessionPartition, data: PartitionData) -> None:
    """Add a partition; neighbours of one topic share its entry."""
    last = response.responses[-1] if response.responses else None
    if last is None or last.topic_id != asked.topic_id or last.topic != (asked.topic or ""):
        last = FetchableTopicResponse(topic=asked.topic or "", topic_id=Uuid(asked.topic_id))
        response.responses.append(last)
    last.partitions.append(data)


def handle(
    broker: "Broker", context: RequestContext, request: FetchRequest
) -> FetchResponse | Awaitable[FetchResponse]:
    """Read now; answer now or once there is enough."""
    fetch = _Fetch(broker, context, request)
    try:
        incremental = fetch.open_session()
    except KafkaError as error:
        return FetchResponse(error_code=int(error.code))
    found, total, urgent = fetch.read()
    min_bytes = min(request.min_bytes, fetch.max_bytes)
    if urgent or not found or total >= min_bytes or request.max_wait_ms <= 0:
        return fetch.answer(found, incremental=incremental)

    def answer_now() -> FetchResponse:
        return fetch.answer(fetch.read()[0], incremental=incremental)

    manager = broker.replica_manager
    partitions = (
        hosted
        for asked in fetch.asked.values()
        if asked.topic is not None
        and (hosted := manager.hosted(asked.topic, asked.index)) is not None
    )
    waiter = FetchWaiter(
        partitions,
        missing_bytes=min_bytes - total,
        wait_ms=request.max_wait_ms,
        answer=answer_now,
    )
    return waiter.future


def refuse(_: type, request: Any, version: int, error: KafkaError) -> FetchResponse:
    """The whole request with one error: at the top where there is a field for it."""
    response = FetchResponse(error_code=int(error.code))
    if version < 7:  # noqa: PLR2004 (no top-level error before)
        for topic in request.topics:
            answers = [
                PartitionData(
                    partition_index=part.partition,
                    error_code=int(error.code),
                    high_watermark=-1,
                    records=b"",
                )
                for part in topic.partitions
            ]
            response.responses.append(FetchableTopicResponse(topic=topic.topic, partitions=answers))
    return response


API = Api(key=ApiKey.FETCH, handle=handle, dies_with_connection=True, refuse=refuse)
