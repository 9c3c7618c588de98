"""Chaos with clients of coordinators: faults, healing, then the final checks.

T9  once clients stop, every transaction ends: the last stable offset is the high watermark
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from sparkraft.simulation.scenarios.node_faults import (
    COORDINATOR_FAULTS,
    NODE_FAULTS,
    RECORD_FAULTS,
    Faults,
    leader_of_coordinators,
    preferred,
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
from sparkraft.simulation.workload.group_member import (
    GROUP_848,
    REBALANCE_MS,
    SESSION_MS,
)
from sparkraft.simulation.workload.group_workload import GroupWorkload, after_topics
from sparkraft.simulation.workload.transaction_clients import TIMEOUT_MS, TransactionWorkload
from sparkraft.simulation.world.nodes import STRIKES_MAX, Layout, NodesWorld

if TYPE_CHECKING:
    from sparkraft.simulation.scenarios.core_scenarios import Settings


class FaultRate(NamedTuple):
    """The faults of a workload.

    Attributes:
        every_s: limits of the time between two faults.
        strikes: limit of strikes at fault points, of each kind.
    """

    every_s: tuple[float, float]
    strikes: int


TRANSACTION_FAULTS = FaultRate((0.4, 4), STRIKES_MAX)
GROUP_FAULTS = FaultRate((1, 6), 3)
"""Fewer: a group needs several responses in sequence to complete a rebalance."""

ABORTS_NOTHING_EVERY = 4
"""In every fourth run clients also abort transactions that they have not begun."""

TRANSACTIONS_AFTER = 3
"""Transactions that must be committed after healing."""

ENDED_S = 3 * TIMEOUT_MS / 1000 + 20
"""Time limit for all transactions to end once no client begins one: the timeout, the interval of
the search for it, and lookups of coordinators and leaders."""

CONVERGED_S = 2 * (SESSION_MS + REBALANCE_MS) / 1000 + 20
"""Time limit for a group to become stable: members that have lost their id expire, rebalances time
out, the assignment interval passes, and coordinators are looked up."""

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
    aborts_nothing = settings.seed % ABORTS_NOTHING_EVERY == 0
    workload = TransactionWorkload(world, aborts_nothing=aborts_nothing)
    world.start_all([partial(after_topic, client.run) for client in workload.all_clients])
    inject(world, settings, TRANSACTION_FAULTS)
    try:
        world.run_for(settings.seconds)
        heal(world)
        _demand_transactions(world, workload)
    finally:
        world.close()
    return world


def inject(
    world: NodesWorld, settings: "Settings", rate: FaultRate, *, besides: Faults | None = None
) -> None:
    """Inject the faults that the settings select, or all of `fault_kinds` `besides` some."""
    faults = fault_kinds()
    kinds = settings.faults
    if kinds is None:
        kinds = tuple(kind for kind in faults if kind not in (besides or {}))
    if kinds:
        world.after(world.dice.uniform(0, 6), lambda: world.enable_points(rate.strikes))
        disturb(world, {kind: faults[kind] for kind in kinds}, rate.every_s)


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


def groups(settings: "Settings") -> NodesWorld:
    """Let members of both protocols share a group while coordinators and leaders fail."""
    layout = Layout.of_coordinators(settings.seed, settings.nodes or 3, brokers=settings.observers)
    world = begin_world(settings, settings.nodes or 3, layout)
    workload = GroupWorkload(world)
    world.start_all([partial(after_topics, member.run) for member in workload.members])
    inject(world, settings, GROUP_FAULTS)
    try:
        world.run_for(settings.seconds)
        heal(world)
        demand_healthy(world)
        world.draining = True
        _demand_convergence(world, workload)
    finally:
        world.close()
    return world


def coordinators_return(settings: "Settings") -> NodesWorld:
    """Move coordinators of groups to other brokers and back, while their processes keep running."""
    layout = replace(Layout.of_coordinators(settings.seed, 3, brokers=3), min_insync=2)
    world = begin_world(settings, 3, layout)
    workload = GroupWorkload(world)
    world.start_all([partial(after_topics, member.run) for member in workload.members])
    try:
        world.run_for(3)
        while world.loop.now < settings.seconds:
            _move_away_and_back(world)
        heal(world)
        demand_healthy(world)
        world.draining = True
        _demand_convergence(world, workload)
    finally:
        world.close()
    return world


def _move_away_and_back(world: NodesWorld) -> None:
    """Isolate a coordinator until it is replaced, then elect the preferred leaders."""
    leader = leader_of_coordinators(world)
    if leader is not None:
        world.note(f"-- {leader.name} is isolated", "fault", node=leader.name)
        links = {(leader.name, other.name) for other in world.machines if other is not leader}
        links |= {(there, here) for here, there in links}
        world.network.cut |= links
        world.run_for(world.dice.uniform(3.2, 4.5))
        world.network.cut -= links
    world.run_for(world.dice.uniform(1.5, 3))
    preferred(world)
    world.run_for(world.dice.uniform(0.5, 2))


def _demand_convergence(world: NodesWorld, workload: GroupWorkload) -> None:
    """Check that the group becomes stable once its members stay, with an owner per partition."""
    checks = world.checks

    def is_stable() -> bool:
        return workload.is_complete() and checks.groups.has_converged(GROUP_848)

    if not world.run_for(CONVERGED_S, is_stable):
        checks.require(False, "K5", f"no stable group after {CONVERGED_S} s")  # noqa: FBT003
    if world.violation is not None:
        raise world.violation
    checks.groups.check_covered(GROUP_848)
    world.run_for(1)
    checks.every_second()
    checks.at_end()


COORDINATED: dict[str, Callable[["Settings"], NodesWorld]] = {
    "transactions": transactions,
    "groups": groups,
}
"""Workload → the function that runs it."""
