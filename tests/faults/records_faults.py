"""What is done to replicated partitions of real processes, a fault a block.

It strikes, records go on where a majority is left, and it heals as the block ends.
"""

import errno
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import permutations

from sparkraft.base.errors import KafkaError
from sparkraft.client.admin import Admin
from tests.faults import quorum_faults
from tests.faults.quorum_faults import broken, paused
from tests.faults.quorum_world import PROGRESS_SECONDS_MAX, TRY_MS
from tests.faults.records_world import TOPIC, Fault, RecordsWorld
from tests.support.ports import wait_until


@contextmanager
def _bounced(world: RecordsWorld, end: Callable[[int], None], leaders: int) -> Iterator[list[int]]:
    """So many leaders in a row, each once the one before is back in sync."""
    for _ in range(leaders):
        leader = world.leader()
        end(leader)
        wait_until(
            partial(world.leads_nothing, leader), f"{leader} leads nothing", PROGRESS_SECONDS_MAX
        )
        world.records_go_on()
        world.cluster.start()
        world.must_be_in_sync()
    yield world.ids


@contextmanager
def hard_bounces(world: RecordsWorld, leaders: int = 5) -> Iterator[list[int]]:
    with _bounced(world, world.cluster.kill, leaders) as everybody:
        yield everybody


@contextmanager
def clean_bounces(world: RecordsWorld, leaders: int = 5) -> Iterator[list[int]]:
    with _bounced(world, world.cluster.stop, leaders) as everybody:
        yield everybody


@contextmanager
def pause(world: RecordsWorld) -> Iterator[list[int]]:
    """A leader stands still past its session, and wakes up believing that it still leads."""
    still = world.leader()
    with paused(world, [still]) as others:
        wait_until(
            lambda: world.leads_nothing(still), f"{still} leads nothing", PROGRESS_SECONDS_MAX
        )
        world.records_go_on()
        yield others


@contextmanager
def lonely_leader(world: RecordsWorld) -> Iterator[list[int]]:
    """Cut off from the other nodes, not from clients, who still find it: it must not answer."""
    leader = world.leader()
    with broken(world, f"apart {leader}", world.others(leader)) as others:
        wait_until(
            lambda: any(_sees_others_lead(world, node, leader) for node in others),
            f"{leader} leads nothing, as others see it",
            PROGRESS_SECONDS_MAX,
        )
        world.records_go_on()
        yield others


def _sees_others_lead(world: RecordsWorld, node: int, leader: int) -> bool:
    async def work(admin: Admin) -> bool:
        info = (await admin.describe_topics([TOPIC]))[TOPIC]
        if isinstance(info, KafkaError):
            raise info
        return {p.leader for p in info.partitions.values()}.isdisjoint({leader, -1})

    try:
        return world.cluster.ask(work, of=node, timeout_ms=TRY_MS)
    except KafkaError:
        return False


@contextmanager
def deaf_leader(world: RecordsWorld) -> Iterator[list[int]]:
    """Heard by clients and by the controller, but no follower can fetch from it."""
    leader = world.leader()
    with broken(world, f"deaf {leader}", world.others(leader)) as others:
        wait_until(
            lambda: any(_sees_it_alone(world, node, leader) for node in others),
            f"others see {leader} without followers, or not lead",
            PROGRESS_SECONDS_MAX,
        )
        yield others


@contextmanager
def mute_leader(world: RecordsWorld) -> Iterator[list[int]]:
    """It hears everything and is heard by clients alone: its session lapses."""
    leader = world.leader()
    with broken(world, f"mute {leader}", world.others(leader)) as others:
        wait_until(
            lambda: any(_sees_it_alone(world, node, leader) for node in others),
            f"{leader} leads nothing, as others see it",
            PROGRESS_SECONDS_MAX,
        )
        yield others


def _sees_it_alone(world: RecordsWorld, node: int, leader: int) -> bool:
    """Whether `node` sees that `leader` has no replica in sync wherever it leads."""

    async def work(admin: Admin) -> bool:
        info = (await admin.describe_topics([TOPIC]))[TOPIC]
        if isinstance(info, KafkaError):
            raise info
        return all(p.isr == (leader,) for p in info.partitions.values() if p.leader == leader)

    try:
        return world.cluster.ask(work, of=node, timeout_ms=TRY_MS)
    except KafkaError:
        return False


@contextmanager
def full_disk(world: RecordsWorld) -> Iterator[list[int]]:
    with _failing_disk(world, "write", errno.ENOSPC, f"/{TOPIC}-") as others:
        yield others


@contextmanager
def failing_fsync(world: RecordsWorld) -> Iterator[list[int]]:
    """Of any file: records are synced seldom, checkpoints and metadata all the time."""
    with _failing_disk(world, "sync", errno.EIO, "/data/") as others:
        yield others


@contextmanager
def _failing_disk(
    world: RecordsWorld, operation: str, number: int, part: str
) -> Iterator[list[int]]:
    leader = world.leader()
    node, disk = world.cluster.nodes[leader], world.cluster.disk(leader)
    disk.fail(operation, number, part)
    try:
        assert node.wait(seconds=PROGRESS_SECONDS_MAX) == 1
        world.records_go_on()
        yield world.others(leader)
    finally:
        disk.heal()
    world.cluster.start()


@contextmanager
def deleted_directory(world: RecordsWorld) -> Iterator[list[int]]:
    """Killed, its directory deleted, formatted anew and started at once: it has nothing."""
    leader = world.leader()
    node = world.cluster.nodes[leader]
    world.cluster.kill(leader)
    shutil.rmtree(node.log_dir)
    node.format_as = ("--no-initial-controllers",)
    world.cluster.start()
    wait_until(
        partial(_votes, world, leader),
        f"{leader} is a voter with its new directory",
        PROGRESS_SECONDS_MAX,
    )
    yield world.ids


def _votes(world: RecordsWorld, node: int) -> bool:
    """Whether it is a voter by the directory that it has now: the one before is removed first."""
    meta = (world.cluster.nodes[node].log_dir / "meta.properties").read_text()
    try:
        voters = world.cluster.describe_quorum().voters
    except KafkaError:
        return False
    return {v.id for v in voters} == set(world.ids) and any(
        v.id == node and f"directory.id={v.directory_id}\n" in meta for v in voters
    )


@contextmanager
def bridge(world: RecordsWorld) -> Iterator[list[int]]:
    """A leader and one of the others lose sight of each other; somebody sees both."""
    leader = world.leader()
    middle = world.dice.choice(world.others(leader))
    with broken(world, f"bridge {middle}", world.ids) as everybody:
        world.records_go_on(1_000)
        yield everybody


@contextmanager
def half_open(world: RecordsWorld) -> Iterator[list[int]]:
    """A leader lost its connections with the others, who hear nothing of it and wait."""
    leader = world.leader()
    for other in world.others(leader):
        world.cluster.network(f"half-open {other} {leader}")
    world.records_go_on(1_000)
    yield world.ids


@contextmanager
def resets(world: RecordsWorld) -> Iterator[list[int]]:
    """All connections, clients' as well: what was in flight is sent again, and written once."""
    for _ in range(20):
        world.cluster.network("reset * *")
        world.records_go_on(50)
    yield world.ids


@contextmanager
def slow_links(world: RecordsWorld) -> Iterator[list[int]]:
    """Between nodes: late, in odd pieces, and no more than a trickle."""
    ids = world.ids
    with broken(world, "delay 1 2 50", ids) as everybody:
        for a, b in permutations(ids, 2):
            for command in ("delay {} {} 50", "throttle {} {} 300000", "slice {} {} 999"):
                world.cluster.network(command.format(a, b))
        world.records_go_on(1_000)
        yield everybody


FAULTS: dict[str, Fault] = {
    "hard-bounces": partial(hard_bounces, leaders=3),
    "clean-bounces": partial(clean_bounces, leaders=3),
    "kill-all": quorum_faults.kill_all,
    "pause": pause,
    "deaf-leader": deaf_leader,
    "mute-leader": mute_leader,
    "lonely-leader": lonely_leader,
    "full-disk": full_disk,
    "failing-fsync": failing_fsync,
    "deleted-directory": deleted_directory,
}
"""Those of `./test`: as many leaders bounce as there are nodes."""

FAULTS_AT_LENGTH: dict[str, Fault] = {
    **FAULTS,
    "hard-bounces": hard_bounces,
    "clean-bounces": clean_bounces,
    "bridge": bridge,
    "half-open": half_open,
    "resets": resets,
    "slow-links": slow_links,
    "kill-most-that-may-be": quorum_faults.kill_most_that_may_be,
}
