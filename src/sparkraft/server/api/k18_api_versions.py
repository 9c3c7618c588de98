r"""ApiVersions: v0-4. What does this listener serve? (KIP-35, KIP-511, KIP-584)

Behaviour:
    * Lists only what is served; Produce from v0, because librdkafka derives whole features from it
      (KAFKA-18659).
    * GetTelemetrySubscriptions and PushTelemetry only with `sparkraft.telemetry.enable`.
    * A version too new: a v0 body with UNSUPPORTED_VERSION and the range of ApiVersions itself.
    * A client software name or version that is not `[a-zA-Z0-9](?:[a-zA-Z0-9\\-.]*[a-zA-Z0-9])?`:
      INVALID_REQUEST.
    * Features: the supported ranges, and the finalized levels with the offset of the image. v3
      leaves out features whose range starts at 0, which old Java clients cannot read (KIP-1022).
      In ZooKeeper mode, in which Kafka 3.9 supports none, the finalized levels are those of
      /feature, with the version of the znode.
    * Of keys that a broker forwards, only versions that the controller serves, too, once it is
      connected (`ApiVersionsResponse.intersectForwardableApis`).
    * Controllers, and brokers in ZooKeeper mode, report whether they are part of a migration from
      ZooKeeper (KIP-866).
Versions: v1 throttle; v3 flexible, features; v4 features from 0.    Not done: -
"""

import re
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.metadata.features import KRAFT_VERSION, SUPPORTED_FEATURES
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.codec import encode
from sparkraft.protocol.messages.k18_api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from sparkraft.server.api.authorization import NoAuthorization
from sparkraft.server.api.registry import Api, RequestContext, forwarded_keys, served_ranges

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkraft.metadata.image import ClusterImage
    from sparkraft.server.broker_services import BrokerServices
    from sparkraft.server.raft.driver import RaftDriver

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]{0,200}[a-zA-Z0-9])?")
_NAMED_VERSION = 3
TELEMETRY_KEYS = frozenset({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY})
"""Clients push metrics if they see these keys (KIP-714)."""


def handle(
    node: "BrokerServices", context: RequestContext, request: ApiVersionsRequest
) -> ApiVersionsResponse:
    """List the keys of the listener the request arrived at."""
    if not has_valid_software(context.api_version, request):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if context.api_version >= _NAMED_VERSION:
        context.connection.set_client_software(
            request.client_software_name, request.client_software_version
        )
    routes = context.connection.listener.routes
    ranges = served_ranges(
        controller_listener=routes.controller_listener, zookeeper=routes.zookeeper
    )
    if not routes.controller_listener:
        ranges = _of_both(ranges, node.channel.forwarded_versions, zookeeper=routes.zookeeper)
    keys = [
        ApiVersion(api_key=key, min_version=lowest, max_version=highest)
        for key, lowest, highest in ranges
    ]
    if not routes.telemetry:
        keys = [key for key in keys if key.api_key not in TELEMETRY_KEYS]
    response = ApiVersionsResponse(api_keys=keys)
    response.zk_migration_ready = node.config.migrates or node.config.is_migrating_broker
    if node.raft is not None:
        _add_features(node.raft, node.image, context.api_version, response)
    elif node.finalized_features is not None:
        _add_finalized(node.finalized_features.levels, node.finalized_features.epoch, response)
    return response


def _add_features(
    raft: "RaftDriver", image: "ClusterImage", version: int, response: ApiVersionsResponse
) -> None:
    """Add the supported ranges, and the finalized levels."""
    for name, (lowest, highest) in sorted(SUPPORTED_FEATURES.items()):
        if lowest > 0 or version > _NAMED_VERSION:
            response.supported_features.append(
                SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
            )
    if image.metadata_version > 0:
        levels = dict(image.features)
        if raft.kraft_version > 0:  # raft keeps its own version, outside the image
            levels[KRAFT_VERSION] = raft.kraft_version
        _add_finalized(levels, image.offset, response)


def _add_finalized(levels: "Mapping[str, int]", epoch: int, response: ApiVersionsResponse) -> None:
    response.finalized_features_epoch = epoch
    for name, level in sorted(levels.items()):
        response.finalized_features.append(
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
        )


def has_valid_software(version: int, request: ApiVersionsRequest) -> bool:
    """Whether the client software's name and version are valid; before v3 it has none."""
    return version < _NAMED_VERSION or all(
        _SOFTWARE.fullmatch(text) is not None
        for text in (request.client_software_name, request.client_software_version)
    )


def _of_both(
    ranges: "list[tuple[int, int, int]]",
    controllers: "Mapping[int, tuple[int, int]] | None",
    *,
    zookeeper: bool,
) -> "list[tuple[int, int, int]]":
    """Limit the versions of forwarded keys to those of the controller, if they are known."""
    if controllers is None:
        return ranges
    forwarded = forwarded_keys(zookeeper=zookeeper)
    none = (0, -1)
    limited = (
        (
            key,
            max(lowest, controllers.get(key, none)[0]),
            min(highest, controllers.get(key, none)[1]),
        )
        if key in forwarded
        else (key, lowest, highest)
        for key, lowest, highest in ranges
    )
    return [each for each in limited if each[1] <= each[2]]


def too_new_body() -> bytes:
    """The v0 response to an unknown version."""
    lowest, highest = API.version_range()
    own = ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=lowest, max_version=highest)
    return encode(ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own]), 0)


def refuse(_: type, request: Any, version: int, error: KafkaError) -> ApiVersionsResponse:
    """The error alone."""
    return ApiVersionsResponse(error_code=error.code)


API = Api(
    key=ApiKey.API_VERSIONS,
    handle=handle,
    authorize=NoAuthorization("sent before authentication"),
    controller=True,
    refuse=refuse,
)
