"""OffsetDelete: v0. Delete a group's offsets of some partitions. (KIP-496)

Behaviour:
    * A topic that a member is subscribed to: GROUP_SUBSCRIBED_TO_TOPIC for its partitions.
    * A group with members that are not consumers: NON_EMPTY_GROUP; unknown: GROUP_ID_NOT_FOUND.
    * Topics and partitions must exist: UNKNOWN_TOPIC_OR_PARTITION.
Versions: one, not flexible.    Not done: -
"""

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, cast

from sparkraft.base.errors import ErrorCode
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.codec import encode_parts
from sparkraft.protocol.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import on_each, on_group
from sparkraft.server.api.encoded_array import CHUNK, encoded_in_pieces
from sparkraft.server.api.registry import Api, RequestContext, Steps
from sparkraft.server.controller.audit import Names, log_names
from sparkraft.server.coordinator.requests import check_group_id

if TYPE_CHECKING:
    from collections.abc import Generator

    from sparkraft.metadata.image import ClusterImage
    from sparkraft.server.broker_services import BrokerServices


def handle(
    broker: "BrokerServices", context: RequestContext, request: OffsetDeleteRequest
) -> Steps:
    """Check topics against the image, then let the group's shard decide."""
    check_group_id(request.group_id)
    refused: dict[str, OffsetDeleteResponseTopic] = {}
    accepted = []
    for topic in request.topics:
        known = yield from _known(broker.image, context, topic, refused)
        if known.partitions:
            accepted.append(known)
    checked = OffsetDeleteRequest(group_id=request.group_id, topics=accepted)
    runtime = broker.groups.shard_for(request.group_id)
    deleted = runtime.execute_write(lambda shard, _: shard.handle_offset_delete(checked))
    response = (yield deleted) if isinstance(deleted, Awaitable) else deleted
    if refused:
        response = _merged(refused, response)
    names = yield from _deleted(response)
    log_names(context, f"deleted offsets of group {request.group_id} of", names)
    for answer in response.topics:
        partitions = yield from encoded_in_pieces(OffsetDeleteResponse, 0, answer.partitions)
        answer.partitions = partitions
    topics = yield from encoded_in_pieces(OffsetDeleteResponse, 0, response.topics)
    response.topics = cast("Any", topics)
    return encode_parts(response, context.api_version)


def _deleted(response: OffsetDeleteResponse) -> "Generator[int, None, Names]":
    """The partitions whose offsets are deleted."""
    names = Names()
    for topic in response.topics if not response.error_code else ():
        for number, partition in enumerate(topic.partitions, 1):
            if not partition.error_code:
                names.add(f"{topic.name}-{partition.partition_index}")
            if number % CHUNK == 0:
                yield CHUNK // 8
        yield 1
    return names


def _known(
    image: "ClusterImage",
    context: RequestContext,
    topic: OffsetDeleteRequestTopic,
    refused: dict[str, OffsetDeleteResponseTopic],
) -> "Generator[int, None, OffsetDeleteRequestTopic]":
    """The partitions of `topic` that exist; the rest is added to `refused`."""
    found = image.topic(topic.name)
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not context.is_allowed(AclOperation.READ, AclResourceType.TOPIC, topic.name):
        found, error = None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    known = OffsetDeleteRequestTopic(name=topic.name)
    for number, partition in enumerate(topic.partitions):
        if number % CHUNK == CHUNK - 1:
            yield CHUNK // 4
        if found is not None and partition.partition_index in found.partitions:
            known.partitions.append(partition)
            continue
        missing = refused.setdefault(topic.name, OffsetDeleteResponseTopic(name=topic.name))
        missing.partitions.append(
            OffsetDeleteResponsePartition(
                partition_index=partition.partition_index,
                error_code=error,
            )
        )
    yield 1
    return known


def _merged(
    refused: dict[str, OffsetDeleteResponseTopic], response: OffsetDeleteResponse
) -> OffsetDeleteResponse:
    for topic in response.topics:
        known = refused.setdefault(topic.name, topic)
        if known is not topic:
            known.partitions += topic.partitions
    response.topics = list(refused.values())
    return response


API = Api(
    key=ApiKey.OFFSET_DELETE,
    handle=handle,
    authorize=(
        on_group(AclOperation.DELETE),
        on_each(AclOperation.READ, AclResourceType.TOPIC),
    ),
)
