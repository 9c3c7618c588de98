"""DescribeTransactions (key 65): v0, flexible from v0."""

from sparkraft.protocol.declare import Message, array, int16, int32, int32s, int64, string, strings


class DescribeTransactionsRequest(Message, key=65, versions="0", flexible="0+"):
    """Asks for state and partitions of transactions (KIP-664)."""

    transactional_ids: list[str] = strings()


class TopicData(Message):
    """Partitions of a topic: `DescribeTransactionsResponse.transaction_states.topics`."""

    topic: str = string()
    partitions: list[int] = int32s()


class TransactionState(Message):
    """One transaction: `DescribeTransactionsResponse.transaction_states`."""

    error_code: int = int16()
    transactional_id: str = string()
    transaction_state: str = string()
    transaction_timeout_ms: int = int32()
    transaction_start_time_ms: int = int64()
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: list[TopicData] = array(TopicData)


class DescribeTransactionsResponse(Message, key=65, versions="0", flexible="0+"):
    """State, producer and partitions of each transaction."""

    throttle_time_ms: int = int32()
    transaction_states: list[TransactionState] = array(TransactionState)
