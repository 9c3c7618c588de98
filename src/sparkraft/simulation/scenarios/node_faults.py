"""Faults for whole nodes: one function per kind, by name in `NODE_FAULTS`.

A fault that does not apply now (no leader, a static quorum) returns False and is not counted.
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
"""Injects a fault; returns whether it applied."""

Faults = dict[str, tuple[Fault, int]]
"""Name → the function, and its weight in the random choice."""

DOWN_S = (0.05, 4.0)
VOTERS_TO_LOSE_ONE = 3
"""A voter's disk is wiped only if the other voters still form a majority."""


def coin(world: "NodesWorld") -> bool:
    """Return a random bool."""
    return world.dice.random() < 0.5  # noqa: PLR2004 (a coin)


def victim(world: "NodesWorld") -> "Machine | None":
    """Return a running machine, the leader in more than half of the cases."""
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
    """Kill a process, as SIGKILL does."""
    return _stop(world, power=False)


def power(world: "NodesWorld") -> bool:
    """Cut the power of a machine: unsynced data is lost in whole or in part."""
    return _stop(world, power=True)


def power_all(world: "NodesWorld") -> bool:
    """Cut the power of all machines."""
    for machine in world.machines:
        if machine.is_up:
            machine.power_off()
            world.after(world.dice.uniform(*DOWN_S), machine.start)
    return True


def pause(world: "NodesWorld") -> bool:
    """Pause a process, as SIGSTOP does, for up to 12 s."""
    machine = victim(world)
    if machine is None:
        return False
    machine.freeze_for(world.dice.uniform(0.1, 12))
    return True


def terminate(world: "NodesWorld") -> bool:
    """Stop a node, as SIGTERM does: it shuts down cleanly and restarts."""
    machine = victim(world)
    if machine is None:
        return False
    machine.terminate()
    return True


def _apart(world: "NodesWorld") -> tuple[str, list[str]]:
    """Return a random machine and all others, by name."""
    names = [machine.name for machine in world.machines]
    name = world.dice.choice(names)
    return name, [other for other in names if other != name]


def cut(world: "NodesWorld") -> bool:
    """Cut the links from a machine to one or all others, in both directions."""
    name, others = _apart(world)
    if not others:
        return False
    for other in others if coin(world) else others[:1]:
        world.network.cut |= {(name, other), (other, name)}
    return True


def one_way(world: "NodesWorld") -> bool:
    """Cut links in one direction: a machine can only send, or only receive."""
    name, others = _apart(world)
    if not others:
        return False
    speaks = coin(world)
    for other in others if coin(world) else others[:1]:
        world.network.cut.add((other, name) if speaks else (name, other))
    return True


def mend(world: "NodesWorld") -> bool:
    """Restore all links."""
    world.network.cut.clear()
    return True


def loss(world: "NodesWorld") -> bool:
    """Lose some segments of every stream for a while, so that they are retransmitted."""
    world.network.loss = world.dice.choice([0.02, 0.2])

    def end() -> None:
        world.network.loss = 0.0

    world.after(world.dice.uniform(1, 8), end)
    return True


def slow_link(world: "NodesWorld") -> bool:
    """Slow down a link for a while, in one or both directions; the order of bytes stays."""
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
    """Reset one connection, or all connections between two machines, as a middlebox may."""
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
    """Slow down the disk of a machine: its fsyncs take seconds for a while."""
    machine = victim(world)
    if machine is None:
        return False
    machine.slow_until = world.loop.now + world.dice.uniform(0.5, 6)
    return True


def skew(world: "NodesWorld") -> bool:
    """Change the rate of a machine's clocks, and let its wall clock jump."""
    machine = victim(world)
    if machine is None:
        return False
    rate = world.dice.choice([0.95, 0.99, 1.0, 1.01, 1.05])
    machine.turn_clock(rate=rate, skew_ms=world.dice.choice([-3_600_000, -500, 0, 500, 60_000]))
    return True


def io_error(world: "NodesWorld") -> bool:
    """Fail the next fsync of a machine: its node must stop, and recover on restart."""
    machine = victim(world)
    if machine is None:
        return False
    machine.disk.fail("fsync", error=errno.EIO)
    return True


def full_disk(world: "NodesWorld") -> bool:
    """Fail an append of a machine for lack of space."""
    machine = victim(world)
    if machine is None:
        return False
    machine.disk.fail("append", error=errno.ENOSPC, skip=world.dice.randrange(3))
    return True


def snapshot(world: "NodesWorld") -> bool:
    """Let a node write a metadata snapshot now."""
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
    """Let the leader of the quorum resign."""
    leader = world.leader()
    if leader is None or leader.incarnation is None:
        return False
    epoch = int(leader.raft.leader_and_epoch.epoch)
    world.loop.call_soon(leader.raft.resign, epoch, context=leader.incarnation.context)
    return True


# ---- actions of an operator


def voters(world: "NodesWorld") -> bool:
    """Add or remove a voter."""
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
    """Upgrade metadata.version or another feature, or do a safe downgrade."""
    leader = world.leader()
    if leader is None:
        return False
    world.operate(ask_controller(world, leader, feature_request(world), "feature"))
    return True


def kraft_version(world: "NodesWorld") -> bool:
    """Upgrade kraft.version: the static quorum becomes dynamic."""
    leader = world.leader()
    if leader is None or leader.raft.kraft_version > 0:
        return False
    world.operate(ask_controller(world, leader, kraft_request(), "kraft.version"))
    return True


def wipe(world: "NodesWorld") -> bool:
    """Restart a machine with an empty disk.

    A voter is wiped only if voters have directory ids, one at a time, and only if all voters have
    all committed records: no protocol survives more.
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
    """Return whether every voter runs on its known disk, which has all committed records."""
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
    """Return the leader of a random partition of the topic `records`."""
    image = world.checks.records.image
    topic_id = image.topics_by_name.get(RECORDS)
    if topic_id is None:
        return None
    partitions = image.topics_by_id[topic_id].partitions
    leader = partitions[world.dice.choice(sorted(partitions))].leader
    return next((m for m in world.brokers if m.id == leader and m.live_node is not None), None)


def leader_of_coordinators(world: "NodesWorld") -> "Machine | None":
    """Return the leader of a random partition of a coordinator's topic."""
    image = world.checks.records.image
    names = [name for name in COORDINATOR_TOPICS if name in image.topics_by_name]
    if not names:
        return None
    partitions = image.topics_by_id[image.topics_by_name[world.dice.choice(names)]].partitions
    leader = partitions[world.dice.choice(sorted(partitions))].leader
    return next((m for m in world.brokers if m.id == leader and m.live_node is not None), None)


def coordinator_leader(world: "NodesWorld") -> bool:
    """Kill the leader of a random partition of a coordinator's topic, or stop it cleanly."""
    machine = leader_of_coordinators(world)
    if machine is None:
        return False
    if coin(world):
        machine.terminate()
    else:
        _bounce(world, machine, 0.05, 3)
    return True


def _bounce(world: "NodesWorld", machine: "Machine", low: float, high: float) -> None:
    if coin(world):
        machine.kill()
    else:
        machine.power_off()
    world.after(world.dice.uniform(low, high), machine.start)


def partition_leader(world: "NodesWorld") -> bool:
    """Kill the leader of a partition, and often its successor right after its election."""
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
    """Stop the leader of a partition cleanly: its followers keep running."""
    leader = leader_of_records(world)
    if leader is None:
        return False
    leader.terminate()
    return True


def lonely_leader(world: "NodesWorld") -> bool:
    """Isolate a leader from its followers but not from clients, then kill it.

    It appends records that no follower fetches.
    """
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
    """Cut the links to a follower until it may have left the ISR."""
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
    """Elect the preferred leaders."""
    leader = world.leader()
    if leader is None:
        return False
    world.operate(ask_controller(world, leader, preferred_request(), "preferred leaders"))
    return True


def reassign(world: "NodesWorld") -> bool:
    """Reassign a partition, and cancel the reassignment in half of the cases."""
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

COORDINATOR_TOPICS = ("__consumer_offsets", "__transaction_state")

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
"""Faults for every workload."""

RECORD_FAULTS: Faults = {
    "partition-leader": (partition_leader, 10),
    "lonely-leader": (lonely_leader, 8),
    "leader-leaves": (leader_leaves, 8),
    "slow-follower": (slow_follower, 6),
    "preferred": (preferred, 4),
}
"""Faults that need clients that write records."""

MOVE_FAULTS: Faults = {
    "reassign": (reassign, 40),
}
"""Faults of scenario `replicas-move`."""

COORDINATOR_FAULTS: Faults = {
    "coordinator": (coordinator_leader, 12),
}
"""Faults that need clients of coordinators."""
