"""Three voters under a bare event heap elect and commit through any faults, by seed."""

from collections import Counter

import pytest

from tests.raft.heap import Simulation, resign

SEEDS_EACH = 25
FAULTY_MS = 15_000


def nemesis(sim: Simulation) -> None:
    """Break something, or mend it, now and again and again until `sim.broken` ends."""
    if not sim.broken:
        return
    dice = sim.dice
    down = [node for node in sim.nodes.values() if node.quorum is None]
    up = [node for node in sim.nodes.values() if node.quorum is not None]
    roll = dice.random()
    if down and roll < 0.4:
        dice.choice(down).start()
    elif roll < 0.58 and len(down) < 2:
        leader = sim.leader()
        victim = leader if leader is not None and dice.random() < 0.5 else dice.choice(up)
        victim.kill()
        sim.counts["kills"] += 1
    elif roll < 0.75:
        cut(sim)
    elif roll < 0.85:
        sim.cut.clear()
    elif roll < 0.88:
        leader = sim.leader()
        if leader is not None:
            resign(leader)
            sim.counts["resignations"] += 1
    else:
        sim.snapshot_somewhere()
    sim.after(dice.randint(20, 900), lambda: nemesis(sim))


def changes(sim: Simulation) -> None:
    """Someone adds and removes voters."""
    if sim.broken:
        sim.change_voters()
        sim.after(sim.dice.randint(100, 1_500), lambda: changes(sim))


def cut(sim: Simulation) -> None:
    """One node from one or all others, one way or both."""
    dice = sim.dice
    node = dice.choice(list(sim.nodes))
    others = [other for other in sim.nodes if other != node]
    for other in others if dice.random() < 0.5 else others[:1]:
        sim.cut |= {(node, other)}
        if dice.random() < 0.6:
            sim.cut |= {(other, node)}
    sim.counts["cuts"] += 1


def clients(sim: Simulation) -> None:
    sim.append_somewhere()
    sim.after(sim.dice.randint(20, 200), lambda: clients(sim))


def heal(sim: Simulation) -> None:
    sim.broken = False
    sim.cut.clear()
    sim.faults.loss = sim.faults.duplicate = 0.0
    for node in sim.nodes.values():
        if node.quorum is None:
            node.start()


def must_progress(sim: Simulation) -> None:
    """Q11: a healed quorum elects and commits within ten election timeouts."""
    before = sim.committed_end

    def progressed() -> bool:
        return sim.leader() is not None and sim.committed_end > before

    if not sim.run_for(20_000, until=progressed):
        sim.fail("Q11: no progress after healing")


def run(seed: int, *, dynamic: bool, nodes: int = 3) -> Simulation:
    sim = Simulation(seed, nodes, dynamic=dynamic)
    for node in sim.nodes.values():
        node.start()
    clients(sim)
    sim.after(sim.dice.randint(0, 3_000), lambda: nemesis(sim))
    if nodes > 3:
        sim.after(1_000, lambda: changes(sim))
    sim.run_for(FAULTY_MS)
    heal(sim)
    must_progress(sim)
    return sim


def run_all(seeds: range, *, dynamic: bool, nodes: int = 3) -> Counter[str]:
    total: Counter[str] = Counter()
    for seed in seeds:
        total += run(seed, dynamic=dynamic, nodes=nodes).counts
    return total


@pytest.mark.parametrize("dynamic", [False, True], ids=["static voters", "dynamic voters"])
@pytest.mark.parametrize("first", range(0, 100, SEEDS_EACH))
def test_three_voters_elect_and_commit_whatever_breaks(first: int, dynamic: bool) -> None:
    total = run_all(range(first, first + SEEDS_EACH), dynamic=dynamic)
    happened = ("kills", "cuts", "resignations", "snapshots", "Leader", "Resigned", "Candidate")
    assert all(total[kind] > 0 for kind in happened), total


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_voters_come_and_go_whatever_breaks(first: int) -> None:
    total = run_all(range(first, first + 10), dynamic=True, nodes=5)
    assert total["voters NONE"] > 0, total


def test_a_quorum_elects_one_leader_and_all_follow() -> None:
    sim = Simulation(1)
    for node in sim.nodes.values():
        node.start()

    def settled() -> bool:
        leader = sim.leader()
        return leader is not None and all(
            n.quorum is not None and n.quorum.leader_and_epoch == leader.quorum.leader_and_epoch
            for n in sim.nodes.values()
        )

    assert sim.run_for(5_000, until=settled)


def test_a_quorum_of_one_leads_at_its_first_step() -> None:
    sim = Simulation(1, nodes=1)
    sim.nodes[1].start()
    leader = sim.leader()
    assert leader is sim.nodes[1]
    assert sim.nodes[1].disk.election.epoch == 1
    sim.run_for(100)
    assert sim.committed_end == 1
    sim.nodes[1].kill()
    sim.nodes[1].start()
    assert sim.nodes[1].disk.election.epoch == 2
