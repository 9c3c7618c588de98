"""DescribeIsrChanges (key 10003): v0, flexible from v0. Ours; Kafka has no such request."""

from sparkraft.protocol.declare import Message, array, int16, int32, int32s, int64, string


class DescribeIsrChangesRequest(Message, key=10_003, versions="0", flexible="0+"):
    """Asks a broker which ISRs it changed as a leader; -1 means all partitions of the topic."""

    topic: str = string()
    partition: int = int32(default=-1)


class LeftIsr(Message):
    """A follower that had fallen behind: `IsrChangeEntry.left`.

    `log_end_offset` is -1 and `behind_ms` is -1 if it never had everything in this leadership.
    """

    replica: int = int32()
    log_end_offset: int = int64(default=-1)
    leader_end: int = int64()
    behind_ms: int = int64(default=-1)


class IsrChangeEntry(Message):
    """A change that the controller agreed to: `DescribeIsrChangesResponse.changes`."""

    partition: int = int32()
    at_ms: int = int64()
    leader_epoch: int = int32()
    partition_epoch: int = int32()
    isr_before: list[int] = int32s()
    isr: list[int] = int32s()
    joined: int = int32(default=-1)
    left: list[LeftIsr] = array(LeftIsr)


class DescribeIsrChangesResponse(Message, key=10_003, versions="0", flexible="0+"):
    """The changes this broker remembers, oldest first."""

    error_code: int = int16()
    error_message: str | None = string(nullable=True)
    node_id: int = int32()
    changes: list[IsrChangeEntry] = array(IsrChangeEntry)
