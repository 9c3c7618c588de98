"""A cluster in ZooKeeper mode under faults: whole brokers that elect a controller among them.

    brokers register, one wins /controller ─► clients write records, administrators change topics,
    replicas, leaders and addresses, faults strike ─► all is healed, ZooKeeper and all brokers agree

The brokers are the `ZooKeeperNode` of `server-start`, on simulated machines; only `Env` and the
ensemble are replaced.
"""

import random
from functools import partial
from itertools import islice

from sparkraft.simulation.checks.address_checks import listeners_in_znodes
from sparkraft.simulation.checks.zookeeper_node_checks import ZooKeeperNodeChecks
from sparkraft.simulation.scenarios.core_scenarios import Settings
from sparkraft.simulation.scenarios.node_runs import (
    begin_world,
    demand_records,
    disturb,
    heal,
)
from sparkraft.simulation.scenarios.zookeeper_faults import ZooKeeperFaults
from sparkraft.simulation.workload.address_admin import AddressAdmin
from sparkraft.simulation.workload.clients import Workload, after_topic
from sparkraft.simulation.workload.zookeeper_admin import ZooKeeperAdmin
from sparkraft.simulation.world.nodes import Layout, NodesWorld
from sparkraft.simulation.world.zookeeper_servers import start_servers

ADMINS = ("left", "right")
"""The names of the administrators, and of their topics."""

AGREED_S = 45
"""Time limit for the healed cluster to come to rest: several sessions and balances of leaders."""

EVERY_S = (0.2, 3.5)
"""Between two faults."""

STRIKES = 4
"""Limit of strikes at fault points, of each kind."""


class ZooKeeperRun:
    """One world with its ensemble, clients and faults.

    Attributes:
        world: of the brokers.
        ensemble: of their sessions.
    """

    def __init__(self, settings: Settings) -> None:
        layout = Layout.of_zookeeper(settings.seed, settings.nodes)
        self.world = begin_world(settings, 0, layout, self._observe)
        self._settings = settings
        self.workload = Workload(self.world, is_small=True)
        dice = random.Random(f"{settings.seed} ensemble")
        self.ensemble = start_servers(self.world.loop, self.world.network, dice)
        self.checks.zookeeper.znodes = self.ensemble.znodes
        self.ensemble.on_written = lambda writer, operations: self.world.check(
            partial(self.checks.zookeeper.on_written, writer, self.ensemble.writing, operations)
        )
        self.faults = ZooKeeperFaults(self.world, self.ensemble)

    def _observe(self, world: NodesWorld) -> ZooKeeperNodeChecks:
        self.checks = ZooKeeperNodeChecks(world)
        return self.checks

    def play(self) -> None:
        """Work under faults, heal, and check the healed cluster."""
        world, settings = self.world, self._settings
        admins = [ZooKeeperAdmin(world, name, self.ensemble, self._on_configs) for name in ADMINS]
        works = [partial(after_topic, admin.run) for admin in [*admins, *self._address_admins()]]
        world.start_all([*self.workload.clients, *works])
        faults = self.faults.all()
        kinds = list(faults) if settings.faults is None else settings.faults
        if kinds:
            world.after(world.dice.uniform(0, 6), partial(world.enable_points, STRIKES))
            disturb(world, {kind: faults[kind] for kind in kinds}, EVERY_S)
        world.run_for(settings.seconds)
        heal(world)
        self.faults.heal()
        self._demand_agreement()
        demand_records(world, self.workload)

    def _address_admins(self) -> list[AddressAdmin]:
        """Return the operator that changes addresses, in some of the seeds."""
        if not self.world.layout.readdressed:
            return []
        znodes, checks = self.ensemble.znodes, self.checks.zookeeper.addresses
        stored = partial(listeners_in_znodes, znodes)
        return [AddressAdmin(self.world, stored, checks.possible.__setitem__)]

    def _on_configs(self, topic: str, configs: dict[str, str] | None) -> None:
        known = self.checks.zookeeper.configs
        if configs is None:
            known.pop(topic, None)
        else:
            known[topic] = configs

    def _demand_agreement(self) -> None:
        """Check that the healed cluster comes to rest (Z7, Z8, Z11)."""
        self.world.run_for(AGREED_S, self.checks.is_healthy)
        checks = self.checks.zookeeper
        unknown = "; ".join(islice(checks.addresses.differences(checks.znodes), 3))
        self.checks.require(not unknown, "Z11", f"{AGREED_S} s after healing: {unknown}")
        left = list(islice(self.checks.zookeeper.differences(), 3))
        text = f"{AGREED_S} s after healing: {'; '.join(left)}"
        self.checks.require(not left, "Z8", text)


def zookeeper(settings: Settings) -> NodesWorld:
    """Run brokers in ZooKeeper mode while their controllers, sessions and the ensemble fail."""
    run = ZooKeeperRun(settings)
    try:
        run.play()
    finally:
        run.world.close()
    return run.world
