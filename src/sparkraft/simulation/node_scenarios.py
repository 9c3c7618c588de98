"""What a run of whole nodes does: clients at work, faults, healing, and what must be true then."""

import errno
from collections.abc import Callable

from sparkraft.base.errors import DecodeError, KafkaError
from sparkraft.client.connection import Connection
from sparkraft.protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from sparkraft.protocol.messages.k22_init_producer_id import InitProducerIdRequest
from sparkraft.simulation.invariants import Violation
from sparkraft.simulation.nodes import BROKER_PORT, Machine, NodesWorld, quiet
from sparkraft.simulation.scenarios import Settings

HEALTHY_S = 90
"""Within so long a healed cluster has unfenced its brokers and leads its partitions."""

REQUEST_MS = 5_000

Fault = Callable[[NodesWorld], None]


async def create_topics(world: NodesWorld) -> None:
    """A client that creates topics, and takes a producer id now and then, at any node."""
    import asyncio

    count = 0
    while True:
        await asyncio.sleep(world.dice.uniform(0.05, 0.8))
        count += 1
        try:
            await _ask_once(world, f"topic-{count}")
        except (KafkaError, DecodeError, OSError):
            world.counts["requests failed"] += 1


async def _ask_once(world: NodesWorld, name: str) -> None:
    host = f"n{world.dice.choice(world.ids)}"
    connection = await Connection.open(host, BROKER_PORT, timeout_ms=REQUEST_MS)
    try:
        topic = CreatableTopic(name=name, num_partitions=2, replication_factor=1)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=REQUEST_MS)
        answer = await connection.send(request, timeout_ms=REQUEST_MS)
        for result in answer.topics:
            if result.error_code == 0:
                world.checks.on_created(result.name, result.topic_id)
        ask = InitProducerIdRequest(transactional_id=None, producer_epoch=-1)
        producer = await connection.send(ask, timeout_ms=REQUEST_MS)
        if producer.error_code == 0:
            world.checks.on_producer_id(producer.producer_id)
    finally:
        connection.abort("done")


# ---- faults


def _victim(world: NodesWorld) -> Machine | None:
    up = [machine for machine in world.machines if machine.live_node is not None]
    leaders = [m for m in up if m.node is not None and m.node.raft and m.node.raft.is_leader]
    if leaders and world.dice.random() < 0.5:  # noqa: PLR2004 (a coin)
        return leaders[0]
    return world.dice.choice(up) if up else None


def kill(world: NodesWorld) -> None:
    """As SIGKILL."""
    machine = _victim(world)
    if machine is not None:
        machine.kill()
        world.after(world.dice.uniform(0.05, 4), machine.start)


def power(world: NodesWorld) -> None:
    """What was not synced is lost, all or in part."""
    machine = _victim(world)
    if machine is not None:
        machine.power_off()
        world.after(world.dice.uniform(0.05, 4), machine.start)


def pause(world: NodesWorld) -> None:
    """As SIGSTOP, perhaps past every timeout."""
    machine = _victim(world)
    if machine is not None:
        machine.pause()
        world.after(world.dice.uniform(0.1, 12), machine.resume)


def terminate(world: NodesWorld) -> None:
    """As SIGTERM: a node leaves in good order and comes back."""
    machine = _victim(world)
    if machine is not None:
        machine.terminate()


def cut(world: NodesWorld) -> None:
    """A machine loses one or all of the others, one way or both."""
    dice = world.dice
    names = [machine.name for machine in world.machines]
    name = dice.choice(names)
    others = [other for other in names if other != name]
    for other in others if dice.random() < 0.5 else others[:1]:  # noqa: PLR2004 (a coin)
        world.network.cut.add((name, other) if dice.random() < 0.5 else (other, name))  # noqa: PLR2004
        if dice.random() < 0.5:  # noqa: PLR2004 (a coin)
            world.network.cut |= {(name, other), (other, name)}


def mend(world: NodesWorld) -> None:
    """All links work again."""
    world.network.cut.clear()


def slow_disk(world: NodesWorld) -> None:
    """Fsyncs take seconds for a while."""
    machine = _victim(world)
    if machine is not None:
        machine.slow_until = world.loop.now + world.dice.uniform(0.5, 6)


def skew(world: NodesWorld) -> None:
    """A machine's clock runs at another rate from its next start on."""
    machine = _victim(world)
    if machine is not None:
        machine.rate = world.dice.choice([0.95, 1.0, 1.05])


def io_error(world: NodesWorld) -> None:
    """The next fsync of a machine fails: its node must stop, and come back whole."""
    machine = _victim(world)
    if machine is not None:
        machine.disk.fail("fsync", error=errno.EIO)


def full_disk(world: NodesWorld) -> None:
    """Some appends of a machine find no room."""
    machine = _victim(world)
    if machine is not None:
        machine.disk.fail("append", error=errno.ENOSPC, skip=world.dice.randrange(3))


NODE_FAULTS: dict[str, tuple[Fault, int]] = {
    "kill": (kill, 6),
    "power": (power, 6),
    "pause": (pause, 4),
    "terminate": (terminate, 2),
    "cut": (cut, 7),
    "mend": (mend, 6),
    "slow-disk": (slow_disk, 3),
    "skew": (skew, 1),
    "io-error": (io_error, 2),
    "full-disk": (full_disk, 2),
}


def chaos(settings: Settings) -> NodesWorld:
    """Every kind of fault under clients at work; then all is mended and must become healthy."""
    quiet()
    world = NodesWorld(settings.seed, settings.nodes or 3, sink=settings.sink)
    settings.on_world(world)
    kinds = [k for k in settings.faults or NODE_FAULTS if k in NODE_FAULTS]
    if settings.faults == ():
        kinds = []
    world.start_all([create_topics])
    if kinds:
        world.after(world.dice.uniform(0, 6), world.enable_points)
    going = bool(kinds)

    def strike() -> None:
        if not going:
            return
        world.after(world.dice.uniform(0.1, 5), strike)
        kind = world.dice.choices(kinds, [NODE_FAULTS[k][1] for k in kinds])[0]
        world.counts[f"fault {kind}"] += 1
        world.note(f"-- {kind}")
        NODE_FAULTS[kind][0](world)

    world.after(world.dice.uniform(2, 6), strike)
    try:
        world.run_for(settings.seconds)
        going = False
        _heal(world)
        if not world.run_for(HEALTHY_S, world.checks.is_healthy):
            raise Violation("C10", f"not healthy {HEALTHY_S} s after healing")
        goal = world.counts["topics created"] + 3
        if not world.run_for(HEALTHY_S, lambda: world.counts["topics created"] >= goal):
            raise Violation("C10", "no topic can be created after healing")
        if not world.run_for(HEALTHY_S, world.checks.is_healthy):
            raise Violation("C10", "new topics find no leaders")
        world.checks.every_second()
        world.checks.at_end()
    finally:
        world.close()
    return world


def _heal(world: NodesWorld) -> None:
    world.note("-- all is mended")
    world.disable_points()
    world.network.cut.clear()
    for machine in world.machines:
        machine.disk.heal()
        machine.slow_until = 0
        machine.resume()
        machine.start()


NODE_SCENARIOS: dict[str, Callable[[Settings], NodesWorld]] = {"chaos": chaos}
