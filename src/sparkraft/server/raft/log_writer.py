"""Writes the metadata log: appends, truncations and fsyncs, as the core orders them.

Invariant: one fsync at a time; batches appended while it runs share the next one. A leader waits
for more records before an fsync only if `controller.quorum.append.linger.ms` is set, and never
when the log holds unflushed control records or fetched batches: elections and voter changes do
not linger (as in Kafka).

Not here: the bytes of batches (`records`), snapshot files (`snapshot_installer`).
"""

import asyncio
import logging
from collections.abc import Generator, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Millis
from sparkraft.protocol.framing import encode_metadata_record
from sparkraft.raft import events
from sparkraft.records.record import BatchBuilder
from sparkraft.server.raft import records as log_records
from sparkraft.server.raft.metadata_log_listener import CommittedBatch
from sparkraft.server.raft.snapshot_installer import SnapshotInstaller
from sparkraft.storage.snapshot_files import BATCH_BYTES_MAX

if TYPE_CHECKING:
    from sparkraft.server.env import Env
    from sparkraft.server.raft.commit_publisher import CommitPublisher
    from sparkraft.server.raft.core_host import CoreHost
    from sparkraft.server.raft.quorum_monitor import QuorumMonitor
    from sparkraft.storage.raft_log import RaftLog

log = logging.getLogger("sparkraft.raft")


@dataclass(frozen=True, slots=True)
class OwnRecords:
    """The payload of a leader's own batch: encoded records, and the messages they encode."""

    encoded: BatchBuilder
    messages: list[Any]

    @classmethod
    def of(
        cls, records: Sequence[tuple[Any, int]], now: Millis
    ) -> "Generator[int, None, OwnRecords]":
        """Encode (message, version)s in pieces; yields 1 after each.

        Raises:
            KafkaError: RECORD_LIST_TOO_LARGE.
        """
        encoded, size = BatchBuilder(), 0
        for message, version in records:
            value = encode_metadata_record(message, version)
            encoded.append(now, None, value)
            size += len(value)
            yield 1
        if size > BATCH_BYTES_MAX:
            wrong = f"{size} bytes exceed {BATCH_BYTES_MAX}"
            raise KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE, wrong)
        return cls(encoded, [message for message, _ in records])


class LogWriter:
    """Carries out `Ready.log` and `Ready.flush` on the files of a `RaftLog`."""

    def __init__(
        self,
        raft_log: "RaftLog",
        env: "Env",
        host: "CoreHost",
        *,
        commits: "CommitPublisher",
        monitor: "QuorumMonitor",
        linger_ms: int,
    ) -> None:
        self._log = raft_log
        self._clock = env.clock
        self._fault_point = env.fault_point
        self._host = host
        self._commits = commits
        self._installer = SnapshotInstaller(raft_log, env.fault_point, host, commits)
        self._monitor = monitor
        self._linger_s = linger_ms / 1000
        self._urgent = asyncio.Event()
        """Set while the log holds unflushed batches that must not linger."""
        self._flushing = False
        self._next_flush: events.Flush | None = None

    # ---- the page cache

    def write(self, effects: Iterable[events.LogEffect]) -> None:
        """Apply `effects` in order; consecutive fetched batches become one write."""
        run: list[memoryview] = []
        for effect in effects:
            if isinstance(effect, events.AppendBatch):
                batch = effect.batch
                if batch.controls:
                    self._monitor.note_batch(batch)
                count = batch.next_offset - batch.base_offset
                if isinstance(batch.payload, memoryview):
                    self._monitor.traffic.on_fetched(count)
                    run.append(batch.payload)
                    continue
                self._monitor.traffic.on_append(count, batch.next_offset)
            self._append_fetched(run)
            run = []
            self._apply(effect)
        self._append_fetched(run)
        self._fault_point("after_append_before_fsync")

    def _append_fetched(self, run: list[memoryview]) -> None:
        if run:
            self._log.append(run[0] if len(run) == 1 else b"".join(run))
            self._urgent.set()

    def _apply(self, effect: events.LogEffect) -> None:
        match effect:
            case events.AppendBatch(batch=batch):
                self._append_own(batch)
            case events.TruncateTo(offset=offset):
                self._commits.forget()
                self._log.truncate_to(offset)
                self._urgent.set()
                self._fault_point("after_truncation")
                log.info("truncated the log to offset %d", offset)
            case events.WriteSnapshotChunk(snapshot=snapshot, position=position, chunk=chunk):
                self._installer.write_chunk(snapshot, position, chunk)
            case events.InstallSnapshot():
                self._host.spawn(self._installer.install())

    def _append_own(self, batch: events.LogBatch) -> None:
        payload, now = batch.payload, self._clock.wall_ms()
        records = payload.encoded if isinstance(payload, OwnRecords) else BatchBuilder()
        raw = log_records.encode_batch(batch, records, now)
        self._log.append(raw)
        if not isinstance(payload, OwnRecords):
            self._urgent.set()
            return
        committed = CommittedBatch(
            batch.base_offset, batch.last_offset, batch.epoch, now, len(raw), payload.messages
        )
        self._commits.remember(committed)

    # ---- fsync

    def begin_flush(self, flush: events.Flush) -> None:
        """Start `flush`, or have it replace the one that waits for the running fsync."""
        self._next_flush = flush
        if not self._flushing:
            self._flushing = True
            self._host.spawn(self._flush())

    async def _flush(self) -> None:
        try:
            while self._next_flush is not None:
                await self._linger()
                flush, self._next_flush = self._next_flush, None
                await self._host.in_executor(partial(self._log.flush, flush.up_to))
                self._fault_point("after_fsync_before_counted")
                self._host.step(events.LogFlushed(up_to=flush.up_to, generation=flush.generation))
        except Exception as error:
            self._host.fail(error)
        finally:
            self._flushing = False

    async def _linger(self) -> None:
        """Let records accumulate, unless an urgent batch is waiting."""
        if self._linger_s and not self._urgent.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._urgent.wait(), self._linger_s)
        self._urgent.clear()

    def stop_lingering(self) -> None:
        """Finish the fsync under way without further delay."""
        self._linger_s = 0.0
        self._urgent.set()
