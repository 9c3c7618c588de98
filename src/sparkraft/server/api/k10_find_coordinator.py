"""FindCoordinator: v0-6. Which broker coordinates a key? (KIP-699, KIP-890, KIP-932)

Behaviour:
    * Groups (key type 0) and transactional ids (1): the leader of the key's partition of
      `__consumer_offsets` or `__transaction_state`. The first request creates the topic. Until it
      exists, while the partition has no leader on the client's listener, or while its leader does
      not serve transactions (an older version): COORDINATOR_NOT_AVAILABLE, and the client retries.
    * Share partitions (2), if other brokers of the cluster (Kafka's) serve them: the leader of the
      key's partition of `__share_group_state` if it is one of those brokers. One of them is asked
      to create the topic. Otherwise, and for unknown types: INVALID_REQUEST.
    * Below v4 one key, its error at the top; from v4 many, each with its own.
Versions: v1 key type, error message; v3 flexible; v4 several keys; v6 share keys.
Not done: share groups of our own.
"""

from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.coordinator.internal_topics import KeyType
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.codec import encode_parts
from sparkraft.protocol.messages.k10_find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from sparkraft.security.acls import CLUSTER_NAME, AclOperation, AclResourceType
from sparkraft.server.api.authorization import denied, on_each
from sparkraft.server.api.encoded_array import CHUNK, encoded_in_pieces
from sparkraft.server.api.registry import Api, RequestContext, Steps
from sparkraft.server.broker.cluster_view import live_endpoint
from sparkraft.server.coordinator.responses import Response

if TYPE_CHECKING:
    from sparkraft.server.broker_services import BrokerServices

_KEYS_FROM = 4


def handle(
    broker: "BrokerServices", context: RequestContext, request: FindCoordinatorRequest
) -> Response[FindCoordinatorResponse] | Steps:
    """Look up each key in the directory."""
    if len(request.coordinator_keys) > CHUNK:
        return _handle_large(broker, context, request)
    allowed = [
        key for key in _keys(context, request) if _denial(context, request.key_type, key) is None
    ]
    if allowed and broker.coordinators.needs_discovery(request.key_type):
        return _respond_after_discovery(broker, context, request, allowed)
    return _respond(broker, context, request)


def _handle_large(
    broker: "BrokerServices", context: RequestContext, request: FindCoordinatorRequest
) -> Steps:
    """The same in slices; returns the encoded response."""
    keys, version = request.coordinator_keys, context.api_version
    if broker.coordinators.needs_discovery(request.key_type):
        allowed = []
        for key in keys:
            if _denial(context, request.key_type, key) is None:
                allowed.append(key)
            yield 1
        if allowed:
            yield broker.coordinators.discover(KeyType(request.key_type), allowed)
    found = (_find(broker, context, request.key_type, key) for key in keys)
    coordinators: Any = yield from encoded_in_pieces(FindCoordinatorResponse, version, found)
    return encode_parts(FindCoordinatorResponse(coordinators=coordinators), version)


async def _respond_after_discovery(
    broker: "BrokerServices",
    context: RequestContext,
    request: FindCoordinatorRequest,
    keys: list[str],
) -> FindCoordinatorResponse:
    await broker.coordinators.discover(KeyType(request.key_type), keys)
    return _respond(broker, context, request)


def _respond(
    broker: "BrokerServices", context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    found = [_find(broker, context, request.key_type, key) for key in _keys(context, request)]
    if context.api_version < _KEYS_FROM:
        return _flat(found[0])
    return FindCoordinatorResponse(coordinators=found)


def _keys(context: RequestContext, request: FindCoordinatorRequest) -> list[str]:
    return [request.key] if context.api_version < _KEYS_FROM else request.coordinator_keys


def _flat(found: Coordinator) -> FindCoordinatorResponse:
    """The response of v0-3."""
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
    denial = _denial(context, key_type, key)
    if denial is not None:
        if key_type == KeyType.SHARE:
            raise denial  # of the whole request, as in Kafka
        return _error(key, denial.code)
    location = broker.coordinators.locate(key_type, key)
    if location is None:
        return _error(key, ErrorCode.INVALID_REQUEST, f"no coordinators of key type {key_type}")
    found = live_endpoint(broker.image, location.broker_id, context.listener_name)
    if found is None:
        return _error(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, location.problem)
    registration, endpoint = found
    return Coordinator(
        key=key,
        node_id=registration.id,
        host=endpoint.host,
        port=endpoint.port,
    )


def _denial(context: RequestContext, key_type: int, key: str) -> KafkaError | None:
    """Why the client may not know the coordinator; None: it may, or there is no such key type."""
    match key_type:
        case KeyType.GROUP:
            operation, resource_type, name = AclOperation.DESCRIBE, AclResourceType.GROUP, key
        case KeyType.TRANSACTION:
            operation, resource_type, name = (
                AclOperation.DESCRIBE,
                AclResourceType.TRANSACTIONAL_ID,
                key,
            )
        case KeyType.SHARE:
            operation, resource_type, name = (
                AclOperation.CLUSTER_ACTION,
                AclResourceType.CLUSTER,
                CLUSTER_NAME,
            )
        case _:
            return None
    if context.is_allowed(operation, resource_type, name):
        return None
    return denied(resource_type)


def _error(key: str, error: ErrorCode, message: str = "") -> Coordinator:
    return Coordinator(
        key=key, node_id=-1, host="", port=-1, error_code=error, error_message=message
    )


def refuse(_: type, request: FindCoordinatorRequest, version: int, error: KafkaError) -> Steps:
    """Every key with the request's error."""
    if version < _KEYS_FROM:
        return _flat(_error(request.key, error.code, error.detail))
    found = (_error(key, error.code, error.detail) for key in request.coordinator_keys)
    coordinators = yield from encoded_in_pieces(FindCoordinatorResponse, version, found)
    return FindCoordinatorResponse(coordinators=coordinators)


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
