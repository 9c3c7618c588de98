"""CreatePartitions: v0-3. More partitions for existing topics. (KIP-195)

Behaviour:
    * `count` is the new total; no increase: INVALID_PARTITIONS.
    * New partitions get as many replicas as the first has, placed or assigned by hand.
    * A topic named twice: INVALID_REQUEST.
    * Many partitions of several topics are decided in several steps, as in CreateTopics.
Versions: v2 flexible.    Not done: -
"""

from collections import Counter
from typing import TYPE_CHECKING

from sparkraft.base.errors import KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import on_each
from sparkraft.server.api.item_errors import ItemErrors, topic_denial
from sparkraft.server.api.registry import Api, RequestContext
from sparkraft.server.controller.submission import submit_in_parts

if TYPE_CHECKING:
    from sparkraft.metadata.image import ClusterImage
    from sparkraft.server.controller.services import ControllerServices

_ERRORS = ItemErrors(
    items=lambda request: request.topics,
    result=lambda topic: CreatePartitionsTopicResult(name=topic.name),
    response=lambda results: CreatePartitionsResponse(results=results),
    results=lambda response: response.results,
    only=lambda request, topics: CreatePartitionsRequest(
        topics=topics, timeout_ms=request.timeout_ms, validate_only=request.validate_only
    ),
)


PARTITIONS_PER_PART = 200
"""Decided at once: about 5 ms. The partitions of one topic are not divided."""

PARTITIONS_PER_TOPIC = 4
"""Cost of a topic itself, in partitions."""


async def _create(
    node: "ControllerServices", context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    response: CreatePartitionsResponse = await submit_in_parts(
        node,
        context,
        _parts(request, node.image),
        results=lambda one: one.results,
        refuse=_ERRORS.refused,
    )
    return response


def _parts(
    request: CreatePartitionsRequest, image: "ClusterImage"
) -> list[CreatePartitionsRequest]:
    """The request in parts of about `PARTITIONS_PER_PART`; names given twice are in the first."""
    counts = Counter(topic.name for topic in request.topics)
    parts = [[topic for topic in request.topics if counts[topic.name] > 1]]
    room = PARTITIONS_PER_PART
    for topic in request.topics:
        if counts[topic.name] > 1:
            continue
        if room <= 0:
            parts.append([])
            room = PARTITIONS_PER_PART
        parts[-1].append(topic)
        known = image.topic(topic.name)
        present = 0 if known is None else len(known.partitions)
        room -= max(topic.count - present, 0) + PARTITIONS_PER_TOPIC
    return [_ERRORS.only(request, topics) for topics in parts]


def _denial(context: RequestContext, topic: CreatePartitionsTopic) -> KafkaError | None:
    return topic_denial(context, AclOperation.ALTER, topic.name)


API = Api(
    key=ApiKey.CREATE_PARTITIONS,
    handle=_ERRORS.authorized(_create, _denial),
    authorize=(on_each(AclOperation.ALTER, AclResourceType.TOPIC),),
    controller=True,
    forward=True,
    refuse=_ERRORS.refuse,
)
