"""A quorum migrates modelled brokers out of ZooKeeper under faults (KIP-866).

    brokers start in ZooKeeper, one is the controller ─► each restarts with the migration enabled ─►
    the active controller of the quorum takes /controller, copies, rules ─► all is healed and equal
    ─► in two of three runs it is rolled back, or finalized (`migration_endings`)

Faults strike throughout, and soon after the driver of a controller has entered a state.
"""

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from sparkraft.simulation.checks.migration_checks import MigrationChecks
from sparkraft.simulation.checks.node_checks import NodeChecks
from sparkraft.simulation.scenarios.core_scenarios import Settings
from sparkraft.simulation.scenarios.migration_endings import Ending
from sparkraft.simulation.scenarios.node_runs import begin_world, heal
from sparkraft.simulation.workload.migration_clients import MigrationClients
from sparkraft.simulation.workload.zookeeper_broker import ZooKeeperBroker
from sparkraft.simulation.world.machine import Machine, image_of
from sparkraft.simulation.world.nodes import CLUSTER_ID, Layout, NodesWorld
from sparkraft.simulation.world.zookeeper_addresses import SERVERS
from sparkraft.simulation.world.zookeeper_servers import WatchedEnsemble, start_servers
from sparkraft.zookeeper.migration.state import DriverState
from sparkraft.zookeeper.requests import Create
from sparkraft.zookeeper.znodes.cluster import encode_cluster_id

BROKERS = (101, 102, 103)
RELEASE = "3.9-IV0"

ROLL_S = (5, 12)
"""When the first broker restarts with the migration enabled."""

ROLLED_S = (2, 7)
"""From one restart to the next: a session of six seconds may have to expire."""

STRIKE_S = (0.5, 6)
"""Between two faults."""

STATE_STRIKES = 0.4
"""The share of entered states of the driver in which a fault strikes."""

EQUAL_S = 90
"""Time limit for the healed cluster to be equal everywhere."""

DOWN_S = (0.1, 5)
CUT_S = (1, 12)
LOST = 0.4
"""Share of the replies that are lost while some are."""


class _QuorumChecks(NodeChecks):
    """All checks of nodes but E1, which knows why real leaders change ISRs, not modelled ones."""

    def counts(self, invariant: str) -> bool:
        """Whether the invariant is checked in this run."""
        return invariant != "E1" and super().counts(invariant)


class Migration:
    """One world with its ensemble, brokers and faults."""

    def __init__(self, world: NodesWorld) -> None:
        """Create everything, off."""
        self.world = world
        self.ensemble = start_servers(
            world.loop, world.network, random.Random(f"{world.seed} ensemble")
        )
        _found_cluster(self.ensemble)
        self.checks = MigrationChecks(world, world.checks.require, self.ensemble.znodes)
        self.ensemble.on_written = lambda writer, operations: world.check(
            lambda: self.checks.on_written(writer, operations)
        )
        self.brokers = [ZooKeeperBroker(world, each, self.checks) for each in BROKERS]
        for broker in self.brokers:
            broker.peers = [each for each in self.brokers if each is not broker]
        self.states: dict[str, DriverState | None] = {}
        self.clients = MigrationClients(world, self.brokers, self.checks)

    # ---- the schedule

    def begin(self) -> None:
        """Start all processes, and the restarts of the brokers."""
        dice = self.world.dice
        for broker in self.brokers:
            self.world.after(dice.uniform(0, 1), broker.start)
        self.world.start_all([])
        at = dice.uniform(*ROLL_S)
        for broker in dice.sample(self.brokers, len(self.brokers)):
            self.world.after(at, partial(self._roll, broker))
            at += dice.uniform(*ROLLED_S)
        self.clients.start()
        self._watch_states()

    def _roll(self, broker: ZooKeeperBroker) -> None:
        """Restart a broker with the migration enabled, mostly after it has closed its session."""
        if self.world.dice.random() < 0.7:  # noqa: PLR2004 (mostly)
            self.expire(broker.name)
        broker.kill()
        self.world.after(0.5, lambda: broker.start(migrates=True))

    def disturb(self) -> None:
        """Inject faults until the world is healed."""
        world = self.world

        def strike() -> None:
            if world.is_healed:
                return
            world.after(world.dice.uniform(*STRIKE_S), strike)
            kind = world.dice.choice(sorted(self.faults))
            world.note(f"-- {kind}", "fault")
            world.counts[f"fault {kind}"] += 1
            self.faults[kind]()

        world.after(world.dice.uniform(1, 6), strike)

    def _watch_states(self) -> None:
        """Strike soon after the driver of a controller has entered a state."""
        world = self.world
        world.after(0.02, self._watch_states)
        for machine in world.machines:
            state = _driver_state(machine)
            if state is self.states.get(machine.name):
                continue
            self.states[machine.name] = state
            if state is None or state is DriverState.INACTIVE:
                continue
            world.note(f"-- {machine.name} migrates: {state.value}")
            world.counts[f"state {state.value}"] += 1
            if not world.is_healed and world.dice.random() < STATE_STRIKES:
                self._strike_at(machine, state)

    def _strike_at(self, machine: Machine, state: DriverState) -> None:
        world = self.world
        kinds: dict[str, Callable[[], None]] = {
            "kill": lambda: self._kill(machine),
            "freeze": lambda: machine.freeze_for(world.dice.uniform(0.5, 9)),
            "expire": lambda: self.expire(machine.name),
            "part": lambda: self._part(machine.name, SERVERS),
            "lost replies": self._lose_replies,
        }
        kind = world.dice.choice(sorted(kinds))

        def strike() -> None:
            if not world.is_healed:
                world.note(f"-- {kind} in {state.value}", "fault")
                world.counts[f"fault {kind} in {state.value}"] += 1
                kinds[kind]()

        world.after(world.dice.choice((0.0, 0.01, 0.05, 0.3)), strike)

    # ---- faults

    @property
    def faults(self) -> dict[str, Callable[[], None]]:
        """The kinds, by name."""
        world = self.world
        return {
            "kill a controller": lambda: self._kill(world.dice.choice(world.machines)),
            "kill the active controller": lambda: self._kill(world.leader()),
            "pause the active controller": self._pause,
            "part a controller from the quorum": self._part_controller,
            "part a controller from ZooKeeper": lambda: self._part(
                world.dice.choice(world.machines).name, SERVERS
            ),
            "part a broker": lambda: self._part(
                world.dice.choice(self.brokers).name,
                [*SERVERS, *(machine.name for machine in world.machines)],
            ),
            "expire a session": self._expire_any,
            "lose replies": self._lose_replies,
            "lose the leader of the ensemble": self._lose_leader,
            "kill a broker": self._kill_broker,
        }

    def _kill(self, machine: Machine | None) -> None:
        if machine is not None and machine.is_up:
            machine.kill()
            self.world.after(self.world.dice.uniform(*DOWN_S), machine.start)

    def _pause(self) -> None:
        leader = self.world.leader()
        if leader is not None:
            leader.freeze_for(self.world.dice.uniform(1, 10))

    def _part_controller(self) -> None:
        names = [machine.name for machine in self.world.machines]
        one = self.world.dice.choice(names)
        self._part(one, [name for name in names if name != one])

    def _part(self, name: str, others: Sequence[str]) -> None:
        cut = self.world.network.cut
        links = {(name, other) for other in others} | {(other, name) for other in others}
        cut |= links
        self.world.after(self.world.dice.uniform(*CUT_S), lambda: cut.difference_update(links))

    def expire(self, name: str) -> None:
        """End the sessions of a process."""
        for session in self.ensemble.sessions_of(name):
            self.ensemble.expire(session)

    def _expire_any(self) -> None:
        names = [machine.name for machine in self.world.machines]
        names += [broker.name for broker in self.brokers]
        self.expire(self.world.dice.choice(names))

    def _lose_replies(self) -> None:
        dice = self.world.dice
        self.ensemble.lose_reply = lambda: dice.random() < LOST

        def end() -> None:
            self.ensemble.lose_reply = lambda: False

        self.world.after(dice.uniform(0.2, 4), end)

    def _lose_leader(self) -> None:
        if self.ensemble.has_leader:
            self.ensemble.lose_leader()
            self.world.after(self.world.dice.uniform(0.2, 8), self._elect_leader)

    def _elect_leader(self) -> None:
        if not self.ensemble.has_leader:
            self.ensemble.elect_leader()

    def _kill_broker(self) -> None:
        broker = self.world.dice.choice(self.brokers)
        broker.kill()
        self.world.after(self.world.dice.uniform(*DOWN_S), broker.start)

    # ---- the end

    def heal(self) -> None:
        """End all faults; the clients start nothing more."""
        heal(self.world)
        self.world.draining = True
        self._elect_leader()
        self.ensemble.lose_reply = lambda: False
        for broker in self.brokers:
            if not broker.migrates:
                broker.kill()
            broker.start(migrates=True)

    def differences(self) -> list[str]:
        """Why the cluster is not equal everywhere yet; empty if it is."""
        leader = self.world.leader()
        image = None if leader is None else image_of(leader)
        if leader is None or image is None:
            return ["the quorum has no leader"]
        state, waits_for = _driver_state(leader), _waits_for(leader)
        if state is not DriverState.DUAL_WRITE or waits_for:
            return [f"{leader.name} is in {state}, waits for: {waits_for}"]
        fenced = [b for b in BROKERS if b not in image.brokers or image.brokers[b].fenced]
        if fenced:
            return [f"brokers {fenced} are fenced"]
        return list(self.checks.differences(image, self.brokers))

    def demand_equal(self) -> None:
        """Check the healed cluster."""
        world = self.world
        world.run_for(EQUAL_S, lambda: not self.differences())
        left = self.differences()
        world.checks.require(not left, "M4", f"{EQUAL_S} s after healing: {'; '.join(left[:3])}")
        leader = world.leader()
        image = None if leader is None else image_of(leader)
        assert image is not None
        self.checks.check_topics(image)
        self.checks.check_leaders(self.brokers)


def migration(settings: Settings) -> NodesWorld:
    """Migrate brokers out of ZooKeeper while controllers, brokers and the ensemble fail."""
    voters = settings.nodes or 3
    layout = Layout(voters=voters, migrates=True, release=RELEASE)
    world = begin_world(settings, voters, layout, _QuorumChecks)
    try:
        run = Migration(world)
        run.begin()
        run.disturb()
        world.run_for(settings.seconds)
        run.heal()
        run.demand_equal()
        Ending(run).play()
    finally:
        world.close()
    return world


def _found_cluster(ensemble: WatchedEnsemble) -> None:
    for path, data in (("/cluster", b""), ("/cluster/id", encode_cluster_id(CLUSTER_ID))):
        ensemble.znodes.apply(Create(path=path, data=data), 0, 0)


def _driver_of(machine: Machine) -> Any:
    node = machine.live_node
    return None if node is None else node.migration


def _driver_state(machine: Machine) -> DriverState | None:
    driver = _driver_of(machine)
    return None if driver is None else driver.state


def _waits_for(machine: Machine) -> str:
    driver = _driver_of(machine)
    return "" if driver is None else driver.waits_for
