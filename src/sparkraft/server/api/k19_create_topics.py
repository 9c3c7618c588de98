"""CreateTopics: v2-7. New topics, placed by the controller or by hand. (KIP-4, KIP-464, KIP-525)

Behaviour:
    * Each topic stands for itself; one asked for twice is refused (INVALID_REQUEST).
    * -1 partitions or replicas: `num.partitions`, `default.replication.factor` of the controller.
    * `validate_only` decides and creates nothing.
    * A name that metrics could not tell from another's (`.` and `_`): INVALID_TOPIC_EXCEPTION.
    * The answer shows the topic's configs in force, as DescribeConfigs would.
Versions: v4 defaults of -1; v5 flexible, configs; v7 topic id.
Not done: policies in Java classes; mutation quotas (KIP-599).
"""

from sparkraft.base.errors import KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k19_create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import on_each
from sparkraft.server.api.registry import Api
from sparkraft.server.controller.submission import set_error, submit_to_controller


def refuse(
    _: type, request: CreateTopicsRequest, version: int, error: KafkaError
) -> CreateTopicsResponse:
    """The error on each topic."""
    names = [topic.name for topic in request.topics]
    results = [set_error(CreatableTopicResult(name=name), error) for name in names]
    return CreateTopicsResponse(topics=results)


API = Api(
    key=ApiKey.CREATE_TOPICS,
    handle=submit_to_controller,
    authorize=(
        on_each(AclOperation.CREATE, AclResourceType.CLUSTER, when="it creates any topic"),
        on_each(AclOperation.CREATE, AclResourceType.TOPIC, when="CREATE on the cluster is denied"),
        on_each(
            AclOperation.DESCRIBE_CONFIGS, AclResourceType.TOPIC, when="the response shows configs"
        ),
    ),
    controller=True,
    forward=True,
    refuse=refuse,
)
