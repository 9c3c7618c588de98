"""Authorization and errors of the APIs that read and alter configs.

The operations are those of KafkaApis and ConfigAdminManager, by the kind of the resource:

TOPIC                                   the operation on that topic
GROUP                                   the operation on that group
BROKER, BROKER_LOGGER, CLIENT_METRICS   the operation on the cluster
"""

from typing import Any

from sparkraft.base.errors import KafkaError
from sparkraft.metadata.image import ResourceType
from sparkraft.security.acls import CLUSTER_NAME, AclOperation, AclResourceType
from sparkraft.server.api.authorization import denied
from sparkraft.server.api.item_errors import ItemErrors
from sparkraft.server.api.registry import RequestContext

_AUTHORIZED_AS = {
    ResourceType.TOPIC: AclResourceType.TOPIC,
    ResourceType.GROUP: AclResourceType.GROUP,
    ResourceType.BROKER: AclResourceType.CLUSTER,
    ResourceType.BROKER_LOGGER: AclResourceType.CLUSTER,
    ResourceType.CLIENT_METRICS: AclResourceType.CLUSTER,
}


def config_denial(
    context: RequestContext, operation: AclOperation, kind: int, name: str
) -> KafkaError | None:
    """Why the session may not do `operation` on a resource's configs; None: it may.

    An unknown kind is not denied: the handler refuses it as invalid.
    """
    resource_type = next((found for k, found in _AUTHORIZED_AS.items() if k == kind), None)
    if resource_type is None:
        return None
    is_cluster = resource_type == AclResourceType.CLUSTER
    if context.is_allowed(operation, resource_type, CLUSTER_NAME if is_cluster else name):
        return None
    return denied(resource_type)


def altered_configs(
    request_class: type, response_class: type, result_class: type
) -> ItemErrors[Any, Any, Any, Any]:
    """How the response to either AlterConfigs request carries an error of each resource."""
    return ItemErrors(
        items=lambda request: request.resources,
        result=lambda resource: result_class(
            resource_type=resource.resource_type, resource_name=resource.resource_name
        ),
        response=lambda results: response_class(responses=results),
        results=lambda response: response.responses,
        only=lambda request, resources: request_class(
            resources=resources, validate_only=request.validate_only
        ),
    )


def alter_denial(context: RequestContext, resource: Any) -> KafkaError | None:
    """`config_denial` of ALTER_CONFIGS, for a resource of either AlterConfigs request."""
    return config_denial(
        context, AclOperation.ALTER_CONFIGS, resource.resource_type, resource.resource_name
    )
