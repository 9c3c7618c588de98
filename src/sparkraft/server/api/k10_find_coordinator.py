"""FindCoordinator: v0-6. Which broker looks after a group? (KIP-699, KIP-890, KIP-932)

Behaviour:
    * Groups (key type 0): the leader of the group's partition of `__consumer_offsets`. The topic
      is made at the first question; until it is there, or while it has no leader on the client's
      listener: COORDINATOR_NOT_AVAILABLE, and the client asks again.
    * Transactions (1) and share partitions (2) where other brokers of the cluster serve them
      (Kafka's): the leader of the key's partition of `__transaction_state` or
      `__share_group_state` if it is one of those; they are asked to make the topic.
    * Where nobody does: transactions TRANSACTIONAL_ID_AUTHORIZATION_FAILED, with a message that
      says why. It is the one code that all clients take as fatal at once; any other starts a retry
      loop in some. Share partitions, and unknown types: INVALID_REQUEST.
    * Below v4 one key, its error at the top; from v4 many, each with its own.
Versions: v1 key type, error message; v3 flexible; v4 several keys; v6 share keys.
Not done: transactions and share groups of our own.
"""

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k10_find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import on_each
from sparkraft.server.api.registry import Api, RequestContext
from sparkraft.server.broker.cluster_view import live_endpoint
from sparkraft.server.broker.coordinators_elsewhere import SHARE_GROUP_STATE, TRANSACTION_STATE
from sparkraft.server.coordinator.group_driver import GROUP_METADATA_TOPIC

if TYPE_CHECKING:
    from sparkraft.server.broker.services import BrokerServices

_KEYS_FROM = 4
_GROUP = 0
_TRANSACTION = 1
_SHARE = 2
_ELSEWHERE = {_TRANSACTION: TRANSACTION_STATE, _SHARE: SHARE_GROUP_STATE}


def handle(
    broker: "BrokerServices", context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse | Awaitable[FindCoordinatorResponse]:
    """Look each key up in the image."""
    if request.key_type in _ELSEWHERE:
        return _handle_elsewhere(broker, context, request)
    return _answer(
        context,
        request,
        [_find(broker, context, request.key_type, key) for key in _keys(context, request)],
    )


def _keys(context: RequestContext, request: FindCoordinatorRequest) -> list[str]:
    return [request.key] if context.api_version < _KEYS_FROM else request.coordinator_keys


def _answer(
    context: RequestContext, request: FindCoordinatorRequest, found: list[Coordinator]
) -> FindCoordinatorResponse:
    if context.api_version < _KEYS_FROM:
        return _flat(found[0])
    return FindCoordinatorResponse(coordinators=found)


async def _handle_elsewhere(
    broker: "BrokerServices", context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    """Once it is known who serves what."""
    elsewhere, topic = broker.coordinators_elsewhere, _ELSEWHERE[request.key_type]
    await elsewhere.learn()
    able = elsewhere.able(topic)
    keys = _keys(context, request)
    if able and keys and broker.image.topic(topic) is None:
        await elsewhere.have_topic_made(request.key_type, keys[0], able)
    found = [
        _find_elsewhere(broker, context, topic, key, able)
        if able
        else _find(broker, context, request.key_type, key)
        for key in keys
    ]
    return _answer(context, request, found)


def _find_elsewhere(
    broker: "BrokerServices", context: RequestContext, topic: str, key: str, able: list[int]
) -> Coordinator:
    image = broker.image
    index = broker.coordinators_elsewhere.index_of(topic, key)
    known = image.topic(topic)
    if index is None or known is None:
        return _nobody(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    leader = known.partitions[index].leader
    if leader not in able:
        why = f"the leader of {topic}-{index} is about to move"
        return _nobody(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, why)
    return _at(broker, context, key, leader)


def _flat(found: Coordinator) -> FindCoordinatorResponse:
    """The answer of v0-3."""
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message or ErrorCode(found.error_code).name,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _find(
    broker: "BrokerServices", context: RequestContext, key_type: int, key: str
) -> Coordinator:
    if key_type == _TRANSACTION:
        return _nobody(
            key,
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "transactions are not implemented by this broker yet",
        )
    if key_type != _GROUP:
        return _nobody(key, ErrorCode.INVALID_REQUEST, f"no coordinators of key type {key_type}")
    image = broker.image
    topic = image.topic(GROUP_METADATA_TOPIC)
    if topic is None:
        broker.auto_topic_creation.create([GROUP_METADATA_TOPIC])
        return _nobody(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    partition = topic.partitions.get(broker.groups.partition_for(key))
    return _at(broker, context, key, -1 if partition is None else partition.leader)


def _at(broker: "BrokerServices", context: RequestContext, key: str, leader: int) -> Coordinator:
    found = live_endpoint(broker.image, leader, context.listener_name)
    if found is None:
        return _nobody(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    registration, endpoint = found
    return Coordinator(
        key=key,
        node_id=registration.id,
        host=endpoint.host,
        port=endpoint.port,
    )


def _nobody(key: str, error: ErrorCode, message: str = "") -> Coordinator:
    return Coordinator(
        key=key, node_id=-1, host="", port=-1, error_code=error, error_message=message
    )


def refuse(_: type, request: FindCoordinatorRequest, version: int, error: KafkaError) -> Any:
    """Every key with the request's error."""
    if version < _KEYS_FROM:
        return _flat(_nobody(request.key, error.code, error.detail))
    return FindCoordinatorResponse(
        coordinators=[_nobody(key, error.code, error.detail) for key in request.coordinator_keys]
    )


API = Api(
    key=ApiKey.FIND_COORDINATOR,
    handle=handle,
    authorize=(
        on_each(AclOperation.DESCRIBE, AclResourceType.GROUP, when="key type 0"),
        on_each(AclOperation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID, when="key type 1"),
        on_each(AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER, when="key type 2"),
    ),
    refuse=refuse,
)
