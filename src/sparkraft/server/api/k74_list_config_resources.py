"""ListConfigResources: v0-1. Resources that may have configs, by type. (KIP-1000, KIP-1142)

Behaviour:
    * No types in the request: every type. v0 is about client-metrics subscriptions alone.
    * Topics and brokers are listed with or without configs of their own, groups and subscriptions
      only with configs.
    * An unknown type: UNSUPPORTED_VERSION.
Versions: v1 types.    Not done: -
"""

from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.metadata.image import ResourceType
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k74_list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_cluster
from sparkraft.server.api.registry import Api, RequestContext

if TYPE_CHECKING:
    from sparkraft.server.broker_services import BrokerServices

_KINDS = (
    ResourceType.TOPIC,
    ResourceType.BROKER,
    ResourceType.BROKER_LOGGER,
    ResourceType.CLIENT_METRICS,
    ResourceType.GROUP,
)


def handle(
    node: "BrokerServices", context: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """List the resources of the requested types."""
    kinds = list(request.resource_types)
    if context.api_version == 0:
        kinds = [ResourceType.CLIENT_METRICS]
    elif not kinds:
        kinds = list(_KINDS)
    if any(kind not in _KINDS for kind in kinds):
        wrong = "unknown type of config resource"
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, wrong)
    found = [
        ConfigResource(resource_name=name, resource_type=kind)
        for kind in dict.fromkeys(kinds)
        for name in _names(node, kind)
    ]
    return ListConfigResourcesResponse(config_resources=found)


def _names(node: "BrokerServices", kind: int) -> list[str]:
    image = node.image
    if kind == ResourceType.TOPIC:
        return sorted(image.topics_by_name)
    if kind in {ResourceType.BROKER, ResourceType.BROKER_LOGGER}:
        return [str(broker_id) for broker_id in sorted(image.brokers)]
    return sorted(name for resource_kind, name in image.configs if resource_kind == kind)


API = Api(
    key=ApiKey.LIST_CONFIG_RESOURCES,
    handle=handle,
    authorize=(on_cluster(AclOperation.DESCRIBE_CONFIGS),),
)
