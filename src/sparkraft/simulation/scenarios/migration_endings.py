"""How a simulated migration from ZooKeeper ends: it is rolled back, or finalized (KIP-866).

    dual write ─► some brokers in KRaft mode, and back ─► controllers stop ─► an operator deletes
    /controller and /migration ─► a broker is the controller ─► brokers without the migration

    dual write ─► all brokers in KRaft mode ─► controllers without the migration, one by one

These are the operator's steps of Kafka 3.9. Topics and values are written throughout. Brokers are
killed on the way; a controller that an operator forgets, and starts again after a roll-back, must
not rule (M8), and none writes to ZooKeeper after a migration is finalized (M9).
"""

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from sparkraft.metadata.image import MigrationState
from sparkraft.simulation.world.machine import Machine, image_of
from sparkraft.zookeeper.requests import Delete

if TYPE_CHECKING:
    from sparkraft.simulation.checks.migration_checks import MigrationChecks
    from sparkraft.simulation.workload.migration_clients import MigrationClients
    from sparkraft.simulation.workload.zookeeper_broker import ZooKeeperBroker
    from sparkraft.simulation.world.nodes import NodesWorld
    from sparkraft.simulation.world.zookeeper_servers import WatchedEnsemble

PATIENCE_S = 60
"""Time limit of one step of the operator: a session, an election, and the ISRs."""

PAUSE_S = (0.5, 3)
"""Between two steps."""

SETTLE_S = 6
"""The longest delay of a process that was killed before the end, and starts again."""

ENDINGS = ("dual write", "roll back", "finalize")

FORGOTTEN_S = 8
"""How long a forgotten controller runs."""


def choose_ending(seed: int) -> tuple[random.Random, str]:
    """Return the ending of a seed's run, and the random numbers for its steps."""
    dice = random.Random(f"{seed} ending")
    return dice, dice.choice(ENDINGS)


class Migrated(Protocol):
    """A migration that has reached dual write, everything healed."""

    world: "NodesWorld"
    ensemble: "WatchedEnsemble"
    brokers: "list[ZooKeeperBroker]"
    checks: "MigrationChecks"
    clients: "MigrationClients"

    def expire(self, name: str) -> None:
        """End the sessions of a process."""

    def differences(self) -> list[str]:
        """Describe why the cluster is not equal everywhere."""


class Ending:
    """The operator's steps at the end of one migration."""

    def __init__(self, run: Migrated) -> None:
        """Choose an ending by the seed, with random numbers of its own."""
        self._run = run
        self._world = run.world
        self._dice, self.kind = choose_ending(run.world.seed)

    def play(self) -> None:
        """Carry it out, and check the cluster afterwards."""
        self._world.counts[f"ending {self.kind}"] += 1
        self._world.note(f"-- the migration ends: {self.kind}", "fault")
        if self.kind == "dual write":
            return
        self._world.run_for(SETTLE_S)
        self._world.draining = False
        self._run.clients.start()
        self._pause()
        if self.kind == "roll back":
            self._roll_back()
        else:
            self._finalize()

    def _pause(self) -> None:
        self._world.run_for(self._dice.uniform(*PAUSE_S))

    def _until(self, differences: Callable[[], Iterable[str]], invariant: str, what: str) -> None:
        """Check that all differences end within `PATIENCE_S`."""
        world = self._world
        world.run_for(PATIENCE_S, lambda: next(iter(differences()), None) is None)
        left = list(differences())
        world.checks.require(not left, invariant, f"{what}: {'; '.join(left[:3])}")

    def _restart(self, broker: "ZooKeeperBroker", **mode: bool) -> None:
        """Restart a broker in another mode, its session closed."""
        self._run.expire(broker.name)
        broker.kill()
        self._world.run_for(0.2)
        broker.start(**mode)

    # ---- roll back

    def _roll_back(self) -> None:
        run, world = self._run, self._world
        self._move_to_kraft_and_back()
        # A change that is committed, and not in ZooKeeper yet, is lost with the controllers.
        world.draining = True
        self._pause()
        self._until(run.differences, "M4", "before the controllers stop")
        for machine in world.machines:
            world.broken.append(machine)
            machine.kill()
        world.draining = False
        run.clients.start()
        self._pause()
        for path in ("/controller", "/migration"):
            run.ensemble.operate(Delete(path=path))
        run.checks.is_rolled_back = True
        self._until(self._rolled_back_differences, "M8", "after the roll-back")
        if self._dice.random() < 0.5:  # noqa: PLR2004 (a coin)
            self._start_forgotten_controllers()
        for broker in self._dice.sample(run.brokers, len(run.brokers)):
            # Elections and ISRs continue under the controller in ZooKeeper.
            self._restart(broker, migrates=False)
            self._until(self._rolled_back_differences, "M8", f"{broker.name} without a migration")
        world.draining = True
        self._pause()
        self._until(self._rolled_back_differences, "M8", "in the end")
        run.checks.check_stored_topics()
        run.checks.check_leaders(run.brokers)

    def _move_to_kraft_and_back(self) -> None:
        """Let up to two brokers restart in KRaft mode, and return."""
        run = self._run
        moved = self._dice.sample(run.brokers, self._dice.randint(0, 2))
        for in_kraft in (True, False):
            for broker in moved:
                self._restart(broker, in_kraft=in_kraft, migrates=True)
                self._until(run.differences, "M4", f"{broker.name} in KRaft mode: {in_kraft}")

    def _start_forgotten_controllers(self) -> None:
        """Start the controllers again, with the migration enabled, for a while."""
        world = self._world
        world.note("-- the controllers are started again", "fault")
        world.counts["forgotten controllers"] += 1
        for machine in world.machines:
            world.broken.remove(machine)
            machine.start()
        world.run_for(FORGOTTEN_S)
        for machine in world.machines:
            world.broken.append(machine)
            machine.kill()

    def _rolled_back_differences(self) -> Iterable[str]:
        """Describe brokers that do not know the controller, or are not as ZooKeeper has them."""
        run = self._run
        rulers = [each for each in run.brokers if each.is_controller]
        if len(rulers) != 1:
            yield f"{[each.name for each in rulers]} are the controller"
            return
        for broker in run.brokers:
            ruler = broker.ruler
            if ruler is None or ruler.is_kraft or ruler.id != rulers[0].id:
                yield f"{broker.name} obeys {ruler}, not {rulers[0].name}"
        yield from run.checks.stored_differences(run.brokers)

    # ---- finalize

    def _finalize(self) -> None:
        run, world = self._run, self._world
        for broker in self._dice.sample(run.brokers, len(run.brokers)):
            self._restart(broker, in_kraft=True)
            self._until(run.differences, "M4", f"{broker.name} in KRaft mode")
        world.layout = replace(world.layout, migrates=False)
        for machine in self._dice.sample(world.machines, len(world.machines)):
            self._restart_controller(machine)
        run.checks.is_finalized = True
        self._pause()
        # The next active controller does not write to ZooKeeper either.
        leader = world.leader()
        if leader is not None:
            self._restart_controller(leader)
        self._pause()
        world.draining = True
        self._until(self._finalized_differences, "M9", "finalized")
        image = self._image()
        assert image is not None
        run.checks.check_topics(image)
        run.checks.check_leaders(run.brokers)

    def _restart_controller(self, machine: Machine) -> None:
        machine.kill()
        self._world.run_for(0.5)
        machine.start()
        self._until(self._quorum_differences, "M9", f"after the restart of {machine.name}")

    def _image(self) -> Any:
        leader = self._world.leader()
        return None if leader is None else image_of(leader)

    def _quorum_differences(self) -> Iterable[str]:
        """Describe why the quorum does not rule, or the brokers are not equal to its log."""
        image = self._image()
        if image is None:
            yield "the quorum has no leader"
            return
        fenced = [
            broker.name
            for broker in self._run.brokers
            if broker.id not in image.brokers or image.brokers[broker.id].fenced
        ]
        if fenced:
            yield f"{fenced} are fenced"
        yield from self._run.checks.broker_differences(image, self._run.brokers)

    def _finalized_differences(self) -> Iterable[str]:
        image = self._image()
        if image is not None and image.migration != MigrationState.POST_MIGRATION:
            yield f"the migration state is {image.migration}"
        yield from self._quorum_differences()
