"""Log compaction in the background: which logs, how many at a time, how fast.

Reading, filtering and writing go on off the loop, a buffer at a time; between two of them the loop
gets its turn, and the throttle its pause. Segments are replaced on the loop, because it owns the
logs. What is cleaned was synced before, and the recovery point is on disk: below it a log may have
holes, above it a hole means that something was lost.

    log.cleaner.threads                     logs cleaned at a time; 0 stops cleaning
    log.cleaner.backoff.ms                  pause when no log is due
    log.cleaner.io.max.bytes.per.second     bytes read and written, all logs together
    log.cleaner.io.buffer.size              shared by the threads; half for reading
    log.cleaner.dedupe.buffer.size          shared by the threads; memory for keys
    log.cleaner.io.buffer.load.factor       how much of that is filled

All of them may change while the node runs. `log.cleaner.enable` counts at the start.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import KafkaError
from sparkraft.records.errors import CorruptRecords
from sparkraft.storage.cleaner import LogCleaner, Replacement
from sparkraft.storage.cleaner_manager import CleanerManager, DueLog
from sparkraft.storage.disk import StorageFault

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkraft.server.broker.services import BrokerServices
    from sparkraft.storage.cleaner_plan import Cleaning

log = logging.getLogger(__name__)

KEY_BYTES = 160
"""Memory that a key takes while a log is cleaned. Kafka's take 24: it hashes into a flat table."""

_KEYS_MIN = 1000
_DISK_FULL_SPEED = 1 << 40


class Compaction:
    """See the module's docstring; `run` is one task."""

    def __init__(
        self,
        broker: "BrokerServices",
        setting: "Callable[[str], Any]",
        on_storage_fault: "Callable[[StorageFault], None]",
    ) -> None:
        """Clean nothing yet.

        Args:
            broker: its logs, clock, disk and executor.
            setting: the present value of a node key.
            on_storage_fault: told of a disk that failed.
        """
        self._broker = broker
        self._setting = setting
        self._on_storage_fault = on_storage_fault
        self.manager = CleanerManager(broker.log_manager)
        self._running = 0
        self._ended = asyncio.Event()
        self._free_at_ms = 0.0
        """When what was read and written so far is paid for."""

    async def run(self) -> None:
        """Clean until cancelled."""
        if not self._setting("log.cleaner.enable"):
            return
        # Until then the broker's own cleanup.policy would count for all, as it does in nobody's.
        await self._broker.lifecycle.settled.wait()
        async with asyncio.TaskGroup() as group:
            while True:
                self._start_due(group)
                await self._write_checkpoints()
                try:
                    async with asyncio.timeout(self._setting("log.cleaner.backoff.ms") / 1000):
                        await self._ended.wait()
                except TimeoutError:
                    pass
                self._ended.clear()

    def _start_due(self, group: asyncio.TaskGroup) -> None:
        while self._running < self._setting("log.cleaner.threads"):
            due = self.manager.take_dirtiest(self._broker.clock.wall_ms())
            if due is None:
                return
            self._running += 1
            group.create_task(self._clean_one(due), name=f"cleaning of {due.log.name}")

    async def _write_checkpoints(self) -> None:
        for log_dir, path, data in self.manager.checkpoints():
            try:
                await self._off_loop(self._broker.env.disk.replace, path, data)
            except OSError as error:
                fault = StorageFault(log_dir.path, "write the cleaner's checkpoint", error)
                self._on_storage_fault(fault)

    async def _clean_one(self, due: DueLog) -> None:
        try:
            await self._clean(due)
        except CorruptRecords as error:
            self.manager.give_up(due, error.detail)
            due.log.report_damage(error.detail)
            log.warning("%s can't be compacted: %s", due.log.name, error.detail)
        except KafkaError:
            if due.log.fault is None:
                raise
            log.debug("%s went, or moved, while it was compacted", due.log.name)
        except StorageFault as fault:
            self._on_storage_fault(fault)
        except OSError as error:
            if due.log.fault is None:
                operation = f"clean {due.log.name}"
                self._on_storage_fault(StorageFault(due.log.log_dir, operation, error))
        finally:
            self.manager.release(due)
            self._running -= 1
            self._ended.set()

    async def _clean(self, due: DueLog) -> None:
        """One cleaning; given up quietly where the log changes under it."""
        await self._make_durable(due)
        if due.log.fault is not None:
            return
        started_ms = self._broker.clock.mono_ms()
        cleaning = self.manager.plan(due, self._broker.clock.wall_ms())
        cleaner = LogCleaner(
            self._broker.env.disk,
            cleaning,
            io_bytes=self._io_bytes(),
            keys_max=self._keys_max(),
            pause=self._broker.env.breathe,
        )
        if not await self._carry_out(due, cleaning, cleaner):
            if due.log.fault is None:
                due.log.remove_cleaned_files()
            return
        self.manager.finish(due, cleaner.end)
        log.info(
            "Compacted %s up to offset %d: %d of %d records and %d of %d bytes stay, in %d ms",
            due.log.name,
            cleaner.end,
            cleaner.records_out,
            cleaner.records_in,
            cleaner.bytes_out,
            cleaner.bytes_rewritten,
            self._broker.clock.mono_ms() - started_ms,
        )

    async def _make_durable(self, due: DueLog) -> None:
        """Have everything synced that is to be cleaned, and the recovery point say so."""
        if due.log.recovery_point < due.extent.end:
            await self._off_loop(due.log.flush, due.extent.end)
        self._broker.log_manager.checkpoint_recovery_points(due.log.log_dir)

    async def _carry_out(self, due: DueLog, cleaning: "Cleaning", cleaner: LogCleaner) -> bool:
        steps = cleaner.run()
        try:
            while (step := await self._off_loop(next, steps, None)) is not None:
                if isinstance(step, Replacement):
                    if not await self._replace(due, step):
                        return False
                else:
                    await self._pay(step)
        except FileNotFoundError:
            if any(source.segment.deleted for source in cleaning.segments):
                return False
            if self._broker.log_manager.get(*due.key) is not due.log:
                return False  # deleted, or moved to another directory
            raise
        return True

    async def _replace(self, due: DueLog, step: Replacement) -> bool:
        gone = due.log.replace_segments(step.old, step.new)
        if gone is None:
            return False
        await self._off_loop(self._broker.env.disk.fsync_dir, due.log.directory)
        due.log.remove_later(gone, self._broker.clock.wall_ms())
        return True

    # ---- pace and room

    async def _pay(self, size: int) -> None:
        """Wait until `size` bytes more are within the rate, after those of all other cleanings."""
        rate = self._setting("log.cleaner.io.max.bytes.per.second")
        if rate >= _DISK_FULL_SPEED:
            return
        now_ms = self._broker.clock.mono_ms()
        self._free_at_ms = max(self._free_at_ms, now_ms) + size * 1000 / rate
        await asyncio.sleep((self._free_at_ms - now_ms) / 1000)

    def _threads(self) -> int:
        threads = self._setting("log.cleaner.threads")
        assert isinstance(threads, int)
        return max(threads, 1)

    def _io_bytes(self) -> int:
        size = self._setting("log.cleaner.io.buffer.size")
        assert isinstance(size, int)
        return size // self._threads() // 2

    def _keys_max(self) -> int:
        room = self._setting("log.cleaner.dedupe.buffer.size") / self._threads()
        share = self._setting("log.cleaner.io.buffer.load.factor")
        keys_max = int(room * share / KEY_BYTES)
        return max(keys_max, _KEYS_MIN)

    async def _off_loop(self, work: "Callable[..., Any]", *arguments: Any) -> Any:
        return await self._broker.replica_manager.off_loop(work, *arguments)
