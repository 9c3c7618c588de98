"""Chaos with clients of several users: faults, healing, then the final checks (A1 to A3, K15)."""

from typing import TYPE_CHECKING

from sparkraft.simulation.scenarios.coordinator_scenarios import FaultRate, inject
from sparkraft.simulation.scenarios.node_faults import RECORD_FAULTS
from sparkraft.simulation.scenarios.node_runs import (
    HEALTHY_S,
    begin_world,
    demand,
    demand_healthy,
    heal,
)
from sparkraft.simulation.workload.principal_clients import PrincipalWorkload
from sparkraft.simulation.world.nodes import Layout, NodesWorld

if TYPE_CHECKING:
    from sparkraft.simulation.scenarios.core_scenarios import Settings


FAULTS = FaultRate((0.3, 3), 3)


def principals(settings: "Settings") -> NodesWorld:
    """Change entries, passwords and quotas while users act and nodes fail."""
    layout = Layout.of_principals(settings.seed, settings.nodes or 3, brokers=settings.observers)
    world = begin_world(settings, settings.nodes or 3, layout)
    # Without a quota, Produce requests take their fast path.
    limited = settings.seed % 2 == 1
    workload = PrincipalWorkload(world, world.checks.principals, limited=limited)
    world.start_all(workload.clients)
    try:
        ready = world.run_for(HEALTHY_S, lambda: workload.is_prepared)
        demand(world, ready, "the administrator cannot prepare the cluster")
        inject(world, settings, FAULTS, besides=RECORD_FAULTS)
        world.run_for(settings.seconds)
        heal(world)
        demand_healthy(world)
        world.draining = True
        done = world.run_for(HEALTHY_S, lambda: workload.is_done)
        demand(world, done, "a user is not answered after healing")
        demand_healthy(world)  # a node whose disk failed just before may have exited since
        world.checks.every_second()
        world.checks.at_end()
        if world.violation is not None:
            raise world.violation
    finally:
        world.close()
    return world
