"""CreatePartitions: v0-3. More partitions for existing topics. (KIP-195)

Behaviour:
    * `count` is the new total; no increase: INVALID_PARTITIONS.
    * New partitions get as many replicas as the first has, placed or assigned by hand.
    * A topic named twice: INVALID_REQUEST.
Versions: v2 flexible.    Not done: mutation quotas (KIP-599).
"""

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
from sparkraft.server.controller.submission import submit_to_controller

_ERRORS = ItemErrors(
    items=lambda request: request.topics,
    result=lambda topic: CreatePartitionsTopicResult(name=topic.name),
    response=lambda results: CreatePartitionsResponse(results=results),
    results=lambda response: response.results,
    only=lambda request, topics: CreatePartitionsRequest(
        topics=topics, timeout_ms=request.timeout_ms, validate_only=request.validate_only
    ),
)


def _denial(context: RequestContext, topic: CreatePartitionsTopic) -> KafkaError | None:
    return topic_denial(context, AclOperation.ALTER, topic.name)


API = Api(
    key=ApiKey.CREATE_PARTITIONS,
    handle=_ERRORS.authorized(submit_to_controller, _denial),
    authorize=(on_each(AclOperation.ALTER, AclResourceType.TOPIC),),
    controller=True,
    forward=True,
    refuse=_ERRORS.refuse,
)
