"""L1: no piece of work on a node's event loop does more than the simulated `WORK_MAX`.

A piece is one callback of the loop. Counted, by observing the product from outside:

    folders      logs hosted or dropped after a change of the image; none may be made or renamed
    partitions   logs whose retention is checked
    bytes        record batches compressed or decompressed; work in threads counts for nothing
    group records  records of a group coordinator that are replayed, after a decision or in a load
    metadata records  records of the metadata log that are applied to images, and their batches
    device reads reads for fetches of bytes that are not in the page cache: none
    units        units that work counts with a `Turn`, all turns together

Work whose slice is over by its `Turn` counts at most once more before it lets others run: a
queue of calls counts its last call after the slice that the call itself has ended.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from sparkraft.base.loop_work import LOOP_WORK_MAX
from sparkraft.coordinator.group.shard import GroupShard
from sparkraft.coordinator.steps import PIECE_UNITS
from sparkraft.metadata.apply import apply
from sparkraft.metadata.replay import Replay
from sparkraft.records import record, validate
from sparkraft.server.broker.replica_manager import ReplicaManager
from sparkraft.server.broker.shared_reads import SharedReads
from sparkraft.server.loop_turns import Turn
from sparkraft.server.raft.commit_publisher import BATCHES_PER_ITERATION
from sparkraft.simulation.checks.probe import Probe, Require, current_machine
from sparkraft.simulation.world.loop import CURRENT
from sparkraft.simulation.world.machine import DIRECTORY, WORK_MAX
from sparkraft.simulation.world.memory_disk import Operation
from sparkraft.storage import removal
from sparkraft.storage.names import METADATA_DIR, parse_partition_dir

if TYPE_CHECKING:
    from sparkraft.simulation.world.machine import Machine

GROUP_RECORDS_MAX = PIECE_UNITS
"""A decision with no more records is carried out at once; all other replays are cut."""

LISTENERS = 2
"""Of the metadata log, on a node that is broker and controller; each applies all batches."""

COUNTS_AFTER_SLICE = 1

BOUNDS = {
    "folders": WORK_MAX.folders,
    "partitions": WORK_MAX.partitions,
    "bytes": WORK_MAX.codec_bytes,
    "group records": GROUP_RECORDS_MAX,
    "metadata records": WORK_MAX.records,
    "metadata batches": LISTENERS * BATCHES_PER_ITERATION,
    "units": LOOP_WORK_MAX.partitions,
    "counts after the end of a slice": COUNTS_AFTER_SLICE,
    "device reads": 0,
}


class LoopChecks:
    """Counts units of work per piece."""

    def __init__(self, probe: Probe, require: Require) -> None:
        self._probe = probe
        self._require = require
        self._pieces: dict[str, _Piece] = {}
        """Machine → its latest piece with work."""

    def on_work(self, unit: str, count: int) -> None:
        """Some work was done by the process that is executing."""
        machine = current_machine(self._probe)
        if machine is not None and machine.incarnation is not None:
            incarnation = machine.incarnation
            if not incarnation.off_loop:
                self._probe.check(lambda: self._add(machine, unit, count))

    @contextmanager
    def fetching(self) -> Iterator[None]:
        """A log is read for a fetch; it must not wait for the disk."""
        machine = current_machine(self._probe)
        if machine is None:
            yield
            return
        before = machine.disk.device_reads
        yield
        if waited := machine.disk.device_reads - before:
            self.on_work("device reads", waited)

    def on_operation(self, machine: "Machine", operation: Operation) -> None:
        """A disk has carried out an operation: folders of logs belong to threads."""
        incarnation = machine.incarnation
        if operation.kind not in ("mkdir", "rename") or incarnation is None:
            return
        folder = operation.path.removeprefix(f"{DIRECTORY}/")
        if parse_partition_dir(folder) is None or folder == METADATA_DIR:
            return
        self._require(
            incarnation.off_loop or CURRENT.get() is not incarnation,
            "L1",
            f"{machine.name} runs {operation.kind} of {operation.path} on its event loop",
        )

    def on_units(self, turn: Turn, units: int, *, is_over: bool) -> None:
        """Work has counted units with its turn, whose slice is over then or not."""
        machine = current_machine(self._probe)
        if not units or machine is None:
            return
        piece = self._piece_of(machine)
        after = turn in piece.over
        if is_over:
            piece.over.add(turn)
        self.on_work("units", units)
        if after:
            self.on_work("counts after the end of a slice", 1)

    def _piece_of(self, machine: "Machine") -> "_Piece":
        assert machine.incarnation is not None
        key = machine.life, machine.incarnation.pieces
        known = self._pieces.get(machine.name)
        if known is None or known.key != key:
            known = self._pieces[machine.name] = _Piece(key)
        return known

    def _add(self, machine: "Machine", unit: str, count: int) -> None:
        units = self._piece_of(machine).units
        units[unit] += count
        self._require(
            units[unit] <= BOUNDS[unit],
            "L1",
            f"{machine.name} does {units[unit]} {unit} in one piece of its loop's work, "
            f"at most {BOUNDS[unit]} are allowed",
        )


class _Piece:
    """One callback of a machine: its life and number, and the units of work in it."""

    def __init__(self, key: tuple[int, int]) -> None:
        self.key = key
        self.units: Counter[str] = Counter()
        self.over: set[Turn] = set()
        """Turns whose slice is over."""


@contextmanager
def work_watched(checks: LoopChecks) -> Iterator[None]:
    """Count the work within this context."""

    def counted(original: Callable[..., Any], unit: str, units: Callable[[Any], int]) -> Any:
        @wraps(original)
        def call(*arguments: Any, **more: Any) -> Any:
            result = original(*arguments, **more)
            checks.on_work(unit, units(result))
            return result

        return call

    def one(_: Any) -> int:
        return 1

    read = SharedReads.read

    @wraps(read)
    def fetch(*arguments: Any, **more: Any) -> Any:
        with checks.fetching():
            return read(*arguments, **more)

    is_over = Turn.is_over

    @wraps(is_over)
    def count(self: Turn, units: int) -> bool:
        over = is_over(self, units)
        checks.on_units(self, units, is_over=over)
        return over

    with ExitStack() as stack:
        for owner, name, unit, units in (
            *((module, "apply", "metadata records", one) for module in _applying()),
            (Replay, "replay_batch", "metadata batches", one),
            (ReplicaManager, "_host", "folders", one),
            (ReplicaManager, "_drop", "folders", one),
            (removal, "_advance_start", "partitions", one),
            (GroupShard, "replay_in_steps", "group records", one),
            (record, "decompress", "bytes", len),
            (validate, "compress", "bytes", len),
        ):
            replaced = counted(getattr(owner, name), unit, units)
            stack.enter_context(patch.object(owner, name, replaced))
        stack.enter_context(patch.object(SharedReads, "read", fetch))
        stack.enter_context(patch.object(Turn, "is_over", count))
        yield


def _applying() -> Iterator[Any]:
    """Modules of the product that apply records of the metadata log to images."""
    for name, module in sorted(sys.modules.items()):
        if (
            name.startswith("sparkraft.")
            and not name.startswith(("sparkraft.simulation.", "sparkraft.metadata.apply"))
            and getattr(module, "apply", None) is apply
        ):
            yield module
