"""Work a broker does by the clock: checkpoints, flushes, retention.

every log.flush.scheduler.interval.ms       fsync of logs whose flush.ms is over, and of segments
                                            that are closed (off the loop)
every replica.high.watermark.checkpoint…    recovery points, log starts, high watermarks; and what
                                            was deleted file.delete.delay.ms ago goes, and mapped
                                            files that nobody read in that time are let go
every log.retention.check.interval.ms       old segments, idle producers; not before every log has
                                            its topic's settings
once after `INITIAL_DELAY_MS`               the first of each, so that a start is quick
"""

import asyncio
from typing import TYPE_CHECKING

from sparkraft.base.errors import KafkaError
from sparkraft.storage.disk import StorageFault

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkraft.server.broker.services import BrokerServices

INITIAL_DELAY_MS = 10_000
"""Kafka's 30 s, shortened: our rounds are cheap, and deleted files of a crash go sooner."""

FLUSH_CHECK_MS_MAX = 3_000
"""How late a flush.ms may be noticed; Kafka's scheduler default is never, its cleaner's is 3 s."""


class Background:
    """The rounds; `run` is one task."""

    def __init__(
        self, broker: "BrokerServices", on_storage_fault: "Callable[[StorageFault], None]"
    ) -> None:
        """Read the intervals."""
        config = broker.config
        self._broker = broker
        self._on_storage_fault = on_storage_fault
        flush_ms = config.number("log.flush.scheduler.interval.ms")
        self._rounds: list[tuple[int, Callable[[], object]]] = [
            (min(flush_ms, FLUSH_CHECK_MS_MAX), self._flush),
            (config.number("replica.high.watermark.checkpoint.interval.ms"), self._checkpoint),
            (config.number("log.retention.check.interval.ms"), self._retain),
        ]

    async def run(self) -> None:
        """Do the rounds until cancelled."""
        clock = self._broker.clock
        started = clock.mono_ms()
        due = [started + min(INITIAL_DELAY_MS, interval) for interval, _ in self._rounds]
        while True:
            await asyncio.sleep(max(min(due) - clock.mono_ms(), 1) / 1000)
            for index, (interval, work) in enumerate(self._rounds):
                if clock.mono_ms() >= due[index]:
                    due[index] = clock.mono_ms() + interval
                    result = work()
                    if asyncio.iscoroutine(result):
                        await result

    async def _flush(self) -> None:
        manager = self._broker.log_manager
        due = [(log, None) for log in manager.due_for_flush(self._broker.clock.wall_ms())]
        for log, up_to in [*due, *manager.rolled()]:
            try:
                await self._broker.replica_manager.off_loop(log.flush, up_to)
            except StorageFault as fault:
                self._on_storage_fault(fault)
            except KafkaError:
                continue  # it was deleted or moved meanwhile, or its directory is offline

    def _checkpoint(self) -> None:
        self._broker.log_manager.checkpoint()
        self._broker.log_manager.removal.empty_trash(self._broker.clock.wall_ms())
        self._broker.log_manager.release_views()
        self._report()

    def _retain(self) -> None:
        if not self._broker.lifecycle.settled.is_set():
            return  # the broker's own settings might let go what the topic's keep
        self._broker.log_manager.removal.retention(self._broker.clock.wall_ms())
        self._report()

    def _report(self) -> None:
        """Faults that the log manager met in a round reach the node too."""
        for directory in self._broker.log_manager.offline_directories:
            if directory.fault is not None:
                self._on_storage_fault(directory.fault)
