"""PushTelemetry (key 72): v0, flexible from v0."""

from sparkraft.base.ids import Uuid
from sparkraft.protocol.declare import Message, blob, boolean, int8, int16, int32, uuid


class PushTelemetryRequest(Message, key=72, versions="0", flexible="0+"):
    """Sends metrics in OpenTelemetry's form (KIP-714)."""

    client_instance_id: Uuid = uuid()
    subscription_id: int = int32()
    terminating: bool = boolean()
    compression_type: int = int8()
    metrics: bytes = blob()


class PushTelemetryResponse(Message, key=72, versions="0", flexible="0+"):
    """An error code."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
