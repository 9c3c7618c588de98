"""What breaks among whole nodes: one function a kind of fault, by name in `NODE_FAULTS`.

A fault that does not apply now (no leader to strike, a static quorum) says so and does not count.
"""

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING

from sparkraft.simulation.workload.node_clients import (
    ask_controller,
    cancel_request,
    feature_request,
    kraft_request,
    move_request,
    preferred_request,
    voter_request,
)

if TYPE_CHECKING:
    from sparkraft.simulation.world.machine import Machine
    from sparkraft.simulation.world.nodes import NodesWorld

Fault = Callable[["NodesWorld"], bool]
"""Strikes; whether it did."""

Faults = dict[str, tuple[Fault, int]]
"""By name: what to do, and how often beside the others."""

DOWN_S = (0.05, 4.0)
VOTERS_TO_LOSE_ONE = 3
"""A disk is taken only where a majority without it is left."""


def coin(world: "NodesWorld") -> bool:
    """Even odds."""
    return world.dice.random() < 0.5  # noqa: PLR2004 (a coin)


def victim(world: "NodesWorld") -> "Machine | None":
    """A running machine, the leader more often than not."""
    up = [machine for machine in world.machines if machine.live_node is not None]
    leader = world.leader()
    if leader is not None and coin(world):
        return leader
    return world.dice.choice(up) if up else None


def _stop(world: "NodesWorld", *, power: bool) -> bool:
    machine = victim(world)
    if machine is None:
        return False
    if power:
        machine.power_off()
    else:
        machine.kill()
    world.after(world.dice.uniform(*DOWN_S), machine.start)
    return True


def kill(world: "NodesWorld") -> bool:
    """As SIGKILL."""
    return _stop(world, power=False)


def power(world: "NodesWorld") -> bool:
    """What was not synced is lost, all or in part."""
    return _stop(world, power=True)


def power_all(world: "NodesWorld") -> bool:
    """The whole room goes dark."""
    for machine in world.machines:
        if machine.is_up:
            machine.power_off()
            world.after(world.dice.uniform(*DOWN_S), machine.start)
    return True


def pause(world: "NodesWorld") -> bool:
    """As SIGSTOP, perhaps past every timeout."""
    machine = victim(world)
    if machine is None:
        return False
    machine.freeze_for(world.dice.uniform(0.1, 12))
    return True


def terminate(world: "NodesWorld") -> bool:
    """As SIGTERM: a node leaves in good order and comes back."""
    machine = victim(world)
    if machine is None:
        return False
    machine.terminate()
    return True


def cut(world: "NodesWorld") -> bool:
    """A machine loses one or all of the others, both ways."""
    dice = world.dice
    names = [machine.name for machine in world.machines]
    name = dice.choice(names)
    others = [other for other in names if other != name]
    if not others:
        return False
    for other in others if coin(world) else others[:1]:
        world.network.cut |= {(name, other), (other, name)}
    return True


def one_way(world: "NodesWorld") -> bool:
    """The same in one direction: it is heard and hears nothing, or the other way round."""
    dice = world.dice
    names = [machine.name for machine in world.machines]
    name = dice.choice(names)
    others = [other for other in names if other != name]
    if not others:
        return False
    speaks = coin(world)
    for other in others if coin(world) else others[:1]:
        world.network.cut.add((other, name) if speaks else (name, other))
    return True


def mend(world: "NodesWorld") -> bool:
    """All links work again."""
    world.network.cut.clear()
    return True


def loss(world: "NodesWorld") -> bool:
    """For a while some pieces of every stream have to be sent again."""
    world.network.loss = world.dice.choice([0.02, 0.2])

    def end() -> None:
        world.network.loss = 0.0

    world.after(world.dice.uniform(1, 8), end)
    return True


def slow_link(world: "NodesWorld") -> bool:
    """A link gets slow for a while, one way or both: an answer may overtake nobody, but be late."""
    dice = world.dice
    names = [machine.name for machine in world.machines]
    if len(names) < 2:  # noqa: PLR2004 (a link has two ends)
        return False
    one, other = dice.sample(names, 2)
    ways = {(one, other), (other, one)} if coin(world) else {(one, other)}
    slow_s = dice.choice([0.02, 0.2, 0.8])
    for way in sorted(ways):
        world.network.slow_s[way] = slow_s

    def end() -> None:
        for way in ways:
            world.network.slow_s.pop(way, None)

    world.after(dice.uniform(1, 8), end)
    return True


def reset(world: "NodesWorld") -> bool:
    """What stands between two machines resets a connection of theirs, or all of them."""
    found = world.network.connections()
    if not found:
        return False
    end = world.dice.choice(found)
    if coin(world):
        end.break_off()
    else:
        world.network.reset(end.near, end.far)
    return True


def slow_disk(world: "NodesWorld") -> bool:
    """Fsyncs take seconds for a while."""
    machine = victim(world)
    if machine is None:
        return False
    machine.slow_until = world.loop.now + world.dice.uniform(0.5, 6)
    return True


def skew(world: "NodesWorld") -> bool:
    """A machine's clocks go at another rate, and its wall clock jumps."""
    machine = victim(world)
    if machine is None:
        return False
    rate = world.dice.choice([0.95, 0.99, 1.0, 1.01, 1.05])
    machine.turn_clock(rate=rate, skew_ms=world.dice.choice([-3_600_000, -500, 0, 500, 60_000]))
    return True


def io_error(world: "NodesWorld") -> bool:
    """The next fsync of a machine fails: its node must stop, and come back whole."""
    machine = victim(world)
    if machine is None:
        return False
    machine.disk.fail("fsync", error=errno.EIO)
    return True


def full_disk(world: "NodesWorld") -> bool:
    """Some appends of a machine find no room."""
    machine = victim(world)
    if machine is None:
        return False
    machine.disk.fail("append", error=errno.ENOSPC, skip=world.dice.randrange(3))
    return True


def snapshot(world: "NodesWorld") -> bool:
    """A node takes a snapshot of the metadata now."""
    machine = victim(world)
    node = machine.live_node if machine is not None else None
    snapshots = node._snapshots if node is not None else None  # noqa: SLF001 (as its own trigger)
    if machine is None or snapshots is None or machine.incarnation is None:
        return False
    if snapshots._running is None:  # noqa: SLF001 (likewise)
        context = machine.incarnation.context
        snapshots._running = world.loop.create_task(snapshots.create(), context=context)  # noqa: SLF001
    return True


def resign(world: "NodesWorld") -> bool:
    """Someone moves the leadership of the quorum by hand."""
    leader = world.leader()
    if leader is None or leader.incarnation is None:
        return False
    epoch = int(leader.raft.leader_and_epoch.epoch)
    world.loop.call_soon(leader.raft.resign, epoch, context=leader.incarnation.context)
    return True


# ---- what an operator does


def voters(world: "NodesWorld") -> bool:
    """A voter is added or removed."""
    leader = world.leader()
    if leader is None or leader.raft.kraft_version == 0:
        return False
    request = voter_request(world, leader)
    if request is None:
        return False
    what = "voter added" if hasattr(request, "listeners") else "voter removed"
    world.operate(ask_controller(world, leader, request, what))
    return True


def features(world: "NodesWorld") -> bool:
    """metadata.version or another feature is raised, or lowered where that is safe."""
    leader = world.leader()
    if leader is None:
        return False
    world.operate(ask_controller(world, leader, feature_request(world), "feature"))
    return True


def kraft_version(world: "NodesWorld") -> bool:
    """A static quorum becomes a dynamic one."""
    leader = world.leader()
    if leader is None or leader.raft.kraft_version > 0:
        return False
    world.operate(ask_controller(world, leader, kraft_request(), "kraft.version"))
    return True


def wipe(world: "NodesWorld") -> bool:
    """A machine comes back with an empty disk.

    A voter only where directory ids count, one at a time, and where a majority has everything:
    no protocol survives more.
    """
    leader = world.leader()
    if leader is None or leader.raft.kraft_version == 0 or world.layout.replicated:
        return False
    others = [m for m in world.machines if m is not leader and m.live_node is not None]
    known = leader.raft.voters
    if not others or not _all_whole(world, leader):
        return False
    machine = world.dice.choice(others)
    if machine.id in known.ids and len(known) < VOTERS_TO_LOSE_ONE:
        return False
    world.checks.events.on_wipe(machine)
    machine.wipe()
    world.after(world.dice.uniform(*DOWN_S), machine.start)
    return True


def _all_whole(world: "NodesWorld", leader: "Machine") -> bool:
    """Whether every voter runs on the disk that is known, with all that is committed on it."""
    known = leader.raft.voters
    for machine in world.controllers:
        if machine.id not in known.ids:
            continue
        if machine.raft is None or not machine.raft._quorum.is_voter:  # noqa: SLF001 (a look inside)
            return False
        if world.checks.events.durable_end(machine) < world.checks.events.committed_end:
            return False
    return True


# ---- aimed at the leaders of partitions


def leader_of_records(world: "NodesWorld") -> "Machine | None":
    """Who leads one of the partitions that records are written to."""
    image = world.checks.records.image
    topic_id = image.topics_by_name.get(RECORDS)
    if topic_id is None:
        return None
    partitions = image.topics_by_id[topic_id].partitions
    leader = partitions[world.dice.choice(sorted(partitions))].leader
    return next((m for m in world.brokers if m.id == leader and m.live_node is not None), None)


def _bounce(world: "NodesWorld", machine: "Machine", low: float, high: float) -> None:
    if coin(world):
        machine.kill()
    else:
        machine.power_off()
    world.after(world.dice.uniform(low, high), machine.start)


def partition_leader(world: "NodesWorld") -> bool:
    """The leader of a partition dies, and its successor as soon as there is one."""
    first = leader_of_records(world)
    if first is None:
        return False
    _bounce(world, first, 0.05, 3)

    def follow(tries: int) -> None:
        second = leader_of_records(world)
        if second is not None and second is not first:
            delay_s = world.dice.choice([0, 0.01, 0.1, 0.5])
            world.break_after(delay_s, lambda: _again(world, second))
        elif tries:
            world.break_after(0.02, lambda: follow(tries - 1))

    if coin(world):
        follow(200)
    return True


def _again(world: "NodesWorld", machine: "Machine") -> None:
    if machine.is_up:
        _bounce(world, machine, 0.05, 3)


def leader_leaves(world: "NodesWorld") -> bool:
    """The leader of a partition is asked to stop: its followers live, and change sides."""
    leader = leader_of_records(world)
    if leader is None:
        return False
    leader.terminate()
    return True


def lonely_leader(world: "NodesWorld") -> bool:
    """A leader takes records that nobody fetches, and dies with them; clients still reach it."""
    leader = leader_of_records(world)
    if leader is None:
        return False
    links = {(leader.name, other.name) for other in world.brokers if other is not leader}
    world.network.cut |= links

    def end() -> None:
        world.network.cut -= links
        _again(world, leader)

    world.break_after(world.dice.choice([0.3, 1, 4]), end)
    return True


def slow_follower(world: "NodesWorld") -> bool:
    """A follower hears nothing of the other brokers for so long that it leaves the ISR."""
    machine = victim(world)
    if machine is None or not machine.is_broker:
        return False
    links = {(other.name, machine.name) for other in world.brokers if other is not machine}
    world.network.cut |= links

    def end() -> None:
        world.network.cut -= links

    world.after(world.dice.uniform(1, 6), end)
    return True


def preferred(world: "NodesWorld") -> bool:
    """Someone has the preferred leaders elected."""
    leader = world.leader()
    if leader is None:
        return False
    world.operate(ask_controller(world, leader, preferred_request(), "preferred leaders"))
    return True


def reassign(world: "NodesWorld") -> bool:
    """Someone gives a partition other replicas, and may soon take that back."""
    leader = world.leader()
    request = None if leader is None else move_request(world)
    if leader is None or request is None:
        return False
    world.operate(ask_controller(world, leader, request, "reassignment"))

    def take_back() -> None:
        leader = world.leader()
        if leader is not None:
            world.operate(ask_controller(world, leader, cancel_request(request), "cancellation"))

    if coin(world):
        world.break_after(world.dice.choice([0.01, 0.1, 1]), take_back)
    return True


RECORDS = "records"
"""The topic that `record_clients` writes."""

NODE_FAULTS: Faults = {
    "kill": (kill, 6),
    "power": (power, 6),
    "power-all": (power_all, 1),
    "pause": (pause, 4),
    "terminate": (terminate, 2),
    "cut": (cut, 4),
    "one-way": (one_way, 4),
    "mend": (mend, 6),
    "loss": (loss, 2),
    "slow-link": (slow_link, 3),
    "reset": (reset, 4),
    "slow-disk": (slow_disk, 3),
    "skew": (skew, 2),
    "io-error": (io_error, 2),
    "full-disk": (full_disk, 2),
    "snapshot": (snapshot, 3),
    "resign": (resign, 1),
    "voters": (voters, 5),
    "features": (features, 3),
    "kraft-version": (kraft_version, 2),
    "wipe": (wipe, 2),
}
"""Among whole nodes, whatever clients do."""

RECORD_FAULTS: Faults = {
    "partition-leader": (partition_leader, 10),
    "lonely-leader": (lonely_leader, 8),
    "leader-leaves": (leader_leaves, 8),
    "slow-follower": (slow_follower, 6),
    "preferred": (preferred, 4),
}
"""Those that need records to be written."""

MOVE_FAULTS: Faults = {
    "reassign": (reassign, 40),
}
"""Those of scenario `replicas-move`."""
