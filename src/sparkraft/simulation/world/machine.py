"""A computer of the simulated world: a disk that outlives its processes, clocks, at most one node.

    off ──start──▶ up ──pause──▶ frozen ──resume──▶ up ──kill, power_off, exit──▶ off

A kill keeps the page cache. A power loss keeps synced data and any part of unsynced data. A fault
may strike in the middle of a function: `Died` unwinds it, and nothing of that process runs again.
"""

import errno
import random
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from sparkraft.base.errors import InvariantBroken
from sparkraft.base.ids import Millis, Uuid
from sparkraft.base.loop_work import WorkMax
from sparkraft.metadata.image import ClusterImage
from sparkraft.server.config import NodeConfig
from sparkraft.server.env import Env
from sparkraft.server.loop_turns import LoopTurns
from sparkraft.server.node import Node
from sparkraft.server.node_format import FormatOptions, format_node
from sparkraft.simulation.world.core_node import SeededEntropy
from sparkraft.simulation.world.loop import CURRENT, Incarnation, SimLoop
from sparkraft.simulation.world.memory_disk import MemoryDisk, Operation
from sparkraft.simulation.world.network import SimNetwork, tell_bytes
from sparkraft.simulation.world.observers import NodeObserver
from sparkraft.simulation.world.points import POINTS
from sparkraft.simulation.world.violation import Violation
from sparkraft.storage.disk import FilePart
from sparkraft.storage.meta_properties import read_meta_properties

if TYPE_CHECKING:
    import asyncio


DIRECTORY = "/data"
DISK_STRIKE = 0.02

WORK_MAX = WorkMax(bytes=1 << 20, records=1_000, partitions=4, folders=2, codec_bytes=0)
"""So little that the small simulated clusters have work to cut into slices."""

COLD_WORLDS, COLD_SHARE = 0.125, 0.2
"""The share of worlds whose disks are slow to read, and of the fetches there that meet it."""

SPARED_QUESTIONS = 8
"""So that a fetch does not wait for the same bytes again and again."""

EPOCH_MS = 1_790_000_000_000
"""Wall-clock time at the start of the world."""

BACK_AFTER_S = (0.01, 0.3, 3.0)
"""Possible delays before a process is restarted after a fault point struck."""


FOLDER_DELAYS_S = (0.002, 0.002, 0.002, 0.02, 0.02, 0.3, 3.0)
"""Upper bounds of the time until a thread has worked on folders, equally frequent."""


class SimClock:
    """The clocks of an incarnation; `skew_ms()` is the error of its machine's wall clock."""

    def __init__(
        self, loop: SimLoop, incarnation: Incarnation, skew_ms: Callable[[], int] = lambda: 0
    ) -> None:
        self._loop = loop
        self._incarnation = incarnation
        self._skew_ms = skew_ms

    def mono_ms(self) -> Millis:
        """See `Clock`."""
        return Millis(int(self._incarnation.local(self._loop.now) * 1_000))

    def wall_ms(self) -> Millis:
        """See `Clock`."""
        return Millis(EPOCH_MS + self.mono_ms() + self._skew_ms())


class Died(BaseException):
    """The process was killed in the middle of a function; it runs nothing more."""


class TracedDisk(MemoryDisk):
    """Reports every change before and after it; rejects operations of a killed process."""

    def __init__(
        self,
        before: Callable[[Operation], None],
        after: Callable[[Operation], None],
        failed: Callable[[Operation], None],
        fault_point: Callable[[str], bool],
        cold_dice: random.Random | None,
    ) -> None:
        """`cold_dice`: decides what falls out of the page cache; None keeps everything."""
        super().__init__()
        self._cold_dice = cold_dice
        self._cold: dict[str, FilePart] = {}
        """Path → the bytes that are not in the page cache."""
        self._spared: dict[str, int] = {}
        """Path → questions until its bytes may fall out again, after they were warmed."""
        self.device_reads = 0
        """Reads of such bytes that were not warmed before."""
        self._before = before
        self._after = after
        self._failed = failed
        self._fault_point = fault_point

    def _do(self, operation: Operation) -> None:
        self._before(operation)
        try:
            super()._do(operation)
        except OSError:
            self._failed(operation)
            raise
        self._after(operation)

    def cold_part(
        self, path: str, count: int, at: int, *, to_send: bool = False, grows: bool = False
    ) -> FilePart | None:
        """See `Disk.cold_part`; sometimes the bytes fall out of the page cache just before."""
        _ = to_send, grows
        dice = self._cold_dice
        if dice is None or count <= 0:
            return None
        if spared := self._spared.pop(path, 0):
            self._spared[path] = spared - 1
        elif path not in self._cold and dice.random() < COLD_SHARE:
            self._cold[path] = FilePart(path, at, count)
        return FilePart(path, at, count) if self._is_cold(path, count, at) else None

    def _is_cold(self, path: str, count: int, at: int) -> bool:
        cold = self._cold.get(path)
        return cold is not None and cold.at < at + count and at < cold.at + cold.size

    def warm(self, part: FilePart) -> None:
        """See `Disk.warm`."""
        self._cold.pop(part.path, None)
        self._spared[part.path] = SPARED_QUESTIONS

    def pread(self, path: str, count: int, at: int) -> bytes:
        """See `Disk.pread`; the bytes are in the page cache then."""
        if self._cold and self._is_cold(path, count, at):
            self.device_reads += 1
            del self._cold[path]
        return super().pread(path, count, at)

    def fault_point(self, point: str) -> bool:
        """See `Disk.fault_point`."""
        return self._fault_point(point)


class Executor:
    """Stands in for the disk's threads; `SimLoop.run_in_executor` does the work.

    Args:
        delay_s: of each piece of work; None: that of the machine's disk.
    """

    def __init__(self, delay_s: Callable[[], float] | None = None) -> None:
        self.delay_s = delay_s

    def submit(self, work: Callable[[], None]) -> "Future[None]":
        """Run `work` at once, for callers that block their loop on the result."""
        future: Future[None] = Future()
        try:
            work()
            future.set_result(None)
        except Exception as error:
            future.set_exception(error)
        return future

    def shutdown(self, *, wait: bool = True) -> None:
        """Do nothing: no work is pending."""


def kind_of_file(path: str) -> str:
    """Return the kind of a file in the names of fault points."""
    name = path.rpartition("/")[2].removesuffix(".tmp").removesuffix(".part")
    metadata = "metadata " if "__cluster_metadata" in path else ""
    known = {".log": "segment", ".checkpoint": "snapshot", "index": "index"}
    for ending, kind in known.items():
        if name.endswith(ending):
            return metadata + kind
    return name if name and not name[0].isdigit() and "topic-" not in name else "folder"


class MachineHost(Protocol):
    """The part of its world that a machine uses."""

    seed: int
    dice: random.Random
    counts: Counter[str]
    cluster_id: str
    initial_voters: str
    loop: SimLoop
    network: SimNetwork
    checks: NodeObserver

    @property
    def broken(self) -> Sequence["Machine"]: ...
    @property
    def dynamic(self) -> bool: ...
    @property
    def release(self) -> str | None: ...
    @property
    def spares_disks(self) -> bool: ...
    @property
    def formats_disks(self) -> bool: ...
    @property
    def now(self) -> int: ...
    def properties(self, machine: "Machine", /) -> dict[str, str]: ...
    def new_node(self, machine: "Machine", env: Env, /) -> Node: ...
    def strikes(self, point: str, probability: float, *, product: bool = False) -> bool: ...
    def count_point(self, machine: "Machine", point: str) -> None: ...
    def note(self, text: str, kind: str | None = "note", **fields: Any) -> None: ...
    def fail(self, violation: Violation) -> None: ...
    def check(self, look: Callable[[], None]) -> None: ...
    def after(self, delay_s: float, action: Callable[[], Any]) -> None: ...
    def machine(self, name: str) -> "Machine | None": ...


class Machine:
    """A simulated machine; `roles` are those of its node, `disks` counts its replaced disks."""

    def __init__(self, world: "MachineHost", node_id: int, roles: str, *, voter: bool) -> None:
        self.world = world
        self.id = node_id
        self.name = f"n{node_id}"
        self.roles = roles
        self.voter = voter
        self.life = 0
        self.disks = 0
        self.rate = 1.0
        self.skew_ms = 0
        self.slow_until = 0.0
        self.incarnation: Incarnation | None = None
        self.node: Node | None = None
        self.disk = self._new_disk()
        self._graveyard: list[Any] = []
        if world.formats_disks:
            self._format(initial=voter)

    @property
    def is_controller(self) -> bool:
        """Whether its node has the role."""
        return "controller" in self.roles

    @property
    def is_broker(self) -> bool:
        """Whether its node has the role."""
        return "broker" in self.roles

    @property
    def directory_id(self) -> Uuid:
        """The directory id of its current disk, as formatted."""
        return self._directory_id

    def _new_disk(self) -> TracedDisk:
        failed = partial(self.world.checks.storage.on_failed, self)
        dice = random.Random(f"{self.world.seed} spinning devices")
        return TracedDisk(
            self._before_operation,
            self._after_operation,
            failed,
            self.fault_point,
            random.Random(f"{self.world.seed} {self.name} cold")
            if dice.random() < COLD_WORLDS
            else None,
        )

    def _format(self, *, initial: bool) -> None:
        """Format the disk as `storage format` does, with the voters if the quorum is dynamic."""
        world = self.world
        voters = world.initial_voters if world.dynamic and initial else None
        options = FormatOptions(
            cluster_id=world.cluster_id,
            release_version=world.release,
            no_initial_controllers=voters is None,
            initial_controllers=voters,
        )
        dice = random.Random(f"{world.seed} {self.name} format {self.disks}")
        format_node(
            NodeConfig(world.properties(self)),
            options,
            disk=self.disk,
            clock=SimClock(world.loop, Incarnation(self.name)),
            entropy=SeededEntropy(dice),
        )
        self.disk.fsync_dir(DIRECTORY)
        meta = read_meta_properties(self.disk, DIRECTORY)
        assert meta is not None
        assert meta.directory_id is not None
        self._directory_id = meta.directory_id

    def wipe(self) -> None:
        """Power off and replace the disk by a newly formatted one."""
        self.power_off()
        self._note("loses its disk", "fault")
        self.disks += 1
        self.disk = self._new_disk()
        self._format(initial=False)

    def _note(self, what: str, kind: str | None) -> None:
        self.world.note(f"{self.name} {what}", kind, node=self.name)

    # ---- fault points

    def _before_operation(self, operation: Operation) -> None:
        owner = CURRENT.get()
        if owner is not None and owner.dead:
            raise Died
        self._maybe_strike("before", operation)

    def _after_operation(self, operation: Operation) -> None:
        what = f"{operation.kind} {operation.path}"
        if operation.data:
            what += f" {tell_bytes(operation.data)}"
        self._note(f"disk: {what}", None)
        if operation.kind == "rename" and operation.target.endswith(".checkpoint"):
            self.world.check(lambda: self.world.checks.on_snapshot(self, operation.target))
        self.world.check(lambda: self.world.checks.storage.on_operation(self, operation))
        self._maybe_strike("after", operation)

    def _maybe_strike(self, when: str, operation: Operation) -> None:
        """Reach the fault point of a disk operation; may kill the process."""
        if self.incarnation is None or CURRENT.get() is not self.incarnation:
            return
        point = f"{when} {operation.kind} of {kind_of_file(operation.path)}"
        if self.world.strikes(point, DISK_STRIKE):
            self._die_at(point)

    def fault_point(self, point: str) -> bool:
        """Reach a fault point of the product; see `base.env.FaultPoint`."""
        owner = CURRENT.get()
        if owner is not None and owner.dead:
            raise Died
        kind = POINTS[point]
        if self.incarnation is None or owner is not self.incarnation:
            return False
        if not self.world.strikes(point, kind.strike, product=True):
            return False
        if kind.loses:
            self.world.count_point(self, point)
            return True
        roll = self.world.dice.random()
        if roll < 0.65:  # noqa: PLR2004 (the worst faults most often)
            self._die_at(point)
        self.world.count_point(self, point)
        if roll < 0.85:  # noqa: PLR2004 (then a freeze)
            self.freeze_for(self.world.dice.uniform(0.1, 8))
        else:
            number = self.world.dice.choice([errno.EIO, errno.ENOSPC])
            kinds = ["append", "write"] if number == errno.ENOSPC else ["fsync", "append"]
            self.disk.fail(self.world.dice.choice(kinds), error=number)
        return False

    def _die_at(self, point: str) -> None:
        world = self.world
        world.count_point(self, point)
        if world.dice.random() < 0.6:  # noqa: PLR2004 (the worse fault more often)
            self.power_off()
        else:
            self.kill()
        world.after(world.dice.choice(BACK_AFTER_S), self.start)
        raise Died

    # ---- starting and stopping

    @property
    def is_up(self) -> bool:
        """Whether a process runs, perhaps paused."""
        return self.incarnation is not None

    @property
    def live_node(self) -> Node | None:
        """The node, or None unless it runs and is not paused."""
        incarnation = self.incarnation
        return self.node if incarnation is not None and not incarnation.paused else None

    @property
    def raft(self) -> Any:
        """The raft driver of the running node, or None."""
        node = self.live_node
        return node.raft if node is not None else None

    def start(self) -> None:
        """Start the node; do nothing if it runs or is broken for good."""
        if self.incarnation is not None or self in self.world.broken:
            return
        world = self.world
        self.life += 1
        self._note("starts", "starts")
        world.counts["starts"] += 1
        offset = 1_000.0 * self.life + world.loop.now * (1 - self.rate)
        incarnation = self.incarnation = Incarnation(self.name, rate=self.rate, offset_s=offset)
        incarnation.disk_delay = self._disk_delay
        dice = random.Random(f"{world.seed} {self.name} {self.life}")
        env = Env(
            clock=SimClock(world.loop, incarnation, lambda: self.skew_ms),
            entropy=SeededEntropy(dice),
            network=world.network,
            disk=self.disk,
            executor=Executor(),  # type: ignore[arg-type]
            folder_executor=Executor(self._folder_delay()),  # type: ignore[arg-type]
            fault_point=self.fault_point,
            work_max=WORK_MAX,
            turns=LoopTurns(self._turn_delay),
        )
        self.node = world.new_node(self, env)
        world.checks.on_start(self)
        world.loop.call_soon(self._boot, incarnation, self.node, context=incarnation.context)

    def _boot(self, incarnation: Incarnation, node: Node) -> None:
        task = self.world.loop.create_task(node.run(), context=incarnation.context)
        self._graveyard.append(task)
        task.add_done_callback(lambda done: self._on_exit(incarnation, done))

    def _on_exit(self, incarnation: Incarnation, task: "asyncio.Task[int]") -> None:
        world = self.world
        if self.incarnation is not incarnation:
            return
        node = self.node
        error = task.exception() if not task.cancelled() else None
        if isinstance(error, Died):
            return
        failure = error or (node.failure if node is not None else None)
        self._note(f"exits: {failure!r}" if failure else "exits cleanly", "stops")
        world.counts["exits"] += 1
        self._end("kill" if failure else "clean")
        if isinstance(failure, InvariantBroken | AssertionError) or error is not None:
            world.fail(Violation("assert", f"{self.name} stops: {failure!r}"))
        world.after(world.dice.uniform(0.1, 2), self.start)

    def _end(self, how: str) -> None:
        """End the incarnation; `how` is passed to `StorageChecks.on_end`."""
        assert self.incarnation is not None
        self.world.check(lambda: self.world.checks.storage.on_end(self, how))
        self.incarnation.dead = True
        self._graveyard.append((self.incarnation, self.node))
        self.incarnation = self.node = None
        self.disk._locked.clear()  # noqa: SLF001 (the kernel releases the locks of an ended process)

    def _disk_delay(self) -> float:
        dice = self.world.dice
        if self.world.loop.now < self.slow_until:
            return dice.uniform(0.1, 2.0)
        return dice.uniform(0.0001, 0.01)

    def _folder_delay(self) -> Callable[[], float]:
        """Returns delays of work on folders: sometimes so long that everything else overtakes it.

        It has its own dice, so that the number of such pieces changes nothing else.
        """
        dice = random.Random(f"{self.world.seed} {self.name} {self.life} folders")

        def delay() -> float:
            return dice.uniform(0, dice.choice(FOLDER_DELAYS_S))

        return delay

    def _turn_delay(self) -> float:
        return self.world.dice.uniform(0, 0.003)

    # ---- faults

    def kill(self) -> None:
        """Kill the process, as SIGKILL does."""
        if self.incarnation is not None:
            self._note("is killed", "stops")
            incarnation = self.incarnation
            self._end("kill")
            self.world.network.reset_all(incarnation)

    def power_off(self) -> None:
        """Cut the power; only kill the process if acknowledged records may be unsynced."""
        if self.incarnation is None:
            return
        if self.world.spares_disks:
            self.kill()
            return
        self._note("loses power", "stops")
        incarnation = self.incarnation
        self._end("power")
        self.world.network.silence(incarnation)
        self.disk.lose_power(SeededEntropy(self.world.dice))

    def pause(self) -> None:
        """Pause the process, as SIGSTOP does."""
        if self.incarnation is not None:
            self._note("is paused", "pauses")
            self.incarnation.paused = True

    def resume(self) -> None:
        """Continue the process, as SIGCONT does, unless it is broken for good."""
        if self.incarnation is None or not self.incarnation.paused or self in self.world.broken:
            return
        self._note("resumes", "resumes")
        self.world.loop.resume(self.incarnation)

    def freeze_for(self, seconds: float) -> None:
        """Pause the process and resume it later."""
        self.pause()
        self.world.after(seconds, self.resume)

    def terminate(self) -> None:
        """Shut down the node cleanly, as SIGTERM does."""
        if self.incarnation is None or self.incarnation.paused:
            return
        handler = self.incarnation.signals.get(signal.SIGTERM)
        if handler is not None:
            self._note("receives SIGTERM", "fault")
            self.world.loop.call_soon(handler, context=self.incarnation.context)

    def turn_clock(self, *, rate: float, skew_ms: int) -> None:
        """Change the rate of its clocks and the error of its wall clock."""
        text = f"the clock of {self.name} runs at {rate}, {skew_ms} ms off"
        self.world.note(text, "fault", node=self.name)
        self.skew_ms = skew_ms
        self.rate = rate
        if self.incarnation is not None:
            self.incarnation.turn(self.world.loop.now, rate)


def image_of(machine: Machine) -> ClusterImage | None:
    """Return the cluster image of a running node, or None."""
    node = machine.live_node
    publisher = node._publisher if node is not None else None  # noqa: SLF001 (a checker)
    return None if publisher is None else publisher.image
