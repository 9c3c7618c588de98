"""Produce: v3-13. Append record batches, one per partition. (KIP-98, KIP-360, KIP-951, KIP-516)

Behaviour:
    * acks 0: no answer; an error closes the connection, so that the client learns of it. acks 1
      and -1: answered once the batch is below the high watermark (and on disk where the topic's
      flush.messages asks for it). Other acks: INVALID_REQUIRED_ACKS.
    * Errors stand per partition; from v10 a wrong leader comes with the right one's address.
    * Batches are checked by their header and CRC (`sparkraft.record.validation=full`: each record).
    * Internal topics refuse clients other than `__admin_client`: INVALID_TOPIC_EXCEPTION.
Versions: v5 log_start_offset; v7 zstd; v8 record errors; v9 flexible; v10 leader hints; v12
    transactions v2; v13 topic ids. Advertised from v0, as librdkafka needs (KAFKA-18659).
Not done: transactions: a transactional batch or id is TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which
    every client takes as fatal.
"""

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k00_produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from sparkraft.records.batch import ATTRIBUTES_AT, BATCH_OVERHEAD, TRANSACTIONAL_BIT
from sparkraft.records.validate import Origin, check_request_records
from sparkraft.server.api.registry import Api, RequestContext
from sparkraft.server.broker.cluster_view import INTERNAL_TOPICS, add_node_endpoint, leader_hint

if TYPE_CHECKING:
    from sparkraft.server.broker import Broker
    from sparkraft.server.broker.partition import HostedPartition

_IDS_VERSION = 13
_HINTS_VERSION = 10
_ADMIN_CLIENT_ID = "__admin_client"
_LEADER_ERRORS = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})

Wait = tuple[PartitionProduceResponse, "asyncio.Future[None]"]


def handle(
    broker: "Broker", context: RequestContext, request: ProduceRequest
) -> ProduceResponse | Awaitable[ProduceResponse | None] | None:
    """Append every partition's batch, then answer or wait as `acks` asks."""
    if request.transactional_id is not None or _has_transactional_batch(request):
        raise KafkaError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactions are not supported yet"
        )
    response = ProduceResponse()
    waits: list[Wait] = []
    for topic in request.topic_data:
        name = _name_of(broker, topic, context.api_version)
        answers = [
            _append(broker, context, request.acks, name, topic.topic_id, part, waits)
            for part in topic.partition_data
        ]
        response.responses.append(
            TopicProduceResponse(
                name=name or topic.name, topic_id=topic.topic_id, partition_responses=answers
            )
        )
    if waits:
        return _answer_later(broker, context, request.acks, response, waits)
    return _finish(broker, context, request.acks, response)


def _has_transactional_batch(request: ProduceRequest) -> bool:
    for topic in request.topic_data:
        for partition in topic.partition_data:
            records: Any = partition.records
            if (
                records is not None
                and len(records) >= BATCH_OVERHEAD
                and records[ATTRIBUTES_AT + 1] & TRANSACTIONAL_BIT
            ):
                return True
    return False


def _name_of(broker: "Broker", topic: Any, version: int) -> str | None:
    """The topic's name; None where its id is unknown."""
    if version < _IDS_VERSION:
        return str(topic.name)
    known = broker.image.topics_by_id.get(topic.topic_id)
    return None if known is None else known.name


def _append(  # noqa: PLR0913, PLR0917 (one partition of a request, in its context)
    broker: "Broker",
    context: RequestContext,
    acks: int,
    name: str | None,
    topic_id: bytes,
    part: Any,
    waits: list[Wait],
) -> PartitionProduceResponse:
    answer = PartitionProduceResponse(index=part.index)
    try:
        partition = _partition(broker, context, name, topic_id, part, acks)
        info = broker.replica_manager.append_to(
            partition, part.records, acks=acks, origin=Origin.CLIENT
        )
    except KafkaError as error:
        _refuse_partition(answer, error)
        return answer
    answer.base_offset = info.base_offset
    answer.log_append_time_ms = info.log_append_time
    answer.log_start_offset = info.log_start_offset
    durable = partition.durable(info, acks=acks)
    if durable is not None:
        waits.append((answer, durable))
    return answer


def _partition(
    broker: "Broker",
    context: RequestContext,
    name: str | None,
    topic_id: bytes,
    part: Any,
    acks: int,
) -> "HostedPartition":
    """The partition to append to, after the checks that don't need its log."""
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
    broker: "Broker",
    context: RequestContext,
    acks: int,
    response: ProduceResponse,
    waits: list[Wait],
) -> ProduceResponse | None:
    for answer, durable in waits:
        try:
            # Shielded: one fsync may serve several requests, and only this one is ours.
            await asyncio.shield(durable)
        except KafkaError as error:
            _refuse_partition(answer, error)
    return _finish(broker, context, acks, response)


def _finish(
    broker: "Broker", context: RequestContext, acks: int, response: ProduceResponse
) -> ProduceResponse | None:
    if acks == 0:
        if any(p.error_code for topic in response.responses for p in topic.partition_responses):
            context.connection.close("a produce request with acks=0 failed")
        return None
    if context.api_version >= _HINTS_VERSION:
        _add_hints(broker, context, response)
    return response


def _add_hints(broker: "Broker", context: RequestContext, response: ProduceResponse) -> None:
    """Tell clients of a wrong leader who the right one is (KIP-951)."""
    for topic in response.responses:
        for part in topic.partition_responses:
            if part.error_code not in _LEADER_ERRORS:
                continue
            topic_id = broker.topic_id(topic.name) or Uuid.ZERO
            leader, epoch = leader_hint(broker.image, topic_id, part.index)
            part.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
            add_node_endpoint(
                broker.image, response.node_endpoints, NodeEndpoint, leader, context.listener_name
            )


def refuse(_: type, request: ProduceRequest, version: int, error: KafkaError) -> Any:
    """Every partition with the request's error."""
    response = ProduceResponse()
    for topic in request.topic_data:
        answers = []
        for part in topic.partition_data:
            answer = PartitionProduceResponse(index=part.index)
            _refuse_partition(answer, error)
            answers.append(answer)
        response.responses.append(
            TopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id, partition_responses=answers
            )
        )
    return response


API = Api(key=ApiKey.PRODUCE, handle=handle, pipelined=True, refuse=refuse)
