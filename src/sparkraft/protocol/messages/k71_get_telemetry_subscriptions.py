"""GetTelemetrySubscriptions (key 71): v0, flexible from v0."""

from sparkraft.base.ids import Uuid
from sparkraft.protocol.declare import Message, boolean, int8s, int16, int32, strings, uuid


class GetTelemetrySubscriptionsRequest(Message, key=71, versions="0", flexible="0+"):
    """Asks which metrics the cluster wants from this client (KIP-714)."""

    client_instance_id: Uuid = uuid()


class GetTelemetrySubscriptionsResponse(Message, key=71, versions="0", flexible="0+"):
    """The metrics, how often, and how to compress them."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    client_instance_id: Uuid = uuid()
    subscription_id: int = int32()
    accepted_compression_types: list[int] = int8s()
    push_interval_ms: int = int32()
    telemetry_max_bytes: int = int32()
    delta_temporality: bool = boolean()
    requested_metrics: list[str] = strings()
