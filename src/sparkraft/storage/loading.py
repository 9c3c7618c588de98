"""Loading the logs of a directory at start-up: found, recovered in parallel, reported.

`num.recovery.threads.per.data.dir` logs of each directory are recovered at a time. Threads overlap
the waits for the disk; scanning batches holds the interpreter lock. The owner receives the logs in
the order of their folders, whichever finished first, and nothing else uses the disk meanwhile.

Not here: one log's recovery (`storage.recovery`), use of the loaded logs (`storage.log_manager`).
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from sparkraft.base.env import Clock, Entropy
from sparkraft.storage.config import LogConfig
from sparkraft.storage.disk import Disk, StorageFault
from sparkraft.storage.log import PartitionLog
from sparkraft.storage.log_dir import LogDir
from sparkraft.storage.names import (
    DELETE_MARK,
    FUTURE_MARK,
    METADATA_DIR,
    parse_partition_dir,
)
from sparkraft.storage.recovery import LogPlace, load_log

RunAll = Callable[[list[Callable[[], None]]], None]
"""Runs works, perhaps in threads, and returns when all have ended."""


class LoadProgress(NamedTuple):
    """Progress of a start; reported after each log, from any thread."""

    log_dir: str
    name: str
    """Of the log that has just been recovered."""
    done: int
    total: int
    clean: bool
    """The last run stopped cleanly: nothing is walked."""
    took_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """How to load.

    Attributes:
        threads: logs of a directory at a time.
        run_all: runs the work of the threads.
        progress: called after each log.
    """

    threads: int = 1
    run_all: RunAll | None = None
    progress: Callable[[LoadProgress], None] | None = None


class FoundLog(NamedTuple):
    """A log's folder."""

    place: LogPlace
    config: LogConfig
    is_future: bool


class LoadedLog(NamedTuple):
    """Result of loading: a log, or the reason why there is none."""

    found: FoundLog
    log: PartitionLog | None
    fault: StorageFault | None


def find_logs(
    disk: Disk,
    log_dir: LogDir,
    config_of: Callable[[str], LogConfig],
    *,
    clean: bool,
    known: bool,
) -> Iterator[FoundLog]:
    """The logs of a directory by the names of their folders; finishes deletions on the way.

    Strays stay as they are.

    Args:
        disk: files.
        log_dir: its checkpoints are read already.
        config_of: a topic's settings.
        clean: the last run stopped cleanly.
        known: it left recovery points.
    """
    path = log_dir.path
    for name in disk.listdir(path):
        parsed = parse_partition_dir(name)
        if parsed is None or name == METADATA_DIR or not disk.is_dir(f"{path}/{name}"):
            continue
        if parsed.mark == DELETE_MARK:
            disk.remove_tree(f"{path}/{name}")
        if parsed.mark not in {"", FUTURE_MARK}:
            continue
        key = (parsed.topic, parsed.partition)
        place = LogPlace(
            log_dir=path,
            directory=f"{path}/{name}",
            topic=parsed.topic,
            partition=parsed.partition,
            clean=clean,
            recovery_point=log_dir.recovery_points.get(key, 0 if known else None),
            log_start_offset=max(0, log_dir.log_starts.get(key, 0)),
            cleaned_to=log_dir.cleaned.get(key, 0),
        )
        yield FoundLog(place, config_of(parsed.topic), bool(parsed.mark))


def load_all(
    disk: Disk, found: list[FoundLog], options: LoadOptions, *, clock: Clock, entropy: Entropy
) -> list[LoadedLog]:
    """Recover the logs of one directory; the outcomes in the order of `found`.

    Raises:
        OSError: the disk failed.
    """
    outcomes: list[LoadedLog | None] = [None] * len(found)
    left = deque(range(len(found)))
    failed: list[OSError] = []

    def work() -> None:
        while left and not failed:
            try:
                index = left.popleft()
            except IndexError:
                return  # another thread took the last one
            started = clock.mono_ms()
            outcomes[index] = _load(disk, found[index], failed, clock=clock, entropy=entropy)
            if options.progress is not None:
                place = found[index].place
                done = len(found) - outcomes.count(None)
                options.progress(
                    LoadProgress(
                        place.log_dir,
                        f"{place.topic}-{place.partition}",
                        done,
                        len(found),
                        place.clean,
                        clock.mono_ms() - started,
                    )
                )

    threads = min(options.threads, len(found))
    if options.run_all is None or threads <= 1:
        work()
    else:
        disk.share(shared=True)
        try:
            options.run_all([work] * threads)
        finally:
            disk.share(shared=False)
    if failed:
        raise failed[0]
    return [outcome for outcome in outcomes if outcome is not None]


def _load(
    disk: Disk, found: FoundLog, failed: list[OSError], *, clock: Clock, entropy: Entropy
) -> LoadedLog | None:
    try:
        log = load_log(disk, found.place, found.config, clock=clock, entropy=entropy)
    except StorageFault as fault:
        if isinstance(fault.cause, OSError):
            failed.append(fault.cause)
            return None
        return LoadedLog(found, None, fault)
    return LoadedLog(found, log, None)
