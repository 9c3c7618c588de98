"""AddOffsetsToTxn (key 25): v0-4, flexible from v3."""

from sparkraft.protocol.declare import Message, int16, int32, int64, string


class AddOffsetsToTxnRequest(Message, key=25, versions="0-4", flexible="3+"):
    """Adds a group's offsets to a transaction (KIP-98)."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


class AddOffsetsToTxnResponse(Message, key=25, versions="0-4", flexible="3+"):
    """An error code."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
