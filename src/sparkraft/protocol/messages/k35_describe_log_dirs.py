"""DescribeLogDirs (key 35): v1-5, flexible from v2.

v5 shows which directories take no new replicas (KIP-1066).
"""

from sparkraft.protocol.declare import Message, array, boolean, int16, int32, int32s, int64, string


class DescribableLogDirTopic(Message):
    """Partitions asked for: `DescribeLogDirsRequest.topics`."""

    topic: str = string()
    partitions: list[int] = int32s()


class DescribeLogDirsRequest(Message, key=35, versions="1-5", flexible="2+"):
    """Asks what lies in a broker's log directories (KIP-113)."""

    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, nullable=True)


class DescribeLogDirsPartition(Message):
    """One replica: `DescribeLogDirsResponse.results.topics.partitions`."""

    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = boolean()


class DescribeLogDirsTopic(Message):
    """Partitions in the directory: `DescribeLogDirsResponse.results.topics`."""

    name: str = string()
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


class DescribeLogDirsResult(Message):
    """One directory: `DescribeLogDirsResponse.results`."""

    error_code: int = int16()
    log_dir: str = string()
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
    total_bytes: int = int64("4+", default=-1, ignorable=True)
    usable_bytes: int = int64("4+", default=-1, ignorable=True)
    is_cordoned: bool = boolean("5+", ignorable=True)


class DescribeLogDirsResponse(Message, key=35, versions="1-5", flexible="2+"):
    """Sizes and lags by directory and partition. v4 size of the volume (KIP-827)."""

    throttle_time_ms: int = int32()
    error_code: int = int16("3+", ignorable=True)
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)
