"""PushTelemetry: v0. A client's metrics, in OpenTelemetry's form. (KIP-714)

Behaviour:
    * Refused in this order: a reserved instance id or a push after the last one (INVALID_REQUEST),
      too early (THROTTLING_QUOTA_EXCEEDED; never the last push of a client that ends),
      UNKNOWN_SUBSCRIPTION_ID, UNSUPPORTED_COMPRESSION_TYPE, TELEMETRY_TOO_LARGE above
      telemetry.max.bytes.
    * The payload is decompressed, to at most telemetry.max.bytes, and read in a thread: above it
      TELEMETRY_TOO_LARGE, malformed INVALID_RECORD.
    * Served only with `sparkraft.telemetry.enable`; else UNSUPPORTED_VERSION.
Versions: v0 flexible.    Not done: served only with `sparkraft.telemetry.enable`; histograms and
    summaries, which clients do not send
"""

from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k72_push_telemetry import (
    PushTelemetryRequest,
    PushTelemetryResponse,
)
from sparkraft.server.api.authorization import NoAuthorization
from sparkraft.server.api.k71_get_telemetry_subscriptions import client_of
from sparkraft.server.api.registry import Api, RequestContext
from sparkraft.server.broker.client_telemetry import read_payload

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from sparkraft.server.broker.client_telemetry import Instance
    from sparkraft.server.broker_services import BrokerServices


def handle(
    broker: "BrokerServices", context: RequestContext, request: PushTelemetryRequest
) -> "PushTelemetryResponse | Awaitable[PushTelemetryResponse]":
    """Check the push, then take its points."""
    telemetry = broker.telemetry
    if not telemetry.is_enabled:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    instance = telemetry.begin_push(request, lambda instance_id: client_of(context, instance_id))
    telemetry.forget_with(context.connection, instance.id)
    if not request.metrics:
        return PushTelemetryResponse()
    return _take(broker, instance, request.compression_type, bytes(request.metrics))


async def _take(
    broker: "BrokerServices", instance: "Instance", compression: int, data: bytes
) -> PushTelemetryResponse:
    telemetry = broker.telemetry
    try:
        payload = await broker.env.run_on_records(
            read_payload, compression, data, telemetry.bytes_max
        )
    except KafkaError as error:
        instance.failed(error.code)
        raise
    telemetry.end_push(instance, payload)
    return PushTelemetryResponse()


API = Api(
    key=ApiKey.PUSH_TELEMETRY,
    handle=handle,
    authorize=NoAuthorization("Kafka requires no operation for client metrics"),
)
