"""CreateTopics: v2-7. New topics, placed by the controller or by hand. (KIP-4, KIP-464, KIP-525)

Behaviour:
    * Each topic succeeds or fails by itself; a topic named twice: INVALID_REQUEST.
    * -1 partitions or replicas: `num.partitions`, `default.replication.factor` of the controller.
    * `validate_only` decides and creates nothing.
    * A name that collides with another in metrics (`.` and `_`): INVALID_TOPIC_EXCEPTION.
    * The response has the topic's effective configs, as DescribeConfigs does.
    * Many topics are decided in several steps, so that other requests run in between. If the
      controller loses its role meanwhile, the topics left have the error.
Versions: v4 defaults of -1; v5 flexible, configs; v7 topic id.
Not done: policies in Java classes.
"""

from collections import Counter
from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.controller.topics import PARTITIONS_PER_REQUEST_MAX
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import on_each
from sparkraft.server.api.item_errors import ItemErrors, topic_denial
from sparkraft.server.api.registry import Api, RequestContext
from sparkraft.server.controller.submission import submit_in_parts
from sparkraft.storage.names import METADATA_TOPIC

if TYPE_CHECKING:
    from sparkraft.server.controller.services import ControllerServices

_CONFIGS_VERSION = 5

PARTITIONS_PER_PART = 200
"""Decided at once: about 5 ms."""

PARTITIONS_PER_TOPIC = 4
"""Cost of a topic itself, in partitions."""

_ERRORS = ItemErrors(
    items=lambda request: request.topics,
    result=lambda topic: CreatableTopicResult(name=topic.name),
    response=lambda results: CreateTopicsResponse(topics=results),
    results=lambda response: response.topics,
    only=lambda request, topics: CreateTopicsRequest(
        topics=topics, timeout_ms=request.timeout_ms, validate_only=request.validate_only
    ),
)


def _denial(context: RequestContext, topic: CreatableTopic) -> KafkaError | None:
    if topic.name == METADATA_TOPIC:
        return KafkaError(
            ErrorCode.INVALID_REQUEST, f"Creation of internal topic {METADATA_TOPIC} is prohibited."
        )
    if context.is_allowed(AclOperation.CREATE, AclResourceType.CLUSTER, logs=False):
        return None
    return topic_denial(context, AclOperation.CREATE, topic.name)


async def _create(
    node: "ControllerServices", context: RequestContext, request: CreateTopicsRequest
) -> CreateTopicsResponse:
    response = await _decided(node, context, request)
    if context.api_version >= _CONFIGS_VERSION:
        for result in response.topics:
            if not result.error_code:
                _hide_configs(context, result)
    return response


async def _decided(
    node: "ControllerServices", context: RequestContext, request: CreateTopicsRequest
) -> CreateTopicsResponse:
    """The response of the controller, which decides on a part of the topics at a time."""
    response: CreateTopicsResponse = await submit_in_parts(
        node,
        context,
        _parts(request, node.config.number("num.partitions")),
        results=lambda one: one.topics,
        refuse=_ERRORS.refused,
    )
    return response


def _parts(request: CreateTopicsRequest, default_partitions: int) -> list[CreateTopicsRequest]:
    """The request in parts of about `PARTITIONS_PER_PART`; names given twice are in the first."""
    sizes = [
        len(topic.assignments)
        or (default_partitions if topic.num_partitions == -1 else max(topic.num_partitions, 0))
        for topic in request.topics
    ]
    if sum(sizes) > PARTITIONS_PER_REQUEST_MAX:
        return [request]  # refused as a whole
    counts = Counter(topic.name for topic in request.topics)
    parts = [[topic for topic in request.topics if counts[topic.name] > 1]]
    room = PARTITIONS_PER_PART
    for topic, size in zip(request.topics, sizes, strict=True):
        if counts[topic.name] > 1:
            continue
        if room <= 0:
            parts.append([])
            room = PARTITIONS_PER_PART
        parts[-1].append(topic)
        room -= size + PARTITIONS_PER_TOPIC
    return [_ERRORS.only(request, topics) for topics in parts]


def _hide_configs(context: RequestContext, result: CreatableTopicResult) -> None:
    if context.is_allowed(
        AclOperation.DESCRIBE_CONFIGS, AclResourceType.TOPIC, result.name, logs=False
    ):
        return
    result.topic_config_error_code = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    result.num_partitions = result.replication_factor = -1
    result.configs = []


API = Api(
    key=ApiKey.CREATE_TOPICS,
    handle=_ERRORS.authorized(_create, _denial),
    authorize=(
        on_each(AclOperation.CREATE, AclResourceType.CLUSTER, when="it creates any topic"),
        on_each(AclOperation.CREATE, AclResourceType.TOPIC, when="CREATE on the cluster is denied"),
        on_each(
            AclOperation.DESCRIBE_CONFIGS, AclResourceType.TOPIC, when="the response shows configs"
        ),
    ),
    controller=True,
    forward=True,
    refuse=_ERRORS.refuse,
)
