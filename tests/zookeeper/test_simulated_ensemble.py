"""The same operations give the same results and events on a simulated and on a real ensemble."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from sparkraft.server.env import SystemClock, SystemEntropy, SystemNetwork
from sparkraft.simulation.world.zookeeper import Ensemble as SimulatedEnsemble
from sparkraft.zookeeper.client import State, ZooKeeperClient
from sparkraft.zookeeper.connect_string import parse_connect_string
from sparkraft.zookeeper.errors import (
    ConnectionLossError,
    MultiError,
    NoNodeError,
    SessionExpiredError,
    ZooKeeperError,
)
from sparkraft.zookeeper.exchange import EventType, WatchEvent
from sparkraft.zookeeper.requests import (
    OPEN_ACL,
    Acl,
    Check,
    Create,
    Delete,
    Exists,
    GetAcl,
    GetChildren,
    GetData,
    Multi,
    MultiRead,
    Request,
    SetAcl,
    SetData,
    Stat,
    Sync,
)
from tests.support.ports import lasting_ports
from tests.support.zookeeper import Ensemble

WAIT = 30
SESSIONS = 3
STEPS = 600
NAMES = ["/a", "/a", "/a", "/b", "/b", "/a/x", "/a/x", "/a/y", "/a/x/z", "/none/x", "/a/", "/"]
TIMES = (Stat._fields.index("ctime"), Stat._fields.index("mtime"))
ZXIDS = ("czxid", "mzxid", "pzxid")


def random_request(dice: random.Random) -> Request:
    path = dice.choice(NAMES)
    version = dice.choice([-1, -1, -1, 0, 1])
    watch = dice.random() < 0.8
    data = dice.randbytes(dice.randrange(4))
    makers: list[Callable[[], Request]] = [
        *[lambda: Create(path=path, data=data, ephemeral=dice.random() < 0.1)] * 4,
        lambda: Create(path=path + "-", data=data, sequential=True),
        lambda: Delete(path=path, version=version),
        lambda: SetData(path=path, data=data, version=version),
        lambda: SetAcl(path=path, acl=(*OPEN_ACL, Acl(1, "world", "anyone")), version=version),
        lambda: Exists(path=path, watch=watch),
        lambda: GetData(path=path, watch=watch),
        lambda: GetChildren(path=path, watch=watch),
        lambda: GetAcl(path=path),
        lambda: Sync(path=path),
    ]
    is_read_of_bad_path = path.endswith("/") and path != "/"
    if is_read_of_bad_path:
        return makers[dice.choice([0, 5, 6])]()
    return dice.choice(makers)()


def random_multi(dice: random.Random) -> Request:
    writes: list[Any] = []
    while len(writes) < dice.randint(1, 4):
        made = random_request(dice)
        if isinstance(made, Create | Delete | SetData):
            writes.append(made)
        elif dice.random() < 0.2:
            writes.append(Check(path=dice.choice(NAMES[:8]), version=dice.choice([0, 1])))
    return Multi(tuple(writes))


def random_multi_read(dice: random.Random) -> Request:
    paths = [dice.choice(NAMES) for _ in range(dice.randint(1, 4))]
    return MultiRead(tuple(GetData(path=each, watch=dice.random() < 0.5) for each in paths))


def random_step(dice: random.Random) -> Request:
    kinds = [random_request] * 7 + [random_multi] * 2 + [random_multi_read]
    return dice.choice(kinds)(dice)


def parts_of(request: Request) -> tuple[Request, ...]:
    return request.operations if isinstance(request, Multi) else (request,)


class History:
    """Results and events with session ids and zxids replaced by the order of their appearance."""

    def __init__(self) -> None:
        self.lines: list[tuple[Any, ...]] = []
        self._zxids: dict[int, None] = {}
        self._owners: dict[int, int] = {0: 0}

    def owner(self, session_id: int) -> None:
        self._owners[session_id] = len(self._owners)

    def add(self, request: Request, result: object) -> None:
        self.lines.append((request, self._plain(result)))

    def _plain(self, result: object) -> object:
        match result:
            case Stat():
                zxids = {name: self._ordered(getattr(result, name)) for name in ZXIDS}
                owner = self._owners[result.ephemeral_owner]
                return result._replace(ctime=0, mtime=0, ephemeral_owner=owner, **zxids)
            case MultiError():
                return ("refused", result.codes)
            case ZooKeeperError():
                return ("refused", result.code)
            case list() | tuple():
                parts = [self._plain(each) for each in result]
                return sorted(parts) if all(isinstance(each, str) for each in parts) else parts
            case _:
                return result

    def _ordered(self, zxid: int) -> int:
        """Compare zxids by their order among those seen, and equality."""
        self._zxids.setdefault(zxid)
        return sorted(self._zxids).index(zxid)


@asynccontextmanager
async def sessions(
    servers: str, events: list[list[WatchEvent]], chroot: str
) -> AsyncIterator[list[ZooKeeperClient]]:
    async with AsyncExitStack() as stack:
        root = make_client(servers)
        await root.start(WAIT * 1000)
        stack.push_async_callback(root.close)
        await root.create_recursive(chroot)
        clients = []
        for number in range(SESSIONS):
            client = make_client(servers + chroot, on_event=events[number].append)
            await client.start(WAIT * 1000)
            stack.push_async_callback(client.close)
            clients.append(client)
        yield clients


def make_client(servers: str, **options: Any) -> ZooKeeperClient:
    return ZooKeeperClient(
        parse_connect_string(servers),
        connect=SystemNetwork().connect,
        clock=SystemClock(),
        entropy=SystemEntropy(),
        **options,
    )


async def history(servers: str, seed: int, steps: int) -> list[tuple[Any, ...]]:
    """Run the operations of `seed` on an ensemble; the results, and events before each of them."""
    dice = random.Random(seed)
    told = History()
    events: list[list[WatchEvent]] = [[] for _ in range(SESSIONS)]
    async with sessions(servers, events, f"/seed-{seed}") as clients:
        for client in clients:
            told.owner(client.session_id)
        for _ in range(steps):
            client = dice.choice(clients)
            request = random_step(dice)
            if request == Delete(path="/") or (
                getattr(request, "path", "") == "/" and isinstance(request, Delete)
            ):
                continue  # the chroot itself
            try:
                result = await client.submit(request)
            except ZooKeeperError as error:
                result = error
            told.add(request, result)
            for number, each in enumerate(clients):
                await each.submit(Sync(path="/"))  # events precede its reply
                told.lines += [(number, *event) for event in sorted(events[number])]
                events[number].clear()
        await clients[0].close()
        for number, each in enumerate(clients[1:], 1):
            await each.submit(Sync(path="/"))
            told.lines += [(number, *event) for event in sorted(events[number])]
    return told.lines


@asynccontextmanager
async def simulated(**options: Any) -> AsyncIterator[tuple[SimulatedEnsemble, str]]:
    (port,) = lasting_ports(1)
    ensemble = SimulatedEnsemble(SystemClock(), random.Random(1), **options)
    server = await ensemble.listen(SystemNetwork(), "127.0.0.1", port)
    ticking = asyncio.create_task(ensemble.run())
    try:
        yield ensemble, f"127.0.0.1:{port}"
    finally:
        ticking.cancel()
        server.close()


async def simulated_history(seed: int, steps: int) -> list[tuple[Any, ...]]:
    async with simulated() as (_, servers):
        return await history(servers, seed, steps)


@pytest.mark.java
@pytest.mark.real_time
@pytest.mark.parametrize("seed", range(1, 5))
def test_it_does_what_a_real_ensemble_does(ensemble: Ensemble, seed: int) -> None:
    real = asyncio.run(history(ensemble.connect, seed, STEPS))
    ours = asyncio.run(simulated_history(seed, STEPS))
    assert sum(isinstance(line[1], EventType) for line in real) > 30
    for step, (theirs, mine) in enumerate(zip(real, ours, strict=False)):
        assert mine == theirs, f"step {step}"
    assert len(real) == len(ours)


@pytest.mark.real_time
def test_a_lost_reply_leaves_the_write_applied() -> None:
    async def run() -> None:
        async with simulated() as (ensemble, servers):
            client = make_client(servers)
            await client.start()
            ensemble.lose_reply = lambda: True
            with pytest.raises(ConnectionLossError):
                await client.multi(Create(path="/controller", ephemeral=True))
            ensemble.lose_reply = lambda: False
            stat = await client.submit_until_connected(Exists(path="/controller"))
            assert stat.ephemeral_owner == client.session_id
            await client.close()

    asyncio.run(run())


@pytest.mark.real_time
def test_servers_that_do_not_know_reads_sent_together_are_asked_one_by_one() -> None:
    """Servers before ZooKeeper 3.6 close the connection; the session and its requests survive."""

    async def run() -> None:
        async with simulated() as (ensemble, servers):
            ensemble.serves_multi_read = False
            states: list[State] = []
            client = make_client(servers, on_state=states.append, in_flight_max=3)
            await client.start()
            before = client.session_id
            await client.submit_all([Create(path=f"/{at}", data=b"%d" % at) for at in range(40)])
            reads = [GetData(path=f"/{at}") for at in range(41)]
            together = [MultiRead(tuple(reads[at : at + 4])) for at in range(0, 41, 4)]
            results = [each for found in await client.submit_all(together) for each in found]
            assert [data for data, _ in results[:-1]] == [b"%d" % at for at in range(40)]
            assert isinstance(results[-1], NoNodeError)
            (again,) = await client.submit_all(together[:1])
            assert again == results[:4]
            assert states.count(State.CONNECTING) == 1
            assert client.session_id == before
            await client.close()

    asyncio.run(run())


@pytest.mark.real_time
def test_sessions_outlive_a_leader_and_expire_without_a_client() -> None:
    async def run() -> None:
        async with simulated(tick_ms=500) as (ensemble, servers):
            client = make_client(servers, session_timeout_ms=2_000)
            await client.start()
            await client.submit(Create(path="/e", ephemeral=True))
            ensemble.lose_leader()
            await asyncio.sleep(2.6)
            assert ensemble.sessions == [client.session_id]
            ensemble.elect_leader()
            stat = await client.submit_until_connected(Exists(path="/e"))
            assert stat.ephemeral_owner == client.session_id
            ensemble.expire(client.session_id)
            with pytest.raises(SessionExpiredError):
                await client.submit_until_connected(Exists(path="/e"))
            assert client.state is State.EXPIRED
            other = make_client(servers)
            await other.start()
            with pytest.raises(NoNodeError):
                await other.submit(Exists(path="/e"))
            await other.close()

    asyncio.run(run())
