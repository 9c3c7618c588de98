"""What the metadata log tells those who replay it: commits, snapshots, leaders.

All calls come from the event loop, in log order, and must not block. Control records of raft
itself (leader changes, voters) never reach a listener; batches of only those are skipped, so
offsets may jump.
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
        """The first offset the snapshot does not hold."""
        ...

    @property
    def epoch(self) -> LeaderEpoch:
        """The epoch of the last record it holds."""
        ...

    @property
    def last_contained_log_timestamp(self) -> Millis:
        """When that record was appended, by its leader's wall clock."""
        ...

    def records(self) -> Iterator[list[Any]]:
        """The decoded messages, batch by batch, control records left out."""
        ...


class MetadataLogListener(Protocol):
    """Replays the metadata log."""

    def on_commit(self, batch: CommittedBatch) -> None:
        """Apply the next committed batch."""
        ...

    def on_snapshot(self, reader: SnapshotReader) -> None:
        """Forget everything and load `reader` instead; commits go on at its offset."""
        ...

    def on_leader_change(self, leader_id: BrokerId | None, epoch: LeaderEpoch) -> None:
        """`leader_id` leads in `epoch`; None: nobody, or this node has just resigned.

        For this node's own leadership the call comes once everything committed before its
        epoch began, and its own first record, has been passed to `on_commit`.
        """
        ...


@runtime_checkable
class HighWatermarkListener(Protocol):
    """May be added to a `MetadataLogListener`: told of commits that carry no records too."""

    def on_high_watermark(self, high_watermark: Offset) -> None:
        """Everything below `high_watermark` (exclusive) has been passed on."""
        ...
