"""Callbacks of the metadata log for components that replay it: commits, snapshots, leaders.

All calls run on the event loop, in log order, and must not block. Control records of raft itself
(leader changes, voters) never reach a listener; batches with only those are skipped, so offsets
may jump.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol, runtime_checkable

from sparkraft.base.ids import BrokerId, LeaderEpoch, Millis, Offset


class CommittedBatch(NamedTuple):
    """A committed batch; `last_offset` is inclusive, `records` are the decoded messages."""

    base_offset: Offset
    last_offset: Offset
    epoch: LeaderEpoch
    append_time_ms: Millis
    size_in_bytes: int
    records: list[Any]


class SnapshotReader(Protocol):
    """A snapshot of the metadata up to `offset` (exclusive), whose last record was of `epoch`."""

    @property
    def offset(self) -> Offset:
        """The first offset that the snapshot does not contain."""
        ...

    @property
    def epoch(self) -> LeaderEpoch:
        """The epoch of the last record it contains."""
        ...

    @property
    def last_contained_log_timestamp(self) -> Millis:
        """The append time of that record, by its leader's wall clock."""
        ...

    def records(self) -> Iterator[list[Any]]:
        """The decoded messages, batch by batch, without control records."""
        ...


class MetadataLogListener(Protocol):
    """Replays the metadata log."""

    def on_commit(self, batch: CommittedBatch) -> None:
        """Apply the next committed batch."""
        ...

    def on_snapshot(self, reader: SnapshotReader) -> None:
        """Replace all state by `reader`; commits continue at its offset."""
        ...

    def on_leader_change(self, leader_id: BrokerId | None, epoch: LeaderEpoch) -> None:
        """`leader_id` leads `epoch`; None: no known leader, or this node has just resigned.

        For this node's own leadership the call comes after everything committed before its epoch,
        and the epoch's first record, was passed to `on_commit`.
        """
        ...


@runtime_checkable
class HighWatermarkListener(Protocol):
    """Optional for a `MetadataLogListener`: also reports commits without records."""

    def on_high_watermark(self, high_watermark: Offset) -> None:
        """Everything below `high_watermark` (exclusive) has been passed to `on_commit`."""
        ...
