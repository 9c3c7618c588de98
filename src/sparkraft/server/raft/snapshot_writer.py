"""Writes this node's own metadata snapshots, and deletes the log below old ones (KIP-630).

Not here: when to take a snapshot (`server.controller.snapshots`).
"""

import asyncio
from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import LeaderEpoch, Millis, Offset
from sparkraft.base.loop_work import LoopBound
from sparkraft.protocol.framing import encode_metadata_record
from sparkraft.raft import events
from sparkraft.raft.events import EpochAndOffset
from sparkraft.server.raft import records as log_records
from sparkraft.storage.snapshot_files import SnapshotFile, snapshot_batches

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkraft.metadata.snapshot import VersionedRecord
    from sparkraft.raft.log_view import LogView
    from sparkraft.server.env import Env
    from sparkraft.server.raft.core_host import CoreHost
    from sparkraft.storage.raft_log import RaftLog

CLEAN_EVERY_MS = 60_000
"""Interval between checks for deletable segments and snapshots; Kafka's value."""

SLICE_RECORDS: LoopBound = 500
"""Records encoded in one event-loop iteration: a few milliseconds of work."""


class SnapshotWriter:
    """Creates snapshots of committed state, one at a time, and cleans the log."""

    def __init__(
        self, raft_log: "RaftLog", env: "Env", host: "CoreHost", log_view: "LogView"
    ) -> None:
        self._log = raft_log
        self._env = env
        self._host = host
        self._log_view = log_view
        self._is_writing = False
        self._clean_timer: asyncio.TimerHandle | None = None

    async def create(
        self, offset: int, epoch: int, records: "Iterable[VersionedRecord | None]"
    ) -> bool:
        """Write a snapshot of the state before `offset`; `RaftDriver.create_snapshot` has more."""
        snapshot = log_records.file_id(EpochAndOffset(LeaderEpoch(epoch), Offset(offset)))
        timestamp = self._check(Offset(offset), LeaderEpoch(epoch))
        file = self._log.new_snapshot(snapshot)
        if file is None or self._is_writing:
            return False
        self._is_writing = True
        try:
            await self._write(file, records, timestamp)
        finally:
            self._is_writing = False
        self._env.fault_point("snapshot_made_before_kept")
        self._log.keep_snapshot(snapshot, file.size)
        created = events.SnapshotCreated(snapshot=log_records.core_id(snapshot), size=file.size)
        self._host.step(created)
        self._clean()
        return True

    def _check(self, offset: Offset, epoch: LeaderEpoch) -> Millis:
        """The append time of the last record below `offset`, which must be of `epoch`."""
        high_watermark = self._log_view.high_watermark
        committed = Offset(-1) if high_watermark is None else high_watermark
        if not self._log.start < offset <= committed:
            detail = f"offset {offset} is not within ({self._log.start}, {committed}]"
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"cannot create a snapshot: {detail}")
        last = Offset(offset - 1)
        header, _ = next(self._log.batches(last, offset), (None, None))
        if header is None or header.last_offset != last or header.partition_leader_epoch != epoch:
            detail = f"cannot create a snapshot: no batch of epoch {epoch} ends at offset {last}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, detail)
        return Millis(header.max_timestamp)

    async def _write(
        self, file: SnapshotFile, records: "Iterable[VersionedRecord | None]", timestamp: Millis
    ) -> None:
        voters, level = self._log_view.voters_at(file.id.offset)
        framed: list[bytes] = []
        for each in records:
            if each is None:
                await asyncio.sleep(0)
                continue
            framed.append(encode_metadata_record(*each))
            if len(framed) % SLICE_RECORDS == 0:
                await asyncio.sleep(0)
        batches = snapshot_batches(
            framed,
            epoch=file.id.epoch,
            now=self._env.clock.wall_ms(),
            last_contained_log_timestamp=timestamp,
            controls=log_records.snapshot_controls(level, voters),
        )

        def write() -> None:
            for batch in batches:
                file.append(batch)
            file.freeze()

        try:
            await self._host.in_executor(write)
        except BaseException:
            file.discard()
            raise

    # ---- cleaning

    def start_cleaning(self) -> None:
        """Delete old segments and snapshots every `CLEAN_EVERY_MS`, until `stop_cleaning`."""
        loop = asyncio.get_running_loop()
        self._clean_timer = loop.call_later(CLEAN_EVERY_MS / 1000, self._on_clean_timer)

    def stop_cleaning(self) -> None:
        if self._clean_timer is not None:
            self._clean_timer.cancel()
            self._clean_timer = None

    def _on_clean_timer(self) -> None:
        self.start_cleaning()
        self._clean()

    def _clean(self) -> None:
        try:
            cleaned = self._log.clean(self._env.clock.wall_ms())
        except Exception as error:
            self._host.fail(error)
            return
        if cleaned:
            self._host.step(events.LogCleaned(log_start_offset=self._log.start))
