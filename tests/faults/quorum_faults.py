"""What is done to a quorum of real processes, a fault a block: strikes, and heals as it ends.

A fault gives the nodes through one of which topics can be created meanwhile; None where no majority
is left.
"""

import errno
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.faults.quorum_world import (
    FETCH_SECONDS,
    PROGRESS_SECONDS_MAX,
    SESSION_SECONDS,
    Fault,
    World,
)
from tests.faults.stalls import Stalls
from tests.support.outside_tools import Missing
from tests.support.ports import wait_until

# ---- processes


@contextmanager
def kill_leader(world: World) -> Iterator[list[int]]:
    dead = world.leader()
    world.cluster.kill(dead)
    yield world.others(dead)
    world.cluster.start()


@contextmanager
def kill_majority(world: World) -> Iterator[None]:
    dead = world.victims(world.majority)
    world.cluster.kill(*dead)
    world.must_not_create()
    yield None
    world.cluster.start()


@contextmanager
def kill_all(world: World) -> Iterator[None]:
    world.cluster.kill(*world.ids)
    yield None
    world.cluster.start()


@contextmanager
def kill_most_that_may_be(world: World) -> Iterator[list[int]]:
    """The leader, and others until just a majority is left."""
    dead = world.victims(len(world.ids) - world.majority)
    world.cluster.kill(*dead)
    yield world.others(*dead)
    world.cluster.start()


@contextmanager
def bounce_storm(world: World) -> Iterator[None]:
    """Kills and starts that wait for nothing: nodes die while they start and recover."""
    nodes = world.cluster.nodes
    for _ in range(3 * len(world.ids)):
        node = nodes[world.dice.choice(world.ids)]
        if node.process is None:
            node.launch()
        else:
            node.kill()
    yield None
    world.cluster.start()


@contextmanager
def stop_leader(world: World) -> Iterator[list[int]]:
    gone = world.leader()
    world.cluster.stop(gone)
    yield world.others(gone)
    world.cluster.start()


@contextmanager
def paused(world: World, still: list[int]) -> Iterator[list[int]]:
    for node in still:
        world.cluster.nodes[node].pause()
    try:
        yield world.others(*still)
    finally:
        for node in still:
            world.cluster.nodes[node].resume()


@contextmanager
def pause_leader(world: World) -> Iterator[list[int]]:
    """Past all its timeouts: another one leads before it goes on."""
    still = world.leader()
    with paused(world, [still]) as others:
        world.cluster.leader(other_than=still, seconds=PROGRESS_SECONDS_MAX)
        yield others


@contextmanager
def pause_follower(world: World) -> Iterator[list[int]]:
    """Until its session lapses."""
    (still,) = world.victims(1, with_leader=False)
    with paused(world, [still]) as others:
        wait_until(
            lambda: world.is_fenced(still, by=others[0]), "it is fenced", PROGRESS_SECONDS_MAX
        )
        yield others


# ---- networks


@contextmanager
def broken(world: World, command: str, through: list[int]) -> Iterator[list[int]]:
    world.cluster.network(command)
    try:
        yield through
    finally:
        world.cluster.network("heal")


@contextmanager
def deaf_leader(world: World) -> Iterator[list[int]]:
    """One way: it is heard, and hears nobody."""
    leader = world.leader()
    with broken(world, f"deaf {leader}", world.others(leader)) as others:
        yield others


@contextmanager
def mute_leader(world: World) -> Iterator[list[int]]:
    """One way: it hears, and is heard by nobody."""
    leader = world.leader()
    with broken(world, f"mute {leader}", world.others(leader)) as others:
        yield others


@contextmanager
def lonely_leader(world: World) -> Iterator[list[int]]:
    leader = world.leader()
    with broken(world, f"apart {leader}", world.others(leader)) as others:
        world.cluster.leader(other_than=leader, seconds=PROGRESS_SECONDS_MAX)
        yield others


@contextmanager
def halves(world: World) -> Iterator[list[int]]:
    """The leader is in the smaller one."""
    few = world.victims(len(world.ids) - world.majority)
    group = ",".join(map(str, few))
    with broken(world, f"apart {group}", world.others(*few)) as others:
        yield others


@contextmanager
def _cut_in_part(world: World, command: str, far: list[int]) -> Iterator[list[int]]:
    """The leader keeps a majority: those who can't reach it ask in vain for votes, and are told of
    with the reason of whoever refused them.
    """
    before, why = world.epoch(), f"we follow {world.leader()} in this epoch"
    with Stalls(world.cluster.directory) as stalls, broken(world, command, world.ids) as everybody:
        wait_until(
            lambda: any(world.state(node) == "Prospective" for node in far),
            f"one of {far} asks for votes",
            PROGRESS_SECONDS_MAX,
        )
        world.must_create(everybody)
        in_vain = {(node, why) for node in far}
        wait_until(
            lambda: in_vain & world.refused(before) or stalls.excuse(FETCH_SECONDS),
            f"one of {far} is refused, for: {why}",
            PROGRESS_SECONDS_MAX,
        )
        yield everybody
        world.assert_no_election_since(before, stalls)


@contextmanager
def bridge(world: World) -> Iterator[list[int]]:
    """Two halves, with the leader in one, that only a follower can speak with."""
    leader = world.leader()
    middle = world.dice.choice(world.others(leader))
    sides = world.others(middle)
    first = sides[: (len(sides) + 1) // 2]
    far = [n for n in sides if (n in first) != (leader in first)]
    with _cut_in_part(world, f"bridge {middle}", far) as everybody:
        yield everybody


@contextmanager
def ring(world: World) -> Iterator[list[int]]:
    leader = world.ids.index(world.leader())
    near = {world.ids[(leader + step) % len(world.ids)] for step in (-1, 0, 1)}
    with _cut_in_part(world, "ring", [n for n in world.ids if n not in near]) as everybody:
        yield everybody


@contextmanager
def half_open_leader(world: World) -> Iterator[list[int]]:
    """Its connections are gone at its end, and the others hear nothing of it."""
    leader = world.leader()
    for other in world.others(leader):
        world.cluster.network(f"half-open {other} {leader}")
    yield world.ids


@contextmanager
def resets(world: World) -> Iterator[list[int]]:
    """Every connection is reset, again and again: all connect anew, and nobody is replaced."""
    world.must_keep_its_leader(lambda: world.cluster.network("reset * *"))
    yield world.ids


@contextmanager
def slow_links(world: World) -> Iterator[list[int]]:
    """Late, in a trickle and in odd pieces, but none of it lost: nobody is replaced."""
    with broken(world, "delay * * 150", world.ids) as everybody:
        world.cluster.network("throttle * * 200000")
        world.cluster.network("slice * * 1000")
        world.must_keep_its_leader(lambda: None)
        yield everybody


# ---- disks


@contextmanager
def _failing_disk(world: World, operation: str, number: int) -> Iterator[list[int]]:
    """The leader's only disk: it ends by itself and comes back once the disk is sound."""
    if isinstance(missing := world.cluster.disks[1], Missing):
        pytest.skip(missing.reason)
    leader = world.leader()
    node, disk = world.cluster.nodes[leader], world.cluster.disk(leader)
    disk.fail(operation, number, "/__cluster_metadata-0/")
    try:
        # Topics are created all along: the next record of the log ends it.
        assert node.wait(seconds=PROGRESS_SECONDS_MAX) == 1
        yield world.others(leader)
    finally:
        disk.heal()
    world.cluster.start()


@contextmanager
def full_disk(world: World) -> Iterator[list[int]]:
    with _failing_disk(world, "write", errno.ENOSPC) as others:
        yield others


@contextmanager
def failing_fsync(world: World) -> Iterator[list[int]]:
    with _failing_disk(world, "sync", errno.EIO) as others:
        yield others


# ---- clients


@contextmanager
def client_flood(world: World) -> Iterator[list[int]]:
    """More than can be answered, from many clients at once: no election, and nobody is fenced."""
    epoch, before = world.epoch(), world.registrations()
    ports = [str(world.cluster.ports[node][0]) for node in world.ids]
    least = 100 * len(world.ids)
    amount = [str(world.flood_seconds), str(least + 1)]
    command = [sys.executable, "-m", "tests.faults.flood", *amount, *ports]
    flood = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    with Stalls(world.cluster.directory) as stalls:
        try:
            answered = int(flood.communicate(timeout=world.flood_seconds + 120)[0])
        finally:
            flood.kill()
        assert before, "the log tells of no broker"
        assert answered > least, "that was no flood"
        world.assert_no_election_since(epoch, stalls)
        after = world.registrations()
        same = before == after or stalls.excuse(SESSION_SECONDS)
        assert same, f"registrations {before} → {after}, {stalls}"
    yield world.ids


FAULTS: dict[str, Fault] = {
    "kill-leader": kill_leader,
    "kill-most-that-may-be": kill_most_that_may_be,
    "kill-majority": kill_majority,
    "kill-all": kill_all,
    "stop-leader": stop_leader,
    "bounce-storm": bounce_storm,
    "pause-leader": pause_leader,
    "pause-follower": pause_follower,
    "deaf-leader": deaf_leader,
    "mute-leader": mute_leader,
    "lonely-leader": lonely_leader,
    "halves": halves,
    "bridge": bridge,
    "half-open-leader": half_open_leader,
    "resets": resets,
    "slow-links": slow_links,
    "full-disk": full_disk,
    "failing-fsync": failing_fsync,
    "client-flood": client_flood,
}
"""For three nodes and more."""

FAULTS_OF_FIVE: dict[str, Fault] = {**FAULTS, "ring": ring}
