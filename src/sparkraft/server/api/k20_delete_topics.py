"""DeleteTopics: v1-6. Topics and their data go, by name or by id. (KIP-4, KIP-516)

Behaviour:
    * `delete.topic.enable=false`: TOPIC_DELETION_DISABLED, INVALID_REQUEST before v3.
    * A name given twice, a name and its own id, both or neither in one item: INVALID_REQUEST.
    * Unknown name: UNKNOWN_TOPIC_OR_PARTITION; unknown id: UNKNOWN_TOPIC_ID.
Versions: v4 flexible; v5 error message; v6 ids.
Not done: mutation quotas (KIP-599).
"""

from sparkraft.base.errors import KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k20_delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import on_each
from sparkraft.server.api.registry import Api
from sparkraft.server.controller.submission import set_error, submit_to_controller


def refuse(
    _: type, request: DeleteTopicsRequest, version: int, error: KafkaError
) -> DeleteTopicsResponse:
    """The error on each topic."""
    results = [DeletableTopicResult(name=name) for name in request.topic_names]
    results += [DeletableTopicResult(name=t.name, topic_id=t.topic_id) for t in request.topics]
    return DeleteTopicsResponse(responses=[set_error(result, error) for result in results])


API = Api(
    key=ApiKey.DELETE_TOPICS,
    handle=submit_to_controller,
    authorize=(
        on_each(AclOperation.DELETE, AclResourceType.CLUSTER, when="it deletes any topic"),
        on_each(AclOperation.DESCRIBE, AclResourceType.TOPIC),
        on_each(AclOperation.DELETE, AclResourceType.TOPIC),
    ),
    controller=True,
    forward=True,
    refuse=refuse,
)
