"""Chaos with clients of coordinators: faults, healing, then the final checks.

T9  once clients stop, every transaction ends: the last stable offset is the high watermark
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from sparkraft.simulation.scenarios.node_faults import (
    COORDINATOR_FAULTS,
    NODE_FAULTS,
    RECORD_FAULTS,
    Faults,
)
from sparkraft.simulation.scenarios.node_runs import (
    HEALTHY_S,
    begin_world,
    demand,
    demand_healthy,
    disturb,
    heal,
)
from sparkraft.simulation.workload.clients import after_topic
from sparkraft.simulation.workload.transaction_clients import TIMEOUT_MS, TransactionWorkload
from sparkraft.simulation.world.nodes import Layout, NodesWorld

if TYPE_CHECKING:
    from sparkraft.simulation.scenarios.core_scenarios import Settings

EVERY_S = (0.4, 4)
"""Between two faults."""

TRANSACTIONS_AFTER = 3
"""Transactions that must be committed after healing."""

ENDED_S = 3 * TIMEOUT_MS / 1000 + 20
"""Time limit for all transactions to end once no client begins one: the timeout, the interval of
the search for it, and lookups of coordinators and leaders."""

OMITTED = frozenset({"skew", "features", "kraft-version", "voters", "wipe"})
"""Faults that change what clients may expect: a wall clock that is set back extends every
transaction timeout, as in Kafka."""


def fault_kinds() -> Faults:
    """The faults of these scenarios."""
    known = {kind: fault for kind, fault in NODE_FAULTS.items() if kind not in OMITTED}
    return known | RECORD_FAULTS | COORDINATOR_FAULTS


def transactions(settings: "Settings") -> NodesWorld:
    """Write transactions while coordinators and leaders fail."""
    layout = Layout.of_coordinators(settings.seed, settings.nodes or 3, brokers=settings.observers)
    world = begin_world(settings, settings.nodes or 3, layout)
    workload = TransactionWorkload(world)
    world.start_all([partial(after_topic, client.run) for client in workload.all_clients])
    _inject(world, settings)
    try:
        world.run_for(settings.seconds)
        heal(world)
        _demand_transactions(world, workload)
    finally:
        world.close()
    return world


def _inject(world: NodesWorld, settings: "Settings") -> None:
    faults = fault_kinds()
    kinds = list(faults) if settings.faults is None else list(settings.faults)
    if kinds:
        world.after(world.dice.uniform(0, 6), world.enable_points)
        disturb(world, {kind: faults[kind] for kind in kinds}, EVERY_S)


def _demand_transactions(world: NodesWorld, workload: TransactionWorkload) -> None:
    """Check that all transactions end, and that their results are visible everywhere."""
    demand_healthy(world)
    goal = world.counts["transactions committed"] + TRANSACTIONS_AFTER
    done = world.run_for(HEALTHY_S, lambda: world.counts["transactions committed"] >= goal)
    demand(world, done, "no transaction is committed after healing")
    world.draining = True
    demand(world, world.run_for(HEALTHY_S, lambda: workload.is_idle), "a client still waits")
    if not world.run_for(ENDED_S, workload.has_ended):
        world.checks.at_end()  # names the transactions that hang
        ends = workload.reader.ends
        world.checks.require(False, "T9", f"not ended after {ENDED_S} s: {ends}")  # noqa: FBT003
    world.run_for(1)
    workload.finish()
    if world.violation is not None:
        raise world.violation
    world.checks.every_second()
    world.checks.at_end()


COORDINATED: dict[str, Callable[["Settings"], NodesWorld]] = {"transactions": transactions}
"""Workload → the function that runs it."""
