"""DescribeCluster: v0-2. The brokers, or the controllers, of the cluster. (KIP-700, KIP-919)

Behaviour:
    * A broker listener describes brokers (endpoint type 1), a controller listener controllers (2);
      the other type: MISMATCHED_ENDPOINT_TYPE (INVALID_REQUEST in v0); any other:
      UNSUPPORTED_ENDPOINT_TYPE.
    * Brokers return a random unfenced broker as controller, by design; controllers the active one.
    * Fenced brokers only on request (v2).
Versions: v1 endpoint type; v2 fenced brokers.    Not done: -
"""

from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k60_describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import denied, on_each
from sparkraft.server.api.authorized_operations import cluster_operations
from sparkraft.server.api.registry import Api, RequestContext
from sparkraft.server.broker.cluster_view import live_brokers

if TYPE_CHECKING:
    from sparkraft.server.broker_services import BrokerServices

_BROKERS, _CONTROLLERS = 1, 2
_TYPE_NAMES = {_BROKERS: "BROKER", _CONTROLLERS: "CONTROLLER"}


def handle(
    node: "BrokerServices", context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """Describe the nodes of the kind this listener serves."""
    on_controller = context.connection.listener.controller_listener
    if on_controller and not context.is_allowed(AclOperation.ALTER, AclResourceType.CLUSTER):
        raise denied(AclResourceType.CLUSTER)
    served = _CONTROLLERS if on_controller else _BROKERS
    _check(request.endpoint_type, served, context.api_version)
    response = DescribeClusterResponse(endpoint_type=served, cluster_id=node.cluster_id)
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations(context)
    if on_controller:
        _add_controllers(node, context.listener_name, response)
    else:
        _add_brokers(node, context, request, response)
    return response


def _check(asked: int, served: int, version: int) -> None:
    if asked == served:
        return
    if asked not in _TYPE_NAMES:
        code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        detail = f"Unsupported endpoint type {asked}"
    else:
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        detail = (
            f"The request was sent to an endpoint of type {_TYPE_NAMES[served]}, "
            f"but we wanted an endpoint of type {_TYPE_NAMES[asked]}"
        )
    raise KafkaError(ErrorCode.INVALID_REQUEST if version == 0 else code, detail)


def _add_brokers(
    node: "BrokerServices",
    context: RequestContext,
    request: DescribeClusterRequest,
    response: DescribeClusterResponse,
) -> None:
    image = node.image
    for broker_id in sorted(image.brokers):
        broker = image.brokers[broker_id]
        endpoint = broker.endpoint(context.listener_name)
        if endpoint is None or (broker.fenced and not request.include_fenced_brokers):
            continue
        response.brokers.append(
            DescribeClusterBroker(
                broker_id=broker.id,
                host=endpoint.host,
                port=endpoint.port,
                rack=broker.rack,
                is_fenced=broker.fenced,
            )
        )
    live = live_brokers(image, context.listener_name)
    response.controller_id = node.controller_for_clients([each for each, _ in live])


def _add_controllers(node: Any, listener: str, response: DescribeClusterResponse) -> None:
    image = node.image
    for controller_id in sorted(image.controllers):
        for endpoint in image.controllers[controller_id].endpoints:
            if endpoint.name == listener:
                response.brokers.append(
                    DescribeClusterBroker(
                        broker_id=controller_id, host=endpoint.host, port=endpoint.port
                    )
                )
    leader_id = node.raft.leader_and_epoch.leader_id
    if leader_id in image.controllers:
        response.controller_id = leader_id


API = Api(
    key=ApiKey.DESCRIBE_CLUSTER,
    handle=handle,
    authorize=(
        on_each(AclOperation.ALTER, AclResourceType.CLUSTER, when="sent to a controller listener"),
    ),
    controller=True,
)
