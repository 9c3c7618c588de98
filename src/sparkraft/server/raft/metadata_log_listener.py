"""Callbacks of the metadata log for components that replay it: commits, snapshots, leaders.

All calls run on the event loop, in log order, and must not block. Control records of raft itself
(leader changes, voters) never reach a listener; batches with only those are skipped, so offsets
may jump.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from sparkraft.base.ids import BrokerId, LeaderEpoch, Millis, Offset

if TYPE_CHECKING:
    from sparkraft.metadata.image import ClusterImage


class CommittedBatch(NamedTuple):
    """A committed batch; `last_offset` is inclusive, `records` are the decoded messages."""

    base_offset: Offset
    last_offset: Offset
    epoch: LeaderEpoch
    append_time_ms: Millis
    size_in_bytes: int
    records: list[Any]


class MetadataLogListener(Protocol):
    """Replays the metadata log."""

    def on_commit(self, batch: CommittedBatch) -> None:
        """Apply the next committed batch."""
        ...

    def on_snapshot(self, image: "ClusterImage") -> None:
        """Replace all state by the image of a snapshot; commits continue after its offset."""
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


@runtime_checkable
class BatchPreparer(Protocol):
    """Optional for a `MetadataLogListener`: replays a large batch before it takes effect."""

    def prepare_commit(self, batch: CommittedBatch) -> Iterator[int]:
        """Do what `on_commit` with this batch needs, in pieces, without an effect.

        It may be abandoned after any piece.
        """
        ...


@runtime_checkable
class SnapshotPreparer(Protocol):
    """Optional for a `MetadataLogListener`: has work of its own before it can take a snapshot."""

    def prepare_snapshot(self, image: "ClusterImage") -> Iterator[None]:
        """Do what `on_snapshot` with this image needs, in pieces, without using it yet.

        It may be abandoned after any piece: another snapshot follows then.
        """
        ...
