"""EndTxn (key 26): v0-5, flexible from v3.

KIP-98.
"""

from sparkraft.protocol.declare import Message, boolean, int16, int32, int64, string


class EndTxnRequest(Message, key=26, versions="0-5", flexible="3+"):
    """Commits or aborts a transaction. v5 raises the producer's epoch each time (KIP-890)."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


class EndTxnResponse(Message, key=26, versions="0-5", flexible="3+"):
    """An error code; from v5 the producer's id and epoch for the next transaction."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64("5+", default=-1, ignorable=True)
    producer_epoch: int = int16("5+", default=-1, ignorable=True)
