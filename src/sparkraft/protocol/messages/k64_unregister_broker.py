"""UnregisterBroker (key 64): v0, flexible from v0."""

from sparkraft.protocol.declare import Message, int16, int32, string


class UnregisterBrokerRequest(Message, key=64, versions="0", flexible="0+"):
    """Removes a broker that is gone for good from the metadata (KIP-631)."""

    broker_id: int = int32()


class UnregisterBrokerResponse(Message, key=64, versions="0", flexible="0+"):
    """An error code."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=True)
