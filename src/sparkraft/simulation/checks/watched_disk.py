"""State that the checkers record about a simulated disk: logs, log remains, checkpoints.

Not here: the invariants (`storage_checks`, `recovery_checks`).
"""

import json
from collections import defaultdict
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

from sparkraft.simulation.checks.stored_log import (
    LastBatch,
    StoredBatch,
    StoredLog,
    checkpoint_rows,
)
from sparkraft.simulation.world.memory_disk import MemoryDisk
from sparkraft.storage.names import (
    CLEANED_OFFSETS,
    HIGH_WATERMARKS,
    LEADER_EPOCHS,
    LOG_START_OFFSETS,
    META_PROPERTIES,
    METADATA_DIR,
    RECOVERY_POINTS,
)
from sparkraft.storage.producers import Producers
from sparkraft.storage.quorum_state import QUORUM_STATE
from sparkraft.storage.snapshot_files import parse_snapshot_name

if TYPE_CHECKING:
    from sparkraft.simulation.world.machine import Machine

DATA = "/data"
COMPACTED = ("keyed", "__consumer_offsets", "__transaction_state")
"""Topics whose logs may have gaps after compaction."""
OFFSET_FILES = (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS, CLEANED_OFFSETS)
CHECKPOINTS = frozenset({*OFFSET_FILES, LEADER_EPOCHS, QUORUM_STATE, META_PROPERTIES})


class Left(NamedTuple):
    """A log at the end of a process."""

    how: str
    batches: list[StoredBatch]
    """Batches that recovery must restore."""
    bases: frozenset[int]
    """Base offsets of all batches, durable or not."""


class Version(NamedTuple):
    """A checkpoint's bytes, and the number of syncs before they were put in place."""

    syncs: int
    data: bytes


class Passing(NamedTuple):
    """A file awaiting deletion or rename.

    Attributes:
        since: world time in ms.
        skew_ms: clock skew of its machine at that time.
        delay_ms: how long it may stay.
    """

    since: int
    skew_ms: int
    delay_ms: int


class Watched:
    """Recorded state of one disk."""

    def __init__(self, disk: MemoryDisk) -> None:
        self.disk = disk
        self.logs: dict[str, StoredLog] = {}
        """Directory → log recovered by the current incarnation."""
        self.left: dict[str, Left] = {}
        self.written: dict[str, dict[int, set[bytes]]] = defaultdict(lambda: defaultdict(set))
        """Directory → base offset → all payloads ever written there."""
        self.deleted: dict[str, dict[int, set[bytes]]] = {}
        """The same for the last deleted directory of each name: a response in flight may still
        acknowledge records in it."""
        self.cleaned_to: dict[str, int] = defaultdict(int)
        """Directory → offset below which compaction may have rewritten batches."""
        self.failed: set[tuple[str, int]] = set()
        """Directory and base offset of batches whose write failed."""
        self.versions: dict[str, list[Version]] = {}
        self.syncs = 0
        self.lost_power = False
        """The previous process ended by a power loss, so all present data is durable."""
        self.passing: dict[str, Passing] = {}
        """Files awaiting deletion or rename."""
        self.retaining: Any = None
        """The log whose retention is running."""
        self.removed: set[str] = set()
        """`.log` files that retention removed."""

    def forget_folder(self, path: str) -> None:
        """Forget a directory that was renamed or deleted."""
        if path in self.written:
            self.deleted[path] = self.written.pop(path)
        for known in (self.logs, self.left, self.cleaned_to):
            known.pop(path, None)
        for name in [name for name in self.versions if name.startswith(path + "/")]:
            del self.versions[name]
        for name in [name for name in self.passing if name.startswith(path + "/")]:
            del self.passing[name]

    def lose_unsynced(self, directory: str) -> None:
        """Drop unsynced batches: a power loss hits a log before its recovery."""
        left = self.left[directory]
        is_there = self.disk.is_dir(directory)  # a directory that was never synced may be lost
        spared = StoredLog(self.disk, directory).durable(self.disk) if is_there else []
        known = {batch.header.base_offset: batch.data for batch in spared}
        kept = list(
            takewhile(lambda each: known.get(each.header.base_offset) == each.data, left.batches)
        )
        self.left[directory] = Left("power", kept, left.bases)

    def note(self, directory: str, batches: list[StoredBatch]) -> None:
        """Record written batches."""
        written = self.written[directory]
        for batch in batches:
            written[batch.header.base_offset].add(batch.payload)

    def has_written(self, directory: str, base: int, payload: bytes) -> bool:
        """Whether this batch was ever written to the directory or its deleted predecessor."""
        here, deleted = self.written[directory][base], self.deleted.get(directory, {}).get(base, ())
        return payload in here or payload in deleted

    def put_in_place(self, path: str, data: bytes) -> None:
        """Record a checkpoint's new bytes and drop versions older than the last durable one."""
        versions = self.versions.setdefault(path, [])
        versions.append(Version(self.syncs, data))
        durable = [at for at, version in enumerate(versions) if version.syncs < self.syncs]
        del versions[: max(durable, default=0)]

    def start_of(self, log: StoredLog) -> int:
        """Return the start of a log: by its files or the log start checkpoint, if larger."""
        batches = log.batches
        first = batches[0].header.base_offset if batches else log.end
        starts = offsets_in(self.disk.stored(f"{DATA}/{LOG_START_OFFSETS}"))
        return max(first, starts.get(partition_of(log.directory), 0))


# ---- names and checkpoints


def partition_of(directory: str) -> tuple[str, int]:
    """Return topic and partition index of a directory; index -1 if it is not a partition's."""
    topic, _, partition = directory.rpartition("/")[2].rpartition("-")
    return topic, int(partition) if partition.isdigit() else -1


def is_compacted(directory: str) -> bool:
    """Whether the directory's log may have gaps."""
    return partition_of(directory)[0] in COMPACTED


def offsets_in(data: bytes) -> dict[tuple[str, int], int]:
    """Parse an offset checkpoint; empty if it is incomplete."""
    rows = checkpoint_rows(data, 3) or ()
    return {(topic, int(partition)): int(offset) for topic, partition, offset in rows}


def checkpoint_flaw(machine: "Machine", path: str, data: bytes) -> str:
    """Return what is wrong with a checkpoint that was just put in place; empty if valid."""
    name = path.rpartition("/")[2]
    if name == QUORUM_STATE:
        try:
            return "" if isinstance(json.loads(data)["leaderEpoch"], int) else "has no epoch"
        except (ValueError, KeyError) as error:
            return f"cannot be parsed ({error})"
    if name == META_PROPERTIES:
        lines = data.decode().split("\n")
        name = "broker.id" if "version=0" in lines else "node.id"  # 0: of ZooKeeper mode
        return "" if f"{name}={machine.id}" in lines else "belongs to another node"
    fields = 2 if name == LEADER_EPOCHS else 3
    return "" if checkpoint_rows(data, fields) is not None else "is incomplete"


def synced_start(disk: MemoryDisk, directory: str) -> int:
    """Return the log start offset that survives a power loss."""
    if directory.endswith(METADATA_DIR):
        found = ((name, parse_snapshot_name(name)) for name in disk.listdir(directory))
        return max(
            (
                int(parts[0].offset)
                for name, parts in found
                if parts is not None and parts[1] and disk.synced(f"{directory}/{name}")
            ),
            default=0,
        )
    starts = offsets_in(disk.synced(f"{DATA}/{LOG_START_OFFSETS}"))
    return starts.get(partition_of(directory), 0)


def last_batches(producers: Producers) -> dict[int, LastBatch]:
    """Return producer id → last batch from the product's producer state."""
    return {
        state.producer_id: LastBatch(
            state.epoch, state.last_sequence, state.batches[-1].last_offset
        )
        for state in producers
        if state.batches
    }
