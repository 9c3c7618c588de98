"""What the checkers remember of a simulated disk: logs, what a process left of them, checkpoints.

Not here: what must hold (`storage_checks`, `recovery_checks`).
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
COMPACTED = ("keyed", "__consumer_offsets")
"""Topics whose logs have holes where compaction was."""
OFFSET_FILES = (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS, CLEANED_OFFSETS)
CHECKPOINTS = frozenset({*OFFSET_FILES, LEADER_EPOCHS, QUORUM_STATE, META_PROPERTIES})


class Left(NamedTuple):
    """What a process left of a log when it ended."""

    how: str
    batches: list[StoredBatch]
    """What must come back."""
    bases: frozenset[int]
    """Base offsets of all that was there."""


class Version(NamedTuple):
    """A checkpoint's bytes, and how often anything had been synced when they were put in place."""

    syncs: int
    data: bytes


class Passing(NamedTuple):
    """Since when, in world ms, with which skew of its machine's clock, and how long it may stay."""

    since: int
    skew_ms: int
    delay_ms: int


class Watched:
    """What is remembered of one disk."""

    def __init__(self, disk: MemoryDisk) -> None:
        self.disk = disk
        self.logs: dict[str, StoredLog] = {}
        """By folder; those that this life of the machine has recovered."""
        self.left: dict[str, Left] = {}
        self.written: dict[str, dict[int, set[bytes]]] = defaultdict(lambda: defaultdict(set))
        """Folder → base offset → all that ever was written there."""
        self.gone: dict[str, dict[int, set[bytes]]] = {}
        """The same of a folder that is gone, until the next of its name is: what was written there
        may be acknowledged by an answer that is on its way."""
        self.cleaned_to: dict[str, int] = defaultdict(int)
        """Folder → the offset below which compaction may have rewritten its batches."""
        self.failed: set[tuple[str, int]] = set()
        """Folder and base offset of batches that could not be written."""
        self.versions: dict[str, list[Version]] = {}
        self.syncs = 0
        self.lost_power = False
        """What is there now is on the disk: the process before this one ended so."""
        self.passing: dict[str, Passing] = {}
        """Files on their way out, or not in place yet."""
        self.retaining: Any = None
        """The log whose old segments are just being removed."""
        self.removed: set[str] = set()
        """`.log` files that retention took."""

    def forget_folder(self, path: str) -> None:
        """It has another name, or is gone."""
        if path in self.written:
            self.gone[path] = self.written.pop(path)
        for known in (self.logs, self.left, self.cleaned_to):
            known.pop(path, None)
        for name in [name for name in self.versions if name.startswith(path + "/")]:
            del self.versions[name]
        for name in [name for name in self.passing if name.startswith(path + "/")]:
            del self.passing[name]

    def lose_unsynced(self, directory: str) -> None:
        """The power goes before the log that an earlier process left has been recovered."""
        left = self.left[directory]
        is_there = self.disk.is_dir(directory)  # a folder that was never synced may be gone
        spared = StoredLog(self.disk, directory).durable(self.disk) if is_there else []
        known = {batch.header.base_offset: batch.data for batch in spared}
        kept = list(
            takewhile(lambda each: known.get(each.header.base_offset) == each.data, left.batches)
        )
        self.left[directory] = Left("power", kept, left.bases)

    def note(self, directory: str, batches: list[StoredBatch]) -> None:
        """Batches were written."""
        written = self.written[directory]
        for batch in batches:
            written[batch.header.base_offset].add(batch.payload)

    def has_written(self, directory: str, base: int, payload: bytes) -> bool:
        """Whether this batch ever was there, or in the folder of this name that went last."""
        here, gone = self.written[directory][base], self.gone.get(directory, {}).get(base, ())
        return payload in here or payload in gone

    def put_in_place(self, path: str, data: bytes) -> None:
        """A checkpoint has new bytes; those before what is surely on disk are forgotten."""
        versions = self.versions.setdefault(path, [])
        versions.append(Version(self.syncs, data))
        durable = [at for at, version in enumerate(versions) if version.syncs < self.syncs]
        del versions[: max(durable, default=0)]

    def start_of(self, log: StoredLog) -> int:
        """Where a log begins: by its files, or by the checkpoint of log starts."""
        batches = log.batches
        first = batches[0].header.base_offset if batches else log.end
        told = offsets_in(self.disk.stored(f"{DATA}/{LOG_START_OFFSETS}"))
        return max(first, told.get(partition_of(log.directory), 0))


# ---- names and checkpoints


def partition_of(directory: str) -> tuple[str, int]:
    """Topic and index by a folder's name; -1 where it is no partition's."""
    topic, _, partition = directory.rpartition("/")[2].rpartition("-")
    return topic, int(partition) if partition.isdigit() else -1


def is_compacted(directory: str) -> bool:
    """Whether the folder's log may have holes."""
    return partition_of(directory)[0] in COMPACTED


def offsets_in(data: bytes) -> dict[tuple[str, int], int]:
    """What an offset checkpoint says; nothing where it is not whole."""
    rows = checkpoint_rows(data, 3) or ()
    return {(topic, int(partition)): int(offset) for topic, partition, offset in rows}


def checkpoint_flaw(machine: "Machine", path: str, data: bytes) -> str:
    """What is wrong with a checkpoint that was just put in place."""
    name = path.rpartition("/")[2]
    if name == QUORUM_STATE:
        try:
            return "" if isinstance(json.loads(data)["leaderEpoch"], int) else "has no epoch"
        except (ValueError, KeyError) as error:
            return f"can't be read ({error})"
    if name == META_PROPERTIES:
        lines = data.decode().split("\n")
        return "" if f"node.id={machine.id}" in lines else "is another node's"
    fields = 2 if name == LEADER_EPOCHS else 3
    return "" if checkpoint_rows(data, fields) is not None else "is not a whole checkpoint"


def synced_start(disk: MemoryDisk, directory: str) -> int:
    """Where a log begins at the next start, whatever is lost with the power."""
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
    """Producer id → its last batch, as the product has it."""
    return {
        state.producer_id: LastBatch(
            state.epoch, state.last_sequence, state.batches[-1].last_offset
        )
        for state in producers
        if state.batches
    }
