"""GetTelemetrySubscriptions: v0. Which metrics shall this client push? (KIP-714)

Behaviour:
    * A zero instance id gets a new one. The subscriptions that match the client are merged: all
      their metrics, the shortest interval.
    * Asked again before the interval is over: THROTTLING_QUOTA_EXCEEDED, unless the last push was
      refused for its subscription id or its compression.
    * Advertised and served only with `sparkraft.telemetry.enable`, as in Kafka only with a
      reporter that takes client metrics; else UNSUPPORTED_VERSION.
Versions: v0 flexible.    Not done: served only with `sparkraft.telemetry.enable`
"""

from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k71_get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from sparkraft.server.api.authorization import NoAuthorization
from sparkraft.server.api.registry import Api, RequestContext
from sparkraft.server.broker.client_telemetry import COMPRESSION_TYPES

if TYPE_CHECKING:
    from sparkraft.base.ids import Uuid
    from sparkraft.server.broker_services import BrokerServices


def handle(
    broker: "BrokerServices", context: RequestContext, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    """Find the client's subscription."""
    telemetry = broker.telemetry
    if not telemetry.is_enabled:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    instance = telemetry.subscribe(
        request.client_instance_id, lambda instance_id: client_of(context, instance_id)
    )
    telemetry.forget_with(context.connection, instance.id)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance.id,
        subscription_id=instance.subscription_id,
        accepted_compression_types=list(COMPRESSION_TYPES),
        push_interval_ms=instance.interval_ms,
        telemetry_max_bytes=telemetry.bytes_max,
        delta_temporality=True,
        requested_metrics=instance.metrics,
    )


def client_of(context: RequestContext, instance_id: "Uuid") -> dict[str, str]:
    """The values that a subscription's patterns match."""
    name, version = context.connection.client_name or ("unknown", "unknown")
    port = context.connection_id.rsplit("-", 1)[0].rpartition(":")[2]
    return {
        "client_instance_id": str(instance_id),
        "client_id": context.client_id or "",
        "client_software_name": name,
        "client_software_version": version,
        "client_source_address": context.client_host,
        "client_source_port": port,
    }


API = Api(
    key=ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    handle=handle,
    authorize=NoAuthorization("Kafka requires no operation for client metrics"),
)
