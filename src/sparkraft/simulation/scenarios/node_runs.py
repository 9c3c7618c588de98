"""Parts of all scenarios of whole nodes: start a world, inject faults, heal it, check it."""

from collections.abc import Callable

from sparkraft.simulation.checks.node_checks import NodeChecks
from sparkraft.simulation.scenarios.core_scenarios import Settings
from sparkraft.simulation.scenarios.node_faults import Faults
from sparkraft.simulation.workload.clients import Workload
from sparkraft.simulation.workload.history import check
from sparkraft.simulation.world.nodes import Layout, NodesWorld, quiet

HEALTHY_S = 90
"""Time limit for a healed cluster to unfence its brokers and elect leaders."""


RECORDS_AFTER = 20
"""Records that must be acknowledged after healing."""


def begin_world(
    settings: Settings,
    voters: int,
    layout: Layout,
    observed_by: Callable[[NodesWorld], NodeChecks] = NodeChecks,
) -> NodesWorld:
    """Create a world, all of it off, and pass it to `settings.on_world`."""
    quiet()
    world = NodesWorld(
        settings.seed, voters, observed_by=observed_by, sink=settings.sink, layout=layout
    )
    settings.on_world(world)
    return world


def heal(world: NodesWorld) -> None:
    """End all faults and start all machines."""
    world.note("-- all is healed", "fault")
    world.is_healed = True
    world.disable_points()
    world.network.cut.clear()
    world.network.loss = 0.0
    world.network.slow_s.clear()
    for machine in world.machines:
        machine.disk.heal()
        machine.slow_until = 0
        machine.resume()
        machine.start()


def disturb(world: NodesWorld, faults: Faults, every_s: tuple[float, float]) -> None:
    """Inject one of `faults` at random times until the world is healed."""
    kinds, weights = list(faults), [weight for _, weight in faults.values()]

    def strike() -> None:
        if world.is_healed:
            return
        world.after(world.dice.uniform(*every_s), strike)
        kind = world.dice.choices(kinds, weights)[0]
        world.note(f"-- {kind}", "fault")
        world.counts[f"fault {kind}"] += faults[kind][0](world)

    world.after(world.dice.uniform(2, 6), strike)


def demand(world: NodesWorld, holds: object, text: str) -> None:
    """Raise a violation of C10, the health of the healed cluster, unless `holds`."""
    world.checks.require(holds, "C10", text)


def demand_healthy(world: NodesWorld) -> None:
    """Wait until the healed cluster has unfenced its brokers and elected leaders."""
    healthy = world.run_for(HEALTHY_S, world.checks.is_healthy)
    demand(world, healthy, f"not healthy {HEALTHY_S} s after healing")


def demand_records(world: NodesWorld, workload: Workload) -> None:
    """Check that each consumer reads all acknowledged records, once and in order."""
    healthy = world.checks.is_healthy
    demand_healthy(world)
    goal = world.counts["records acknowledged"] + RECORDS_AFTER
    done = world.run_for(HEALTHY_S, lambda: world.counts["records acknowledged"] >= goal)
    demand(world, done, "no records are accepted after healing")
    world.draining = True
    idle = world.run_for(HEALTHY_S, lambda: workload.is_idle)
    demand(world, idle, "a producer still waits for a response")
    world.run_for(HEALTHY_S, workload.all_read)
    kept = all(client.is_done for client in workload.compaction_clients)
    demand(world, kept, "topics with cleanup can't be written or read back")
    world.run_for(2)
    workload.finish()
    # A node that was stopped, or whose disk failed, just before may exit only now.
    demand(world, world.run_for(HEALTHY_S, healthy), "not healthy once everything is read")
    world.checks.every_second()
    world.checks.at_end()
    for anomaly in check(workload.history):
        world.checks.require(False, anomaly.name, str(anomaly))  # noqa: FBT003 (it is one)
    world.checks.checks["J1"] += len(workload.history.partitions)
