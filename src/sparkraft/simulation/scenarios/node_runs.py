"""Parts of all scenarios of whole nodes: start a world, inject faults, heal it, check it."""

from sparkraft.simulation.checks.node_checks import NodeChecks
from sparkraft.simulation.scenarios.core_scenarios import Settings
from sparkraft.simulation.scenarios.node_faults import Faults
from sparkraft.simulation.world.nodes import Layout, NodesWorld, quiet

HEALTHY_S = 90
"""Time limit for a healed cluster to unfence its brokers and elect leaders."""


def begin_world(settings: Settings, voters: int, layout: Layout) -> NodesWorld:
    """Create a world, all of it off, and pass it to `settings.on_world`."""
    quiet()
    world = NodesWorld(
        settings.seed, voters, observed_by=NodeChecks, sink=settings.sink, layout=layout
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
