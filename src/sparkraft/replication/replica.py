"""What a follower's fetcher needs of the world: the local replica it writes, and a throttle.

Made real in `sparkraft.server.broker`: `fetchers.HostedReplica`, `replication_throttles`.
"""

from typing import Any, Protocol

from sparkraft.replication.truncation import EpochsOfLog


class Replica(EpochsOfLog, Protocol):
    """The local replica of a partition.

    Every method may raise `KafkaError`: KAFKA_STORAGE_ERROR where the disk failed, CORRUPT_MESSAGE
    for what can't be appended, FENCED_LEADER_EPOCH where it is no follower in that epoch any more.
    """

    @property
    def log_start_offset(self) -> int:
        """The first offset there is."""
        ...

    @property
    def high_watermark(self) -> int:
        """What is known to be committed, exclusive."""
        ...

    @property
    def latest_epoch(self) -> int | None:
        """The newest leader epoch in the log, None where none is known."""
        ...

    def append(
        self, records: Any, *, leader_epoch: int, leader_high_watermark: int, leader_log_start: int
    ) -> None:
        """Append batches up to `leader_epoch`, if any, and follow the leader's bounds."""
        ...

    def truncate_to(self, offset: int, *, leader_epoch: int, completed: bool) -> None:
        """Remove what is at and after `offset`; `completed`: the logs agree below it."""
        ...

    def start_at(self, offset: int, *, leader_epoch: int) -> None:
        """Remove everything; go on, empty, at `offset`."""
        ...


class Quota(Protocol):
    """A follower's throttle (KIP-73)."""

    @property
    def is_exceeded(self) -> bool:
        """Whether throttled partitions have had their share for now."""
        ...

    def is_throttled(self, topic: str, index: int) -> bool:
        """Whether the partition counts."""
        ...
