"""ListTransactions (key 66): v0-2, flexible from v0."""

from sparkraft.protocol.declare import Message, array, int16, int32, int64, int64s, string, strings


class ListTransactionsRequest(Message, key=66, versions="0-2", flexible="0+"):
    """Asks which transactions a coordinator has (KIP-664).

    v1 by age (KIP-994), v2 by pattern of the id (KIP-1152).
    """

    state_filters: list[str] = strings()
    producer_id_filters: list[int] = int64s()
    duration_filter: int = int64("1+", default=-1)
    transactional_id_pattern: str | None = string("2+", nullable=True, default=None)


class TransactionState(Message):
    """One transaction: `ListTransactionsResponse.transaction_states`."""

    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


class ListTransactionsResponse(Message, key=66, versions="0-2", flexible="0+"):
    """Id, producer and state of each transaction."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: list[str] = strings()
    transaction_states: list[TransactionState] = array(TransactionState)
