"""Invariants of a recovered log and of a truncated one, and the hooks that observe both.

S1  it is a prefix of the previous log with everything synced, and complete without a power loss
S2  it has whole batches only; recovering again after a crash during recovery gives the same log
S5  its producer state equals a replay of all batches
S8  its directory has no files left over from an earlier incarnation; a full disk leaves it usable
P9  the leader epochs of truncated records are gone from the cache
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from sparkraft.simulation.checks.probe import Probe, Require, current_machine
from sparkraft.simulation.checks.stored_log import (
    StoredLog,
    gap_in,
    producers_flaw,
    replayed,
    stray_files,
)
from sparkraft.simulation.checks.watched_disk import Watched, is_compacted, last_batches
from sparkraft.simulation.world.core_node import SeededEntropy
from sparkraft.simulation.world.memory_disk import MemoryDisk
from sparkraft.storage.disk import StorageFault
from sparkraft.storage.log import PartitionLog
from sparkraft.storage.names import LOG
from sparkraft.storage.recovery import _Recovery

if TYPE_CHECKING:
    from sparkraft.simulation.world.machine import Machine


class RecoveryChecks:
    """See the module docstring; `watched` returns what is recorded about a machine's disk."""

    def __init__(
        self, probe: Probe, require: Require, watched: Callable[["Machine"], Watched]
    ) -> None:
        self.probe = probe
        self.require = require
        self.watched = watched

    def on_recovered(
        self, machine: "Machine", recovery: Any, before: dict[str, bytes], log: PartitionLog
    ) -> None:
        """Check a log that was recovered from the files `before`."""
        seen, place = self.watched(machine), recovery._place  # noqa: SLF001 (a checker)
        stored = StoredLog(seen.disk, place.directory)
        seen.logs[place.directory] = stored
        batches = stored.batches
        for segment in stored.segments:
            kept = f"{machine.name} recovers {segment.path}: {segment.flaw}"
            self.require(not segment.flaw, "S2", kept)
        gap = gap_in(batches, holes=is_compacted(place.directory))
        self.require(not gap, "S2", f"{machine.name} recovers {place.directory}: {gap}")
        self._check_left(machine, seen, stored, max(place.log_start_offset, 0))
        seen.note(place.directory, batches)
        self.check_producers(machine, stored, log)
        names = seen.disk.listdir(place.directory)
        stray = stray_files(
            names,
            log.segment_base_offsets,
            passing=False,
            snapshots=log._segments.snapshots,  # noqa: SLF001
        )
        self.require(
            not stray,
            "S8",
            f"{machine.name} recovers {place.directory} with leftover files {stray}",
        )
        if before != _files_in(seen.disk, place.directory):
            self._check_again(machine, recovery, before, log)

    def on_refused(self, machine: "Machine", recovery: Any, fault: StorageFault) -> None:
        """A log could not be recovered although nothing damages disks here."""
        if isinstance(fault.cause, OSError):
            return
        directory = recovery._place.directory  # noqa: SLF001 (a checker)
        failed = any(name == directory for name, _ in self.watched(machine).failed)
        self.require(False, "S8" if failed else "S1", f"{machine.name}: {fault}")  # noqa: FBT003 (it is one)

    def _check_left(self, machine: "Machine", seen: Watched, stored: StoredLog, start: int) -> None:
        directory = stored.directory
        left = seen.left.pop(directory, None)
        if left is None:
            return
        found = {batch.header.base_offset: batch.data for batch in stored.batches}
        lowest = max(start, seen.cleaned_to[directory])
        for batch in left.batches:
            base = batch.header.base_offset
            self.require(
                batch.header.last_offset < lowest or found.get(base) == batch.data,
                "S1",
                f"{machine.name} loses durable batch {base} of {directory} (ended by {left.how})",
            )
        for batch in stored.batches:
            base = batch.header.base_offset
            self.require(
                batch.payload in seen.written[directory][base]
                and (left.how == "power" or base in left.bases or base < lowest),
                "S1",
                f"{machine.name} recovers batch {base} of {directory}, which did not exist before "
                f"(ended by {left.how})",
            )

    def check_producers(self, machine: "Machine", stored: StoredLog, log: PartitionLog) -> None:
        """Check that the producer state equals a replay of all batches."""
        seen = self.watched(machine)
        true = replayed(stored.batches, log.log_end_offset)
        start = max(seen.start_of(stored), int(log.log_start_offset))
        wrong = producers_flaw(last_batches(log.producers), true, start=start)
        self.require(not wrong, "S5", f"{stored.directory} of {machine.name}: {wrong}")

    def _check_again(
        self, machine: "Machine", recovery: Any, before: dict[str, bytes], log: PartitionLog
    ) -> None:
        """Repeat the recovery with a crash in the middle, recover again and compare."""
        place = recovery._place  # noqa: SLF001 (a checker)
        rng = random.Random(f"{self.probe.seed} {machine.name} {machine.life} {place.directory}")
        scratch = MemoryDisk()
        scratch.mkdir(place.directory)
        for path, data in before.items():
            scratch.put(path, data)
        twin = scratch.copy()
        _recover(twin, recovery)
        crashed = twin.killed_at(rng.randint(1, max(len(twin.journal), 1)) - 1)
        again = _recover(crashed, recovery)
        for what, found, known in (
            ("files", _logs_in(crashed, place.directory), _logs_in(machine.disk, place.directory)),
            ("epochs", again.leader_epochs, log.leader_epochs),
            ("bounds", _bounds(again), _bounds(log)),
            ("producers", last_batches(again.producers), last_batches(log.producers)),
        ):
            self.require(
                found == known,
                "S2",
                f"{what} of {place.directory} of {machine.name} differ after a crash during "
                f"recovery: {found}, expected {known}",
            )

    def on_truncated(self, machine: "Machine", log: PartitionLog) -> None:
        """Check the producer state and the leader epochs of a truncated log."""
        if log.fault is None:
            self._check_epochs(machine, log)
        stored = self.watched(machine).logs.get(log.directory)
        if stored is not None and log.fault is None:
            self.check_producers(machine, stored, log)

    def _check_epochs(self, machine: "Machine", log: PartitionLog) -> None:
        """Check that no epoch of the cache begins at or after the end of a truncated log."""
        entries, end = log.leader_epochs, log.log_end_offset
        self.require(
            not entries or entries[-1][1] < end,
            "P9",
            f"{machine.name} truncates {log.name} to {end} and keeps the epochs {entries}",
        )


# ---- hooks


@contextmanager
def storage_watched(
    probe: Probe,
    checks: RecoveryChecks,
    *,
    on_retention: Callable[["Machine", Any], None],
    on_expired: Callable[["Machine", Any, int], None],
) -> Iterator[None]:
    """Observe every recovery, truncation and retention run within this context."""

    def seen(disk: Any, call: Callable[["Machine"], None]) -> None:
        machine = current_machine(probe)
        if machine is not None and machine.disk is disk:
            probe.check(lambda: call(machine))

    with (
        patch.object(_Recovery, "run", _run(checks, seen)),
        patch.object(PartitionLog, "apply_retention", _apply_retention(on_retention, seen)),
        patch.object(PartitionLog, "expired_until", _expired_until(on_expired, seen)),
        patch.object(PartitionLog, "truncate_to", _truncate_to(checks, seen)),
    ):
        yield


def _run(checks: RecoveryChecks, seen: Any) -> Any:
    original = _Recovery.run

    @wraps(original)
    def run(self: Any, entropy: Any) -> PartitionLog:
        disk, place = self._disk, self._place
        before = _files_in(disk, place.directory)
        try:
            log = original(self, entropy)
        except StorageFault as fault:
            refused = fault
            seen(disk, lambda machine: checks.on_refused(machine, self, refused))
            raise
        seen(disk, lambda machine: checks.on_recovered(machine, self, before, log))
        return log

    return run


def _apply_retention(tell: Callable[["Machine", Any], None], seen: Any) -> Any:
    original = PartitionLog.apply_retention

    @wraps(original)
    def apply_retention(self: PartitionLog, *arguments: Any, **more: Any) -> int:
        seen(self._disk, lambda machine: tell(machine, self))
        try:
            return original(self, *arguments, **more)
        finally:
            seen(self._disk, lambda machine: tell(machine, None))

    return apply_retention


def _expired_until(tell: Callable[["Machine", Any, int], None], seen: Any) -> Any:
    original = PartitionLog.expired_until

    @wraps(original)
    def expired_until(self: PartitionLog, now_ms: int) -> int:
        until = original(self, now_ms)
        seen(self._disk, lambda machine: tell(machine, self, until))
        return until

    return expired_until


def _truncate_to(checks: RecoveryChecks, seen: Any) -> Any:
    original = PartitionLog.truncate_to

    @wraps(original)
    def truncate_to(self: PartitionLog, offset: int) -> bool:
        done = original(self, offset)
        seen(self._disk, lambda machine: checks.on_truncated(machine, self))
        return done

    return truncate_to


def _recover(disk: MemoryDisk, recovery: Any) -> PartitionLog:
    """Recover the same log on another disk."""
    made = _Recovery(disk, recovery._place, recovery._config, recovery._clock)  # noqa: SLF001
    return made.run(SeededEntropy(random.Random(0)))


def _files_in(disk: MemoryDisk, directory: str) -> dict[str, bytes]:
    paths = [f"{directory}/{name}" for name in disk.listdir(directory)]
    return {path: disk.stored(path) for path in paths}


def _logs_in(disk: MemoryDisk, directory: str) -> dict[str, bytes]:
    """Return the segments with records."""
    files = _files_in(disk, directory).items()
    return {path: data for path, data in files if path.endswith(LOG) and data}


def _bounds(log: PartitionLog) -> tuple[int, int]:
    return int(log.log_start_offset), int(log.log_end_offset)
