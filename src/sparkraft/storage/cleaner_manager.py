"""Which log is cleaned next, and how far each is (Kafka's LogCleanerManager).

Several cleanings may run at a time, of different logs. One that fails because its log is damaged
makes the partition uncleanable until the node starts again; it is served on.

`cleaner-offset-checkpoint` in each log directory holds the offset at which the last cleaning of
each log ended. It is written after the cleaned segments are in place: after a crash in between, the
log is cleaned again.

Not here: the work itself (`cleaner`), tasks and pace (`server.broker.compaction`).
"""

from collections.abc import Iterator
from typing import NamedTuple

from sparkraft.base.errors import KafkaError
from sparkraft.base.ids import TopicPartition
from sparkraft.storage.checkpoints import format_offsets
from sparkraft.storage.cleaner_plan import Cleaning, Extent, extent_of, plan_cleaning
from sparkraft.storage.log import PartitionLog
from sparkraft.storage.log_dir import LogDir
from sparkraft.storage.log_manager import LogManager
from sparkraft.storage.names import CLEANED_OFFSETS


class DueLog(NamedTuple):
    """A log that one cleaner has taken; `CleanerManager.release` gives it back."""

    log: PartitionLog
    extent: Extent

    @property
    def key(self) -> TopicPartition:
        """Topic and partition."""
        return self.log.topic, self.log.partition


class CleanerManager:
    """See the module's docstring; belongs to the owner of the logs."""

    def __init__(self, logs: LogManager) -> None:
        """Nothing is taken."""
        self._logs = logs
        self._taken: set[TopicPartition] = set()
        self._written: dict[str, dict[TopicPartition, int]] = {}
        self.uncleanable: dict[TopicPartition, str] = {}
        """Partitions that can't be cleaned, with the reason."""
        self.cleanings = 0
        """Finished since the start."""

    def take_dirtiest(self, now_ms: int) -> DueLog | None:
        """Reserve the log that needs cleaning most for the caller; None if no log is due."""
        best: DueLog | None = None
        for log_dir in self._logs.directories:
            for due in self._due_in(log_dir, now_ms):
                if best is None or due.extent.ratio > best.extent.ratio:
                    best = due
        if best is not None:
            self._taken.add(best.key)
        return best

    def _due_in(self, log_dir: LogDir, now_ms: int) -> Iterator[DueLog]:
        for key, log in log_dir.logs.items():
            if not log.config.compact or log.segment_count == 1 or log.fault is not None:
                continue
            if key in self._taken or key in self.uncleanable:
                continue
            try:
                extent = extent_of(log, log_dir.cleaned.get(key), now_ms)
            except KafkaError as error:
                self.uncleanable[key] = error.detail
                continue
            if extent.is_due(log.config):
                yield DueLog(log, extent)

    def plan(self, due: DueLog, now_ms: int) -> Cleaning:
        """Prepare a `LogCleaner` run, and remove the files of an abandoned one.

        Raises:
            StorageFault: the disk failed.
        """
        log = due.log
        log.remove_cleaned_files()
        cleaned_to = self._logs.directory(log.log_dir).cleaned.get(due.key)
        return plan_cleaning(log, extent_of(log, cleaned_to, now_ms), now_ms)

    def release(self, due: DueLog) -> None:
        """The cleaning has ended, one way or the other."""
        self._taken.discard(due.key)

    def finish(self, due: DueLog, end: int) -> None:
        """The log is clean up to `end`; `checkpoints` has it from now on."""
        self.cleanings += 1
        if self._logs.get(*due.key) is due.log:
            self._logs.directory(due.log.log_dir).cleaned[due.key] = end

    def give_up(self, due: DueLog, reason: str) -> None:
        """Exclude a log that cannot be cleaned until an operator has inspected it."""
        self.uncleanable[due.key] = reason

    def checkpoints(self) -> list[tuple[LogDir, str, bytes]]:
        """The checkpoint files that lag behind: directory, path, contents.

        The caller writes them before it asks again.
        """
        found = []
        for log_dir in self._logs.directories:
            offsets = {key: end for key, end in log_dir.cleaned.items() if key in log_dir.logs}
            if log_dir.fault is None and offsets != self._written.get(log_dir.path, {}):
                self._written[log_dir.path] = offsets
                path = f"{log_dir.path}/{CLEANED_OFFSETS}"
                found.append((log_dir, path, format_offsets(offsets)))
        return found
