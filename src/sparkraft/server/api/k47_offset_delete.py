"""OffsetDelete: v0. Forget a group's offsets in some partitions. (KIP-496)

Behaviour:
    * A topic that a member is subscribed to: GROUP_SUBSCRIBED_TO_TOPIC for its partitions.
    * A group with members that are no consumers: NON_EMPTY_GROUP; not there: GROUP_ID_NOT_FOUND.
    * Topics and partitions must exist: UNKNOWN_TOPIC_OR_PARTITION.
Versions: one, not flexible.    Not done: -
"""

from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import on_each, on_group
from sparkraft.server.api.registry import Api, RequestContext
from sparkraft.server.coordinator.answers import when
from sparkraft.server.coordinator.requests import check_group_id

if TYPE_CHECKING:
    from sparkraft.metadata.image import ClusterImage
    from sparkraft.server.broker.services import BrokerServices


def handle(broker: "BrokerServices", _: RequestContext, request: OffsetDeleteRequest) -> Any:
    """Check topics against the image, then let the group's shard decide."""
    check_group_id(request.group_id)
    refused: dict[str, OffsetDeleteResponseTopic] = {}
    accepted = []
    for topic in request.topics:
        known = _known(broker.image, topic, refused)
        if known.partitions:
            accepted.append(known)
    asked = OffsetDeleteRequest(group_id=request.group_id, topics=accepted)
    shard = broker.groups.shard_of(request.group_id)
    answer = shard.ask(lambda core, _: core.handle_offset_delete(asked))
    return when(answer, lambda response: _merged(refused, response)) if refused else answer


def _known(
    image: "ClusterImage",
    topic: OffsetDeleteRequestTopic,
    refused: dict[str, OffsetDeleteResponseTopic],
) -> OffsetDeleteRequestTopic:
    """The part of `topic` that exists; the rest is put into `refused`."""
    found = image.topic(topic.name)
    known = OffsetDeleteRequestTopic(name=topic.name)
    for partition in topic.partitions:
        if found is not None and partition.partition_index in found.partitions:
            known.partitions.append(partition)
            continue
        answer = refused.setdefault(topic.name, OffsetDeleteResponseTopic(name=topic.name))
        answer.partitions.append(
            OffsetDeleteResponsePartition(
                partition_index=partition.partition_index,
                error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
        )
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
