"""Q10 of whole nodes: a snapshot is the committed prefix, and every log starts at 0 or a snapshot.

When a snapshot is renamed into place: it ends at the end of a committed batch, outside a metadata
transaction, in that batch's epoch; its voters, kraft.version and records equal the state of the log
up to there. While one is fetched: chunks are contiguous, and no leader loads it. Every second: a
log that has been cleaned starts at a snapshot.

Not here: the versions of its records (`node_checks`, V1).
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from sparkraft.base.errors import DecodeError
from sparkraft.metadata.apply import apply
from sparkraft.metadata.image import EMPTY_IMAGE, ClusterImage
from sparkraft.metadata.snapshot import records_of
from sparkraft.protocol.framing import decode_metadata_record
from sparkraft.raft import events
from sparkraft.raft.events import KRaftVersionChange, VotersChange
from sparkraft.raft.voters import VoterSet
from sparkraft.server.raft.records import parse_batches, read_snapshot_controls
from sparkraft.simulation.checks.probe import Probe, Require
from sparkraft.storage.snapshot_files import SnapshotId, open_snapshot, parse_snapshot_name

if TYPE_CHECKING:
    from sparkraft.simulation.world.machine import Machine


class Prefix(NamedTuple):
    """The state of the log up to the end of a batch of `epoch`."""

    epoch: int
    image: ClusterImage
    kraft_version: int
    voters: VoterSet | None


class SnapshotChecks:
    """See the module docstring."""

    def __init__(self, probe: Probe, require: Require) -> None:
        self._probe = probe
        self._check = require
        self._prefixes: dict[int, Prefix] = {}
        """End offset of each committed batch at which a snapshot may end → state."""
        self._kraft_version = int(probe.dynamic)
        self._voters: VoterSet | None = None
        """The last voter set in the log; a dynamic quorum has its first set only in a snapshot."""
        self._fetched: dict[tuple[str, int], tuple[Any, int]] = {}
        """Machine and incarnation → snapshot being fetched, and bytes received."""

    def _require(self, holds: object, text: str) -> None:
        self._check(holds, "Q10", text)

    # ---- committed batches

    def on_committed(self, header: Any, view: memoryview, image: ClusterImage | None) -> None:
        """Record a committed batch; `image` is the resulting image, None within a transaction."""
        if header.is_control:
            self._note_controls(view)
        if image is not None:
            epoch = header.partition_leader_epoch
            self._prefixes[header.last_offset + 1] = Prefix(
                epoch, image, self._kraft_version, self._voters
            )

    def _note_controls(self, view: memoryview) -> None:
        for batch in parse_batches([view]):
            for control in batch.controls:
                if isinstance(control, KRaftVersionChange):
                    self._kraft_version = control.kraft_version
                elif isinstance(control, VotersChange):
                    self._voters = control.voters

    # ---- finished snapshots

    def on_snapshot(self, machine: "Machine", path: str) -> None:
        """Check a snapshot that was renamed into place."""
        known = parse_snapshot_name(path.rpartition("/")[2])
        if known is None or not known[0].offset:
            return  # the bootstrap snapshot of a formatted directory
        snapshot = known[0]
        prefix = self._prefixes.get(snapshot.offset)
        who = f"{machine.name} has snapshot {snapshot.epoch}@{snapshot.offset}"
        self._require(prefix is not None, f"{who}, but no committed batch ends there")
        if prefix is None:
            return  # Q10 may not be checked in this run
        self._require(prefix.epoch == snapshot.epoch, f"{who}, committed in epoch {prefix.epoch}")
        self._check_content(machine, path, prefix, who)

    def _check_content(self, machine: "Machine", path: str, prefix: Prefix, who: str) -> None:
        try:
            data = open_snapshot(machine.disk, path)
            level, voters = read_snapshot_controls(data.content())
            image = _image_of(value for values in data.records() for value in values)
        except DecodeError as error:
            self._require(False, f"{who}, which is corrupt: {error}")  # noqa: FBT003 (it is)
            return
        self._require(
            level == prefix.kraft_version and prefix.voters in (None, voters),
            f"{who} with kraft.version {level} and {voters}, in the log {prefix.kraft_version} "
            f"and {prefix.voters}",
        )
        self._require(
            list(records_of(image)) == list(records_of(prefix.image)),
            f"{who}, which is not the committed prefix",
        )

    # ---- fetched snapshots

    def on_chunk(self, machine: "Machine", effect: events.WriteSnapshotChunk) -> None:
        """Check a chunk before it is written."""
        key = (machine.name, machine.life)
        have = self._fetched.get(key, (None, 0))
        held = have[1] if have[0] == effect.snapshot else 0
        self._require(
            effect.position in {0, held},
            f"{machine.name} writes a snapshot chunk at {effect.position} after {held} bytes",
        )
        self._fetched[key] = (effect.snapshot, effect.position + len(effect.chunk))

    def on_install(self, machine: "Machine", *, leads: bool) -> None:
        """Check a fetched snapshot before it replaces the log."""
        self._require(not leads, f"leader {machine.name} loads a snapshot")

    # ---- every second

    def every_second(self) -> None:
        """Check the start of every metadata log."""
        for machine in self._probe.machines:
            if machine.raft is not None:
                self._check_start(machine, machine.raft.log)

    def _check_start(self, machine: "Machine", log: Any) -> None:
        if log.start == 0:
            return
        names = (parse_snapshot_name(name) for name in machine.disk.listdir(log.directory))
        held: list[SnapshotId] = [known[0] for known in names if known is not None and known[1]]
        self._require(
            any(snapshot.offset == log.start for snapshot in held),
            f"the log of {machine.name} starts at {log.start} without a snapshot at that offset",
        )


def _image_of(values: Iterable[bytes]) -> ClusterImage:
    image = EMPTY_IMAGE
    for value in values:
        image = apply(image, decode_metadata_record(value)[0])
    return image
