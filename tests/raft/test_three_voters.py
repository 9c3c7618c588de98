"""Three voters under a bare event heap elect and commit through any faults, by seed."""

import pytest

from tests.raft.heap import Simulation, resign

SEEDS_EACH = 40


def nemesis(sim: Simulation) -> None:
    """Break something, now and again and again."""
    dice = sim.dice
    node = dice.choice(list(sim.nodes.values()))
    roll = dice.random()
    down = [n for n in sim.nodes.values() if n.quorum is None]
    if roll < 0.25 and node.quorum is not None:
        node.kill()
        sim.counts["kills"] += 1
    elif roll < 0.5 and down:
        dice.choice(down).start()
    elif roll < 0.65:
        others = [n.id for n in sim.nodes.values() if n.id != node.id]
        for other in others if dice.random() < 0.5 else others[:1]:
            sim.cut |= {(node.id, other)}
            if dice.random() < 0.6:
                sim.cut |= {(other, node.id)}
        sim.counts["cuts"] += 1
    elif roll < 0.8:
        sim.cut.clear()
    elif roll < 0.85 and node.quorum is not None and node.quorum.is_leader:
        resign(node)
        sim.counts["resignations"] += 1
    elif roll < 0.95:
        sim.snapshot_somewhere()
    sim.after(dice.randint(50, 900), lambda: nemesis(sim))


def clients(sim: Simulation) -> None:
    sim.append_somewhere()
    sim.after(sim.dice.randint(20, 200), lambda: clients(sim))


def heal(sim: Simulation) -> None:
    sim.heap = [entry for entry in sim.heap if entry[2].__name__ != "<lambda>"]
    import heapq

    heapq.heapify(sim.heap)
    sim.cut.clear()
    sim.faults.loss = sim.faults.duplicate = 0.0
    for node in sim.nodes.values():
        if node.quorum is None:
            node.start()


def must_progress(sim: Simulation) -> None:
    """Q11: a healed quorum elects and commits within ten election timeouts."""
    before = sim.committed_end

    def progressed() -> bool:
        leader = sim.leader()
        return leader is not None and sim.committed_end > before

    clients(sim)
    if not sim.run_for(20_000, until=progressed):
        sim.fail("Q11: no progress after healing")


def run(seed: int, *, dynamic: bool, faulty_ms: int = 8_000) -> Simulation:
    sim = Simulation(seed, dynamic=dynamic)
    for node in sim.nodes.values():
        node.start()
    clients(sim)
    sim.after(sim.dice.randint(0, 3_000), lambda: nemesis(sim))
    sim.run_for(faulty_ms)
    heal(sim)
    must_progress(sim)
    return sim


@pytest.mark.parametrize("dynamic", [False, True], ids=["static voters", "dynamic voters"])
@pytest.mark.parametrize("first", range(0, 120, SEEDS_EACH))
def test_three_voters_elect_and_commit_whatever_breaks(first: int, dynamic: bool) -> None:
    total = sum((run(s, dynamic=dynamic).counts for s in range(first, first + SEEDS_EACH)), start=run(-1 - first, dynamic=dynamic).counts)
    for kind in ("kills", "cuts", "Leader", "Resigned", "Follower", "Prospective", "Candidate"):
        assert total[kind] > 0, f"{kind} never happened: {total}"


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
