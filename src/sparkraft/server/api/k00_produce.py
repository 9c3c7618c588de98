"""Produce: v3-13. Append record batches, one per partition. (KIP-98, KIP-360, KIP-951, KIP-516)

Behaviour:
    * acks 0: no response; an error closes the connection, which is how the client learns of it.
      acks 1: the response is sent once the batch is appended, and on disk if the topic's
      flush.messages requires it. acks -1: once the batch is below the high watermark;
      REQUEST_TIMED_OUT after the request's timeout, NOT_ENOUGH_REPLICAS(_AFTER_APPEND) below
      min.insync.replicas, NOT_LEADER_OR_FOLLOWER if leadership ends meanwhile. Other acks:
      INVALID_REQUIRED_ACKS.
    * A batch is refused if an earlier one for its partition was refused with a retriable error and
      that response has not left yet. Kafka handles a connection's requests one by one, so both
      would fail alike; here the second could be appended without the first.
    * Errors are per partition; from v10 a wrong leader comes with the right one's address.
    * Every record is checked (`sparkraft.record.validation=header`: only header and CRC).
    * Batches whose records are compressed, decompressed or checked in bulk are prepared in a thread
      and appended in order (`server.broker.append_queue`).
    * Transactional batches: the coordinator first verifies that they are part of an open
      transaction; from v12 it adds their partitions (KIP-890). Otherwise TRANSACTION_ABORTABLE,
      below v11 INVALID_TXN_STATE, or the coordinator's own error. NOT_ENOUGH_REPLICAS, which all
      clients retry, if the coordinator cannot answer now.
    * Internal topics refuse clients other than `__admin_client`: INVALID_TOPIC_EXCEPTION.
Versions: v5 log_start_offset; v7 zstd; v8 record errors; v9 flexible; v10 leader hints; v12
    transactions v2; v13 topic ids. Advertised from v0, as librdkafka needs (KAFKA-18659).
Not done: -
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.codec import encode
from sparkraft.protocol.messages.k00_produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from sparkraft.records.batch import (
    ATTRIBUTES_AT,
    BATCH_OVERHEAD,
    COUNT_AT,
    HEADER,
    NO_PRODUCER_ID,
    PRODUCER_ID_AT,
    TRANSACTIONAL_BIT,
    BatchHeader,
)
from sparkraft.records.errors import RefusedRecords
from sparkraft.records.validate import KEYLESS, Origin, check_request_records
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import denied, on_each
from sparkraft.server.api.encoded_array import CHUNK, encoded_and_released, encoded_in_pieces
from sparkraft.server.api.registry import (
    EVERYTHING,
    Api,
    NoResponseError,
    RequestContext,
    Steps,
    result_of,
)
from sparkraft.server.broker.append_queue import RETRIABLE_ERRORS, QueuedAppend
from sparkraft.server.broker.cluster_view import INTERNAL_TOPICS, add_node_endpoint, leader_hint
from sparkraft.server.broker.produce_shapes import VERSION_BYTES, ProduceShape
from sparkraft.server.broker.topic_traffic import EXPECTED_REFUSALS
from sparkraft.server.coordinator.partition_check import PRODUCE_ADDS_FROM, NotVerifiedError
from sparkraft.server.coordinator.responses import begin

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkraft.metadata.image import ClusterImage
    from sparkraft.security.session import Session
    from sparkraft.server.broker.partition import HostedPartition
    from sparkraft.server.broker.topic_traffic import TopicTraffic
    from sparkraft.server.broker_services import BrokerServices
    from sparkraft.storage.log import AppendInfo

_IDS_VERSION = 13
_ZSTD_VERSION = 7
_HINTS_VERSION = 10
_ADMIN_CLIENT_ID = "__admin_client"

APPEND_UNITS = 6
"""Units of work of one append, without its records: 25 µs."""

RECORDS_PER_UNIT = 20
"""Records that are checked in one unit, in pure Python."""

RECORD_BYTES_MIN = 7
"""Of a record without key and value."""

_LEADER_ERRORS = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
Check = Callable[["HostedPartition", Any], None]
"""Called right before a batch is appended; raises KafkaError to refuse it."""

Wait = tuple[PartitionProduceResponse, "asyncio.Future[None]", "asyncio.Future[None] | None"]
"""An answer, when it may be sent, and for a queued batch when it is appended or refused."""


def handle(
    broker: "BrokerServices", context: RequestContext, request: ProduceRequest
) -> ProduceResponse | Awaitable[ProduceResponse | None] | Steps | None:
    """Append every partition's batch, then respond or wait as `acks` requires."""
    if len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) != 1:
        return _handle_many(broker, context, request)
    if request.transactional_id is not None or result_of(_has_transactional_batch(request)):
        return begin(_handle_transactional(broker, context, request))
    waits: list[Wait] = []
    response = result_of(_append_all(broker, context, request, waits))
    _maybe_learn(broker, context, request, response, waits)
    if waits:
        return _answer_later(broker, context, request.acks, response, waits)
    answer: ProduceResponse | None = result_of(_finish(broker, context, request.acks, response))
    return answer


def _handle_many(
    broker: "BrokerServices", context: RequestContext, request: ProduceRequest
) -> Steps:
    """The same in slices. Later requests of the connection wait until all batches are appended."""
    if request.transactional_id is not None or (yield from _has_transactional_batch(request)):
        return begin(_handle_transactional(broker, context, request))
    waits: list[Wait] = []
    response = yield from _append_all(broker, context, request, waits)
    if waits:
        return _answer_later(broker, context, request.acks, response, waits)
    return (yield from _finish(broker, context, request.acks, response))


async def _handle_transactional(
    broker: "BrokerServices", context: RequestContext, request: ProduceRequest
) -> Any:
    """The same once the coordinator has verified that the batches are part of a transaction."""
    from sparkraft.server.api.k00_transactional import verified  # with the first transaction

    transactional_id = request.transactional_id
    if transactional_id is None or not context.is_allowed(
        AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, transactional_id
    ):
        raise denied(AclResourceType.TRANSACTIONAL_ID)
    turn = broker.env.turn(broker.env.work_max.partitions)
    may_be_fast = _may_be_fast(broker, context.api_version, request)
    async with broker.verification.lock_of(_producer_of(request)):
        check = await verified(broker, context, request, partial(_name_of, broker))
        waits: list[Wait] = []
        response = await turn.carry_out(_append_all(broker, context, request, waits, check))
        if may_be_fast:
            _maybe_learn(broker, context, request, response, waits)
        for _, _, has_ended in waits:
            if has_ended is not None:  # else a later request of this producer might overtake it
                await asyncio.wait([has_ended])
    return await _answer_later(broker, context, request.acks, response, waits)


def _may_be_fast(broker: "BrokerServices", version: int, request: ProduceRequest) -> bool:
    """Whether a transactional request would be fast if its shape were known."""
    if len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) != 1:
        return False
    topic = request.topic_data[0]
    part: Any = topic.partition_data[0]
    name = _name_of(broker, topic, version)
    partition = None if name is None else broker.replica_manager.hosted(name, part.index)
    return (
        partition is not None
        and _is_transactional(part)
        and _is_verified(broker, version, request.transactional_id, partition, part.records)
    )


def _is_verified(
    broker: "BrokerServices",
    version: int,
    transactional_id: str | None,
    partition: "HostedPartition",
    records: memoryview,
) -> bool:
    """Whether a batch belongs to an open transaction, as far as that is known at once."""
    return transactional_id is not None and broker.verification.is_known(
        partition,
        transactional_id,
        *_PRODUCER.unpack_from(records, PRODUCER_ID_AT),
        adds=version >= PRODUCE_ADDS_FROM,
    )


def _producer_of(request: ProduceRequest) -> int:
    """The producer id of the request's batches, which are of one producer."""
    for topic in request.topic_data:
        for part in topic.partition_data:
            records: Any = part.records
            if records is not None and len(records) >= BATCH_OVERHEAD:
                return BatchHeader._make(HEADER.unpack_from(records)).producer_id
    return NO_PRODUCER_ID


def _append_all(
    broker: "BrokerServices",
    context: RequestContext,
    request: ProduceRequest,
    waits: list[Wait],
    check: Check | None = None,
) -> "Generator[int, None, ProduceResponse]":
    response = ProduceResponse()
    for topic in request.topic_data:
        name = _name_of(broker, topic, context.api_version)
        answers: list[PartitionProduceResponse] = []
        response.responses.append(
            TopicProduceResponse(
                name=name or topic.name, topic_id=topic.topic_id, partition_responses=answers
            )
        )
        may_write = name is None or context.is_allowed(
            AclOperation.WRITE, AclResourceType.TOPIC, name
        )
        for part in topic.partition_data:
            if may_write:
                answer = _append(broker, context, request, name, topic.topic_id, part, waits, check)
            else:
                answer = _denied(part)
            answers.append(answer)
            yield _units_of(part.records)
        yield 1
    return response


def _units_of(records: Any) -> int:
    """Units of work of an append: 25 µs, 1 ns a byte, and at most 0.2 µs a record."""
    if records is None or len(records) < BATCH_OVERHEAD:
        return APPEND_UNITS
    size = len(records)
    count = int.from_bytes(records[COUNT_AT:BATCH_OVERHEAD], "big")
    return APPEND_UNITS + (size >> 12) + min(count, size // RECORD_BYTES_MIN) // RECORDS_PER_UNIT


def _has_transactional_batch(request: ProduceRequest) -> "Generator[int, None, bool]":
    for topic in request.topic_data:
        for at in range(0, len(topic.partition_data), CHUNK):
            part = topic.partition_data[at : at + CHUNK]
            if any(map(_is_transactional, part)):
                return True
            yield len(part) // 16
        yield 1
    return False


def _is_transactional(partition: PartitionProduceData) -> bool:
    records: Any = partition.records
    return (
        records is not None
        and len(records) >= BATCH_OVERHEAD
        and bool(records[ATTRIBUTES_AT + 1] & TRANSACTIONAL_BIT)
    )


def _name_of(broker: "BrokerServices", topic: Any, version: int) -> str | None:
    """The topic's name; None if its id is unknown."""
    if version < _IDS_VERSION:
        return str(topic.name)
    known = broker.image.topics_by_id.get(topic.topic_id)
    return None if known is None else known.name


def _append(  # noqa: PLR0913, PLR0917 (one partition of a request, in its context)
    broker: "BrokerServices",
    context: RequestContext,
    request: ProduceRequest,
    name: str | None,
    topic_id: bytes,
    part: Any,
    waits: list[Wait],
    check: Check | None,
) -> PartitionProduceResponse:
    answer = PartitionProduceResponse(index=part.index)
    acks = request.acks
    partition: HostedPartition | None = None
    place = (topic_id if context.api_version >= _IDS_VERSION else name, part.index)
    if refusals := context.connection.pipelined_refusals:
        earlier = refusals.get(place) or refusals.get(EVERYTHING)
    else:
        earlier = None
    if earlier is not None:
        _refuse_partition(answer, earlier)
        broker.replica_manager.traffic.on_error(ApiKey.PRODUCE, answer.error_code)
        return answer
    try:
        partition = _partition(broker, context, name, topic_id, part, acks)
        if broker.replica_manager.must_queue(partition, part.records):
            refuse = partial(_on_refused, broker, context, place, partition, part.records, answer)
            ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            one = QueuedAppend(
                part.records,
                acks=acks,
                sender=context.connection,
                check=check,
                on_ended=partial(_on_ended, partition, request, answer, refuse, ended),
            )
            broker.replica_manager.append_in_order(partition, one)
            waits.append((answer, ended, one.has_ended))
            return answer
        if check is not None:
            check(partition, part.records)
        info = broker.replica_manager.append_to(
            partition, part.records, acks=acks, origin=Origin.CLIENT
        )
    except KafkaError as error:
        _on_refused(broker, context, place, partition, part.records, answer, error)
        return answer
    durable = _when_durable(partition, info, answer, request)
    if durable is not None:
        waits.append((answer, durable, None))
    return answer


def _on_refused(  # noqa: PLR0913, PLR0917 (one partition of a request, in its context)
    broker: "BrokerServices",
    context: RequestContext,
    place: Any,
    partition: "HostedPartition | None",
    records: Any,
    answer: PartitionProduceResponse,
    error: KafkaError,
) -> None:
    _refuse_partition(answer, error)
    broker.replica_manager.traffic.on_error(ApiKey.PRODUCE, answer.error_code)
    if partition is not None:
        _count_refusal(partition.traffic, records, error)
    if error.code in RETRIABLE_ERRORS:
        context.refuse_pipelined_after(place, error)
    # Kafka's ReplicaManager returns the expected errors without the log start offset.
    has_log_start = error.code not in EXPECTED_REFUSALS
    if partition is not None and has_log_start and not isinstance(error, NotVerifiedError):
        answer.log_start_offset = partition.log.log_start_offset


def _count_refusal(traffic: "TopicTraffic", records: Any, error: KafkaError) -> None:
    keyless = 0
    if isinstance(error, RefusedRecords):
        keyless = sum(text == KEYLESS for _, text in error.record_errors)
    traffic.on_refused(len(records), error.code, keyless=keyless)


def _when_durable(
    partition: "HostedPartition",
    info: "AppendInfo",
    answer: PartitionProduceResponse,
    request: ProduceRequest,
) -> "asyncio.Future[None] | None":
    """Fill in the answer of an append; a future if it may not be sent yet."""
    answer.base_offset = info.base_offset
    answer.log_append_time_ms = info.log_append_time
    answer.log_start_offset = info.log_start_offset
    try:
        return partition.durable(info, acks=request.acks, timeout_ms=request.timeout_ms)
    except KafkaError as error:  # the ISR has shrunk since the first check
        _refuse_partition(answer, error)
        return None


def _on_ended(  # noqa: PLR0913, PLR0917 (of one partition of a request, in its context)
    partition: "HostedPartition",
    request: ProduceRequest,
    answer: PartitionProduceResponse,
    refuse: Callable[[KafkaError], None],
    ended: "asyncio.Future[None]",
    info: "AppendInfo | None",
    error: Exception | None,
) -> None:
    """Fill in the answer of a batch that was queued; `ended` when it may be sent."""
    durable = None
    if info is not None:
        durable = _when_durable(partition, info, answer, request)
    elif isinstance(error, KafkaError):
        refuse(error)
    if durable is not None:
        durable.add_done_callback(partial(_pass_on, ended))
    elif not ended.done():
        if error is None or isinstance(error, KafkaError):
            ended.set_result(None)
        else:
            ended.set_exception(error)


def _pass_on(ended: "asyncio.Future[None]", durable: "asyncio.Future[None]") -> None:
    """End `ended` as `durable` did."""
    error = durable.exception()
    if ended.done():
        return
    if error is None:
        ended.set_result(None)
    else:
        ended.set_exception(error)


def _partition(
    broker: "BrokerServices",
    context: RequestContext,
    name: str | None,
    topic_id: bytes,
    part: Any,
    acks: int,
) -> "HostedPartition":
    """The partition to append to, after the checks that do not need its log."""
    if name is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    if broker.image.topics_by_name.get(name) is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    check_request_records(part.records, context.api_version)
    if acks not in {-1, 0, 1}:
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
    if name in INTERNAL_TOPICS and context.client_id != _ADMIN_CLIENT_ID:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {name}"
        )
    return broker.replica_manager.leader(name, part.index)


def _denied(part: Any) -> PartitionProduceResponse:
    answer = PartitionProduceResponse(index=part.index)
    _refuse_partition(answer, denied(AclResourceType.TOPIC))
    return answer


def _refuse_partition(answer: PartitionProduceResponse, error: KafkaError) -> None:
    answer.error_code = int(error.code)
    answer.base_offset = -1
    answer.log_start_offset = -1
    answer.error_message = error.detail or None
    for index, text in getattr(error, "record_errors", None) or ():
        answer.record_errors.append(
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=text)
        )


async def _answer_later(
    broker: "BrokerServices",
    context: RequestContext,
    acks: int,
    response: ProduceResponse,
    waits: list[Wait],
) -> Any:
    turn = broker.env.turn(broker.env.work_max.partitions)
    for answer, durable, has_ended in waits:
        try:
            # Shielded: one fsync may serve several requests. That of a queued batch is ours alone.
            await (asyncio.shield(durable) if has_ended is None else durable)
        except KafkaError as error:
            _refuse_partition(answer, error)
        if turn.is_over(1):
            await turn.next()
    return await turn.carry_out(_finish(broker, context, acks, response))


def _finish(
    broker: "BrokerServices", context: RequestContext, acks: int, response: ProduceResponse
) -> Steps:
    """The response, encoded if it is large; None without acks."""
    version = context.api_version
    count = 0
    for topic in response.responses:
        parts = topic.partition_responses
        for at in range(0, len(parts), CHUNK):
            chunk = parts[at : at + CHUNK]
            failed = [part for part in chunk if part.error_code]
            if failed and acks == 0:
                context.connection.close("a produce request with acks=0 failed")
                return None
            if version >= _HINTS_VERSION:
                _add_hints(broker.image, context.listener_name, response, topic.name, failed)
            yield (len(chunk) >> 4) + len(failed)
        count += len(parts) + 1
    if acks == 0:
        return None
    return (yield from _encoded(response, version)) if count > CHUNK else response


def _encoded(response: ProduceResponse, version: int) -> "Generator[int, None, ProduceResponse]":
    """The response to a request for very many partitions, whose results are encoded."""
    for topic in response.responses:
        topic.partition_responses = yield from encoded_and_released(
            ProduceResponse, version, topic.partition_responses
        )
    response.responses = yield from encoded_in_pieces(ProduceResponse, version, response.responses)
    return response


def _add_hints(
    image: "ClusterImage",
    listener: str,
    response: ProduceResponse,
    topic: str,
    failed: "Iterable[PartitionProduceResponse]",
) -> None:
    """Add the right leader and its endpoint on `listener` to errors about a wrong one."""
    for part in failed:
        if part.error_code in _LEADER_ERRORS:
            topic_id = image.topics_by_name.get(topic) or Uuid.ZERO
            leader, epoch = leader_hint(image, topic_id, part.index)
            part.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
            add_node_endpoint(image, response.node_endpoints, NodeEndpoint, leader, listener)


def refuse(_: type, request: ProduceRequest, version: int, error: KafkaError) -> Steps:
    """Every partition with the request's error; with acks 0 the connection is closed instead."""
    if request.acks == 0:
        raise NoResponseError
    return _refused(request, version, error)


def _refused(
    request: ProduceRequest, version: int, error: KafkaError
) -> "Generator[int, None, ProduceResponse]":
    response = ProduceResponse()
    for topic in request.topic_data:
        answers: list[PartitionProduceResponse] = []
        for part in topic.partition_data:
            answer = PartitionProduceResponse(index=part.index)
            _refuse_partition(answer, error)
            answers.append(answer)
            yield 1
        response.responses.append(
            TopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id, partition_responses=answers
            )
        )
        yield 1
    return (yield from _encoded(response, version))


# ---- the common case, without messages


_FLEXIBLE_VERSION = 9
_TAIL = b"\0\0\0"
"""Bytes after the records of a flexible version: no tagged fields, three times."""

_CONTINUES = 0x80
"""A byte of a varint from this on is not its last one."""

_LENGTH_BITS_MAX = 35
"""Seven for each of at most five bytes."""

_OFFSETS = Struct(">qqq")
_PRODUCER = Struct(">qh")
_LENGTH = Struct(">i")


def fast(broker: "BrokerServices", version: int, body: memoryview, session: "Session") -> Any:
    """The response to a request of a known shape; None for any other, which may become known.

    Only for sessions that are `is_unhindered`. Their authorizer decides on each request: shapes are
    kept per principal, but its entries change, and depend on the client's address.
    """
    known = broker.produce_shapes
    for size in known.sizes.get(version, ()):
        shape = known.shapes.get(session.cache_tag + VERSION_BYTES[version] + body[:size])
        if shape is not None:
            break
    else:
        return None
    records = _records_of(body, size, flexible=version >= _FLEXIBLE_VERSION)
    partition = shape.partition
    if records is None or not partition.is_leader:
        return None
    if (
        version < _ZSTD_VERSION
        or len(records) <= BATCH_OVERHEAD
        or not (session.authorizer.allows_all or _may_write(session, shape))
        or broker.replica_manager.must_queue(partition, records)
        or (
            (shape.transactional_id is not None or records[ATTRIBUTES_AT + 1] & TRANSACTIONAL_BIT)
            and not _is_verified(broker, version, shape.transactional_id, partition, records)
        )
    ):
        return None
    try:
        info = broker.replica_manager.append_to(
            partition, records, acks=shape.acks, origin=Origin.CLIENT
        )
    except KafkaError:
        return None  # the long path meets the same error, and makes the full response
    answer = shape.head + _OFFSETS.pack(info[0], info[2], info[3]) + shape.tail
    if shape.acks != -1 and not info.needs_fsync:
        return answer
    return _fast_when_durable(info, answer, shape, version, session.listener_name)


def _may_write(session: "Session", shape: ProduceShape) -> bool:
    """Whether the session may write now; if not, the long path denies it, and logs that."""
    allows, write = session.authorizer.authorize, AclOperation.WRITE
    name = shape.transactional_id
    try:
        return allows(session, write, AclResourceType.TOPIC, shape.partition.topic) and (
            name is None or allows(session, write, AclResourceType.TRANSACTIONAL_ID, name)
        )
    except KafkaError:
        return False


def _fast_when_durable(
    info: "AppendInfo", answer: bytes, shape: ProduceShape, version: int, listener: str
) -> Any:
    try:
        durable = shape.partition.durable(info, acks=shape.acks, timeout_ms=shape.timeout_ms)
    except KafkaError as error:
        return _fast_refusal(error, shape, version, listener)
    return answer if durable is None else _fast_later(durable, answer, shape, version, listener)


def _fast_later(
    durable: "asyncio.Future[None]", answer: bytes, shape: ProduceShape, version: int, listener: str
) -> "asyncio.Future[bytes]":
    """The response once `durable` ends. A callback: a task would cost more than the append."""
    later = durable.get_loop().create_future()

    def on_durable(done: "asyncio.Future[None]") -> None:
        if later.done():
            return
        error = done.exception()
        if isinstance(error, KafkaError):
            later.set_result(_fast_refusal(error, shape, version, listener))
        elif error is not None:
            later.set_exception(error)
        else:
            later.set_result(answer)

    durable.add_done_callback(on_durable)
    return later


def _fast_refusal(error: KafkaError, shape: ProduceShape, version: int, listener: str) -> bytes:
    partition = shape.partition
    refused = PartitionProduceResponse(index=partition.index)
    _refuse_partition(refused, error)
    topic = TopicProduceResponse(
        name=partition.topic, topic_id=partition.topic_id, partition_responses=[refused]
    )
    response = ProduceResponse(responses=[topic])
    if version >= _HINTS_VERSION:
        _add_hints(partition.host.image, listener, response, partition.topic, [refused])
    return encode(response, version)


def _records_of(body: memoryview, at: int, *, flexible: bool) -> memoryview | None:
    """The records of a one-batch request, whose length is at `at`; None for other requests."""
    if not flexible:
        if len(body) - at < _LENGTH.size or _LENGTH.unpack_from(body, at)[0] != len(body) - at - 4:
            return None
        return body[at + 4 :]
    end = len(body) - len(_TAIL)
    if end - at < BATCH_OVERHEAD:
        return None
    length = shift = 0
    byte = _CONTINUES
    while byte >= _CONTINUES and shift < _LENGTH_BITS_MAX:
        byte = body[at]
        at += 1
        length |= (byte & 0x7F) << shift
        shift += 7
    if length - 1 != end - at or body[end:] != _TAIL:
        return None
    return body[at:end]


def _maybe_learn(
    broker: "BrokerServices",
    context: RequestContext,
    request: ProduceRequest,
    response: ProduceResponse,
    waits: list[Wait],
) -> None:
    """Remember the shape of a request that was one batch for one partition and succeeded."""
    version, topic = context.api_version, request.topic_data[0]
    if request.acks == 0 or any(appended is not None for _, _, appended in waits):
        return
    part, answer = topic.partition_data[0], response.responses[0].partition_responses[0]
    name = response.responses[0].name
    if answer.error_code or name in INTERNAL_TOPICS or version < _ZSTD_VERSION:
        return
    partition = broker.replica_manager.hosted(name, part.index)
    if partition is None:
        return
    records, part.records = part.records, b""
    empty = encode(request, version)
    part.records = records
    flexible = version >= _FLEXIBLE_VERSION
    prefix = empty[: -1 - len(_TAIL)] if flexible else empty[: -_LENGTH.size]
    if not broker.produce_shapes.has_room(version, len(prefix)):
        return
    encoded = encode(response, version)
    offsets = _OFFSETS.pack(answer.base_offset, answer.log_append_time_ms, answer.log_start_offset)
    head, found, tail = encoded.rpartition(offsets)
    if found and offsets not in head:
        shape = ProduceShape(
            partition,
            acks=request.acks,
            timeout_ms=request.timeout_ms,
            transactional_id=request.transactional_id,
            head=head,
            tail=tail,
        )
        broker.produce_shapes.put(context.session, version, prefix, shape)


API = Api(
    key=ApiKey.PRODUCE,
    handle=handle,
    authorize=(
        on_each(AclOperation.WRITE, AclResourceType.TOPIC),
        on_each(
            AclOperation.WRITE,
            AclResourceType.TRANSACTIONAL_ID,
            when="it has a transactional batch",
        ),
    ),
    pipelined=True,
    refuse=refuse,
    fast=fast,
)
