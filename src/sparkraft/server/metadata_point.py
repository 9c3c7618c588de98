"""Keeps on disk how far the metadata log is whole: what was committed and must not be missing.

The first commit writes it at once, so that from then on damage isn't taken for a torn tail; later
ones every `INTERVAL_MS`. Brokers write it with their other recovery points as well.

    commit → recovery-point-offset-checkpoint: `__cluster_metadata 0 <offset>`
"""

from typing import TYPE_CHECKING

from sparkraft.storage.disk import StorageFault
from sparkraft.storage.names import METADATA_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkraft.base.env import Clock
    from sparkraft.base.ids import BrokerId, LeaderEpoch
    from sparkraft.server.raft.metadata_log_listener import CommittedBatch, SnapshotReader
    from sparkraft.storage.log_manager import LogManager

INTERVAL_MS = 5_000
"""As brokers' checkpoints: a few milliseconds of the loop, seldom enough."""


class MetadataPoint:
    """A listener of the quorum; see the module's docstring."""

    def __init__(
        self,
        logs: "LogManager",
        path: str,
        clock: "Clock",
        on_storage_fault: "Callable[[StorageFault], None]",
    ) -> None:
        """Nothing is written before the first news.

        Args:
            logs: writes the checkpoint.
            path: the directory with the metadata log.
            clock: for the interval.
            on_storage_fault: told of a disk that failed.
        """
        self._logs = logs
        self._place = logs.directory(path)
        self._clock = clock
        self._on_storage_fault = on_storage_fault
        self._written_ms: int | None = None

    def on_commit(self, batch: "CommittedBatch") -> None:
        """Records don't matter, only how far they reach."""

    def on_snapshot(self, reader: "SnapshotReader") -> None:
        """Nor does what they come from."""

    def on_leader_change(self, leader_id: "BrokerId | None", epoch: "LeaderEpoch") -> None:
        """Nothing depends on it."""

    def on_high_watermark(self, high_watermark: int) -> None:
        """Something was committed: write how far that is, if it is time."""
        now_ms = self._clock.mono_ms()
        if self._written_ms is not None and now_ms - self._written_ms < INTERVAL_MS:
            return
        point = self._place.metadata_recovery_point()
        if point <= self._place.recovery_points.get((METADATA_TOPIC, 0), 0):
            return
        self._written_ms = now_ms
        try:
            self._logs.checkpoint_recovery_points(self._place.path)
        except StorageFault as fault:
            self._on_storage_fault(fault)
