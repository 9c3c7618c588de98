"""ListConfigResources: v0-1. What may carry configs, by kind. (KIP-1000, KIP-1142)

Behaviour:
    * No kinds given: every kind. v0 asks for client-metrics subscriptions alone.
    * Topics and brokers are listed whether or not they carry configs of their own, groups and
      subscriptions only where they do.
    * Another kind: UNSUPPORTED_VERSION.
Versions: v1 kinds.    Not done: -
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
    """List the resources of the kinds asked for."""
    kinds = list(request.resource_types)
    if context.api_version == 0:
        kinds = [ResourceType.CLIENT_METRICS]
    elif not kinds:
        kinds = list(_KINDS)
    if any(kind not in _KINDS for kind in kinds):
        wrong = "a kind of config resource that is not known here"
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
