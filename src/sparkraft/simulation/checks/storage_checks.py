"""Invariants of the files of whole nodes, read from the simulated disks.

At every disk operation:
    S1  everything below a checkpointed recovery point survives a power loss
    S2  appended data is contiguous complete batches with a valid CRC
    S3  index entries increase, and each matches a batch of its segment
    S4  a checkpoint that is put in place can be parsed
    S5  a producer snapshot equals a replay of all batches
    S7  retention deletes neither the active segment nor anything at or above the high watermark,
        and only after the new log start is on disk
    S9  written records are bytes that a client sent, unless compaction rewrites them
Whenever a log has been recovered (`_Recovery.run`):
    S1  it is a prefix of the previous log with everything synced, and complete without a power loss
    S2  recovering again after a crash during recovery gives the same log
    S5  its producer state equals a replay of all batches
    S8  its directory has no files left over from an earlier incarnation
When a process ends or starts:
    S1  after a clean stop everything survives a power loss
    S4  a checkpoint has its latest content, or after a power loss possibly an earlier one
    S8  a cleanly stopped process holds no lock
On every response to a client:
    S2  no batch with an invalid CRC is served
    S8  a failed write, for example on a full disk, is not acknowledged
    S9  acknowledged records were written by the acknowledging node, as sent

Not here: S6 (`compaction_clients`), file descriptors, which `MemoryDisk` does not have, and
transaction indexes, which these runs do not use; unit tests of the storage cover both.
"""

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from sparkraft.protocol.messages import k00_produce as k00
from sparkraft.protocol.messages import k01_fetch as k01
from sparkraft.records.batch import crc_ok, iter_batches
from sparkraft.simulation.checks.probe import Probe, Require
from sparkraft.simulation.checks.recovery_checks import RecoveryChecks
from sparkraft.simulation.checks.stored_log import (
    PASSING,
    StoredBatch,
    StoredLog,
    StoredSegment,
    offset_index_flaw,
    parsed,
    producers_flaw,
    replayed,
    stray_files,
    time_index_flaw,
)
from sparkraft.simulation.checks.watched_disk import (
    CHECKPOINTS,
    DATA,
    Left,
    Passing,
    Version,
    Watched,
    checkpoint_flaw,
    is_compacted,
    last_batches,
    offsets_in,
    partition_of,
    synced_start,
)
from sparkraft.simulation.world.memory_disk import Operation
from sparkraft.storage.names import (
    CLEANED,
    DELETED,
    INDEX,
    LOG,
    RECOVERY_POINTS,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    parse_offset_name,
)
from sparkraft.storage.producers import DamagedSnapshot, Producers

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkraft.simulation.world.machine import Machine

LEFT_OVER_MS = 15_000
"""How long after its due time a file may wait for a cleaner or retention run."""


class StorageChecks:
    """See the module docstring."""

    def __init__(self, probe: Probe, require: Require) -> None:
        self.probe = probe
        self.require = require
        self.recoveries = RecoveryChecks(probe, require, self.watched)
        self._watched: dict[str, Watched] = {}
        self._sent: dict[tuple[str, int], set[bytes]] = defaultdict(set)
        self.on_batches: Callable[[Machine, str, list[StoredBatch]], None] = lambda *_: None
        """Called with the directory and the batches of each append to a recovered log."""
        self.on_folders: Callable[[Machine, Operation], None] = lambda *_: None
        """Called with each operation, before it is checked here."""
        self.on_answer: Callable[[str, Any, Any], None] = lambda *_: None
        """Called with the host, the request and the response of each client."""

    def watched(self, machine: "Machine") -> Watched:
        """Return the recorded state of the machine's current disk."""
        known = self._watched.get(machine.name)
        if known is None or known.disk is not machine.disk:
            known = self._watched[machine.name] = Watched(machine.disk)
        return known

    # ---- operations

    def on_operation(self, machine: "Machine", operation: Operation) -> None:
        """Check an operation right after the disk performed it."""
        self.on_folders(machine, operation)
        seen, path = self.watched(machine), operation.path
        match operation.kind:
            case "fsync" | "fsync_dir":
                seen.syncs += 1
            case "append":
                self._on_append(machine, seen, path, operation.data)
            case "write":
                self._on_write(machine, seen, path, operation.data)
            case "truncate":
                found = seen.logs.get(path.rpartition("/")[0])
                segment = found.find(path) if found is not None and path.endswith(LOG) else None
                if segment is not None:
                    segment.cut(operation.size)
            case "rename":
                self._on_rename(machine, seen, path, operation.target)
            case "unlink":
                self._on_unlink(seen, path)
            case "rmdir":
                seen.forget_folder(path)
            case _:
                pass

    def on_failed(self, machine: "Machine", operation: Operation) -> None:
        """Record an operation that failed, completely or in part."""
        directory, _, name = operation.path.rpartition("/")
        if operation.kind == "append" and name.endswith(LOG):
            seen = self.watched(machine)
            seen.failed |= {
                (directory, batch.header.base_offset) for batch in parsed(operation.data)[0]
            }

    def _on_append(self, machine: "Machine", seen: Watched, path: str, data: bytes) -> None:
        directory = path.rpartition("/")[0]
        if path.endswith(LOG + CLEANED):
            batches = parsed(data)[0]
            seen.note(directory, batches)
            ends = [batch.header.next_offset for batch in batches]
            seen.cleaned_to[directory] = max([seen.cleaned_to[directory], *ends])
        if path.endswith(PASSING):
            self._note_passing(machine, seen, path)
        log = seen.logs.get(directory)
        if log is None or not path.endswith(LOG):
            return
        following = None if log.is_empty else log.end
        batches = log.extend(path, data)
        seen.note(directory, batches)
        self._check_appended(machine, log, path, batches, following)
        self.require(
            path not in seen.removed,
            "S7",
            f"{machine.name} appends to {path} after retention removed it",
        )
        self._check_sent(machine, directory, batches)
        self.on_batches(machine, directory, batches)

    def _check_appended(
        self,
        machine: "Machine",
        log: StoredLog,
        path: str,
        batches: list[StoredBatch],
        following: int | None,
    ) -> None:
        segment = log.find(path)
        flaw = "" if segment is None else segment.flaw
        self.require(not flaw, "S2", f"{machine.name} appends to {path}: {flaw}")
        if following is None or not batches:
            return
        base, holes = batches[0].header.base_offset, is_compacted(log.directory)
        self.require(
            base == following or (holes and base > following),
            "S2",
            f"{machine.name} appends offset {base} to {path}, expected {following}",
        )

    def _check_sent(self, machine: "Machine", directory: str, batches: list[StoredBatch]) -> None:
        sent = self._sent.get(partition_of(directory))
        if sent is None:
            return
        for batch in batches:
            self.require(
                batch.header.is_control or batch.payload in sent,
                "S9",
                f"{machine.name} writes a batch at {batch.header.base_offset} of {directory} "
                "that no client sent",
            )

    def _on_write(self, machine: "Machine", seen: Watched, path: str, data: bytes) -> None:
        directory, _, name = path.rpartition("/")
        if name in CHECKPOINTS:
            self._on_checkpoint(machine, seen, path, data)
        elif name.endswith(PASSING):
            self._note_passing(machine, seen, path)
        log = seen.logs.get(directory)
        if log is None:
            return
        if name.endswith((INDEX, TIME_INDEX)):
            self._check_index(machine, log.find(path), path, data)
        offset = parse_offset_name(name, SNAPSHOT)
        if offset is not None:
            self._check_snapshot(machine, seen, log, path, offset)

    def _check_index(
        self, machine: "Machine", segment: StoredSegment | None, path: str, data: bytes
    ) -> None:
        found = segment or StoredSegment(path, int(path.rpartition("/")[2].partition(".")[0]))
        flaw = offset_index_flaw if path.endswith(INDEX) else time_index_flaw
        wrong = flaw(found, data)
        self.require(not wrong, "S3", f"{path} of {machine.name}: {wrong}")

    def _check_snapshot(
        self, machine: "Machine", seen: Watched, log: StoredLog, path: str, offset: int
    ) -> None:
        try:
            state = last_batches(Producers.from_snapshot(seen.disk.stored(path)))
        except DamagedSnapshot as error:
            self.require(False, "S5", f"{path} of {machine.name}: {error}")  # noqa: FBT003 (it is one)
            return
        wrong = producers_flaw(state, replayed(log.batches, offset), start=seen.start_of(log))
        self.require(not wrong, "S5", f"{path} of {machine.name}: {wrong}")

    def _on_rename(self, machine: "Machine", seen: Watched, path: str, target: str) -> None:
        directory, _, name = target.rpartition("/")
        seen.passing.pop(path, None)
        if path in seen.logs:
            seen.forget_folder(path)
        elif name in CHECKPOINTS:
            self._on_checkpoint(machine, seen, target, seen.disk.stored(target))
        elif name.endswith(PASSING):
            self._note_passing(machine, seen, target)
        log = seen.logs.get(directory)
        if log is None:
            return
        if target == path + DELETED:
            self._on_removed(machine, seen, log, path)
        elif path == target + SWAP and name.endswith(LOG):
            segment = log.reread(seen.disk, target)
            for suffix in (INDEX, TIME_INDEX):
                index = target.removesuffix(LOG) + suffix
                self._check_index(machine, segment, index, seen.disk.stored(index))

    def _note_passing(self, machine: "Machine", seen: Watched, path: str) -> None:
        # Use the log's current config: the topic's config may arrive later.
        due = max(
            (log.config.file_delete_delay_ms for log in _logs(machine) if _in(log, path)), default=0
        )
        seen.passing[path] = Passing(self.probe.now, machine.skew_ms, due)

    def _on_unlink(self, seen: Watched, path: str) -> None:
        seen.passing.pop(path, None)
        seen.versions.pop(path, None)
        if path.endswith(LOG):
            log = seen.logs.get(path.rpartition("/")[0])
            if log is not None:
                log.remove(path)

    # ---- retention

    def on_retention(self, machine: "Machine", log: Any) -> None:
        """Retention of `log` starts; None when it ends."""
        self.watched(machine).retaining = log

    def on_expired(self, machine: "Machine", log: Any, until: int) -> None:
        """Check that retention up to `until` stays below the high watermark."""
        self.require(
            until <= log.high_watermark,
            "S7",
            f"{machine.name} deletes {log.name} up to {until}, HW={log.high_watermark}",
        )

    def _on_removed(self, machine: "Machine", seen: Watched, log: StoredLog, path: str) -> None:
        segment = log.remove(path)
        retaining = seen.retaining
        if segment is None or retaining is None or retaining.directory != log.directory:
            if segment is not None:
                seen.removed = {one for one in seen.removed if not one.startswith(log.directory)}
            return
        seen.removed.add(path)
        end = segment.batches[-1].header.next_offset if segment.batches else segment.base
        start = synced_start(seen.disk, log.directory)
        self.require(
            start >= end,
            "S7",
            f"{machine.name} removes {path} up to {end}, the log start on disk is {start}",
        )

    # ---- checkpoints

    def _on_checkpoint(self, machine: "Machine", seen: Watched, path: str, data: bytes) -> None:
        seen.put_in_place(path, data)
        wrong = checkpoint_flaw(machine, path, data)
        self.require(not wrong, "S4", f"{path} of {machine.name} {wrong}: {data!r}")
        if path.endswith(RECOVERY_POINTS):
            self._check_recovery_points(machine, seen, data)

    def _check_recovery_points(self, machine: "Machine", seen: Watched, data: bytes) -> None:
        for (topic, partition), offset in offsets_in(data).items():
            log = seen.logs.get(f"{DATA}/{topic}-{partition}")
            path = "" if log is None else log.unsynced_below(seen.disk, offset)
            self.require(
                not path,
                "S1",
                f"{machine.name} has unsynced data in {path} below recovery point {offset}: "
                f"{data!r}",
            )

    def on_start(self, machine: "Machine") -> None:
        """Check before a process starts that no checkpoint is invalid and no log is lost."""
        seen = self.watched(machine)
        for directory, left in sorted(seen.left.items()):
            there = not left.batches or seen.disk.is_dir(directory)
            self.require(there, "S1", f"{directory} of {machine.name} is lost with its records")
        for path, versions in sorted(seen.versions.items()):
            data = seen.disk.stored(path)
            durable = versions[0].syncs < seen.syncs
            gone = seen.disk.size(path) < 0
            possible = versions if seen.lost_power else versions[-1:]
            self.require(
                any(version.data == data for version in possible) or (gone and not durable),
                "S4",
                f"{path} of {machine.name} is {data!r}, expected one of {versions}",
            )
            if seen.lost_power:  # otherwise a later power loss may still restore an earlier version
                seen.versions[path] = [] if gone else [Version(-1, data)]
        seen.lost_power = False
        seen.versions = {path: versions for path, versions in seen.versions.items() if versions}
        # A lost rename is undone.
        seen.passing = {path: at for path, at in seen.passing.items() if seen.disk.size(path) >= 0}

    # ---- a process ends

    def on_end(self, machine: "Machine", how: str) -> None:
        """A process has ended; `how` is `clean`, `kill`, or `power` just before a power loss."""
        seen = self.watched(machine)
        seen.lost_power = how == "power"
        if how == "power":
            for directory in sorted(set(seen.left) - set(seen.logs)):
                seen.lose_unsynced(directory)
        for directory, log in seen.logs.items():
            batches = log.batches
            bases = frozenset(batch.header.base_offset for batch in batches)
            spared = log.durable(seen.disk) if how != "kill" else batches
            self.require(
                how != "clean" or spared == batches,
                "S1",
                f"{machine.name} stops cleanly with unsynced data in {directory}",
            )
            seen.left[directory] = Left(how, spared, bases)
        seen.logs.clear()
        seen.retaining = None
        seen.removed.clear()
        locks = sorted(machine.disk._locked)  # noqa: SLF001 (a checker)
        held = how == "clean" and locks
        self.require(not held, "S8", f"{machine.name} stopped cleanly but holds locks {locks}")

    # ---- clients

    def on_request(self, request: Any) -> None:
        """Record the batches that a client sends."""
        if isinstance(request, k00.ProduceRequest):
            for where, batch in _produced(request).items():
                self._sent[where].add(batch.payload)

    def on_response(self, host: str, request: Any, response: Any) -> None:
        """Check a response of `host` to a client."""
        machine = self.probe.machine(host)
        if isinstance(request, k01.FetchRequest):
            self.probe.check(lambda: self._check_fetched(host, response))
        elif isinstance(request, k00.ProduceRequest) and machine is not None:
            self.probe.check(lambda: self._check_acknowledged(machine, request, response))
        self.probe.check(lambda: self.on_answer(host, request, response))

    def _check_fetched(self, host: str, response: Any) -> None:
        for topic in response.responses:
            for found in topic.partitions:
                for header, view in iter_batches(found.records or b""):
                    self.require(
                        crc_ok(view),
                        "S2",
                        f"{host} serves batch {header.base_offset} with an invalid CRC",
                    )

    def _check_acknowledged(self, machine: "Machine", request: Any, response: Any) -> None:
        seen, sent = self.watched(machine), _produced(request)
        for topic in response.responses:
            for part in topic.partition_responses:
                base = part.base_offset
                if part.error_code or base < 0:
                    continue
                directory = f"{DATA}/{topic.name}-{part.index}"
                name = "S8" if (directory, base) in seen.failed else "S9"
                self.require(
                    seen.has_written(directory, base, sent[topic.name, part.index].payload),
                    name,
                    f"{machine.name} acknowledges {base} of {directory} but did not write it so",
                )

    # ---- at the end

    def at_end(self) -> None:
        """Check that no files are left over in the healed cluster."""
        for machine in self.probe.machines:
            node = machine.live_node
            if node is not None and machine not in self.probe.broken:
                self._check_folders(machine)

    def _check_folders(self, machine: "Machine") -> None:
        seen = self.watched(machine)
        for log in _logs(machine):
            stored = seen.logs.get(log.directory)
            if stored is None or log.fault is not None:
                continue
            stray = stray_files(
                seen.disk.listdir(log.directory),
                log.segment_base_offsets,
                passing=True,
                snapshots=log._segments.snapshots,  # noqa: SLF001 (a checker)
            )
            self.require(
                not stray, "S8", f"{machine.name} has leftovers {stray} in {log.directory}"
            )
            self.recoveries.check_producers(machine, stored, log)
            for path, (since, skew, due) in sorted(seen.passing.items()):
                delay = LEFT_OVER_MS + max(due, log.config.file_delete_delay_ms)
                overdue = _in(log, path) and self.probe.now - since > delay
                self.require(
                    not overdue or skew > machine.skew_ms,
                    "S8",
                    f"{machine.name} still has {path}, temporary since {since} ms",
                )


def _logs(machine: "Machine") -> list[Any]:
    """Return the partition logs of a running broker; a paused one may still finish its step."""
    node = machine.node
    broker = node.broker if node is not None else None
    return [] if broker is None else list(broker.replica_manager.log_manager.logs())


def _in(log: Any, path: str) -> bool:
    return path.startswith(log.directory + "/")


def _produced(request: Any) -> dict[tuple[str, int], StoredBatch]:
    """Return the batch of each partition; clients here send one per request."""
    return {
        (topic.name, each.index): parsed(each.records)[0][0]
        for topic in request.topic_data
        for each in topic.partition_data
    }
