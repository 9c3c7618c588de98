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
from sparkraft.base.ordering import in_order
from sparkraft.metadata.image import ResourceType
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.codec import encode_parts
from sparkraft.protocol.messages.k74_list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_cluster
from sparkraft.server.api.encoded_array import CHUNK, EncodedArray
from sparkraft.server.api.registry import Api, RequestContext, Steps

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

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
) -> Steps:
    """List the resources of the requested types, in slices; returns the encoded response."""
    kinds = list(request.resource_types)
    if context.api_version == 0:
        kinds = [ResourceType.CLIENT_METRICS]
    elif not kinds:
        kinds = list(_KINDS)
    if any(kind not in _KINDS for kind in kinds):
        wrong = "unknown type of config resource"
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, wrong)
    found = EncodedArray(ListConfigResourcesResponse, context.api_version)
    for kind in dict.fromkeys(kinds):
        for name in (yield from _names(node, kind)):
            found.add(ConfigResource(resource_name=name, resource_type=kind))
            if not found.count % CHUNK:
                yield CHUNK
    response = ListConfigResourcesResponse(config_resources=found.encoded())
    return encode_parts(response, context.api_version)


def _names(node: "BrokerServices", kind: int) -> "Generator[int, None, Iterable[str]]":
    image = node.image
    if kind == ResourceType.TOPIC:
        return (yield from in_order(image.topics_by_name))
    if kind in {ResourceType.BROKER, ResourceType.BROKER_LOGGER}:
        return [str(broker_id) for broker_id in sorted(image.brokers)]
    configured = []
    for number, (resource_kind, name) in enumerate(image.configs):
        if resource_kind == kind:
            configured.append(name)
        if number % CHUNK == CHUNK - 1:
            yield CHUNK // 8
    return (yield from in_order(configured))


API = Api(
    key=ApiKey.LIST_CONFIG_RESOURCES,
    handle=handle,
    authorize=(on_cluster(AclOperation.DESCRIBE_CONFIGS),),
)
