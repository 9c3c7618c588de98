"""DescribeConfigs: v1-4. Configs in force and where they come from. (KIP-133, KIP-226, KIP-569)

Behaviour:
    * Topics, this broker, the cluster's broker defaults (empty name), groups, client-metrics
      subscriptions, log levels of this node (BROKER_LOGGER, KIP-412). Sources and synonyms are
      Kafka's, the strongest first.
    * Another broker's id: INVALID_REQUEST; only it knows its own file.
    * Sensitive values, and values of unknown keys, are never shown.
    * `configuration_keys` null or empty: every key.
Versions: v3 types and documentation; v4 flexible.
Not done: the documentation of some keys is empty.
"""

from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.metadata.configs import CLIENT_METRICS_CONFIGS
from sparkraft.metadata.configs.describe import (
    BrokerSources,
    ConfigEntry,
    ConfigSource,
    describe_broker,
    describe_broker_defaults,
    describe_group,
    describe_plain,
    describe_topic,
)
from sparkraft.metadata.image import ResourceType
from sparkraft.metadata.topic_names import check_topic_name
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server import log_levels
from sparkraft.server.api.authorization import on_each
from sparkraft.server.api.config_authorization import config_denial
from sparkraft.server.api.item_errors import ItemErrors
from sparkraft.server.api.registry import Api, RequestContext
from sparkraft.server.config import OWN_CONFIGS
from sparkraft.server.controller.submission import set_error

if TYPE_CHECKING:
    from sparkraft.server.broker_services import BrokerServices
    from sparkraft.server.controller.services import ControllerServices


def handle(
    node: "BrokerServices | ControllerServices",
    context: RequestContext,
    request: DescribeConfigsRequest,
) -> DescribeConfigsResponse:
    """Describe each resource."""
    response = DescribeConfigsResponse()
    for resource in request.resources:
        result = DescribeConfigsResult(
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        try:
            entries = _entries(node, resource)
        except KafkaError as error:
            set_error(result, error)
        else:
            keys = resource.configuration_keys or None
            result.configs = [
                _described(entry, request)
                for entry in entries
                if keys is None or entry.name in keys
            ]
        response.results.append(result)
    return response


def _entries(
    node: "BrokerServices | ControllerServices", resource: DescribeConfigsResource
) -> list[ConfigEntry]:
    image, name = node.image, resource.resource_name
    sources = BrokerSources(
        dynamic=image.config(ResourceType.BROKER, str(node.node_id)),
        cluster=image.config(ResourceType.BROKER, ""),
        # Kafka keeps the two names of a broker's id equal.
        static={"broker.id": str(node.node_id), **node.config.properties},
        extensions=OWN_CONFIGS,
    )
    own = image.config(resource.resource_type, name)
    match resource.resource_type:
        case ResourceType.TOPIC:
            check_topic_name(name)
            if image.topic(name) is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return describe_topic(own, sources)
        case ResourceType.BROKER:
            if not name:
                return describe_broker_defaults(sources)
            _check_is_this_broker(node, name)
            return describe_broker(sources)
        case ResourceType.BROKER_LOGGER:
            _check_named(name, "Broker id must not be empty")
            _check_is_this_broker(node, name)
            return [_level(logger, level) for logger, level in log_levels.loggers().items()]
        case ResourceType.CLIENT_METRICS:
            _check_named(name, "Client metrics subscription name must not be empty")
            source = ConfigSource.CLIENT_METRICS_CONFIG
            return describe_plain(CLIENT_METRICS_CONFIGS, own, source)
        case ResourceType.GROUP:
            _check_named(name, "Group name must not be empty")
            return describe_group(own, sources)
        case unknown:
            wrong = f"Unsupported resource type: {unknown}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, wrong)


def _level(logger: str, level: str) -> ConfigEntry:
    return ConfigEntry(
        name=logger,
        value=level,
        source=ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
        read_only=False,
        sensitive=False,
        synonyms=(),
        kind=0,
        doc="",
    )


def _check_named(name: str, wrong: str) -> None:
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, wrong)


def _check_is_this_broker(node: "BrokerServices | ControllerServices", name: str) -> None:
    if not (name.isascii() and name.isdecimal()):
        wrong = f"Broker id must be an integer, but it is: {name[:100]}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, wrong)
    if len(name) > 10 or int(name) != node.node_id:  # noqa: PLR2004 (digits of an int32)
        wrong = (
            f"Unexpected broker id, expected {node.node_id} or empty string, "
            f"but received {name[:100]}"
        )
        raise KafkaError(ErrorCode.INVALID_REQUEST, wrong)


def _described(
    entry: ConfigEntry, request: DescribeConfigsRequest
) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    is_level = entry.source == ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG  # its text is always ""
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=s.name, value=s.value, source=s.source) for s in synonyms
        ],
        config_type=entry.kind,
        documentation=entry.doc if request.include_documentation or is_level else None,
    )


_ERRORS = ItemErrors(
    items=lambda request: request.resources,
    result=lambda resource: DescribeConfigsResult(
        resource_type=resource.resource_type, resource_name=resource.resource_name
    ),
    response=lambda results: DescribeConfigsResponse(results=results),
    results=lambda response: response.results,
    only=lambda request, resources: DescribeConfigsRequest(
        resources=resources,
        include_synonyms=request.include_synonyms,
        include_documentation=request.include_documentation,
    ),
)


def _denial(context: RequestContext, resource: DescribeConfigsResource) -> KafkaError | None:
    return config_denial(
        context,
        AclOperation.DESCRIBE_CONFIGS,
        resource.resource_type,
        resource.resource_name,
    )


API = Api(
    key=ApiKey.DESCRIBE_CONFIGS,
    handle=_ERRORS.authorized(handle, _denial),
    authorize=(
        on_each(AclOperation.DESCRIBE_CONFIGS, AclResourceType.TOPIC),
        on_each(
            AclOperation.DESCRIBE_CONFIGS,
            AclResourceType.CLUSTER,
            when="of brokers, their loggers and client metrics",
        ),
        on_each(AclOperation.DESCRIBE_CONFIGS, AclResourceType.GROUP),
    ),
    controller=True,
    refuse=_ERRORS.refuse,
)
