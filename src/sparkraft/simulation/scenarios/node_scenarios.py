"""Scenarios for whole nodes: clients at work, faults, healing, then the final checks.

Besides chaos there are Apache Kafka's seven scenarios (`RaftEventSimulationTest`), on whole nodes.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from sparkraft.raft.voters import VoterSet
from sparkraft.simulation.checks.quorum_rules import voters_are_committed
from sparkraft.simulation.scenarios.coordinator_scenarios import COORDINATED, coordinators_return
from sparkraft.simulation.scenarios.core_scenarios import Settings
from sparkraft.simulation.scenarios.migration import migration
from sparkraft.simulation.scenarios.node_faults import (
    MOVE_FAULTS,
    NODE_FAULTS,
    RECORD_FAULTS,
    coin,
    leader_of_records,
)
from sparkraft.simulation.scenarios.node_runs import (
    HEALTHY_S,
    begin_world,
    demand,
    demand_healthy,
    demand_records,
    disturb,
    heal,
)
from sparkraft.simulation.scenarios.principal_scenarios import principals
from sparkraft.simulation.scenarios.zookeeper import zookeeper
from sparkraft.simulation.workload.clients import Workload
from sparkraft.simulation.workload.epoch_prober import EpochProber
from sparkraft.simulation.workload.node_clients import (
    ask_controller,
    create_topics,
    ending_request,
    registration_request,
)
from sparkraft.simulation.world.machine import Machine, image_of
from sparkraft.simulation.world.nodes import Layout, NodesWorld
from sparkraft.simulation.world.violation import Violation

RECORDS = "produce-consume"
"""The workload of clients that write and read."""

CLIENTS_OF_THEIR_OWN = COORDINATED | {"principals": principals}
"""Workload → the function that runs it, if it is not of this module."""

LEADER_FAULTS = (*RECORD_FAULTS, "mend", "resign", "skew")

GENTLE = ("loss", "slow-link", "reset", "slow-disk", "skew", "snapshot")
"""Faults during the scenarios of Kafka."""

GENTLE_STRIKES = 3
"""Limit of strikes at fault points, of each kind, during the scenarios of Kafka."""

ASK_AGAIN_S = 5
"""Retry delay of the operator."""

CONVERGE_S = 60
"""Time limit for a majority to elect and commit."""

REPLICAS = 3
"""With only two, a partition would not survive a replica that is lost for good."""

LATE_S = 0.4
"""Delay of a controller's responses to a broker whose registration another process replaces."""

RECLAIMED_S = 15
"""Time limit for that broker to be unfenced again: several heartbeats."""

TOPICS_AFTER = 3
"""Topics that must be created after healing."""


# ---- chaos


def chaos(settings: Settings) -> NodesWorld:
    """Inject every kind of fault while clients work; then heal all nodes or a majority."""
    if settings.workload in CLIENTS_OF_THEIR_OWN:
        return CLIENTS_OF_THEIR_OWN[settings.workload](settings)
    return _chaos(settings, every_s=(0.1, 5))


def leaders_come_and_go(settings: Settings) -> NodesWorld:
    """Write records while their leaders are killed, stopped, partitioned and restarted."""
    faults = LEADER_FAULTS if settings.faults is None else settings.faults
    return _chaos(replace(settings, workload=RECORDS, faults=faults), every_s=(0.2, 2.5))


def replicas_move(settings: Settings) -> NodesWorld:
    """Write records while partitions are reassigned and brokers stop and restart.

    Leadership is rebalanced throughout, so at the end the preferred leaders must lead.
    """
    faults = (*MOVE_FAULTS, *LEADER_FAULTS) if settings.faults is None else settings.faults
    settings = replace(settings, workload=RECORDS, faults=faults)
    return _chaos(settings, every_s=(0.2, 2.5), balanced=True)


def leaders_take_turns_alone(settings: Settings) -> NodesWorld:
    """Let brokers that cannot reach each other lead in turn, with records no follower fetches."""
    layout = replace(Layout.of_records(settings.seed, 3), brokers=3, min_insync=2)
    return _of_records(settings, layout, _take_turns)


def _of_records(
    settings: Settings, layout: Layout, strike: Callable[[NodesWorld], None]
) -> NodesWorld:
    """Write records, call `strike` repeatedly, then heal everything and check the records."""
    world = begin_world(settings, 3, layout)
    workload = Workload(world, EpochProber(world))
    world.start_all(workload.clients)
    try:
        world.run_for(3)
        while world.loop.now < settings.seconds:
            strike(world)
        heal(world)
        demand_records(world, workload)
    finally:
        world.close()
    return world


def _take_turns(world: NodesWorld) -> None:
    """Isolate leaders from the controllers until replaced; they return with extra records."""
    dice, cut = world.dice, world.network.cut
    names = [machine.name for machine in world.brokers]
    apart = {(one, other) for one in names for other in names if one != other}
    cut |= apart
    for _ in range(dice.randint(2, 5)):
        leader = leader_of_records(world)
        if leader is not None:
            links = {(leader.name, machine.name) for machine in world.controllers}
            links |= {(there, here) for here, there in links}
            cut |= links
            world.run_for(dice.uniform(3.2, 5))
            cut -= links
        world.run_for(dice.uniform(0, 1.5))
    cut -= apart
    world.run_for(dice.uniform(0.5, 4))


def killed_then_unplugged(settings: Settings) -> NodesWorld:
    """Kill brokers while their disks are busy, restart them, and soon cut their power."""
    layout = replace(Layout.of_records(settings.seed, 3), brokers=3, min_insync=2, synced=True)
    return _of_records(settings, layout, _kill_and_unplug)


def _kill_and_unplug(world: NodesWorld) -> None:
    """Kill and restart all brokers, then cut their power.

    Data that survived the kill in the page cache is lost, unless it was synced since.
    """
    dice = world.dice
    for machine in world.brokers:
        machine.slow_until = world.loop.now + 12
    world.run_for(dice.uniform(0.5, 3))
    for end in (Machine.kill, Machine.power_off):
        for machine in world.brokers:
            end(machine)
        world.run_for(dice.uniform(0.1, 0.5))
        for machine in world.brokers:
            machine.start()
        world.run_for(dice.uniform(1, 7))


def registrations_arrive_late(settings: Settings) -> NodesWorld:
    """Let registrations of ended processes reach the controller after those of their successors."""
    layout = replace(Layout.of_records(settings.seed, 3), brokers=0, release=None)
    return _of_records(settings, layout, _register_late)


def _register_late(world: NodesWorld) -> None:
    """Register a broker as another process while it has no session; it must be unfenced again.

    It has none before its first heartbeat, and after it was isolated for a while.
    """
    leader = world.leader()
    if leader is None or image_of(leader) is None:
        world.run_for(1)
        return
    machine = world.dice.choice([other for other in world.brokers if other is not leader])
    links = {(leader.name, machine.name), (machine.name, leader.name)}
    known = _registered(leader, machine).incarnation_id
    if coin(world):
        machine.kill()
        # It learns of its registration late.
        world.network.slow_s[leader.name, machine.name] = LATE_S
        machine.start()
        world.run_for(HEALTHY_S, lambda: _registered(leader, machine).incarnation_id != known)
    else:
        world.network.cut |= links
        world.run_for(HEALTHY_S, lambda: _registered(leader, machine).fenced)
    request = registration_request(world, machine, _registered(leader, machine))
    world.operate(ask_controller(world, leader, request, "late registration"))
    world.run_for(1, lambda: _registered(leader, machine).incarnation_id == request.incarnation_id)
    world.network.cut -= links
    world.network.slow_s.clear()
    back = world.run_for(RECLAIMED_S, lambda: not _registered(leader, machine).fenced)
    demand(world, back, f"{machine.name} is still fenced {RECLAIMED_S} s after {request}")


def _registered(leader: Machine, machine: Machine) -> Any:
    """The registration of a broker in the image of the active controller."""
    image = image_of(leader)
    return None if image is None else image.brokers.get(machine.id)


def _chaos(
    settings: Settings, *, every_s: tuple[float, float], balanced: bool = False
) -> NodesWorld:
    voters = settings.nodes or 3
    records = settings.workload == RECORDS
    layout_of = Layout.of_records if records else Layout.of
    layout = layout_of(settings.seed, voters, brokers=settings.observers)
    world = begin_world(settings, voters, replace(layout, balanced=balanced))
    workload = Workload(world, EpochProber(world)) if records else None
    faults = NODE_FAULTS | (RECORD_FAULTS | MOVE_FAULTS if records else {})
    kinds = [kind for kind in faults if kind not in MOVE_FAULTS]
    kinds = kinds if settings.faults is None else list(settings.faults)
    world.start_all([create_topics] if workload is None else workload.clients)
    if kinds:
        world.after(world.dice.uniform(0, 6), world.enable_points)
        disturb(world, {kind: faults[kind] for kind in kinds}, every_s)
    try:
        world.run_for(settings.seconds)
        heal(world)
        if settings.liveness:
            _break_a_minority(world, in_sync=workload is not None)
        elif workload is not None:
            _end_moves(world, 0)
        if workload is None:
            _demand_health(world)
        else:
            demand_records(world, workload)
    finally:
        world.close()
    return world


def _end_moves(world: NodesWorld, replicas_min: int) -> None:
    """Cancel stuck reassignments and add replicas to partitions with fewer than `replicas_min`."""

    def left() -> tuple[Machine, Any] | None:
        """Return the leader and the request it needs; None without a leader that has an image."""
        leader = world.leader()
        image = None if leader is None else image_of(leader)
        if leader is None or image is None:
            return None
        return leader, ending_request(world, image, replicas_min)

    def is_done() -> bool:
        found = left()
        return found is not None and found[1] is None

    def ask() -> None:
        found = left()
        if found is not None and found[1] is None:
            return
        world.after(ASK_AGAIN_S, ask)
        if found is not None:
            world.operate(ask_controller(world, *found, "end of moves"))

    if not is_done():
        ask()
        _await(world, "every move is ended", is_done)


def _demand_health(world: NodesWorld) -> None:
    healthy = world.checks.is_healthy
    demand_healthy(world)
    goal = world.counts["topics created"] + TOPICS_AFTER
    done = world.run_for(HEALTHY_S, lambda: world.counts["topics created"] >= goal)
    demand(world, done, "no topic can be created after healing")
    demand(world, world.run_for(HEALTHY_S, healthy), "new topics find no leaders")
    world.checks.every_second()
    world.checks.at_end()


def _all_in_sync(world: NodesWorld) -> bool:
    """Return whether all replicas are in sync, so that any remaining one may lead."""
    leader = world.leader()
    image = None if leader is None else image_of(leader)
    return image is not None and all(
        set(partition.isr) == set(partition.replicas)
        for topic in image.topics_in_order()
        for partition in topic.partitions.values()
    )


def _break_a_minority(world: NodesWorld, *, in_sync: bool) -> None:
    """Stop, pause or partially isolate a minority of the current voters for good.

    It includes wiped voters, but not voters that are restarting. With `in_sync` every partition
    keeps replicas that may lead.
    """
    _await_leader(world)
    world.run_for(3)
    if in_sync:
        _end_moves(world, REPLICAS)

    def running(voters: VoterSet) -> list[Machine]:
        members = [m for m in world.controllers if m.id in voters.ids]
        return [m for m in members if m.raft is not None and m.raft._quorum.is_voter]  # noqa: SLF001

    def is_settled() -> bool:
        leader = _consistent_leader(world)
        if leader is None or not voters_are_committed(leader.raft._quorum):  # noqa: SLF001
            return False
        voters = leader.raft.voters
        return len(running(voters)) >= voters.majority and (not in_sync or _all_in_sync(world))

    _await(world, "a majority of committed voters runs, and replicas are in sync", is_settled)
    voters = _await_leader(world).raft.voters
    core = sorted(running(voters), key=lambda _: world.dice.random())[: voters.majority]
    world.note(f"-- for good: {[m.name for m in core]} work")
    for machine in world.controllers:
        if machine.id in voters.ids and machine not in core:
            _break_for_good(world, machine, core)


def _break_for_good(world: NodesWorld, machine: Machine, core: Sequence[Machine]) -> None:
    roll = world.dice.randrange(4)
    if roll == 0:
        machine.power_off()
    elif roll == 1:
        machine.pause()
    else:
        # Messages pass in one direction only, which disturbs the others most.
        for other in core:
            names = (other.name, machine.name)
            world.network.cut.add(names if roll == 2 else names[::-1])  # noqa: PLR2004
    world.broken.append(machine)


# ---- Apache Kafka's seven


def _await(world: NodesWorld, what: str, until: Callable[[], bool]) -> None:
    if not until() and not world.run_for(CONVERGE_S, until):
        raise Violation("Q11", f"not within {CONVERGE_S} s: {what}")


def _consistent_leader(world: NodesWorld) -> Machine | None:
    """Return the leader if every running controller knows it and its epoch, else None."""
    leader = world.leader()
    if leader is None:
        return None
    known = leader.raft.leader_and_epoch
    running = [m for m in world.controllers if m.raft is not None]
    return leader if all(m.raft.leader_and_epoch == known for m in running) else None


def _await_leader(world: NodesWorld) -> Machine:
    _await(world, "a leader all agree on", lambda: _consistent_leader(world) is not None)
    leader = _consistent_leader(world)
    assert leader is not None
    return leader


def _committed(machine: Machine) -> int:
    return machine.raft.high_watermark if machine.raft is not None else 0


def _reach(world: NodesWorld, more: int, among: Sequence[Machine] | None = None) -> None:
    """Wait until each machine has committed `more` offsets beyond the highest one now."""
    machines = world.machines if among is None else among
    goal = world.checks.events.committed_end + more
    names = [machine.name for machine in machines]
    _await(world, f"{names} reach HW={goal}", lambda: min(map(_committed, machines)) >= goal)


def _reach_anywhere(world: NodesWorld, more: int) -> None:
    goal = world.checks.events.committed_end + more
    _await(
        world, f"some node reaches HW={goal}", lambda: max(map(_committed, world.machines)) >= goal
    )


def _finish(world: NodesWorld) -> None:
    """Heal the cluster and check that it works."""
    heal(world)
    _demand_health(world)


def _part(world: NodesWorld, some: Sequence[Machine]) -> None:
    others = [machine for machine in world.machines if machine not in some]
    world.note(f"-- {[m.name for m in some]} and {[m.name for m in others]} are parted", "fault")
    for one in some:
        for other in others:
            world.network.cut |= {(one.name, other.name), (other.name, one.name)}


def _begin(settings: Settings, voters: Sequence[int]) -> NodesWorld:
    """Start a world with faults that Kafka's own simulation lacks, none of which breaks a scenario.

    Streams lose segments, are reset and slow down, clocks drift, disks take seconds, snapshots are
    written at any time, and now and then a fault point strikes.
    """
    count = settings.nodes or voters[settings.seed % len(voters)]
    layout = Layout.of(settings.seed, count, brokers=settings.observers)
    world = begin_world(settings, count, layout)
    world.network.loss = world.dice.choice([0.0, 0.01, 0.05])
    world.start_all([create_topics])
    kinds = GENTLE if settings.faults is None else settings.faults
    faults = {kind: NODE_FAULTS[kind] for kind in kinds}
    if faults:
        world.after(world.dice.uniform(0, 6), lambda: world.enable_points(GENTLE_STRIKES))
        disturb(world, faults, every_s=(0.5, 4))
    return world


def _can_elect_initial_leader(world: NodesWorld) -> None:
    """Start all nodes; they agree on a leader and commit."""
    _await_leader(world)
    _reach(world, 10)


def _can_elect_new_leader_after_old_leader_failure(world: NodesWorld) -> None:
    """The leader is killed or shuts down cleanly; it restarts and catches up."""
    leader = _await_leader(world)
    _reach_anywhere(world, 10)
    _stop(world, leader)
    others = [machine for machine in world.machines if machine is not leader]
    _reach(world, 10, others)
    leader.start()
    _reach(world, 10)


def _stop(world: NodesWorld, machine: Machine) -> None:
    """Kill a node, cut its power, or shut it down cleanly once it is not paused."""
    roll = world.dice.randrange(3)
    if roll == 0:
        _await(world, f"{machine.name} runs", lambda: machine.live_node is not None)
        life = machine.life  # a fault point may end the shutdown, and soon the node restarts
        machine.terminate()
        _await(world, f"{machine.name} stops", lambda: machine.life > life or not machine.is_up)
        return
    if roll == 1:
        machine.kill()
    else:
        machine.power_off()


def _can_recover_after_all_nodes_killed(world: NodesWorld) -> None:
    """All nodes stop; a majority of the current voters restarts, including those that joined."""
    _await_leader(world)
    _reach_anywhere(world, 10)
    voters = _await_leader(world).raft.voters
    for machine in world.machines:
        if coin(world):
            machine.kill()
        else:
            machine.power_off()
    back = [m for m in world.controllers if m.id in voters.ids][: voters.majority]
    for machine in back:
        machine.start()
    _reach(world, 10, back)


def _can_elect_new_leader_after_old_leader_partitioned_away(world: NodesWorld) -> None:
    """The leader is isolated from all other nodes."""
    leader = _await_leader(world)
    _reach_anywhere(world, 10)
    _part(world, [leader])
    _reach(world, 10, [machine for machine in world.machines if machine is not leader])


def _can_make_progress_if_majority_is_reachable(world: NodesWorld) -> None:
    """Five voters part into two and three, then come together."""
    _await_leader(world)
    _reach_anywhere(world, 10)
    voters = [machine for machine in world.controllers if machine.voter]
    few = voters[:2]
    _part(world, few)
    rest = [machine for machine in voters if machine not in few]
    _reach(world, 10, rest)
    minority = max(map(_committed, few))
    if minority >= max(map(_committed, rest)):
        raise Violation("Q5", f"the minority commits up to {minority}")
    world.network.cut.clear()
    _reach(world, 10)


def _can_make_progress_after_back_to_back_leader_failures(world: NodesWorld) -> None:
    """The leader is cut off, and its successor as soon as there is one."""
    leader = _await_leader(world)
    _reach_anywhere(world, 10)
    _part(world, [leader])
    _await(world, "a new leader", lambda: world.leader() not in {None, leader})
    second = world.leader()
    assert second is not None
    world.network.cut.clear()
    _part(world, [second])
    _reach_anywhere(world, 10)


def _can_recover_from_single_node_committed_data_loss(world: NodesWorld) -> None:
    """A voter loses its disk and comes back empty once there is a leader (kraft.version 1)."""
    leader = _await_leader(world)
    _reach_anywhere(world, 10)
    voters = [machine for machine in world.controllers if machine.voter]
    _await(world, "all voters are whole", lambda: _caught_up(world, voters))
    machine = world.dice.choice([m for m in voters if m is not leader] or voters)
    world.checks.events.on_wipe(machine)
    machine.wipe()
    others = [other for other in world.machines if other is not machine]
    _reach(world, 10, others)
    machine.start()
    _reach(world, 10)


def _caught_up(world: NodesWorld, machines: Sequence[Machine]) -> bool:
    end = world.checks.events.committed_end
    return all(m.raft is not None and world.checks.events.durable_end(m) >= end for m in machines)


KAFKAS: dict[str, tuple[Callable[[NodesWorld], None], tuple[int, ...]]] = {
    function.__name__.strip("_").replace("_", "-"): (function, voters)
    for function, voters in (
        (_can_elect_initial_leader, (1, 3, 5)),
        (_can_elect_new_leader_after_old_leader_failure, (3, 5)),
        (_can_recover_after_all_nodes_killed, (1, 3, 5)),
        (_can_elect_new_leader_after_old_leader_partitioned_away, (3, 5)),
        (_can_make_progress_if_majority_is_reachable, (5,)),
        (_can_make_progress_after_back_to_back_leader_failures, (3, 5)),
        (_can_recover_from_single_node_committed_data_loss, (3, 5)),
    )
}
"""Name → the function, and the possible numbers of voters."""


def _scenario(name: str) -> Callable[[Settings], NodesWorld]:
    function, voters = KAFKAS[name]

    def play(settings: Settings) -> NodesWorld:
        world = _begin(settings, voters)
        try:
            function(world)
            _finish(world)
        finally:
            world.close()
        return world

    play.__doc__ = function.__doc__
    return play


NODE_SCENARIOS: dict[str, Callable[[Settings], NodesWorld]] = {
    "chaos": chaos,
    "leaders-come-and-go": leaders_come_and_go,
    "replicas-move": replicas_move,
    "leaders-take-turns-alone": leaders_take_turns_alone,
    "killed-then-unplugged": killed_then_unplugged,
    "coordinators-return": coordinators_return,
    "registrations-arrive-late": registrations_arrive_late,
    "migration": migration,
    "zookeeper": zookeeper,
    **{name: _scenario(name) for name in KAFKAS},
}
