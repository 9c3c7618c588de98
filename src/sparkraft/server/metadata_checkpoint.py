"""Checkpoints how far the metadata log was committed: records below that must never be missing.

The first commit is checkpointed at once, so that damage is not mistaken for a torn tail; later ones
every `INTERVAL_MS`, or by a broker in the same process with its other recovery points.

    commit → recovery-point-offset-checkpoint: `__cluster_metadata 0 <offset>`
"""

from typing import TYPE_CHECKING

from sparkraft.storage.disk import StorageFault
from sparkraft.storage.names import METADATA_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkraft.base.env import Clock
    from sparkraft.base.ids import BrokerId, LeaderEpoch
    from sparkraft.metadata.image import ClusterImage
    from sparkraft.server.raft.metadata_log_listener import CommittedBatch
    from sparkraft.storage.log_manager import LogManager

INTERVAL_MS = 5_000
"""Like brokers' checkpoints."""


class MetadataRecoveryPoint:
    """A listener of the metadata log; see the module docstring."""

    def __init__(
        self,
        logs: "LogManager",
        path: str,
        clock: "Clock",
        on_storage_fault: "Callable[[StorageFault], None]",
    ) -> None:
        """Write nothing before the first commit.

        Args:
            logs: writes the checkpoint.
            path: of the directory with the metadata log.
            clock: for the interval.
            on_storage_fault: called with a disk failure.
        """
        self._logs = logs
        self._log_dir = logs.directory(path)
        self._clock = clock
        self._on_storage_fault = on_storage_fault
        self._written_ms: int | None = None

    def on_commit(self, batch: "CommittedBatch") -> None:
        """Ignored: only offsets matter."""

    def on_snapshot(self, image: "ClusterImage") -> None:
        """Ignored."""

    def on_leader_change(self, leader_id: "BrokerId | None", epoch: "LeaderEpoch") -> None:
        """Ignored."""

    def on_high_watermark(self, high_watermark: int) -> None:
        """Checkpoint what was committed, if the interval has passed."""
        now_ms = self._clock.mono_ms()
        if self._written_ms is not None and now_ms - self._written_ms < INTERVAL_MS:
            return
        if self._written_ms is not None and self._log_dir.logs:
            return  # a broker writes them, in slices (`server.broker.background`)
        point = self._log_dir.metadata_recovery_point()
        if point <= self._log_dir.recovery_points.get((METADATA_TOPIC, 0), 0):
            return
        self._written_ms = now_ms
        try:
            self._logs.checkpoint_recovery_points(self._log_dir.path)
        except StorageFault as fault:
            self._on_storage_fault(fault)
