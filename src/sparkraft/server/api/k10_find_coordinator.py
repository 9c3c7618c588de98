"""FindCoordinator: v0-6. Which broker looks after a group? (KIP-699, KIP-890, KIP-932)

Behaviour:
    * Groups (key type 0): the leader of the group's partition of `__consumer_offsets`. The topic
      is made at the first question; until it is there, or while it has no leader on the client's
      listener: COORDINATOR_NOT_AVAILABLE, and the client asks again.
    * Transactions (1): TRANSACTIONAL_ID_AUTHORIZATION_FAILED, with a message that says why. It is
      the one code that all clients take as fatal at once; any other starts a retry loop in some.
    * Share partitions (2) and unknown types: INVALID_REQUEST.
    * Below v4 one key, its error at the top; from v4 many, each with its own.
Versions: v1 key type, error message; v3 flexible; v4 several keys; v6 share keys.
Not done: transactions, share groups.
"""

from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k10_find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from sparkraft.server.api.registry import Api, RequestContext
from sparkraft.server.broker.cluster_view import live_endpoint
from sparkraft.server.coordinator.group_driver import GROUP_METADATA_TOPIC

if TYPE_CHECKING:
    from sparkraft.server.broker.services import Broker

_KEYS_FROM = 4
_GROUP = 0
_TRANSACTION = 1


def handle(
    broker: "Broker", context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    """Look each key up in the image."""
    if context.api_version < _KEYS_FROM:
        return _flat(_find(broker, context, request.key_type, request.key))
    return FindCoordinatorResponse(
        coordinators=[
            _find(broker, context, request.key_type, key) for key in request.coordinator_keys
        ]
    )


def _flat(found: Coordinator) -> FindCoordinatorResponse:
    """The answer of v0-3."""
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message or ErrorCode(found.error_code).name,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _find(broker: "Broker", context: RequestContext, key_type: int, key: str) -> Coordinator:
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
    leader = -1 if partition is None else partition.leader
    found = live_endpoint(image, leader, context.listener_name)
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


API = Api(key=ApiKey.FIND_COORDINATOR, handle=handle, refuse=refuse)
