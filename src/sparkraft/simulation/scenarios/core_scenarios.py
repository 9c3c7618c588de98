"""Scenarios for the raft cores, by name: chaos, and the simulated scenarios of Apache Kafka.

A scenario starts a world, injects faults and checks that the quorum recovers. Kafka's seven have
the names of its tests (`RaftEventSimulationTest`). They also run with lost and duplicated messages
and clock skew, except the ones in which the leader must not change.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TextIO

from sparkraft.base.errors import ErrorCode
from sparkraft.raft.events import (
    AddVoterRequest,
    PeerRequest,
    RemoveVoterRequest,
    ShutdownRequested,
)
from sparkraft.simulation.checks.invariants import Invariants
from sparkraft.simulation.checks.quorum_rules import voters_are_committed
from sparkraft.simulation.world.core_node import CLUSTER_ID, CoreNode, endpoint_of
from sparkraft.simulation.world.cores import World
from sparkraft.simulation.world.nemesis import ALL, Nemesis
from sparkraft.simulation.world.nemesis import voters as change_voters
from sparkraft.simulation.world.rogue import Rogue
from sparkraft.simulation.world.violation import Violation

CONVERGE_MS = 60_000
"""Time limit for a healed majority to elect and commit: enough for many failed elections.

If every twentieth message is lost and a bare majority must replicate hundreds of records, each loss
costs a fetch timeout: in some of a thousand seeds that took 45 s.
"""

GENTLE = ("loss", "duplicates", "skew")
"""Faults that Kafka's scenarios must tolerate: they delay messages and break nothing for good."""


def _ignore(world: Any) -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a run; `scenario_options` has the fields that each scenario uses.

    Attributes:
        tier: `cores` here, `nodes` in `node_scenarios`.
        nodes: number of voters; None means three in chaos on whole nodes, otherwise the scenario
            and the seed decide.
        observers: number of cores that only follow, or of nodes that are only brokers (0: every
            voter is also a broker); None lets the seed choose.
        seconds: simulated duration of chaos.
        faults: kinds of faults of the tier; None means those of the scenario.
        liveness: leave a minority broken for good instead of healing all.
        workload: the clients on whole nodes: `create-topics`, `produce-consume` or `transactions`.
        sink: gets the whole trace.
        on_world: gets the world before anything happens in it.
    """

    seed: int
    tier: str = "cores"
    scenario: str = "chaos"
    nodes: int | None = None
    observers: int | None = None
    seconds: int = 60
    faults: tuple[str, ...] | None = None
    liveness: bool = False
    workload: str = "create-topics"
    sink: TextIO | None = field(default=None, compare=False)
    on_world: Callable[[Any], None] = field(default=_ignore, compare=False)


def make_world(settings: Settings, *, voters: tuple[int, int], dynamic: bool | None) -> World:
    """Make the world that the settings ask for; the seed decides what they leave open."""
    odd = settings.seed * 2654435761 % 2**32  # spread, so that neighbours differ in all respects
    low, high = voters
    count = settings.nodes or low + odd % (high - low + 1)
    observers = settings.observers if settings.observers is not None else odd // 7 % 3
    world = World(
        settings.seed,
        count,
        observers,
        observed_by=Invariants,
        dynamic=odd // 64 % 2 == 0 if dynamic is None else dynamic,
        sink=settings.sink,
    )
    settings.on_world(world)
    return world


def await_(world: World, what: str, until: Callable[[], bool], millis: int = CONVERGE_MS) -> None:
    """Let time pass until `until` holds.

    Raises:
        Violation: Q11, if it does not within `millis`.
    """
    world.invariants.checks["Q11"] += 1
    if not until() and not world.run_for(millis, until):
        world.note(world.summary())
        raise Violation("Q11", f"not within {millis} ms: {what}")


def reach(world: World, high_watermark: int, among: list[int] | None = None) -> None:
    """Wait until all of the nodes have committed up to `high_watermark`."""
    await_(
        world,
        f"all of {among or 'the running nodes'} reach HW={high_watermark}",
        lambda: min(world.high_watermarks(among), default=0) >= high_watermark,
    )


def reach_anywhere(world: World, high_watermark: int) -> None:
    """Wait until some node has committed up to `high_watermark`."""
    await_(
        world,
        f"some node reaches HW={high_watermark}",
        lambda: max(world.high_watermarks(), default=0) >= high_watermark,
    )


# ---- chaos


def chaos(settings: Settings) -> World:
    """Every kind of fault, then healing; in liveness mode only a majority is healed."""
    world = make_world(settings, voters=(3, 5), dynamic=None)
    world.auto_join = world.dice.random() < 0.5  # noqa: PLR2004 (a coin)
    nemesis = Nemesis(world, ALL if settings.faults is None else settings.faults)
    world.start_all()
    nemesis.start()
    world.run_for(settings.seconds * 1_000)
    if settings.liveness:
        _heal_majority(world, nemesis)
    else:
        nemesis.heal()
    goal = world.invariants.committed_end + 10
    reach_anywhere(world, goal)
    world.invariants.every_second()
    return world


def _heal_majority(world: World, nemesis: Nemesis) -> None:
    """Heal a majority of the current voters; the rest stays stopped, paused or half partitioned.

    A voter whose disk was wiped is no longer that voter: it counts as broken.
    """
    nemesis.heal()
    await_(world, "a leader after healing", world.has_consistent_leader)
    world.auto_join = False
    world.run_for(3_000)

    def is_settled() -> bool:
        found = world.leader() if world.has_consistent_leader() else None
        return found is not None and voters_are_committed(found.quorum)

    # Requests in flight may have deposed the leader since, or have just added a voter.
    await_(world, "a leader all agree on, and its voters committed", is_settled)
    leader = world.leader()
    assert leader is not None
    voters = leader.quorum.log.voters
    order = sorted(voters.ids, key=lambda _: world.dice.random())
    whole = [node_id for node_id in order if voters.is_voter(world.nodes[node_id].key)]
    core = whole[: voters.majority]
    rest = [node_id for node_id in order if node_id not in core]
    world.note(f"-- for good: {core} work, {rest} are broken", "fault")
    for node_id in rest:
        _break_for_good(world, world.nodes[node_id], core)


def _break_for_good(world: World, node: CoreNode, core: Sequence[int]) -> None:
    roll = world.dice.randrange(4)
    if roll == 0:
        node.stop(power=True)
    elif roll == 1:
        node.pause()
    else:
        # Messages pass in one direction only, which disturbs the others most.
        for other in core:
            world.cut.add((other, node.id) if roll == 2 else (node.id, other))  # noqa: PLR2004


# ---- Apache Kafka's seven


def _begin(settings: Settings, voters: tuple[int, int], *, gentle: bool = True) -> World:
    world = make_world(settings, voters=voters, dynamic=None)
    chosen = (GENTLE if gentle else ()) if settings.faults is None else settings.faults
    world.start_all()
    Nemesis(world, chosen).start()
    return world


def can_elect_initial_leader(settings: Settings) -> World:
    """Start all nodes; they agree on a leader and commit."""
    world = _begin(settings, (1, 5))
    await_(world, "a leader all agree on", world.has_consistent_leader)
    reach(world, 10)
    return world


def _with_leader(settings: Settings, voters: tuple[int, int]) -> tuple[World, CoreNode]:
    world = _begin(settings, voters)
    await_(world, "a leader all agree on", world.has_consistent_leader)
    reach_anywhere(world, 10)
    await_(world, "a leader", lambda: world.leader() is not None)
    leader = world.leader()
    assert leader is not None
    return world, leader


def can_elect_new_leader_after_old_leader_failure(settings: Settings) -> World:
    """The leader is killed or resigns; it restarts and catches up."""
    world, leader = _with_leader(settings, (3, 5))
    if world.dice.random() < 0.5:  # noqa: PLR2004 (a coin)
        leader.step(ShutdownRequested())
        await_(world, "the leader may leave", lambda: leader.quorum.may_stop)
    leader.stop(power=world.dice.random() < 0.5)  # noqa: PLR2004 (a coin)
    high = max(20, world.invariants.committed_end)
    reach(world, high)
    leader.start()
    reach(world, world.invariants.committed_end + 10)
    return world


def can_recover_after_all_nodes_killed(settings: Settings) -> World:
    """Everything stops; a majority comes back."""
    world, _ = _with_leader(settings, (1, 5))
    for node in world.nodes.values():
        node.stop(power=world.dice.random() < 0.5)  # noqa: PLR2004 (a coin)
    voters = [node for node in world.nodes.values() if node.may_vote]
    goal = world.invariants.committed_end + 10
    for node in voters[: len(voters) // 2 + 1]:
        node.start()
    reach(world, goal)
    return world


def can_elect_new_leader_after_old_leader_partitioned_away(settings: Settings) -> World:
    """The leader is cut off from all; in time it stops leading by itself."""
    world, leader = _with_leader(settings, (3, 5))
    others = [node_id for node_id in world.nodes if node_id != leader.id]
    cut_both_ways(world, [leader.id], others)
    reach(world, max(20, world.invariants.committed_end + 10), others)
    world.run_for(10_000)
    return world


def can_make_progress_if_majority_is_reachable(settings: Settings) -> World:
    """Five voters part into two and three, then come together."""
    world, _ = _with_leader(settings, (5, 5))
    few, many = [1, 2], [3, 4, 5]
    cut_both_ways(world, few, many)
    reach(world, 2 * world.invariants.committed_end, many)
    minority = max(world.high_watermarks(few), default=0)
    if minority >= max(world.high_watermarks(many)):
        raise Violation("Q5", f"the minority commits up to {minority}")
    world.cut.clear()
    reach(world, world.invariants.committed_end + 10)
    return world


def leadership_assigned_only_once_with_network_partition_if_there_exists_majority(
    settings: Settings,
) -> World:
    """With KIP-996's links two nodes would depose each other if there were no pre-vote."""
    world = make_world(settings, voters=(5, 5), dynamic=None)
    kip_996(world, [1, 2, 3, 4, 5])
    world.start_all()
    await_(world, "a leader", lambda: world.leader() is not None)
    leader = world.leader()
    assert leader is not None
    reach_anywhere(world, 20)
    _demand_one_leader(world, world.elections[-1])
    return world


def leadership_will_not_change_during_network_partition_if_majority_still_reachable(
    settings: Settings,
) -> World:
    """The same links break under a working leader, which stays the leader."""
    world = _begin(settings, (5, 5), gentle=False)
    await_(world, "a leader all agree on", world.has_consistent_leader)
    reach(world, 5, [1, 2, 3, 4, 5])
    leader = world.leader()
    assert leader is not None
    first = world.elections[-1]
    ring = [(leader.id - 1 + step) % 5 + 1 for step in range(5)]
    kip_996(world, [ring[1], ring[2], ring[0], ring[3], ring[4]])
    reach(world, 20, [ring[0], ring[1], ring[3], ring[4]])
    world.run_for(10_000)
    _demand_one_leader(world, first)
    return world


def _demand_one_leader(world: World, first: tuple[int, int]) -> None:
    world.run_for(10_000)
    later = world.elections[world.elections.index(first) + 1 :]
    if later:
        raise Violation("Q9", f"n{first[0]} led epoch {first[1]} and was deposed: {later}")


def can_make_progress_after_back_to_back_leader_failures(settings: Settings) -> World:
    """The leader is cut off, and its successor as soon as there is one."""
    world, leader = _with_leader(settings, (3, 5))
    everyone = list(world.nodes)
    cut_both_ways(world, [leader.id], [n for n in everyone if n != leader.id])

    def succeeded() -> bool:
        now = world.leader()
        return now is not None and now is not leader

    await_(world, "a new leader", succeeded)
    second = world.leader()
    assert second is not None
    world.cut.clear()
    cut_both_ways(world, [second.id], [n for n in everyone if n != second.id])
    reach_anywhere(world, world.invariants.committed_end + 10)
    return world


def can_recover_from_single_node_committed_data_loss(settings: Settings) -> World:
    """A voter loses its disk and comes back empty once there is a leader (kraft.version 1)."""
    world = make_world(settings, voters=(3, 5), dynamic=True)
    world.auto_join = True
    world.start_all()
    Nemesis(world, GENTLE if settings.faults is None else settings.faults).start()
    await_(world, "a leader all agree on", world.has_consistent_leader)
    reach_anywhere(world, 10)
    node = world.dice.choice([n for n in world.nodes.values() if n.may_vote])
    node.stop(power=True)
    node.wipe()
    await_(world, "a leader without it", world.has_consistent_leader)
    goal = world.invariants.committed_end + 10
    node.start()
    reach(world, goal)
    return world


# ---- ours


def _three_at_work(settings: Settings) -> tuple[World, CoreNode]:
    """A world of three voters that have committed something, and their leader."""
    world = make_world(replace(settings, nodes=3), voters=(3, 3), dynamic=True)
    world.start_all()
    await_(world, "a leader all agree on", world.has_consistent_leader)
    reach(world, 10, [1, 2, 3])
    leader = world.leader()
    assert leader is not None
    return world, leader


def a_wiped_voter_does_not_count(settings: Settings) -> World:
    """Of three voters one stops and one loses its disk: nothing is committed till one is back."""
    world, leader = _three_at_work(settings)
    stopped, wiped = (node for node in world.nodes.values() if node.may_vote and node is not leader)
    stopped.stop(power=True)
    wiped.stop(power=True)
    wiped.wipe()
    wiped.start()
    world.run_for(world.dice.randint(500, 6_000))
    stopped.start()
    reach_anywhere(world, world.invariants.committed_end + 10)
    return world


def candidates_stand_with_slow_disks(settings: Settings) -> World:
    """Leaders stop repeatedly while their followers' disks still write the last records."""
    world, leader = _with_leader(replace(settings, faults=()), (3, 5))
    for _ in range(4):
        for node in world.nodes.values():
            node.slow_until = world.now + 4_000 if node is not leader else 0
        world.run_for(world.dice.randint(20, 400))
        leader.stop(power=True)
        world.run_for(4_000)
        leader.start()
        await_(world, "a leader all agree on", world.has_consistent_leader)
        found = world.leader()
        assert found is not None
        leader = found
    reach_anywhere(world, world.invariants.committed_end + 10)
    return world


def killed_leaders_are_replaced(settings: Settings) -> World:
    """Leaders are killed one after another; counts the elections this takes."""
    world, leader = _with_leader(replace(settings, faults=()), (3, 5))
    for _ in range(5):
        world.run_for(world.dice.randint(500, 1_500))
        killed, at = leader.quorum.state.epoch, world.now
        leader.stop(power=False)
        await_(world, "a new leader", lambda: world.leader() is not None)
        found = world.leader()
        assert found is not None
        world.counts["leaders killed"] += 1
        world.counts["ms without a leader"] += world.now - at
        if found.quorum.state.epoch == killed + 1:
            world.counts["replaced in one election"] += 1
        leader.start()
        leader = found
        reach(world, world.invariants.committed_end + 1)
    return world


def candidates_meet_behind_slow_links(settings: Settings) -> World:
    """Messages take longer than election backoffs, and leaders restart as soon as they lead."""
    world, _ = _with_leader(replace(settings, faults=()), (3, 5))
    world.delay_ms, world.duplicates = 400, 0.5
    for _ in range(8):
        await_(world, "a leader", lambda: world.leader() is not None)
        leader = world.leader()
        assert leader is not None
        world.run_for(world.dice.randint(0, 15))
        leader.stop(power=world.dice.random() < 0.5)  # noqa: PLR2004 (a coin)
        world.run_for(world.dice.randint(0, 50))
        leader.start()
    world.delay_ms, world.duplicates = 25, 0
    reach_anywhere(world, world.invariants.committed_end + 10)
    return world


def voters_are_changed_without_pause(settings: Settings) -> World:
    """Requests to change the voters follow each other without pause."""
    world = make_world(settings, voters=(5, 5), dynamic=True)
    world.start_all()
    await_(world, "a leader all agree on", world.has_consistent_leader)
    for _ in range(300):
        world.after(world.dice.randint(0, 10_000), lambda: change_voters(world))
    world.run_for(10_000)
    reach_anywhere(world, world.invariants.committed_end + 10)
    return world


def a_voter_unknown_to_the_rest_leads(settings: Settings) -> World:
    """Only the leader and the new voter have its record, and the leader dies (KIP-853).

    Of the voters {A, B} + D, D alone has all committed records, so B must vote for D, which is not
    in B's voter set.
    """
    world, leader = _three_at_work(settings)
    other, new = (node for node in world.nodes.values() if node.may_vote and node is not leader)
    _change_voters(world, leader, RemoveVoterRequest(cluster_id=CLUSTER_ID, voter=new.key))
    await_(
        world,
        f"{other.name} and {new.name} know the smaller voter set",
        lambda: all(len(node.quorum.log.voters) == 2 for node in (leader, other, new)),  # noqa: PLR2004
    )
    cut_both_ways(world, [other.id], [node_id for node_id in world.nodes if node_id != other.id])
    add = AddVoterRequest(cluster_id=CLUSTER_ID, voter=new.key, endpoints=(endpoint_of(new.id),))
    _change_voters(world, leader, add)
    reach(world, world.invariants.committed_end + 3, [leader.id, new.id])
    leader.stop(power=True)
    world.cut.clear()
    await_(world, f"{new.name} leads", lambda: new.is_leader)
    reach(world, world.invariants.committed_end + 10, [other.id, new.id])
    return world


def _change_voters(world: World, leader: CoreNode, request: PeerRequest) -> None:
    """Let the leader add or remove a voter and wait until that is committed."""
    answers: list[ErrorCode] = []
    leader.ask(request, lambda answer: answers.append(answer.error))
    await_(world, "the voters are changed", lambda: answers == [ErrorCode.NONE])


RECOVERY_MS_MAX = 10_000
"""Longest time without a leader after the last message of a rogue: a fetch timeout until its
invented leader is doubted, and some elections, since every voter may have another epoch."""


def rogue(settings: Settings) -> World:
    """A process without a vote sends what it likes, under its own id and under voters' ids.

    Some of the voters adopt any epoch, as Kafka's do.
    """
    world = make_world(settings, voters=(3, 5), dynamic=None)
    voters = [node.id for node in world.nodes.values() if node.may_vote]
    alike = world.dice.choice((0, 0, (len(voters) - 1) // 2, len(voters) - 1))
    world.adopting_any_epoch = frozenset(world.dice.sample(voters, alike))
    world.note(f"-- {sorted(world.adopting_any_epoch)} adopt any epoch")
    world.start_all()
    await_(world, "a leader all agree on", world.has_consistent_leader)
    reach_anywhere(world, 10)
    sender = Rogue(world, world.invariants.require)
    sender.start()
    world.run_for(settings.seconds * 1_000)
    sender.stop()
    goal = world.invariants.committed_end + 1
    await_(
        world,
        "a leader that commits",
        lambda: world.leader() is not None and world.invariants.committed_end >= goal,
        RECOVERY_MS_MAX,
    )
    reach_anywhere(world, goal + 10)
    world.invariants.every_second()
    return world


def cut_both_ways(world: World, some: list[int], others: list[int]) -> None:
    """Drop all messages between the two groups."""
    world.note(f"-- {some} and {others} are parted", "fault")
    for one in some:
        for other in others:
            world.cut |= {(one, other), (other, one)}


def kip_996(world: World, ids: list[int]) -> None:
    """Keep only the links `a - c`, `b - d`, `c - d`, `c - e` and `d - e`."""
    a, b, c, d, e = ids
    links = {(a, c), (b, d), (c, d), (c, e), (d, e)}
    parted = [(x, y) for x in ids for y in ids if x < y and not {(x, y), (y, x)} & links]
    for x, y in parted:
        world.cut |= {(x, y), (y, x)}
    world.note(f"-- only {sorted(links)} are linked", "fault")


SCENARIOS: dict[str, Callable[[Settings], World]] = {
    function.__name__.replace("_", "-"): function
    for function in (
        chaos,
        can_elect_initial_leader,
        can_elect_new_leader_after_old_leader_failure,
        can_recover_after_all_nodes_killed,
        can_elect_new_leader_after_old_leader_partitioned_away,
        can_make_progress_if_majority_is_reachable,
        leadership_assigned_only_once_with_network_partition_if_there_exists_majority,
        leadership_will_not_change_during_network_partition_if_majority_still_reachable,
        can_make_progress_after_back_to_back_leader_failures,
        can_recover_from_single_node_committed_data_loss,
        a_wiped_voter_does_not_count,
        candidates_stand_with_slow_disks,
        killed_leaders_are_replaced,
        candidates_meet_behind_slow_links,
        voters_are_changed_without_pause,
        a_voter_unknown_to_the_rest_leads,
        rogue,
    )
}
