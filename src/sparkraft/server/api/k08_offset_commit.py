"""OffsetCommit: v2-10. Store a group's offsets. (KIP-211, KIP-320, KIP-345, KIP-848)

Behaviour:
    * From a member: its id and generation must be current (UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION,
      FENCED_INSTANCE_ID), and the group not between join and sync (REBALANCE_IN_PROGRESS).
    * From a member of a consumer group (v9+, else UNSUPPORTED_VERSION): its epoch, or an older one
      in which it held all these partitions (KIP-1251); else STALE_MEMBER_EPOCH for all of them.
    * Without a member (generation -1): only while the group is empty; creates it if needed.
    * Topics and partitions must exist: UNKNOWN_TOPIC_OR_PARTITION, by id UNKNOWN_TOPIC_ID. Those
      that do not keep that error if the group rejects the rest.
    * Metadata longer than offset.metadata.max.bytes: OFFSET_METADATA_TOO_LARGE for the partition.
    * The response is sent once the offsets are committed to `__consumer_offsets`.
Versions: v2-4 have a retention time; v6 leader epochs; v7 static members; v8 flexible;
    v9 GROUP_ID_NOT_FOUND for an unknown group; v10 topic ids.    Not done: -
"""

from collections.abc import Awaitable, Generator, Iterable
from typing import TYPE_CHECKING, Any, cast

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.base.placeholder_ids import wire_id
from sparkraft.coordinator.group.decision import Peer
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.codec import encode_parts
from sparkraft.protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import on_each, on_group
from sparkraft.server.api.encoded_array import CHUNK, encoded_in_pieces
from sparkraft.server.api.registry import Api, RequestContext, Steps, result_of
from sparkraft.server.coordinator.requests import peer_of
from sparkraft.server.coordinator.responses import Response, catch_error, map_response

if TYPE_CHECKING:
    from sparkraft.metadata.image import ClusterImage, Topic
    from sparkraft.server.broker_services import BrokerServices

_BY_ID_FROM = 10


def handle(
    broker: "BrokerServices", context: RequestContext, request: OffsetCommitRequest
) -> Response[OffsetCommitResponse] | Steps:
    """Check topics against the image, then let the group's shard decide."""
    steps = _check_topics(broker.image, context, request.topics)
    if sum(len(topic.partitions) + 1 for topic in request.topics) > CHUNK:
        return _handle_large(broker, context, request, steps)
    accepted, refused = result_of(steps)
    if not accepted:
        return OffsetCommitResponse(topics=refused)
    request.topics = accepted
    if not refused:
        return commit(broker, peer_of(context), request)
    # As in Kafka's OffsetCommitResponse.Builder, an error of the group leaves theirs to the others.
    response = catch_error(
        lambda: commit(broker, peer_of(context), request),
        lambda error: OffsetCommitResponse(
            topics=[
                _answer(topic, result_of(_refused(topic.partitions, error.code)))
                for topic in request.topics
            ]
        ),
    )
    return map_response(response, lambda one: _merged(refused, one))


def _handle_large(
    broker: "BrokerServices",
    context: RequestContext,
    request: OffsetCommitRequest,
    steps: "Generator[int, None, _Checked]",
) -> Steps:
    """The same in slices; returns the encoded response."""
    accepted, refused = yield from steps
    response = OffsetCommitResponse()
    request.topics = accepted
    try:
        if accepted:
            committed = commit(broker, peer_of(context), request)
            response = (yield committed) if isinstance(committed, Awaitable) else committed
    except KafkaError as error:
        for topic in accepted:
            partitions = yield from _refused(topic.partitions, error.code)
            response.topics.append(_answer(topic, partitions))
    if refused:
        response = _merged(refused, response)
    for answer in response.topics:
        answer.partitions = yield from encoded_in_pieces(
            OffsetCommitResponse, context.api_version, answer.partitions
        )
    topics = yield from encoded_in_pieces(
        OffsetCommitResponse, context.api_version, response.topics
    )
    response.topics = cast("Any", topics)
    return encode_parts(response, context.api_version)


def commit(
    broker: "BrokerServices", peer: Peer, request: OffsetCommitRequest
) -> Response[OffsetCommitResponse]:
    """Let the group's shard decide."""
    runtime = broker.groups.shard_for(request.group_id)
    return runtime.execute_write(lambda shard, now: shard.handle_offset_commit(request, peer, now))


_Checked = tuple[list[OffsetCommitRequestTopic], list[OffsetCommitResponseTopic]]
"""Topics and partitions that exist, and the response to the others."""


def _check_topics(
    image: "ClusterImage", context: RequestContext, topics: Iterable[OffsetCommitRequestTopic]
) -> Generator[int, None, _Checked]:
    accepted: list[OffsetCommitRequestTopic] = []
    refused: list[OffsetCommitResponseTopic] = []
    for topic in topics:
        yield from _check_topic(image, context, topic, accepted, refused)
    return accepted, refused


def _check_topic(
    image: "ClusterImage",
    context: RequestContext,
    topic: OffsetCommitRequestTopic,
    accepted: list[OffsetCommitRequestTopic],
    refused: list[OffsetCommitResponseTopic],
) -> Generator[int, None, None]:
    """Divide `topic` into the partitions that exist (`accepted`) and the rest (`refused`)."""
    version = context.api_version
    found = _find(image, topic, version)
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if found is not None:
        # As in Kafka since KIP-848, a commit by name is stored with the topic's id too.
        topic.name, topic.topic_id = found.name, wire_id(found.id)
    elif version >= _BY_ID_FROM:
        error = ErrorCode.UNKNOWN_TOPIC_ID
    if error != ErrorCode.UNKNOWN_TOPIC_ID and not context.is_allowed(
        AclOperation.READ, AclResourceType.TOPIC, topic.name
    ):
        found, error = None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    known: list[OffsetCommitRequestPartition] = []
    unknown: list[OffsetCommitRequestPartition] = []
    existing = {} if found is None else found.partitions
    for at in range(0, len(topic.partitions), CHUNK):
        chunk = topic.partitions[at : at + CHUNK]
        for one in chunk:
            (known if one.partition_index in existing else unknown).append(one)
        yield len(chunk) // 4
    yield 1
    if found is None or unknown:
        refused.append(_answer(topic, (yield from _refused(unknown, error))))
    if known:
        accepted.append(
            OffsetCommitRequestTopic(name=topic.name, topic_id=topic.topic_id, partitions=known)
        )


def _find(image: "ClusterImage", topic: OffsetCommitRequestTopic, version: int) -> "Topic | None":
    if version >= _BY_ID_FROM and topic.topic_id != Uuid.ZERO:
        return image.topics_by_id.get(topic.topic_id)
    return image.topic(topic.name)


def _answer(
    topic: OffsetCommitRequestTopic, partitions: list[OffsetCommitResponsePartition]
) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name, topic_id=topic.topic_id, partitions=partitions
    )


def _refused(
    partitions: list[OffsetCommitRequestPartition], error: ErrorCode
) -> Generator[int, None, list[OffsetCommitResponsePartition]]:
    found: list[OffsetCommitResponsePartition] = []
    for at in range(0, len(partitions), CHUNK):
        chunk = partitions[at : at + CHUNK]
        found += [
            OffsetCommitResponsePartition(partition_index=one.partition_index, error_code=error)
            for one in chunk
        ]
        yield len(chunk) // 4
    return found


def _merged(
    refused: list[OffsetCommitResponseTopic], response: OffsetCommitResponse
) -> OffsetCommitResponse:
    topics = {(one.topic_id, one.name): one for one in refused}
    for topic in response.topics:
        known = topics.setdefault((topic.topic_id, topic.name), topic)
        if known is not topic:
            known.partitions += topic.partitions
    response.topics = list(topics.values())
    return response


def refuse(_: type, request: OffsetCommitRequest, version: int, error: KafkaError) -> Steps:
    """Every partition with the request's error."""
    topics: list[OffsetCommitResponseTopic] = []
    for topic in request.topics:
        refused = yield from _refused(topic.partitions, error.code)
        found = yield from encoded_in_pieces(OffsetCommitResponse, version, refused)
        topics.append(_answer(topic, found))
        yield 1
    encoded = yield from encoded_in_pieces(OffsetCommitResponse, version, topics)
    return OffsetCommitResponse(topics=encoded)


API = Api(
    key=ApiKey.OFFSET_COMMIT,
    handle=handle,
    authorize=(
        on_group(AclOperation.READ),
        on_each(AclOperation.READ, AclResourceType.TOPIC),
    ),
    refuse=refuse,
)
