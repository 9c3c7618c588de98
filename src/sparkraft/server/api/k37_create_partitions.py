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
    CreatePartitionsTopicResult,
)
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import on_each
from sparkraft.server.api.registry import Api
from sparkraft.server.controller.submission import set_error, submit_to_controller


def refuse(
    _: type, request: CreatePartitionsRequest, version: int, error: KafkaError
) -> CreatePartitionsResponse:
    """The error on each topic."""
    names = [topic.name for topic in request.topics]
    results = [set_error(CreatePartitionsTopicResult(name=name), error) for name in names]
    return CreatePartitionsResponse(results=results)


API = Api(
    key=ApiKey.CREATE_PARTITIONS,
    handle=submit_to_controller,
    authorize=(on_each(AclOperation.ALTER, AclResourceType.TOPIC),),
    controller=True,
    forward=True,
    refuse=refuse,
)
