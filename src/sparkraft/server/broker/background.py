"""Periodic work of a broker: flushes, checkpoints, retention.

every log.flush.scheduler.interval.ms       fsync logs whose flush.ms has passed, and closed
                                            segments (off the loop)
every replica.high.watermark.checkpoint…    write recovery points, log start offsets and high
                                            watermarks; remove files deleted file.delete.delay.ms
                                            ago; unmap files that were not read meanwhile
every log.retention.check.interval.ms       remove old segments and idle producers, once every log
                                            has its topic's configs
once after log.initial.task.delay.ms        the first of each, to keep the start quick

Work on all logs runs in slices, and files are written, synced and deleted off the loop.
"""

import asyncio
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import KafkaError
from sparkraft.server.broker.disk_steps import DiskSteps
from sparkraft.storage.disk import StorageFault

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sparkraft.server.config import NodeConfig
    from sparkraft.server.env import Env
    from sparkraft.storage.log_manager import LogManager

    OffLoop = Callable[..., Awaitable[Any]]

INITIAL_DELAY_MS = 10_000
"""Without log.initial.task.delay.ms. Kafka waits 30 s; our checks are cheap, and files deleted
before a crash go sooner."""

FLUSH_CHECK_MS_MAX = 3_000
"""How late a flush.ms may be noticed; Kafka's scheduler default is never, its cleaner's is 3 s."""


class Background:
    """The periodic work; `run` is one task."""

    def __init__(
        self,
        config: "NodeConfig",
        env: "Env",
        log_manager: "LogManager",
        *,
        settled: asyncio.Event,
        off_loop: "OffLoop",
        on_storage_fault: "Callable[[StorageFault], None]",
    ) -> None:
        """Read the intervals.

        Args:
            config: static configs of this node.
            env: its clock for the intervals and for retention, and the slices of the work.
            log_manager: has the logs.
            settled: set once every log has its topic's configs.
            off_loop: runs blocking disk work in the executor.
            on_storage_fault: called with every disk failure; may be called repeatedly.
        """
        self._clock = env.clock
        self._env = env
        self._log_manager = log_manager
        self._steps = DiskSteps(
            log_manager.dirs,
            off_loop=off_loop,
            new_turn=lambda: env.turn(env.work_max.partitions),
        )
        self._settled = settled
        self._off_loop = off_loop
        self._on_storage_fault = on_storage_fault
        key = "log.initial.task.delay.ms"
        self._initial_delay_ms = config.number(key) if key in config.properties else None
        flush_ms = config.number("log.flush.scheduler.interval.ms")
        self._work: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (min(flush_ms, FLUSH_CHECK_MS_MAX), self._flush),
            (config.number("replica.high.watermark.checkpoint.interval.ms"), self._checkpoint),
            (config.number("log.retention.check.interval.ms"), self._retain),
        ]

    async def run(self) -> None:
        """Work until cancelled."""
        clock = self._clock
        started = clock.mono_ms()
        due = [started + self._first_delay_ms(interval) for interval, _ in self._work]
        while True:
            await asyncio.sleep(max(min(due) - clock.mono_ms(), 1) / 1000)
            for index, (interval, work) in enumerate(self._work):
                if clock.mono_ms() >= due[index]:
                    due[index] = clock.mono_ms() + interval
                    await work()

    def _first_delay_ms(self, interval: int) -> int:
        given = self._initial_delay_ms
        return min(INITIAL_DELAY_MS, interval) if given is None else given

    async def _flush(self) -> None:
        manager = self._log_manager
        due = [(log, None) for log in manager.due_for_flush(self._clock.wall_ms())]
        for log, up_to in [*due, *manager.rolled()]:
            try:
                await self._off_loop(log.flush, up_to)
            except StorageFault as fault:
                self._on_storage_fault(fault)
            except KafkaError:
                continue  # deleted or moved meanwhile, or its directory is offline

    async def _checkpoint(self) -> None:
        await self._steps.carry_out(self._log_manager.checkpoint_steps())
        removal = self._log_manager.removal
        await self._steps.carry_out(removal.trash_steps(self._clock.wall_ms()))
        self._log_manager.release_views()
        self._report_faults()

    async def _retain(self) -> None:
        if not self._settled.is_set():
            return  # the broker's own configs could delete what the topic's configs keep
        removal = self._log_manager.removal
        await self._steps.carry_out(removal.retention_steps(self._clock.wall_ms()))
        self._report_faults()

    def _report_faults(self) -> None:
        """Pass on failures that the log manager met meanwhile."""
        for directory in self._log_manager.offline_directories:
            if directory.fault is not None:
                self._on_storage_fault(directory.fault)
