"""Creates snapshots of the metadata log by size and by time (KIP-630).

Every node does so, broker or controller, to keep its own log short. A snapshot is written from an
old image and has its end offset: the end of a committed batch, outside a transaction.
"""

import asyncio
import inspect
import logging
from typing import TYPE_CHECKING

from sparkraft.base.ids import LeaderEpoch, Millis, Offset
from sparkraft.metadata.snapshot import records_in_pieces

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkraft.base.env import Clock
    from sparkraft.base.ids import BrokerId
    from sparkraft.metadata.image import ClusterImage
    from sparkraft.server.raft.driver import RaftDriver
    from sparkraft.server.raft.metadata_log_listener import CommittedBatch

_log = logging.getLogger(__name__)


class MetadataSnapshots:
    """A raft `Listener` that counts bytes; register it after the listener that keeps the image."""

    def __init__(
        self,
        raft: "RaftDriver",
        image: "Callable[[], ClusterImage]",
        clock: "Clock",
        *,
        bytes_between: int = 20 * 1024 * 1024,
        interval_ms: int = 3_600_000,
    ) -> None:
        """Create snapshots of the images that `image()` returns.

        Args:
            raft: stores the snapshots.
            image: returns the latest stable image.
            clock: monotonic time.
            bytes_between: `metadata.log.max.record.bytes.between.snapshots`.
            interval_ms: `metadata.log.max.snapshot.interval.ms`; 0 for no time limit.
        """
        self._raft = raft
        self._image = image
        self._clock = clock
        self._bytes_between = bytes_between
        self._interval_ms = interval_ms
        self._bytes = 0
        self._since: Millis | None = None
        self._last_offset = -1
        self._running: asyncio.Task[None] | None = None

    def on_commit(self, batch: "CommittedBatch") -> None:
        """Count bytes; start a snapshot if one is due."""
        now = self._clock.mono_ms()
        if self._since is None:
            self._since = now
        self._bytes += batch.size_in_bytes
        by_time = 0 < self._interval_ms <= now - self._since
        if (self._bytes >= self._bytes_between or by_time) and self._running is None:
            self._running = asyncio.get_running_loop().create_task(
                self.create(), name="metadata snapshot"
            )

    def on_snapshot(self, image: "ClusterImage") -> None:
        """Reset the counters: the loaded snapshot replaces one of this node."""
        self._bytes = 0
        self._since = None
        self._last_offset = image.offset

    def on_leader_change(self, leader_id: "BrokerId | None", epoch: LeaderEpoch) -> None:
        """Do nothing: every node creates snapshots."""

    async def create(self) -> None:
        """Create a snapshot of the stable image now, unless it exists."""
        image = self._image()
        try:
            if image.offset > self._last_offset:
                self._bytes = 0
                self._since = None
                made = self._raft.create_snapshot(
                    Offset(image.offset + 1), image.epoch, records_in_pieces(image)
                )
                if inspect.isawaitable(made):
                    await made
                self._last_offset = image.offset
        finally:
            self._running = None

    async def stop(self) -> None:
        """Wait for a snapshot in progress."""
        if self._running is not None:
            await asyncio.gather(self._running, return_exceptions=True)
