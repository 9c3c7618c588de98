"""A broker whose process is gone is fenced at once, and nobody else is."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sparkraft.base.ids import Millis
from sparkraft.base.steps import complete
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages import k19_create_topics as k19
from sparkraft.protocol.messages import k62_broker_registration as k62
from sparkraft.protocol.messages.metadata_records import PartitionChangeRecord
from sparkraft.server.controller import processes
from sparkraft.server.controller.processes import ProcessWatch
from sparkraft.server.env import SystemNetwork
from tests.controller.cluster_of import Cluster
from tests.server.controller import test_driver as driven
from tests.support.ports import lasting_ports

BOUND_S = 60


class Clock:
    def wall_ms(self) -> Millis:
        return self.mono_ms()

    def mono_ms(self) -> Millis:
        return Millis(int(asyncio.get_running_loop().time() * 1000))


class Listener:
    """What a connection belongs to: it tells when it is lost."""

    def __init__(self) -> None:
        self.tell: dict[Connection, Callable[[Connection], None]] = {}

    def when_closed(self, connection: "Connection", tell: "Callable[[Connection], None]") -> None:
        self.tell[connection] = tell


class Connection:
    def __init__(self, listener: Listener) -> None:
        self.listener = listener

    def lose(self) -> None:
        self.listener.tell.pop(self)(self)


class World:
    """Brokers 1 and 2 on loopback ports, which listen only when told to."""

    current: "World"

    def __init__(self) -> None:
        World.current = self
        self.probed = asyncio.Event()
        self.cluster = Cluster()
        self.core = self.cluster.core
        self.clock = Clock()
        self.is_active = True
        self.fenced: list[int] = []
        self.listener = Listener()
        self.ports = dict(zip((1, 2), lasting_ports(2), strict=True))
        self.servers: list[asyncio.Server] = []
        self.cluster.now = self.clock.mono_ms()
        for broker_id, port in self.ports.items():
            self.register(broker_id, port)
        self.watch = ProcessWatch(self, self.clock, SystemNetwork(), heartbeat_interval_ms=20)  # type: ignore[arg-type]

    def register(self, broker_id: int, *ports: int) -> None:
        listeners = [k62.Listener(name=f"L{p}", host="127.0.0.1", port=p) for p in ports]
        self.cluster.register(broker_id, listeners=listeners)
        self.cluster.heartbeat(broker_id)

    def heartbeat(self, broker_id: int) -> None:
        self.cluster.now = self.clock.mono_ms()
        self.cluster.heartbeat(broker_id)

    async def fence_refused(self, broker_id: int, is_certain: Callable[[], bool]) -> None:
        if not is_certain():
            return
        outcome = complete(self.core.fence_refused_broker(broker_id))
        assert outcome is not None
        self.cluster.carry_out(outcome)
        self.fenced.append(broker_id)

    async def serve(self, port: int) -> None:
        server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", port)
        self.servers.append(server)

    def connect(self, broker_id: int) -> Connection:
        connection = Connection(self.listener)
        self.watch.on_fetch(broker_id, connection)  # type: ignore[arg-type]
        return connection

    async def settle(self) -> None:
        """Return when nobody is watched any more."""
        async with asyncio.timeout(BOUND_S):
            while tasks := list(self.watch._tasks.values()):
                await asyncio.gather(*tasks)

    async def probes(self, count: int) -> None:
        """Return after so many more probes."""
        async with asyncio.timeout(BOUND_S):
            for _ in range(count):
                self.probed.clear()
                await self.probed.wait()


@pytest.fixture(autouse=True)
def _count_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    refuses = processes._refuses

    async def counted(host: str, port: int) -> bool:
        found = await refuses(host, port)
        World.current.probed.set()
        return found

    monkeypatch.setattr(processes, "_refuses", counted)


def run(scenario: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        world = World()
        try:
            await scenario(world)
        finally:
            world.watch.stop()
            for server in world.servers:
                server.close()

    asyncio.run(main())


def test_a_lost_connection_and_a_refusal_fence():
    async def scenario(world: World) -> None:
        world.connect(1).lose()
        await world.settle()
        assert world.fenced == [1]
        assert world.core.latest.brokers[1].fenced
        # Its next life need not wait for a session.
        world.register(1, world.ports[1])

    run(scenario)


def test_all_that_died_are_fenced_one_after_another():
    async def scenario(world: World) -> None:
        for connection in (world.connect(2), world.connect(1)):
            connection.lose()
        await world.settle()
        assert sorted(world.fenced) == [1, 2]

    run(scenario)


async def controller_of_four() -> driven.World:
    """An active controller on a raft that is a list; brokers 1 to 4 all have a partition."""
    world = driven.World()
    world.lead()
    for broker_id in (1, 2, 3, 4):
        await world.register(broker_id)
        await world.heartbeat(broker_id)
    assignment = k19.CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2, 3, 4])
    topic = k19.CreatableTopic(
        name="t", num_partitions=-1, replication_factor=-1, assignments=[assignment]
    )
    await world.ask(ApiKey.CREATE_TOPICS, k19.CreateTopicsRequest(topics=[topic]))
    world.clock.ms += 1  # since their last heartbeats
    return world


def told(records: list[Any]) -> str:
    """What an append says: whom it fences, and who leads instead."""
    fenced = [r.broker_id for r in records if getattr(r, "fenced", 0) == 1]
    leaders = [r.leader for r in records if isinstance(r, PartitionChangeRecord)]
    return f"{fenced} fenced, {leaders} lead"


def test_those_that_die_at_one_moment_are_fenced_one_a_turn(monkeypatch):
    """Each by an append of its own that sees the one before; between two, others are served."""

    async def scenario() -> None:
        world = await controller_of_four()
        probes, refused = asyncio.Semaphore(0), asyncio.Event()
        diary: list[str] = []

        async def all_refuse(*_: Any) -> bool:
            probes.release()
            await refused.wait()
            return True

        async def others() -> None:
            while True:
                if diary[-1:] != ["others"]:
                    diary.append("others")
                await asyncio.sleep(0)

        monkeypatch.setattr(processes, "all_refuse", all_refuse)
        watch = ProcessWatch(world.driver, world.clock, SystemNetwork(), heartbeat_interval_ms=20)
        listener = Listener()
        for broker_id in (1, 2, 3):
            connection = Connection(listener)
            watch.on_fetch(broker_id, connection)  # type: ignore[arg-type]
            connection.lose()
        world.raft.on_append = lambda: diary.append(told(world.raft.batches[-1].records))
        async with asyncio.timeout(BOUND_S), asyncio.TaskGroup() as group:
            for _ in range(3):
                await probes.acquire()
            served = group.create_task(others())
            refused.set()  # All three are known to be gone in the same turn.
            await asyncio.gather(*watch._tasks.values())
            served.cancel()
        assert diary == [
            "others",
            "[1] fenced, [2] lead",
            "others",
            "[2] fenced, [3] lead",
            "others",
            "[3] fenced, [4] lead",
            "others",
        ]

    asyncio.run(scenario())


def test_who_accepts_is_left_alone_until_it_refuses():
    async def scenario(world: World) -> None:
        await world.serve(world.ports[1])
        world.connect(1).lose()
        await world.probes(5)
        assert world.fenced == []
        world.servers[0].close()
        await world.settle()
        assert world.fenced == [1]

    run(scenario)


def test_every_endpoint_must_refuse():
    async def scenario(world: World) -> None:
        other = lasting_ports(1)[0]
        await world.serve(other)
        world.register(3, lasting_ports(1)[0], other)
        world.connect(3).lose()
        await world.probes(12)
        assert world.fenced == []

    run(scenario)


def test_another_connection_shows_life():
    async def scenario(world: World) -> None:
        first, _ = world.connect(1), world.connect(1)
        first.lose()
        await world.settle()
        assert world.fenced == []
        third = world.connect(2)
        third.lose()
        world.connect(2)  # it is back before the first probe
        await world.settle()
        assert world.fenced == []

    run(scenario)


def test_a_heartbeat_after_the_probe_began_shows_life(monkeypatch):
    async def scenario(world: World) -> None:
        answers = []

        async def refuses(host: str, port: int) -> bool:
            _ = host, port
            world.heartbeat(1)  # while the connect is under way
            answers.append(world.clock.mono_ms())
            if len(answers) == 3:
                world.is_active = False
            return True

        monkeypatch.setattr(processes, "_refuses", refuses)
        world.connect(1).lose()
        await world.settle()
        assert len(answers) == 3
        assert world.fenced == []

    run(scenario)


@pytest.mark.parametrize("silent", [TimeoutError, ConnectionResetError, OSError])
def test_only_a_refusal_counts(monkeypatch, silent):
    async def scenario(world: World) -> None:
        tries = []

        async def create_connection(*_: Any) -> Any:
            tries.append(1)
            if len(tries) == 4:
                world.is_active = False
            raise silent

        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "create_connection", create_connection)
        world.connect(1).lose()
        await world.settle()
        assert len(tries) == 4
        assert world.fenced == []

    run(scenario)


def test_a_standby_and_one_that_steps_back_fence_nobody():
    async def scenario(world: World) -> None:
        world.is_active = False
        world.connect(1).lose()
        await world.settle()
        world.is_active = True
        world.connect(1).lose()
        world.watch.on_role(active=False)
        await world.settle()
        assert world.fenced == []

    run(scenario)


def test_a_new_controller_looks_for_who_sends_it_nothing():
    async def scenario(world: World) -> None:
        world.connect(2)
        world.watch.on_role(active=True)
        await world.probes(1)
        await world.settle()
        assert world.fenced == [1]

    run(scenario)


def test_the_broker_of_this_process_is_never_looked_for():
    async def scenario(world: World) -> None:
        config = world.core.config
        object.__setattr__(config, "is_broker", True)
        object.__setattr__(config, "node_id", 1)
        world.watch.on_role(active=True)
        await world.probes(1)
        await world.settle()
        assert world.fenced == [2]

    run(scenario)


def test_a_replica_that_takes_over_a_connection_takes_it_from_the_other():
    async def scenario(world: World) -> None:
        connection = world.connect(1)
        world.watch.on_fetch(2, connection)  # type: ignore[arg-type]
        connection.lose()
        await world.settle()
        assert world.fenced == [2]

    run(scenario)
