"""What must hold of the files of whole nodes, read from the simulated disks themselves.

At every operation on a disk:
    S1  nothing below a recovery point that is written down may be lost with the power
    S2  what is appended is whole batches of right CRC, each where the one before ended
    S3  indexes that are put in place rise, and each entry is of a batch of its segment
    S4  a checkpoint that is put in place can be read
    S5  a snapshot of producers is what a replay of all batches says
    S7  retention takes no active segment and nothing at or above the high watermark, and the log's
        new start is on disk before
    S9  records that are written are bytes that a client sent, where compaction doesn't rewrite them

Whenever a log has been recovered (`_Recovery.run`):
    S1  it is a prefix of what was there: all that was synced, all of it unless the power was lost
    S2  a crash anywhere in its recovery, and another recovery, comes to the same
    S5  its producers are those of a replay of all batches
    S8  no file of its folder is left over from a life before

When a process ends or starts:
    S1  a clean stop leaves nothing that a power loss might take
    S4  a checkpoint is as it was last put in place; after a power loss perhaps as it was before
    S8  who stopped in good order holds no lock

Whenever a client is answered:
    S2  no batch of a wrong CRC is served
    S8  what failed to be written, on a full disk for example, is not acknowledged
    S9  what is acknowledged was written by who says so, as it was sent

Not here: S6 (`cleaned_clients`). File descriptors, which a `MemoryDisk` has none of, and indexes of
transactions, of which these runs have none: tests of the storage look at those.
"""

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from sparkraft.protocol.messages import k00_produce as k00
from sparkraft.protocol.messages import k01_fetch as k01
from sparkraft.records.batch import crc_ok, iter_batches
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
    from sparkraft.simulation.world.machine import Machine
    from sparkraft.simulation.world.nodes import NodesWorld

LEFT_OVER_MS = 15_000
"""So long after it is due a file may wait for a cleaning or a round of retention."""


class StorageChecks:
    """See the module docstring."""

    def __init__(self, world: "NodesWorld") -> None:
        self.world = world
        self.recoveries = RecoveryChecks(world, self.watched)
        self._watched: dict[str, Watched] = {}
        self._sent: dict[tuple[str, int], set[bytes]] = defaultdict(set)

    def require(self, holds: object, invariant: str, text: str) -> None:
        """Raise where the invariant does not hold."""
        self.world.checks.require(holds, invariant, text)

    def watched(self, machine: "Machine") -> Watched:
        """What is remembered of the disk that the machine has now."""
        known = self._watched.get(machine.name)
        if known is None or known.disk is not machine.disk:
            known = self._watched[machine.name] = Watched(machine.disk)
        return known

    # ---- operations

    def on_operation(self, machine: "Machine", operation: Operation) -> None:
        """The disk has just done it."""
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
        """The disk has not done it, or not all of it."""
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
        self.require(path not in seen.removed, "S7", f"{machine.name} removed {path}, and appends")
        self._check_sent(machine, directory, batches)

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
        self.require(not flaw, "S2", f"{machine.name} has written to {path}, and {flaw}")
        if following is None or not batches:
            return
        base, holes = batches[0].header.base_offset, is_compacted(log.directory)
        self.require(
            base == following or (holes and base > following),
            "S2",
            f"{machine.name} writes {base} to {path} where {following} is next",
        )

    def _check_sent(self, machine: "Machine", directory: str, batches: list[StoredBatch]) -> None:
        sent = self._sent.get(partition_of(directory))
        if sent is None:
            return
        for batch in batches:
            self.require(
                batch.header.is_control or batch.payload in sent,
                "S9",
                f"what {machine.name} writes at {batch.header.base_offset} of {directory} "
                "is not what a client sent",
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
            told = last_batches(Producers.from_snapshot(seen.disk.stored(path)))
        except DamagedSnapshot as error:
            self.require(False, "S5", f"{path} of {machine.name}: {error}")  # noqa: FBT003 (it is one)
            return
        wrong = producers_flaw(told, replayed(log.batches, offset), start=seen.start_of(log))
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
        # As long as its log's settings say now: its topic's may be known only later.
        due = max(
            (log.config.file_delete_delay_ms for log in _logs(machine) if _in(log, path)), default=0
        )
        seen.passing[path] = Passing(self.world.now, machine.skew_ms, due)

    def _on_unlink(self, seen: Watched, path: str) -> None:
        seen.passing.pop(path, None)
        seen.versions.pop(path, None)
        if path.endswith(LOG):
            log = seen.logs.get(path.rpartition("/")[0])
            if log is not None:
                log.remove(path)

    # ---- retention

    def on_retention(self, machine: "Machine", log: Any) -> None:
        """From now on what goes goes because of retention; None: that is over."""
        self.watched(machine).retaining = log

    def on_expired(self, machine: "Machine", log: Any, until: int) -> None:
        """Retention is about to take what is below `until`; the log's start has not moved yet."""
        self.require(
            until <= log.high_watermark,
            "S7",
            f"{machine.name} lets {log.name} go up to {until}, HW={log.high_watermark}",
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
            f"{machine.name} removes {path} up to {end}, on disk its log begins at {start}",
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
                not path, "S1", f"{machine.name} has {path} below {offset} not on disk: {data!r}"
            )

    def on_start(self, machine: "Machine") -> None:
        """A process is about to start: its checkpoints are old or new, no folder is gone."""
        seen = self.watched(machine)
        for directory, left in sorted(seen.left.items()):
            there = not left.batches or seen.disk.is_dir(directory)
            self.require(there, "S1", f"{directory} of {machine.name} is gone with its records")
        for path, versions in sorted(seen.versions.items()):
            data = seen.disk.stored(path)
            durable = versions[0].syncs < seen.syncs
            gone = seen.disk.size(path) < 0
            possible = versions if seen.lost_power else versions[-1:]
            self.require(
                any(version.data == data for version in possible) or (gone and not durable),
                "S4",
                f"{path} of {machine.name} is {data!r}, it was one of {versions}",
            )
            if seen.lost_power:  # else a later power loss may still bring the one before back
                seen.versions[path] = [] if gone else [Version(-1, data)]
        seen.lost_power = False
        seen.versions = {path: versions for path, versions in seen.versions.items() if versions}
        # A lost rename is taken back.
        seen.passing = {path: at for path, at in seen.passing.items() if seen.disk.size(path) >= 0}

    # ---- a process ends

    def on_end(self, machine: "Machine", how: str) -> None:
        """A process has ended: `clean`, by a `kill`, or because the `power` is about to go."""
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
                f"{machine.name} stops in good order; not all of {directory} is on disk",
            )
            seen.left[directory] = Left(how, spared, bases)
        seen.logs.clear()
        seen.retaining = None
        seen.removed.clear()
        locks = sorted(machine.disk._locked)  # noqa: SLF001 (a checker)
        held = how == "clean" and locks
        self.require(not held, "S8", f"{machine.name} stopped in good order and holds {locks}")

    # ---- clients

    def on_request(self, request: Any) -> None:
        """A client sends it."""
        if isinstance(request, k00.ProduceRequest):
            for where, batch in _produced(request).items():
                self._sent[where].add(batch.payload)

    def on_answer(self, host: str, request: Any, answer: Any) -> None:
        """A client is answered by `host`."""
        machine = self.world.machine(host)
        if isinstance(request, k01.FetchRequest):
            self.world.check(lambda: self._check_fetched(host, answer))
        elif isinstance(request, k00.ProduceRequest) and machine is not None:
            self.world.check(lambda: self._check_acknowledged(machine, request, answer))

    def _check_fetched(self, host: str, answer: Any) -> None:
        for topic in answer.responses:
            for found in topic.partitions:
                for header, view in iter_batches(found.records or b""):
                    self.require(
                        crc_ok(view), "S2", f"{host} serves {header.base_offset} with a wrong CRC"
                    )

    def _check_acknowledged(self, machine: "Machine", request: Any, answer: Any) -> None:
        seen, sent = self.watched(machine), _produced(request)
        for topic in answer.responses:
            for told in topic.partition_responses:
                base = told.base_offset
                if told.error_code or base < 0:
                    continue
                directory = f"{DATA}/{topic.name}-{told.index}"
                name = "S8" if (directory, base) in seen.failed else "S9"
                self.require(
                    seen.has_written(directory, base, sent[topic.name, told.index].payload),
                    name,
                    f"{machine.name} acknowledges {base} of {directory} and has not written it so",
                )

    # ---- at the end

    def at_end(self) -> None:
        """All is healed and has come to rest: nothing is left over in the folders."""
        for machine in self.world.machines:
            node = machine.live_node
            if node is not None and machine not in self.world.broken:
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
            self.require(not stray, "S8", f"{machine.name} has {stray} in {log.directory}")
            self.recoveries.check_producers(machine, stored, log)
            for path, (since, skew, due) in sorted(seen.passing.items()):
                delay = LEFT_OVER_MS + max(due, log.config.file_delete_delay_ms)
                overdue = _in(log, path) and self.world.now - since > delay
                self.require(
                    not overdue or skew > machine.skew_ms,
                    "S8",
                    f"{machine.name} has {path} since {since}",
                )


def _logs(machine: "Machine") -> list[Any]:
    """Of partitions, on a broker that runs; a paused one may yet end the step it is in."""
    node = machine.node
    broker = node.broker if node is not None else None
    return [] if broker is None else list(broker.replica_manager.log_manager.logs())


def _in(log: Any, path: str) -> bool:
    return path.startswith(log.directory + "/")


def _produced(request: Any) -> dict[tuple[str, int], StoredBatch]:
    """The batch of each partition: the clients here send one at a time."""
    return {
        (topic.name, each.index): parsed(each.records)[0][0]
        for topic in request.topic_data
        for each in topic.partition_data
    }
