"""Metadata: v0-13. Which brokers and topics are there, and who leads what? (KIP-516, KIP-430)

Behaviour:
    * Topics by name (all versions) or by id (v12+); null is all of them (v0: an empty list).
    * A missing topic is created if `allow_auto_topic_creation` (v4+; before: always) and
      auto.create.topics.enable are true; until then: UNKNOWN_TOPIC_OR_PARTITION.
    * `controller_id` is a random unfenced broker, by design, as in Kafka.
    * v0 leaves out replicas on fenced brokers, with REPLICA_NOT_AVAILABLE.
Versions: v1 controller, racks; v2 cluster id; v5 offline replicas; v7 leader epochs; v8 authorized
    operations; v9 flexible; v10 topic ids; v12 ids in requests; v13 top-level error.    Not done: -
"""

from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k03_metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import on_each
from sparkraft.server.api.authorized_operations import cluster_operations, topic_operations
from sparkraft.server.api.registry import Api, RequestContext
from sparkraft.server.broker.cluster_view import (
    INTERNAL_TOPICS,
    leaderless_error,
    live_brokers,
    live_endpoint,
    live_only,
    offline_replicas,
    topic_name_problem,
)

if TYPE_CHECKING:
    from sparkraft.metadata.image import ClusterImage, Topic
    from sparkraft.metadata.partition_state import PartitionState
    from sparkraft.server.broker_services import BrokerServices

_BY_ID_VERSION = 12


def handle(
    broker: "BrokerServices", context: RequestContext, request: MetadataRequest
) -> MetadataResponse:
    """Describe the cluster as this broker's image has it."""
    version = context.api_version
    _check(request, version)
    image = broker.image
    brokers = live_brokers(image, context.listener_name)
    response = MetadataResponse(cluster_id=broker.cluster_id)
    for registration, endpoint in brokers:
        response.brokers.append(
            MetadataResponseBroker(
                node_id=registration.id,
                host=endpoint.host,
                port=endpoint.port,
                rack=registration.rack,
            )
        )
    if brokers:
        chosen = broker.env.entropy.below(len(brokers)) if len(brokers) > 1 else 0
        response.controller_id = brokers[chosen][0].id
    response.topics = _topics(broker, context, request)
    if request.include_topic_authorized_operations:
        for topic in response.topics:
            if not topic.error_code:
                topic.topic_authorized_operations = topic_operations(context, topic.name or "")
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations(context)
    return response


def _check(request: MetadataRequest, version: int) -> None:
    if version >= _BY_ID_VERSION:
        return
    for topic in request.topics or ():
        if topic.name is None or topic.topic_id != Uuid.ZERO:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"version {version} asks for topics by name only"
            )


def _topics(
    broker: "BrokerServices", context: RequestContext, request: MetadataRequest
) -> list[MetadataResponseTopic]:
    image = broker.image
    asked = request.topics
    if asked is None or (context.api_version == 0 and not asked):
        return [
            _known(image, topic, context)
            for topic in image.topics_in_order()
            if _may_describe(context, topic.name)
        ]
    ids = {topic.topic_id for topic in asked if topic.topic_id != Uuid.ZERO}
    if ids:
        return [_by_id(image, topic_id, context) for topic_id in sorted(ids)]
    missing: list[str] = []
    found: list[MetadataResponseTopic] = []
    hidden: list[MetadataResponseTopic] = []
    for name in dict.fromkeys(topic.name or "" for topic in asked):
        if not _may_describe(context, name):
            hidden.append(_denied(name))
            continue
        topic = image.topic(name)
        if topic is None:
            missing.append(name)
        else:
            found.append(_known(image, topic, context))
    create = request.allow_auto_topic_creation
    return found + _missing(broker, context, missing, create=create) + hidden


def _may_describe(context: RequestContext, name: str) -> bool:
    return context.is_allowed(AclOperation.DESCRIBE, AclResourceType.TOPIC, name)


def _denied(name: str | None, topic_id: Uuid = Uuid.ZERO) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name, topic_id=topic_id
    )


def _by_id(image: "ClusterImage", topic_id: Uuid, context: RequestContext) -> MetadataResponseTopic:
    topic = image.topics_by_id.get(topic_id)
    if topic is not None:
        if not _may_describe(context, topic.name):
            return _denied(None, topic_id)
        return _known(image, topic, context)
    return MetadataResponseTopic(
        error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id
    )


def _missing(
    broker: "BrokerServices", context: RequestContext, names: list[str], *, create: bool
) -> list[MetadataResponseTopic]:
    if not names:
        return []
    errors: dict[str, ErrorCode] = {}
    if create and broker.config.flag("auto.create.topics.enable"):
        creatable = [name for name in names if _may_create(context, name)]
        errors = dict.fromkeys(
            set(names).difference(creatable), ErrorCode.TOPIC_AUTHORIZATION_FAILED
        )
        errors |= broker.auto_topic_creation.request(creatable)
    answers = []
    for name in names:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic_name_problem(name) is not None:
            error = ErrorCode.INVALID_TOPIC_EXCEPTION
        answers.append(
            MetadataResponseTopic(
                error_code=errors.get(name, error), name=name, is_internal=name in INTERNAL_TOPICS
            )
        )
    return answers


def _may_create(context: RequestContext, name: str) -> bool:
    return context.is_allowed(AclOperation.CREATE, AclResourceType.CLUSTER) or context.is_allowed(
        AclOperation.CREATE, AclResourceType.TOPIC, name
    )


def _known(image: "ClusterImage", topic: "Topic", context: RequestContext) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            _partition(image, index, partition, context) for index, partition in topic.in_order()
        ],
    )


def _partition(
    image: "ClusterImage", index: int, partition: "PartitionState", context: RequestContext
) -> MetadataResponsePartition:
    listener, version = context.listener_name, context.api_version
    replicas = live_only(image, partition.replicas, listener, only_live=version == 0)
    isr = live_only(image, partition.isr, listener, only_live=version == 0)
    error = ErrorCode.NONE
    leader = partition.leader
    if live_endpoint(image, leader, listener) is None:
        error = leaderless_error(image, leader, version=version)
        leader = -1
    elif len(replicas) < len(partition.replicas) or len(isr) < len(partition.isr):
        error = ErrorCode.REPLICA_NOT_AVAILABLE
    return MetadataResponsePartition(
        error_code=error,
        partition_index=index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=offline_replicas(image, partition, listener),
    )


def refuse(_: type, request: Any, version: int, error: KafkaError) -> MetadataResponse:
    """Every requested topic with the request's error."""
    response = MetadataResponse(error_code=error.code)
    for topic in request.topics or ():
        name = topic.name if topic.name is not None or version >= _BY_ID_VERSION else ""
        response.topics.append(
            MetadataResponseTopic(error_code=error.code, name=name, topic_id=topic.topic_id)
        )
    return response


API = Api(
    key=ApiKey.METADATA,
    handle=handle,
    authorize=(
        on_each(AclOperation.DESCRIBE, AclResourceType.TOPIC),
        on_each(
            AclOperation.CREATE, AclResourceType.CLUSTER, when="a missing topic may be created"
        ),
        on_each(AclOperation.CREATE, AclResourceType.TOPIC, when="CREATE on the cluster is denied"),
    ),
    refuse=refuse,
)
