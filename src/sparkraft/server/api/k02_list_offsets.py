"""ListOffsets: v1-11. Which offset is the first, the last, or of a time? (KIP-79, KIP-734)

Behaviour:
    * Timestamps -1 latest, -2 earliest, -3 of the largest timestamp (v7), -4 earliest local (v8),
      -5 latest tiered (v9) and -6 earliest pending upload (v11): the last two are -1, as nothing is
      tiered. An unknown one, or one too new for the version: UNSUPPORTED_VERSION.
    * A new leader whose high watermark is below its epoch's start returns OFFSET_NOT_AVAILABLE to
      clients for the latest offset, and for a timestamp whose record is not committed yet
      (KIP-207; before v5 it is LEADER_NOT_AVAILABLE).
    * A timestamp later than every record: offset -1, timestamp -1, no error.
    * A partition named twice: INVALID_REQUEST for it.
Versions: v2 isolation level; v4 leader epochs; v6 flexible; v10 timeout.    Not done: -
"""

from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.codec import encode_parts
from sparkraft.protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import on_each
from sparkraft.server.api.encoded_array import CHUNK, EncodedArray
from sparkraft.server.api.item_errors import PartitionErrors
from sparkraft.server.api.registry import Api, RequestContext, Steps
from sparkraft.storage.disk import StorageFault

if TYPE_CHECKING:
    from sparkraft.server.broker.partition import HostedPartition
    from sparkraft.server.broker_services import BrokerServices

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = (
    -1,
    -2,
    -3,
    -4,
    -5,
    -6,
)

UNITS_OF_SEARCH = 25
"""A search by time reads an index and a batch: 100 µs."""

_NOT_AVAILABLE = 5
"""The first version whose clients know OFFSET_NOT_AVAILABLE."""

_FIRST_VERSION = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING: 11,
}


def handle(broker: "BrokerServices", context: RequestContext, request: ListOffsetsRequest) -> Steps:
    """Look up each partition; errors are per partition. Returns the encoded response."""
    version = context.api_version
    seen: set[tuple[str, int]] = set()
    repeated: set[tuple[str, int]] = set()
    for number, (name, index) in enumerate(
        (topic.name, part.partition_index) for topic in request.topics for part in topic.partitions
    ):
        (repeated if (name, index) in seen else seen).add((name, index))
        if number % CHUNK == CHUNK - 1:
            yield CHUNK // 5
    topics = EncodedArray(ListOffsetsResponse, version)
    for topic in request.topics:
        allowed = context.is_allowed(AclOperation.DESCRIBE, AclResourceType.TOPIC, topic.name)
        answers = EncodedArray(ListOffsetsResponse, version)
        for part in topic.partitions:
            answer = ListOffsetsPartitionResponse(partition_index=part.partition_index)
            if not allowed:
                answer.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif (topic.name, part.partition_index) in repeated:
                answer.error_code = ErrorCode.INVALID_REQUEST
            else:
                try:
                    _fill(broker, context, request, topic.name, part, answer)
                except KafkaError as error:
                    answer.error_code = error.code
            answers.add(answer)
            yield UNITS_OF_SEARCH if part.timestamp >= 0 else 1
        topics.add(ListOffsetsTopicResponse(name=topic.name, partitions=answers.encoded()))
        yield 1
    return encode_parts(ListOffsetsResponse(topics=topics.encoded()), version)


def _fill(
    broker: "BrokerServices",
    context: RequestContext,
    request: ListOffsetsRequest,
    topic: str,
    part: ListOffsetsPartition,
    answer: ListOffsetsPartitionResponse,
) -> None:
    if part.timestamp < 0 and context.api_version < _FIRST_VERSION.get(part.timestamp, 1 << 15):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    partition = broker.replica_manager.leader(topic, part.partition_index)
    partition.check_epoch(part.current_leader_epoch)
    try:
        found = _find(partition, request, part.timestamp)
    except KafkaError as error:
        if error.code == ErrorCode.OFFSET_NOT_AVAILABLE and context.api_version < _NOT_AVAILABLE:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, error.detail) from error
        raise
    except StorageFault as fault:
        raise broker.replica_manager.on_disk_error(fault, partition) from fault
    if found is not None:
        answer.timestamp, answer.offset, answer.leader_epoch = found
        if context.api_version < 4:  # noqa: PLR2004 (no leader epochs before)
            answer.leader_epoch = -1


def _find(
    partition: "HostedPartition", request: ListOffsetsRequest, timestamp: int
) -> tuple[int, int, int] | None:
    """Timestamp, offset and leader epoch; None if there is no such record."""
    log: Any = partition.log
    end = partition.visible_end(isolation=request.isolation_level, replica=request.replica_id >= 0)
    is_client = request.replica_id < 0
    if timestamp == LATEST:
        if is_client:
            partition.check_caught_up()
        return -1, end, partition.leader_epoch
    if timestamp in {EARLIEST, EARLIEST_LOCAL}:
        epoch = log.epoch_of(log.log_start_offset)
        return -1, log.log_start_offset, -1 if epoch is None else epoch
    if timestamp in {LATEST_TIERED, EARLIEST_PENDING}:
        return -1, -1, -1
    found: tuple[int, int, int] | None
    if timestamp == MAX_TIMESTAMP:
        found = log.offset_of_max_timestamp()
    else:
        found = log.offset_for_timestamp(timestamp, up_to=log.log_end_offset)
    if found is not None and found[1] < end:
        return found
    if is_client:
        partition.check_caught_up()
    return None


_ERRORS = PartitionErrors(
    partition=lambda one, code: ListOffsetsPartitionResponse(
        partition_index=one.partition_index, error_code=code
    ),
    topic=lambda topic, found: ListOffsetsTopicResponse(name=topic.name, partitions=found),
    response=lambda topics: ListOffsetsResponse(topics=topics),
)


API = Api(
    key=ApiKey.LIST_OFFSETS,
    handle=handle,
    authorize=(on_each(AclOperation.DESCRIBE, AclResourceType.TOPIC),),
    refuse=_ERRORS.refuse,
)
