"""Interfaces of a follower's fetcher: the local replica that it writes, and its quota.

Implemented in `sparkraft.server.broker`: `fetchers.HostedReplica`, `replication_throttles`.
"""

from typing import Any, Protocol

from sparkraft.replication.truncation import EpochsOfLog


class Replica(EpochsOfLog, Protocol):
    """The local replica of a partition.

    Every method may raise `KafkaError`: KAFKA_STORAGE_ERROR if the disk failed, CORRUPT_MESSAGE for
    invalid batches, FENCED_LEADER_EPOCH if the replica no longer follows in that epoch.
    """

    @property
    def log_start_offset(self) -> int:
        """The first offset in the log."""
        ...

    @property
    def high_watermark(self) -> int:
        """The end of what is known to be committed, exclusive."""
        ...

    @property
    def latest_epoch(self) -> int | None:
        """The newest leader epoch in the log; None if there is none."""
        ...

    def append(
        self, records: Any, *, leader_epoch: int, leader_high_watermark: int, leader_log_start: int
    ) -> None:
        """Append batches up to `leader_epoch`; adopt the leader's log start and high watermark."""
        ...

    def truncate_to(self, offset: int, *, leader_epoch: int, completed: bool) -> None:
        """Remove everything from `offset` on; `completed`: the logs agree below it."""
        ...

    def start_at(self, offset: int, *, leader_epoch: int) -> None:
        """Remove everything; continue, empty, at `offset`."""
        ...


class Quota(Protocol):
    """The quota of throttled replicas (KIP-73)."""

    @property
    def is_exceeded(self) -> bool:
        """Whether throttled partitions must wait."""
        ...

    def is_throttled(self, topic: str, index: int) -> bool:
        """Whether the partition is throttled."""
        ...
