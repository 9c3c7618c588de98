"""DescribeConfigs: v1-4. Configs in force and where they come from. (KIP-133, KIP-226, KIP-569)

Behaviour:
    * Topics, this broker, the cluster's broker defaults (empty name), groups, client-metrics
      subscriptions, log levels of this node (BROKER_LOGGER, KIP-412). Sources and synonyms are
      Kafka's, the strongest first.
    * Another broker's id: INVALID_REQUEST; only it knows its own file.
    * In ZooKeeper mode groups and client metrics: INVALID_REQUEST.
    * Sensitive values, and values of unknown keys, are never shown.
    * `configuration_keys` null or empty: every key.
    * A resource named repeatedly is described repeatedly, from one encoding.
Versions: v3 types and documentation; v4 flexible.
Not done: the documentation of some keys is empty.
"""

from typing import TYPE_CHECKING, Any, cast

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
from sparkraft.protocol.codec import Encoded, encode_elements, encode_parts
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
from sparkraft.server.api.registry import Api, RequestContext, Steps
from sparkraft.server.config import OWN_CONFIGS
from sparkraft.server.config_pieces import result_entries, result_head
from sparkraft.server.controller.submission import set_error
from sparkraft.server.zookeeper_config import ZOOKEEPER_CONFIGS

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from sparkraft.metadata.image import ClusterImage
    from sparkraft.server.broker_services import BrokerServices
    from sparkraft.server.controller.services import ControllerServices


_ZOOKEEPER_MODE = {**OWN_CONFIGS, **ZOOKEEPER_CONFIGS}
"""Definitions of keys that Kafka 4 does not have, of a broker in ZooKeeper mode."""


def handle(
    node: "BrokerServices | ControllerServices",
    context: RequestContext,
    request: DescribeConfigsRequest,
) -> Steps:
    """Describe each resource; returns the encoded response."""
    results = _Results(node, context, request)
    denied: list[tuple[DescribeConfigsResource, KafkaError]] = []
    for resource in request.resources:
        denial = _denial(context, resource)
        if denial is None:
            yield results.add(resource)
        else:
            denied.append((resource, denial))
            yield 1
    for resource, denial in denied:
        results.add_error(resource, denial)
        yield 1
    response = DescribeConfigsResponse(results=cast("Any", Encoded(results.count, results.buffers)))
    return encode_parts(response, context.api_version)


class _Results:
    """The encoded results of one response; equal ones refer to the same bytes.

    Attributes:
        buffers: of `count` results.
    """

    def __init__(
        self,
        node: "BrokerServices | ControllerServices",
        context: RequestContext,
        request: DescribeConfigsRequest,
    ) -> None:
        self.buffers: list[bytes | memoryview] = []
        self.count = 0
        self._node = node
        self._image = node.image
        self._version = context.api_version
        self._request = request
        self._known: dict[Hashable, list[bytes]] = {}
        """Results by resource and requested keys."""
        ids = dict.fromkeys(("broker.id", "node.id"), str(node.node_id))
        self._sources = BrokerSources(
            dynamic=self._image.config(ResourceType.BROKER, str(node.node_id)),
            cluster=self._image.config(ResourceType.BROKER, ""),
            # Kafka keeps the two names of a broker's id equal.
            static={**ids, **node.config.properties},
            extensions=_ZOOKEEPER_MODE if node.config.is_zookeeper else OWN_CONFIGS,
            zookeeper=node.config.is_zookeeper,
        )

    def add(self, resource: DescribeConfigsResource) -> int:
        """Describe one resource; returns the units of work that took."""
        kind, name = resource.resource_type, resource.resource_name
        keys = tuple(resource.configuration_keys) if resource.configuration_keys else None
        known = self._known.get((kind, name, keys))
        units = 1
        if known is None:
            try:
                entries, units = self._entries(kind, name, keys)
            except KafkaError as error:
                self.add_error(resource, error)
                return 2
            known = [result_head(self._version, kind, name), entries]
            self._known[kind, name, keys] = known
        elif len(known) > 1:  # asked for again: one buffer each from now on
            known[:] = [b"".join(known)]
        self.buffers += known
        self.count += 1
        return units

    def _entries(self, kind: int, name: str, keys: tuple[str, ...] | None) -> tuple[bytes, int]:
        """The encoded entries of a resource, and the units of work."""
        check_resource(self._node, self._image, kind, name)
        is_default = not name
        own = self._image.config(kind, name)
        request = self._request
        shows = request.include_synonyms, request.include_documentation
        # A broker describes only itself, so its id is not part of the key.
        key = self._version, kind, is_default, own, shows, keys
        pieces = self._node.config_pieces
        is_kept = kind != ResourceType.BROKER_LOGGER  # log levels are in no image
        found = pieces.get(self._image, key) if is_kept else None
        if found is not None:
            return found, 2
        described = [
            _described(entry, request)
            for entry in entries_of(kind, own, self._sources, is_default=is_default)
            if keys is None or entry.name in keys
        ]
        found = result_entries(self._version, described)
        if is_kept:
            pieces.put(self._image, key, found)
        return found, 2 * len(described) + 20

    def add_error(self, resource: DescribeConfigsResource, error: KafkaError) -> None:
        """Refuse one resource."""
        result = DescribeConfigsResult(
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        self.buffers.append(
            encode_elements(DescribeConfigsResponse, self._version, (set_error(result, error),))
        )
        self.count += 1


_KRAFT_ONLY = frozenset({ResourceType.CLIENT_METRICS, ResourceType.GROUP})
"""Resources that a cluster in ZooKeeper mode does not have."""


def check_resource(
    node: "BrokerServices | ControllerServices", image: "ClusterImage", kind: int, name: str
) -> None:
    """Raise the KafkaError of a resource that cannot be described."""
    if node.config.is_zookeeper and kind in _KRAFT_ONLY:
        wrong = "ZooKeeper mode has configs of topics and brokers only."
        raise KafkaError(ErrorCode.INVALID_REQUEST, wrong)
    match kind:
        case ResourceType.TOPIC:
            check_topic_name(name)
            if image.topic(name) is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        case ResourceType.BROKER:
            if name:
                _check_is_this_broker(node, name)
        case ResourceType.BROKER_LOGGER:
            _check_named(name, "Broker id must not be empty")
            _check_is_this_broker(node, name)
        case ResourceType.CLIENT_METRICS:
            _check_named(name, "Client metrics subscription name must not be empty")
        case ResourceType.GROUP:
            _check_named(name, "Group name must not be empty")
        case unknown:
            wrong = f"Unsupported resource type: {unknown}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, wrong)


def entries_of(
    kind: int, own: "Mapping[str, str]", sources: BrokerSources, *, is_default: bool
) -> list[ConfigEntry]:
    """The entries of a resource that sets `own`; `is_default`: the cluster's broker defaults."""
    match kind:
        case ResourceType.TOPIC:
            return describe_topic(own, sources)
        case ResourceType.BROKER:
            return describe_broker_defaults(sources) if is_default else describe_broker(sources)
        case ResourceType.CLIENT_METRICS:
            source = ConfigSource.CLIENT_METRICS_CONFIG
            return describe_plain(CLIENT_METRICS_CONFIGS, own, source)
        case ResourceType.GROUP:
            return describe_group(own, sources)
        case _:
            return [_level(logger, level) for logger, level in log_levels.loggers().items()]


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
    handle=handle,
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
