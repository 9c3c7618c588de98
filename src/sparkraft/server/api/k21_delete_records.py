"""DeleteRecords: v0-2. Move a partition's log start offset up. (KIP-107)

Behaviour:
    * Answered once the log of every live replica begins there: REQUEST_TIMED_OUT after the
      request's timeout, NOT_LEADER_OR_FOLLOWER when leadership ends meanwhile.
    * Offset -1 is the high watermark; above it or below 0: OFFSET_OUT_OF_RANGE; at or below the log
      start: nothing happens. The answer carries the new low watermark, -1 beside an error.
    * Internal topics: INVALID_TOPIC_EXCEPTION. A topic whose cleanup.policy lacks `delete` and has
      `compact`: POLICY_VIOLATION.
    * Answered once the new log start is on disk here: a kill brings nothing back.
Versions: v2 flexible.    Not done: -
"""

from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.codec import encode_parts
from sparkraft.protocol.messages.k21_delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import on_each
from sparkraft.server.api.encoded_array import encoded_and_released, encoded_in_pieces
from sparkraft.server.api.item_errors import PartitionErrors, topic_denial
from sparkraft.server.api.registry import Api, RequestContext, Steps
from sparkraft.server.broker.cluster_view import INTERNAL_TOPICS
from sparkraft.server.controller.audit import Names, log_names
from sparkraft.storage.disk import StorageFault

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Generator

    from sparkraft.server.broker.partition import HostedPartition
    from sparkraft.server.broker_services import BrokerServices

Wait = tuple[DeleteRecordsPartitionResult, "HostedPartition", "asyncio.Future[None]"]

PARTITION_UNITS = 4
"""Units of work of one partition: 15 µs."""


def handle(
    broker: "BrokerServices", context: RequestContext, request: DeleteRecordsRequest
) -> Steps:
    """Delete from each partition; each has its own error. Returns the encoded response."""
    results: list[DeleteRecordsTopicResult] = []
    waits: list[Wait] = []
    for topic in request.topics:
        result = DeleteRecordsTopicResult(name=topic.name)
        results.append(result)
        yield from _delete_from(broker, context, topic, request.timeout_ms, result, waits)
    yield broker.replica_manager.keep_log_starts()
    for answer, partition, done in waits:
        try:
            if not done.done():
                yield done
            done.result()
            answer.low_watermark = partition.low_watermark
        except KafkaError as error:
            answer.error_code = int(error.code)
            answer.low_watermark = -1
        yield 1
    log_names(context, "deleted records of", (yield from _deleted(results)))
    return (yield from _encoded(results, context.api_version))


def _delete_from(
    broker: "BrokerServices",
    context: RequestContext,
    topic: DeleteRecordsTopic,
    timeout_ms: int,
    result: DeleteRecordsTopicResult,
    waits: list[Wait],
) -> "Generator[int, None, None]":
    denial = topic_denial(context, AclOperation.DELETE, topic.name)
    for part in topic.partitions:
        answer = DeleteRecordsPartitionResult(
            partition_index=part.partition_index, low_watermark=-1
        )
        result.partitions.append(answer)
        try:
            if denial is not None:
                raise denial
            partition = _partition(broker, topic.name, part.partition_index)
            done = _delete(broker, partition, part.offset, timeout_ms)
            if done is not None:
                waits.append((answer, partition, done))
            answer.low_watermark = partition.low_watermark
        except KafkaError as error:
            answer.error_code = int(error.code)
        yield PARTITION_UNITS
    yield 1


def _deleted(results: list[DeleteRecordsTopicResult]) -> "Generator[int, None, Names]":
    """The partitions whose records are deleted."""
    names = Names()
    for result in results:
        for answer in result.partitions:
            if not answer.error_code:
                at = f"{result.name}-{answer.partition_index}"
                names.add(f"{at} (below {answer.low_watermark})")
            yield 1
    return names


def _encoded(
    results: list[DeleteRecordsTopicResult], version: int
) -> "Generator[int, None, list[bytes | memoryview]]":
    for result in results:
        result.partitions = yield from encoded_and_released(
            DeleteRecordsResponse, version, result.partitions
        )
    topics = yield from encoded_in_pieces(DeleteRecordsResponse, version, results)
    return encode_parts(DeleteRecordsResponse(topics=topics), version)


def _partition(broker: "BrokerServices", topic: str, index: int) -> "HostedPartition":
    if broker.image.topic(topic) is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    partition = broker.replica_manager.leader(topic, index)
    policy = broker.replica_manager.topic_configs.of(broker.image, topic)["cleanup.policy"]
    if isinstance(policy, tuple) and policy and "delete" not in policy:
        raise KafkaError(ErrorCode.POLICY_VIOLATION)
    return partition


def _delete(
    broker: "BrokerServices", partition: "HostedPartition", offset: int, timeout_ms: int
) -> "asyncio.Future[None] | None":
    try:
        return partition.delete_records(offset, timeout_ms)
    except StorageFault as fault:
        raise broker.replica_manager.on_disk_error(fault, partition) from fault


_ERRORS = PartitionErrors(
    partition=lambda one, code: DeleteRecordsPartitionResult(
        partition_index=one.partition_index, low_watermark=-1, error_code=code
    ),
    topic=lambda topic, found: DeleteRecordsTopicResult(name=topic.name, partitions=found),
    response=lambda topics: DeleteRecordsResponse(topics=topics),
)


API = Api(
    key=ApiKey.DELETE_RECORDS,
    handle=handle,
    authorize=(on_each(AclOperation.DELETE, AclResourceType.TOPIC),),
    refuse=_ERRORS.refuse,
)
