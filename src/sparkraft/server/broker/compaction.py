"""Log compaction in the background: which logs, how many at a time, how fast.

Reading, filtering and writing happen off the loop, a buffer at a time, with yields and throttling
in between. Segments are replaced on the loop, which owns the logs. Only fsynced records below a
recovery point on disk are cleaned: below it a log may have offset gaps, above it a gap means loss.

    log.cleaner.threads                     logs cleaned at a time; 0 disables cleaning
    log.cleaner.backoff.ms                  pause when no log is due
    log.cleaner.io.max.bytes.per.second     bytes read and written, of all logs together
    log.cleaner.io.buffer.size              shared by the threads; half for reading
    log.cleaner.dedupe.buffer.size          shared by the threads; memory for keys
    log.cleaner.io.buffer.load.factor       how much of that is filled

All of them may change while the node runs. `log.cleaner.enable` is read once at the start.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from sparkraft.base.errors import KafkaError
from sparkraft.records.errors import CorruptRecords
from sparkraft.server.broker.disk_steps import DiskSteps
from sparkraft.storage.cleaner import LogCleaner, Replacement
from sparkraft.storage.cleaner_manager import CleanerManager, DueLog
from sparkraft.storage.disk import StorageFault

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sparkraft.server.env import Env
    from sparkraft.storage.cleaner_plan import Cleaning
    from sparkraft.storage.log_manager import LogManager

log = logging.getLogger(__name__)

KEY_BYTES = 160
"""Memory per key while a log is cleaned. Kafka needs 24: it hashes into a flat table."""

_KEYS_MIN = 1000
_DISK_FULL_SPEED = 1 << 40


class LastCleaning(NamedTuple):
    """The figures of a finished cleaning: milliseconds, and bytes after and before it."""

    took_ms: int
    bytes_out: int
    bytes_in: int

    @property
    def recopied_percent(self) -> float:
        """The share of the bytes that was kept."""
        return 100 * self.bytes_out / max(self.bytes_in, 1)


class Compaction:
    """See the module docstring; `run` is one task."""

    def __init__(
        self,
        env: "Env",
        log_manager: "LogManager",
        *,
        setting: "Callable[[str], Any]",
        settled: asyncio.Event,
        off_loop: "Callable[..., Awaitable[Any]]",
        on_storage_fault: "Callable[[StorageFault], None]",
    ) -> None:
        """Clean nothing yet.

        Args:
            env: clock and disk.
            log_manager: has the logs.
            setting: returns the current value of a node config.
            settled: set once every log has its topic's configs.
            off_loop: runs blocking disk work in the executor.
            on_storage_fault: called with a disk failure.
        """
        self._env = env
        self._clock = env.clock
        self._log_manager = log_manager
        self._setting = setting
        self._settled = settled
        self._off_loop = off_loop
        self._on_storage_fault = on_storage_fault
        self.manager = CleanerManager(log_manager)
        self._steps = DiskSteps(
            log_manager.dirs,
            off_loop=off_loop,
            new_turn=lambda: env.turn(env.work_max.partitions),
        )
        self.last: LastCleaning | None = None
        """Of any log since the start."""
        self._running = 0
        self._ended = asyncio.Event()
        self._free_at_ms = 0.0
        """When the bytes read and written so far are within the rate."""

    async def run(self) -> None:
        """Clean until cancelled."""
        if not self._setting("log.cleaner.enable"):
            return
        # Until then the broker's own cleanup.policy would apply to every topic.
        await self._settled.wait()
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
            due = self.manager.take_dirtiest(self._clock.wall_ms())
            if due is None:
                return
            self._running += 1
            group.create_task(self._clean_one(due), name=f"cleaning of {due.log.name}")

    async def _write_checkpoints(self) -> None:
        for log_dir, path, data in self.manager.checkpoints():
            try:
                await self._off_loop(self._env.disk.replace, path, data)
            except OSError as error:
                fault = StorageFault(log_dir.path, "write the cleaner's checkpoint", error)
                self._on_storage_fault(fault)

    async def _clean_one(self, due: DueLog) -> None:
        try:
            await self._clean(due)
        except CorruptRecords as error:
            self.manager.give_up(due, error.detail)
            due.log.report_damage(error.detail)
            log.warning("Cannot compact %s: %s", due.log.name, error.detail)
        except KafkaError:
            if due.log.fault is None:
                raise
            log.debug("%s was removed or moved during compaction", due.log.name)
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
        """Clean one log; abandoned silently if the log changes meanwhile."""
        await self._make_durable(due)
        if due.log.fault is not None:
            return
        started_ms = self._clock.mono_ms()
        cleaning = self.manager.plan(due, self._clock.wall_ms())
        cleaner = LogCleaner(
            self._env.disk,
            cleaning,
            io_bytes=self._io_bytes(),
            keys_max=self._keys_max(),
            pause=self._env.breathe,
        )
        if not await self._carry_out(due, cleaning, cleaner):
            if due.log.fault is None:
                due.log.remove_cleaned_files()
            return
        self.manager.finish(due, cleaner.end)
        took_ms = self._clock.mono_ms() - started_ms
        self.last = LastCleaning(took_ms, cleaner.bytes_out, cleaner.bytes_rewritten)
        log.info(
            "Compacted %s up to offset %d in %d ms: kept %d of %d records and %d of %d bytes",
            due.log.name,
            cleaner.end,
            took_ms,
            cleaner.records_out,
            cleaner.records_in,
            cleaner.bytes_out,
            cleaner.bytes_rewritten,
        )

    async def _make_durable(self, due: DueLog) -> None:
        """Fsync the records to clean and write the recovery point."""
        if due.log.recovery_point < due.extent.end:
            await self._off_loop(due.log.flush, due.extent.end)
        await self._steps.carry_out(self._log_manager.recovery_point_steps(due.log.log_dir))

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
            if self._log_manager.get(*due.key) is not due.log:
                return False  # deleted, or moved to another directory
            raise
        return True

    async def _replace(self, due: DueLog, step: Replacement) -> bool:
        replaced = due.log.replace_segments(step.old, step.new)
        if replaced is None:
            return False
        await self._off_loop(self._env.disk.fsync_dir, due.log.directory)
        due.log.remove_later(replaced, self._clock.wall_ms())
        return True

    # ---- throttling and memory

    async def _pay(self, size: int) -> None:
        """Wait until `size` more bytes are within the rate, after those of other cleanings."""
        rate = self._setting("log.cleaner.io.max.bytes.per.second")
        if rate >= _DISK_FULL_SPEED:
            return
        now_ms = self._clock.mono_ms()
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
