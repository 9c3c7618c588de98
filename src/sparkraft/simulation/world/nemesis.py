"""Faults for a simulated quorum: one function per kind, and the `Nemesis` that picks them.

Safety runs inject faults, then heal all nodes. Liveness runs heal a majority and leave the rest
broken for good.
"""

from collections.abc import Callable
from typing import Any

from sparkraft.base.ids import BrokerId
from sparkraft.raft.events import (
    AddVoterRequest,
    RemoveVoterRequest,
    ResignRequested,
    UpgradeKRaftVersion,
)
from sparkraft.raft.voters import ReplicaKey
from sparkraft.simulation.world.core_node import CLUSTER_ID, Clock, CoreNode, endpoint_of
from sparkraft.simulation.world.cores import World

Fault = Callable[[World], None]

EVERY_MS_MIN = 20
EVERY_MS_MAX = (600, 2_000, 5_000)
"""Choices for the maximum delay between faults in ms: long delays let a run commit more records,
short ones stress it more."""

DOWN_MS = (20, 2_500)
VOTERS_MIN = 2
"""Fewest voters that a removal may leave: a quorum of one does not survive a lost disk."""


def running(world: World) -> list[CoreNode]:
    """Return the nodes that run and are not paused."""
    return [n for n in world.nodes.values() if n.is_up and n.backlog is None]


def victim(world: World) -> CoreNode | None:
    """Return a running node, the leader in more than half of the cases."""
    leader = world.leader()
    if leader is not None and leader.backlog is None and world.dice.random() < 0.5:  # noqa: PLR2004 (a coin)
        return leader
    up = running(world)
    return world.dice.choice(up) if up else None


def _stop(world: World, *, power: bool) -> None:
    node = victim(world)
    if node is not None:
        node.stop(power=power)
        world.after(world.dice.randint(*DOWN_MS), node.start)


def kill(world: World) -> None:
    """Kill a node, as `kill -9` does: the page cache stays."""
    _stop(world, power=False)


def power(world: World) -> None:
    """Cut the power of a node: unsynced data is lost in whole or in part."""
    _stop(world, power=True)


def power_all(world: World) -> None:
    """Cut the power of all nodes."""
    for node in list(world.nodes.values()):
        if node.is_up:
            node.stop(power=True)
            world.after(world.dice.randint(*DOWN_MS), node.start)


def kill_then_power(world: World) -> None:
    """Kill a process, restart it with its page cache, then cut the power."""
    node = victim(world)
    if node is None:
        return
    node.stop(power=False)
    back = world.dice.randint(1, 50)
    world.after(back, node.start)
    world.after(back + world.dice.randint(1, 40), lambda: node.stop(power=True))
    world.after(back + world.dice.randint(50, 2_000), node.start)


def pause(world: World) -> None:
    """Pause a node, as SIGSTOP does, perhaps past every timeout."""
    node = victim(world)
    if node is not None:
        node.pause()
        world.after(world.dice.randint(100, 6_000), node.resume)


def cut(world: World) -> None:
    """Cut the links between a node and one or all others, in one or both directions."""
    dice = world.dice
    node = dice.choice(list(world.nodes))
    others = [other for other in world.nodes if other != node]
    for other in others if dice.random() < 0.5 else others[:1]:  # noqa: PLR2004 (a coin)
        world.cut.add((node, other) if dice.random() < 0.5 else (other, node))  # noqa: PLR2004
        if dice.random() < 0.5:  # noqa: PLR2004
            world.cut |= {(node, other), (other, node)}


def mend(world: World) -> None:
    """Restore all links."""
    world.cut.clear()


def deaf_leader(world: World) -> None:
    """Let the leader receive nothing for 1 to 12 s, perhaps until it must resign."""
    leader = world.leader()
    if leader is not None:
        leader.deaf_until = world.now + world.dice.randint(1_000, 12_000)
        world.note(f"{leader.name} receives nothing", "fault", node=leader.name)


def wipe_observer(world: World) -> None:
    """Restart an observer with an empty disk, so that it loads a snapshot if there is one."""
    leader = world.leader()
    voters = leader.quorum.log.voters.ids if leader is not None else ()
    found = [n for n in running(world) if leader is not None and n.id not in voters]
    for node in found[:1]:
        node.stop(power=True)
        node.wipe()
        world.after(world.dice.randint(*DOWN_MS), node.start)


def slow_disk(world: World) -> None:
    """Slow down the disk of a node: its fsyncs take seconds for a while."""
    node = victim(world)
    if node is not None:
        node.slow_until = world.now + world.dice.randint(500, 6_000)
        world.note(f"the disk of {node.name} is slow", "fault", node=node.name)


def slow_disk_then_no_leader(world: World) -> None:
    """Slow down the disks of followers, then stop the leader: candidates have unsynced records."""
    leader = world.leader()
    for node in running(world):
        if node is not leader:
            node.slow_until = world.now + 3_000
    if leader is not None:
        world.after(world.dice.randint(5, 300), lambda: leader.stop(power=True))
        world.after(world.dice.randint(2_000, 5_000), leader.start)


def skew(world: World) -> None:
    """Change the rate of a node's clock."""
    node = victim(world)
    if node is None:
        return
    rate = world.dice.choice([0.9, 0.97, 1.0, 1.03, 1.1])
    now = node.now
    node.clock = Clock(offset=0, rate=rate)
    node.clock = Clock(offset=now - int(world.now * rate) + 1, rate=rate)
    world.note(f"the clock of {node.name} runs at {rate}", "fault", node=node.name)


def resign(world: World) -> None:
    """Let the leader resign."""
    leader = world.leader()
    if leader is not None and leader.backlog is None:
        leader.step(ResignRequested(epoch=leader.quorum.state.epoch))


def snapshot(world: World) -> None:
    """Let a node take a snapshot and often clean the log below it."""
    up = running(world)
    if up and world.dice.choice(up).snapshot(clean=world.dice.random() < 0.7):  # noqa: PLR2004
        world.counts["snapshots"] += 1


def voters(world: World) -> None:
    """Add or remove a voter; kraft.version 1 only."""
    leader = world.leader()
    if leader is None or leader.backlog is not None:
        return
    request = _voter_request(world, leader)
    if request is not None:
        leader.ask(request, lambda answer: _on_voters_changed(world, answer))


def _voter_request(world: World, leader: CoreNode) -> Any:
    known, dice = leader.quorum.log.voters, world.dice
    outside = [node for node in running(world) if node.id not in known.ids and node.may_vote]
    lost = [voter for voter in known.voters if world.nodes[voter.key.id].key != voter.key]
    if lost and len(known) > VOTERS_MIN:
        # Remove wiped voters before any other: otherwise they could become the majority.
        return RemoveVoterRequest(cluster_id=CLUSTER_ID, voter=lost[0].key)
    if len(known) > VOTERS_MIN and dice.random() < 0.5:  # noqa: PLR2004 (a coin)
        return RemoveVoterRequest(cluster_id=CLUSTER_ID, voter=dice.choice(known.voters).key)
    if not outside:
        return None
    node = dice.choice(outside)
    return AddVoterRequest(
        cluster_id=CLUSTER_ID,
        voter=ReplicaKey(BrokerId(node.id), node.key.directory_id),
        endpoints=(endpoint_of(node.id),),
    )


def _on_voters_changed(world: World, answer: Any) -> None:
    if answer is not None:
        world.counts[f"voter change: {answer.error.name}"] += 1


def upgrade(world: World) -> None:
    """Upgrade kraft.version to 1."""
    leader = world.leader()
    if leader is not None and leader.backlog is None:
        request = UpgradeKRaftVersion(epoch=leader.quorum.state.epoch, kraft_version=1)
        leader.ask(request, lambda answer: _on_upgraded(world, answer))


def _on_upgraded(world: World, answer: Any) -> None:
    if answer is not None:
        world.counts[f"kraft.version upgrade: {answer.error.name}"] += 1


def wipe(world: World) -> None:
    """Restart a node with an empty disk; only with directory ids (kraft.version 1).

    One disk at a time, never those of a majority: no protocol survives that.
    """
    leader = world.leader()
    if leader is None or leader.quorum.log.kraft_version == 0 or len(leader.quorum.log.voters) < 3:  # noqa: PLR2004
        return
    known = leader.quorum.log.voters
    healthy = all(
        node.is_up and known.is_voter(node.key) and node.high_watermark >= leader.disk.end - 20
        for node in world.nodes.values()
        if node.id in known.ids
    )
    others = [node for node in running(world) if node is not leader]
    if healthy and others:
        node = world.dice.choice(others)
        node.stop(power=True)
        node.wipe()
        world.after(world.dice.randint(*DOWN_MS), node.start)
        world.counts["wipes"] += 1
        if world.dice.random() < 0.5:  # noqa: PLR2004 (a coin)
            # Stop another node meanwhile: the empty disk must not count as the old one.
            world.after(world.dice.randint(100, 1_000), lambda: kill(world))
            rest = [other for other in others if other is not node]
            if rest:
                world.after(100, lambda: rest[0].stop(power=False))
                world.after(4_000, rest[0].start)


FAULTS: dict[str, tuple[Fault, int]] = {
    "kill": (kill, 12),
    "power": (power, 12),
    "power-all": (power_all, 1),
    "kill-power": (kill_then_power, 3),
    "pause": (pause, 5),
    "cut": (cut, 16),
    "mend": (mend, 10),
    "slow-disk": (slow_disk, 4),
    "slow-followers": (slow_disk_then_no_leader, 2),
    "skew": (skew, 2),
    "resign": (resign, 3),
    "deaf-leader": (deaf_leader, 3),
    "snapshot": (snapshot, 20),
    "voters": (voters, 16),
    "upgrade": (upgrade, 3),
    "wipe": (wipe, 3),
    "wipe-observer": (wipe_observer, 4),
}
"""Name → the function, and its weight in the random choice."""

AMBIENT = ("loss", "duplicates", "points")
"""Kinds that apply all the time: lost and duplicated messages, fault points."""

ALL = (*FAULTS, *AMBIENT)


class Nemesis:
    """Injects random faults until `stop`."""

    def __init__(self, world: World, kinds: tuple[str, ...] = ALL) -> None:
        self._world = world
        self._kinds = [kind for kind in kinds if kind in FAULTS and self._applies(kind)]
        self._weights = [FAULTS[kind][1] for kind in self._kinds]
        self._ambient = [kind for kind in kinds if kind in AMBIENT]
        self._going = False
        self._every_ms_max = world.dice.choice(EVERY_MS_MAX)

    def _applies(self, kind: str) -> bool:
        if kind in {"voters", "wipe"}:
            return self._world.dynamic
        return kind != "upgrade" or not self._world.dynamic

    def start(self) -> None:
        """Start injecting faults."""
        world = self._world
        self._going = True
        if "loss" in self._ambient:
            world.loss = world.dice.choice([0.0, 0.01, 0.05])
        if "duplicates" in self._ambient:
            world.duplicates = 0.02
        if "points" in self._ambient:
            world.points.enable()
        if "voters" in self._kinds:
            world.on_election.append(self._change_voters_at_once)
        world.after(world.dice.randint(0, 3_000), self._strike)

    def _change_voters_at_once(self, leader: CoreNode) -> None:
        """Change the voters twice, before the leader has committed a record of its epoch."""
        world = self._world
        if self._going and world.dice.random() < 0.3:  # noqa: PLR2004 (now and then)
            for _ in range(2):
                leader.later(world.dice.randint(0, 150), lambda: voters(world))

    def _strike(self) -> None:
        world = self._world
        if not self._going or not self._kinds:
            return
        world.after(world.dice.randint(EVERY_MS_MIN, self._every_ms_max), self._strike)
        kind = world.dice.choices(self._kinds, self._weights)[0]
        world.counts[f"fault {kind}"] += 1
        world.note(f"-- {kind}", "fault")
        FAULTS[kind][0](world)

    def stop(self) -> None:
        """Stop injecting faults, without healing anything."""
        self._going = False
        self._world.points.disable()

    def heal(self) -> None:
        """Stop injecting faults, and heal everything."""
        self.stop()
        world = self._world
        world.note("-- all is healed", "fault")
        world.cut.clear()
        world.loss = world.duplicates = 0.0
        for node in world.nodes.values():
            node.slow_until = node.deaf_until = 0
            node.resume()
            world.after(0, node.start)
