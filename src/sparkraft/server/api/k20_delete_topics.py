"""DeleteTopics: v1-6. Delete topics and their data, by name or by id. (KIP-4, KIP-516)

Behaviour:
    * `delete.topic.enable=false`: TOPIC_DELETION_DISABLED, INVALID_REQUEST before v3.
    * A name given twice, a name and its own id, both or neither in one item: INVALID_REQUEST.
    * Unknown name: UNKNOWN_TOPIC_OR_PARTITION; unknown id: UNKNOWN_TOPIC_ID.
    * Many topics are decided in several steps, so that other requests run in between. If the
      controller loses its role meanwhile, the topics left have the error.
Versions: v4 flexible; v5 error message; v6 ids.
Not done: -
"""

from collections import Counter
from typing import TYPE_CHECKING

from sparkraft.base.errors import KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k20_delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import denied, on_each
from sparkraft.server.api.encoded_array import encoded_in_pieces
from sparkraft.server.api.registry import Api, RequestContext, Steps
from sparkraft.server.controller.submission import set_error, submit_in_parts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sparkraft.server.controller.services import ControllerServices

TOPICS_PER_PART = 100
"""Decided at once: about 3 ms."""


async def handle(
    node: "ControllerServices", context: RequestContext, request: DeleteTopicsRequest
) -> DeleteTopicsResponse:
    """Refuse what the client may not delete, and have the controller decide on the rest."""
    if context.is_allowed(AclOperation.DELETE, AclResourceType.CLUSTER, logs=False):
        return await _decide(node, context, request)
    names = dict.fromkeys(_denied_names(node, context, request))
    by_id = _denied_by_id(node, context, request)
    refused = [*map(_denied, names), *by_id]
    ids = {result.topic_id for result in by_id}
    rest = DeleteTopicsRequest(
        topic_names=[name for name in request.topic_names if name not in names],
        topics=[t for t in request.topics if t.topic_id not in ids and t.name not in names],
        timeout_ms=request.timeout_ms,
    )
    if not rest.topic_names and not rest.topics:
        return DeleteTopicsResponse(responses=refused)
    response = await _decide(node, context, rest)
    response.responses += refused
    return response


async def _decide(
    node: "ControllerServices", context: RequestContext, request: DeleteTopicsRequest
) -> DeleteTopicsResponse:
    """The response of the controller, which decides on a part of the topics at a time."""
    response: DeleteTopicsResponse = await submit_in_parts(
        node,
        context,
        _parts(request, node.image.topics_by_name),
        results=lambda one: one.responses,
        refuse=_refused,
    )
    return response


def _parts(request: DeleteTopicsRequest, ids: "Mapping[str, Uuid]") -> list[DeleteTopicsRequest]:
    """The request in parts of `TOPICS_PER_PART`; topics that it names twice are in the first.

    Args:
        request: the whole one.
        ids: of existing topics, by name.
    """
    items = [DeleteTopicState(name=name) for name in request.topic_names] + request.topics
    if len(items) <= TOPICS_PER_PART:
        return [request]
    # A name and its id are the same topic.
    keys = [ids.get(item.name, item.name) if item.name else item.topic_id for item in items]
    counts = Counter(keys)
    twice = [item for item, key in zip(items, keys, strict=True) if counts[key] > 1]
    once = [item for item, key in zip(items, keys, strict=True) if counts[key] == 1]
    parts = [twice] if twice else []
    parts += [once[at : at + TOPICS_PER_PART] for at in range(0, len(once), TOPICS_PER_PART)]
    return [DeleteTopicsRequest(topics=part, timeout_ms=request.timeout_ms) for part in parts]


def _denied_names(
    node: "ControllerServices", context: RequestContext, request: DeleteTopicsRequest
) -> list[str]:
    """Names the client may not describe; of those it may, existing ones it may not delete."""
    named = [t.name for t in request.topics if t.name is not None]
    return [
        name
        for name in dict.fromkeys([*request.topic_names, *named])
        if not _may(context, AclOperation.DESCRIBE, name)
        or (node.image.topic(name) is not None and not _may(context, AclOperation.DELETE, name))
    ]


def _denied_by_id(
    node: "ControllerServices", context: RequestContext, request: DeleteTopicsRequest
) -> list[DeletableTopicResult]:
    """Topics named by id; a name the client may not describe is not revealed."""
    refused = []
    for topic_id in dict.fromkeys(t.topic_id for t in request.topics if t.topic_id != Uuid.ZERO):
        found = node.image.topics_by_id.get(topic_id)
        if found is None or _may(context, AclOperation.DELETE, found.name):
            continue
        may_see = _may(context, AclOperation.DESCRIBE, found.name)
        refused.append(_denied(found.name if may_see else None, topic_id))
    return refused


def _may(context: RequestContext, operation: AclOperation, name: str) -> bool:
    return context.is_allowed(operation, AclResourceType.TOPIC, name)


def _denied(name: str | None, topic_id: Uuid = Uuid.ZERO) -> DeletableTopicResult:
    result = DeletableTopicResult(name=name, topic_id=topic_id)
    set_error(result, denied(AclResourceType.TOPIC))
    return result


def refuse(_: type, request: DeleteTopicsRequest, version: int, error: KafkaError) -> Steps:
    """The error on each topic."""
    results = (set_error(result, error) for result in _results(request))
    encoded = yield from encoded_in_pieces(DeleteTopicsResponse, version, results)
    return DeleteTopicsResponse(responses=encoded)


def _refused(request: DeleteTopicsRequest, error: KafkaError) -> DeleteTopicsResponse:
    """The same for a part of a request."""
    return DeleteTopicsResponse(
        responses=[set_error(result, error) for result in _results(request)]
    )


def _results(request: DeleteTopicsRequest) -> "Iterator[DeletableTopicResult]":
    for name in request.topic_names:
        yield DeletableTopicResult(name=name)
    for topic in request.topics:
        yield DeletableTopicResult(name=topic.name, topic_id=topic.topic_id)


API = Api(
    key=ApiKey.DELETE_TOPICS,
    handle=handle,
    authorize=(
        on_each(AclOperation.DELETE, AclResourceType.CLUSTER, when="it deletes any topic"),
        on_each(AclOperation.DESCRIBE, AclResourceType.TOPIC),
        on_each(AclOperation.DELETE, AclResourceType.TOPIC),
    ),
    controller=True,
    forward=True,
    refuse=refuse,
)
