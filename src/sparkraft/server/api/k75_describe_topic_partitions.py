"""DescribeTopicPartitions: v0. Topics with their ELR, page by page. (KIP-966)

Behaviour:
    * No topics: all of them. Topics come sorted by name, from the cursor's on; a request that lists
      topics must list the cursor's, else INVALID_REQUEST.
    * At most `response_partition_limit` partitions (at most max.request.partition.size.limit), then
      a cursor to continue from.
    * Unknown topics: UNKNOWN_TOPIC_OR_PARTITION, invalid names: INVALID_TOPIC_EXCEPTION.
Versions: v0.    Not done: -
"""

from bisect import bisect_left
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.placeholder_ids import wire_id
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k75_describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import on_each
from sparkraft.server.api.authorized_operations import topic_operations
from sparkraft.server.api.encoded_array import CHUNK, encoded_in_pieces
from sparkraft.server.api.registry import Api, RequestContext, Steps
from sparkraft.server.broker.cluster_view import (
    INTERNAL_TOPICS,
    leaderless_error,
    live_endpoint,
    offline_replicas,
    topic_name_problem,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from sparkraft.metadata.image import ClusterImage, Topic
    from sparkraft.metadata.partition_state import PartitionState
    from sparkraft.server.broker_services import BrokerServices

_NEWEST_METADATA = 13
_DESCRIBE = AclOperation.DESCRIBE


def handle(
    broker: "BrokerServices", context: RequestContext, request: DescribeTopicPartitionsRequest
) -> Steps:
    """Describe one page."""
    image = broker.image
    limit = min(
        request.response_partition_limit,
        broker.config.number("max.request.partition.size.limit"),
    )
    left = max(limit, 1)
    response = DescribeTopicPartitionsResponse()
    names, hidden = yield from _visible_names(broker, context, request)
    for name in names:
        if left == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = image.topic(name)
        if topic is None:
            if request.topics:
                response.topics.append(_unknown(context, name))
            yield 1
            continue
        start = 0
        if request.cursor is not None and request.cursor.topic_name == name:
            start = request.cursor.partition_index
        answer = _topic(image, topic, context, range(start, start + left))
        yield len(answer.partitions) + 1
        response.topics.append(answer)
        if start + left < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=start + left)
            break
        left -= len(answer.partitions)
    if request.topics:
        response.topics += [_denied(name) for name in hidden]
    return response


def _visible_names(
    broker: "BrokerServices", context: RequestContext, request: DescribeTopicPartitionsRequest
) -> "Generator[int, None, tuple[Sequence[str], list[str]]]":
    """The names from the cursor's on, sorted: those the client may see, and the others."""
    names = yield from _names(broker, request)
    if context.session.authorizer.allows_all:
        return names, []
    visible: list[str] = []
    hidden: list[str] = []
    is_named = bool(request.topics)
    for name in names:
        allowed = context.is_allowed(_DESCRIBE, AclResourceType.TOPIC, name, logs=is_named)
        (visible if allowed else hidden).append(name)
        yield 1
    return visible, hidden


def _names(
    broker: "BrokerServices", request: DescribeTopicPartitionsRequest
) -> "Generator[int, None, Sequence[str]]":
    """The names from the cursor's on, sorted."""
    cursor = request.cursor
    first = cursor.topic_name if cursor is not None else ""
    listed: dict[str, None] = {}
    for topic in request.topics:
        listed[topic.name] = None
        if len(listed) % CHUNK == 0:
            yield CHUNK // 5
    if cursor is not None:
        if listed and cursor.topic_name not in listed:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "DescribeTopicPartitionsRequest topic list should contain the cursor topic: "
                + first,
            )
        if cursor.partition_index < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the cursor's partition is negative")
    names = sorted(listed) if listed else broker.metadata.topic_names(broker.image)
    return names[bisect_left(names, first) :]


def _denied(name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name
    )


def _unknown(context: RequestContext, name: str) -> DescribeTopicPartitionsResponseTopic:
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic_name_problem(name) is not None:
        error = ErrorCode.INVALID_TOPIC_EXCEPTION
    return DescribeTopicPartitionsResponseTopic(
        error_code=error,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=topic_operations(context, name),
    )


def _topic(
    image: "ClusterImage", topic: "Topic", context: RequestContext, indexes: range
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=wire_id(topic.id),
        is_internal=topic.name in INTERNAL_TOPICS,
        topic_authorized_operations=topic_operations(context, topic.name),
        partitions=[
            _partition(image, index, topic.partitions[index], context.listener_name)
            for index in indexes
            if index in topic.partitions
        ],
    )


def _partition(
    image: "ClusterImage", index: int, partition: "PartitionState", listener: str
) -> DescribeTopicPartitionsResponsePartition:
    leader, error = partition.leader, ErrorCode.NONE
    if live_endpoint(image, leader, listener) is None:
        error = leaderless_error(image, leader, version=_NEWEST_METADATA)
        leader = -1
    return DescribeTopicPartitionsResponsePartition(
        error_code=error,
        partition_index=index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.elr),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=offline_replicas(image, partition, listener),
    )


def refuse(_: type, request: Any, version: int, error: KafkaError) -> Steps:
    """Every listed topic with the request's error."""
    topics = (
        DescribeTopicPartitionsResponseTopic(error_code=error.code, name=topic.name)
        for topic in request.topics
    )
    encoded = yield from encoded_in_pieces(DescribeTopicPartitionsResponse, version, topics)
    return DescribeTopicPartitionsResponse(topics=encoded)


API = Api(
    key=ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    handle=handle,
    authorize=(on_each(AclOperation.DESCRIBE, AclResourceType.TOPIC),),
    refuse=refuse,
)
