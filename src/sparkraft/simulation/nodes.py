"""Whole nodes in one process: the `Node` that `server-start` runs, on a simulated machine each.

    World ─ SimLoop, SimNetwork
      └─ Machine n1, n2 …: MemoryDisk, clock ─ Incarnation: Env, Node.run()
    clients create topics and ask for producer ids throughout

Only `Env` and the loop differ from a real process. A machine's disk outlives its incarnations: a
kill leaves the page cache, a power loss what was synced and any part of what was not.
"""

import logging
import random
import signal
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING, Any, TextIO

from sparkraft.base.errors import InvariantBroken
from sparkraft.base.ids import Millis
from sparkraft.server.config import NodeConfig
from sparkraft.server.env import Env
from sparkraft.server.node import Node
from sparkraft.simulation.core_node import SeededEntropy, directory_of
from sparkraft.simulation.invariants import Violation
from sparkraft.simulation.loop import CURRENT, Incarnation, SimLoop
from sparkraft.simulation.memory_disk import MemoryDisk, Operation
from sparkraft.simulation.network import SimNetwork, tell_bytes
from sparkraft.simulation.node_checks import NodeChecks
from sparkraft.simulation.trace import Trace

if TYPE_CHECKING:
    import asyncio

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
BROKER_PORT = 9092
CONTROLLER_PORT = 9093
DIRECTORY = "/data"
ENABLED = 0.3
STRIKE = 0.02
STRIKES_MAX = 12
"""Strikes at fault points in a run; beyond, it would be all recovery."""

EPOCH_MS = 1_790_000_000_000
"""Wall-clock time at the beginning of the world."""


class SimClock:
    """An incarnation's clocks."""

    def __init__(self, loop: SimLoop, incarnation: Incarnation) -> None:
        """Runs with the incarnation's rate."""
        self._loop = loop
        self._incarnation = incarnation

    def mono_ms(self) -> Millis:
        """See `Clock`."""
        return Millis(int(self._incarnation.local(self._loop.now) * 1_000))

    def wall_ms(self) -> Millis:
        """See `Clock`."""
        return Millis(EPOCH_MS + self.mono_ms())


class Died(BaseException):
    """The machine died in the middle of a disk operation; nothing of its process runs on."""


class TracedDisk(MemoryDisk):
    """Tells every operation that changes it, before and after; nothing is done for the dead."""

    def __init__(
        self, before: Callable[[Operation], None], after: Callable[[Operation], None]
    ) -> None:
        """Empty."""
        super().__init__()
        self._before = before
        self._after = after

    def _do(self, operation: Operation) -> None:
        self._before(operation)
        super()._do(operation)
        self._after(operation)


class Executor:
    """Stands for the disk's threads: `SimLoop.run_in_executor` does the work."""

    def shutdown(self, *, wait: bool = True) -> None:
        """Nothing runs in it."""


def kind_of_file(path: str) -> str:
    """What a fault point calls the file."""
    name = path.rpartition("/")[2].removesuffix(".tmp").removesuffix(".part")
    metadata = "metadata " if "__cluster_metadata" in path else ""
    known = {".log": "segment", ".checkpoint": "snapshot", "index": "index"}
    for ending, kind in known.items():
        if name.endswith(ending):
            return metadata + kind
    return name if name and not name[0].isdigit() and "topic-" not in name else "folder"


class Machine:
    """A computer that runs one node: disk, clock, and at most one live process."""

    def __init__(self, world: "NodesWorld", node_id: int) -> None:
        """Off, with a formatted disk."""
        self.world = world
        self.id = node_id
        self.name = f"n{node_id}"
        self.life = 0
        self.rate = 1.0
        self.slow_until = 0.0
        self.incarnation: Incarnation | None = None
        self.node: Node | None = None
        self.disk = TracedDisk(self._before_operation, self._after_operation)
        self._graveyard: list[Any] = []
        self._format()

    def _format(self) -> None:
        """As `storage format` does, with the voters where the quorum is dynamic."""
        from sparkraft.cli.storage import format_node  # the command's own way, so not another

        world = self.world
        directories = [str(directory_of(node_id)) for node_id in world.ids]
        voters = ",".join(
            f"{i}@n{i}:{CONTROLLER_PORT}:{d}" for i, d in zip(world.ids, directories, strict=True)
        )
        values = Namespace(
            cluster_id=CLUSTER_ID,
            release_version=None,
            feature=[],
            add_scram=[],
            ignore_formatted=False,
            standalone=False,
            no_initial_controllers=False,
            initial_controllers=voters if world.dynamic else None,
        )
        incarnation = Incarnation(self.name)
        with redirect_stdout(StringIO()):
            format_node(
                NodeConfig(world.properties(self.id)),
                values,
                disk=self.disk,
                clock=SimClock(world.loop, incarnation),
                entropy=SeededEntropy(random.Random(f"{world.seed} {self.name} format")),
            )
        self.disk.fsync_dir(DIRECTORY)

    def _before_operation(self, operation: Operation) -> None:
        owner = CURRENT.get()
        if owner is not None and owner.dead:
            raise Died
        self._maybe_strike("before", operation)

    def _after_operation(self, operation: Operation) -> None:
        what = f"{operation.kind} {operation.path}"
        if operation.data:
            what += f" {tell_bytes(operation.data)}"
        self.world.note(f"{self.name} disk: {what}")
        self._maybe_strike("after", operation)

    def _maybe_strike(self, when: str, operation: Operation) -> None:
        """A fault point at each change of the disk: the machine may die here."""
        world = self.world
        if self.incarnation is None or CURRENT.get() is not self.incarnation:
            return
        point = f"{when} {operation.kind} of {kind_of_file(operation.path)}"
        if not world.strikes(point):
            return
        world.counts[f"point {point}"] += 1
        world.note(f"{self.name} is struck {point}")
        if world.dice.random() < 0.6:  # noqa: PLR2004 (the worse fault more often)
            self.power_off()
        else:
            self.kill()
        world.after(world.dice.choice([0.01, 0.3, 3.0]), self.start)
        raise Died

    @property
    def is_up(self) -> bool:
        """Whether a process runs, perhaps paused."""
        return self.incarnation is not None

    @property
    def live_node(self) -> Node | None:
        """The node, where it runs and is not paused."""
        incarnation = self.incarnation
        return self.node if incarnation is not None and not incarnation.paused else None

    def start(self) -> None:
        """Boot the node; nothing happens where it runs."""
        if self.incarnation is not None:
            return
        world = self.world
        self.life += 1
        world.note(f"{self.name} starts")
        world.counts["starts"] += 1
        offset = 1_000.0 * self.life + world.loop.now * (1 - self.rate)
        incarnation = self.incarnation = Incarnation(self.name, rate=self.rate, offset_s=offset)
        incarnation.disk_delay = self._disk_delay
        dice = random.Random(f"{world.seed} {self.name} {self.life}")
        env = Env(
            clock=SimClock(world.loop, incarnation),
            entropy=SeededEntropy(dice),
            network=world.network,
            disk=self.disk,
            executor=Executor(),  # type: ignore[arg-type]
        )
        self.node = Node(NodeConfig(world.properties(self.id)), env)
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
        world.note(
            f"{self.name} exits: {failure!r}" if failure else f"{self.name} exits in good order"
        )
        world.counts["exits"] += 1
        self._end()
        if isinstance(failure, InvariantBroken | AssertionError) or error is not None:
            world.fail(Violation("assert", f"{self.name} stops: {failure!r}"))
        world.after(world.dice.uniform(0.1, 2), self.start)

    def _end(self) -> None:
        assert self.incarnation is not None
        self.incarnation.dead = True
        self._graveyard.append((self.incarnation, self.node))
        self.incarnation = self.node = None
        self.disk._locked.clear()  # noqa: SLF001 (the kernel frees a dead process's locks)

    def _disk_delay(self) -> float:
        dice = self.world.dice
        if self.world.loop.now < self.slow_until:
            return dice.uniform(0.1, 2.0)
        return dice.uniform(0.0001, 0.01)

    # ---- faults

    def kill(self) -> None:
        """SIGKILL."""
        if self.incarnation is not None:
            self.world.note(f"{self.name} is killed")
            incarnation = self.incarnation
            self._end()
            self.world.network.reset_all(incarnation)

    def power_off(self) -> None:
        """The plug is pulled."""
        if self.incarnation is None:
            return
        self.world.note(f"{self.name} loses power")
        incarnation = self.incarnation
        self._end()
        self.world.network.silence(incarnation)
        self.disk.lose_power(SeededEntropy(self.world.dice))

    def pause(self) -> None:
        """SIGSTOP."""
        if self.incarnation is not None:
            self.world.note(f"{self.name} is paused")
            self.incarnation.paused = True

    def resume(self) -> None:
        """SIGCONT."""
        if self.incarnation is not None and self.incarnation.paused:
            self.world.note(f"{self.name} goes on")
            self.world.loop.resume(self.incarnation)

    def terminate(self) -> None:
        """SIGTERM: it leaves in good order."""
        if self.incarnation is None or self.incarnation.paused:
            return
        handler = self.incarnation.signals.get(signal.SIGTERM)
        if handler is not None:
            self.world.note(f"{self.name} is asked to stop")
            self.world.loop.call_soon(handler, context=self.incarnation.context)


class NodesWorld:
    """Machines, a network between them, clients and checkers; all by `seed`."""

    def __init__(self, seed: int, nodes: int = 3, *, sink: TextIO | None = None) -> None:
        """All machines off."""
        self.seed = seed
        self.dice = random.Random(seed)
        self.dynamic = self.dice.random() < 0.5  # noqa: PLR2004 (a coin)
        self._points: dict[str, bool] = {}
        self._strikes_left = 0
        self.trace = Trace(sink)
        self.counts: Counter[str] = Counter()
        self.violation: Violation | None = None
        self._closed = False
        self.ids = list(range(1, nodes + 1))
        self.loop = SimLoop()
        self.loop.set_exception_handler(self._on_loop_error)
        self.network = SimNetwork(self.loop, self.dice)
        self.network.on_bytes = self._on_bytes
        self.loop.network = self.network
        self.checks = NodeChecks(self)
        self.machines = [Machine(self, node_id) for node_id in self.ids]
        self._clients: list[Any] = []

    @property
    def invariants(self) -> NodeChecks:
        """Under the name that the other tier gives them."""
        return self.checks

    @property
    def now(self) -> int:
        """World milliseconds."""
        return int(self.loop.now * 1_000)

    def properties(self, node_id: int) -> dict[str, str]:
        """The node's server.properties."""
        voters = ",".join(f"{other}@n{other}:{CONTROLLER_PORT}" for other in self.ids)
        quorum = {"controller.quorum.voters": voters}
        if self.dynamic:
            servers = ",".join(f"n{other}:{CONTROLLER_PORT}" for other in self.ids)
            quorum = {"controller.quorum.bootstrap.servers": servers}
        return quorum | {
            "process.roles": "broker,controller",
            "node.id": str(node_id),
            "listeners": f"PLAINTEXT://n{node_id}:{BROKER_PORT},"
            f"CONTROLLER://n{node_id}:{CONTROLLER_PORT}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": DIRECTORY,
            "offsets.topic.replication.factor": "1",
            "metadata.log.max.record.bytes.between.snapshots": "6000",
            "metadata.max.retention.bytes": "20000",
        }

    def enable_points(self) -> None:
        """From now on disk operations may strike."""
        self._strikes_left = STRIKES_MAX

    def disable_points(self) -> None:
        """No more strikes."""
        self._strikes_left = 0

    def strikes(self, point: str) -> bool:
        """Whether a fault strikes at the point `point` now; each run has its own points."""
        if not self._strikes_left:
            return False
        enabled = self._points.get(point)
        if enabled is None:
            enabled = self._points[point] = self.dice.random() < ENABLED
        if not enabled or self.dice.random() >= STRIKE:
            return False
        self._strikes_left -= 1
        return True

    def note(self, text: str) -> None:
        """One line of the trace."""
        if not self._closed:
            self.trace.add(self.now, text)

    def fail(self, violation: Violation) -> None:
        """Stop here: the first one counts."""
        if self.violation is None:
            self.note(f"VIOLATION {violation}")
            self.violation = violation
        self.loop.stop()

    def _on_bytes(self, origin: str, target: str, raw: bytes) -> None:
        self.note(f"{origin} to {target}: {tell_bytes(raw)}")

    def _on_loop_error(self, _: Any, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, Violation):
            self.fail(error)
        elif error is not None and not isinstance(error, Died):
            where = context.get("task") or context.get("handle") or context.get("future")
            self.fail(Violation("assert", f"nobody caught {error!r} of {where}"))

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Do `action` then, as the world."""
        self.loop.after(delay_s, action, of=None)

    def run_for(self, seconds: float, until: Callable[[], bool] | None = None) -> bool:
        """Let time pass; whether `until`, looked at every 50 ms, came true.

        Raises:
            Violation: of an invariant.
        """
        end = self.loop.now + seconds
        while self.loop.now < end:
            step = end if until is None else min(end, self.loop.now + 0.05)
            self.loop.run_until_world(step)
            if self.violation is not None:
                raise self.violation
            if until is not None and until():
                return True
        return False

    def start_all(self, clients: Sequence[Callable[["NodesWorld"], Any]]) -> None:
        """Boot every machine, start clients and the checks of every second."""
        for machine in self.machines:
            self.after(self.dice.uniform(0, 0.5), machine.start)
        for place, client in enumerate(clients):
            self._start_client(f"client{place}", client)
        self.after(1, self._every_second)

    def _start_client(self, name: str, client: Callable[["NodesWorld"], Any]) -> None:
        incarnation = Incarnation(name)

        def boot() -> None:
            task = self.loop.create_task(client(self), context=incarnation.context)
            self._clients.append(task)

        self.loop.call_soon(boot, context=incarnation.context)

    def _every_second(self) -> None:
        self.after(1, self._every_second)
        self.checks.every_second()

    def close(self) -> None:
        """Free the loop; what still waits in it is forgotten unfinished."""
        self._closed = True
        for machine in self.machines:
            if machine.incarnation is not None:
                machine.incarnation.dead = True
        self.loop.bury_tasks()


def quiet() -> None:
    """What nodes log is not part of a trace; violations are."""
    logging.disable(logging.CRITICAL)
