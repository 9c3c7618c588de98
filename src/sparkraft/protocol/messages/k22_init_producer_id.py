"""InitProducerId (key 22): v0-6, flexible from v2.

KIP-98.
"""

from sparkraft.protocol.declare import Message, boolean, int16, int32, int64, string


class InitProducerIdRequest(Message, key=22, versions="0-6", flexible="2+"):
    """Asks for a producer id.

    For idempotence, or for a transactional id, whose older producers it fences. v3 renews an epoch
    (KIP-360); v6 two-phase commit (KIP-939), not stable yet.
    """

    transactional_id: str | None = string(nullable=True)
    transaction_timeout_ms: int = int32()
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)
    enable2_pc: bool = boolean("6+")
    keep_prepared_txn: bool = boolean("6+")


class InitProducerIdResponse(Message, key=22, versions="0-6", flexible="2+"):
    """Producer id and epoch."""

    throttle_time_ms: int = int32(ignorable=True)
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
    ongoing_txn_producer_id: int = int64("6+", default=-1)
    ongoing_txn_producer_epoch: int = int16("6+", default=-1)
