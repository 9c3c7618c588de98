"""The client on a real ensemble; kazoo, another client, sees the same."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from sparkraft.server.env import SystemClock, SystemEntropy, SystemNetwork
from sparkraft.zookeeper.client import State, ZooKeeperClient
from sparkraft.zookeeper.connect_string import parse_connect_string
from sparkraft.zookeeper.errors import (
    BadVersionError,
    ConnectionLossError,
    MultiError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
)
from sparkraft.zookeeper.exchange import EventType, WatchEvent
from sparkraft.zookeeper.requests import (
    OPEN_ACL,
    Check,
    Create,
    Delete,
    Exists,
    GetAcl,
    GetChildren,
    GetData,
    MultiRead,
    SetData,
    Sync,
)
from tests.support.ports import lasting_ports
from tests.support.zookeeper import Ensemble, four_letters

pytestmark = [pytest.mark.java, pytest.mark.real_time]

WAIT = 30


@asynccontextmanager
async def session(servers: str, **options: Any) -> AsyncIterator[ZooKeeperClient]:
    options.setdefault("connect", SystemNetwork().connect)
    client = ZooKeeperClient(
        parse_connect_string(servers), clock=SystemClock(), entropy=SystemEntropy(), **options
    )
    await client.start(WAIT * 1000)
    try:
        yield client
    finally:
        await client.close()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT):
        while not condition():  # noqa: ASYNC110 (kazoo tells no event)
            await asyncio.sleep(0.01)


@pytest.fixture
def root(ensemble: Ensemble, request: pytest.FixtureRequest) -> str:
    """A chroot of this test's own."""
    return f"{ensemble.connect}/{request.node.name}"


@pytest.fixture
def witness(ensemble: Ensemble, root: str) -> Iterator[KazooClient]:
    client = KazooClient(ensemble.connect)
    client.start(WAIT)
    client.ensure_path("/" + root.partition("/")[2])
    client.chroot = "/" + root.partition("/")[2]
    yield client
    client.stop()
    client.close()


def test_znodes_are_created_read_changed_and_deleted(root: str, witness: KazooClient) -> None:
    async def run() -> None:
        async with session(root) as zookeeper:
            assert await zookeeper.submit(Create(path="/a", data=b"one")) == "/a"
            assert witness.get("/a")[0] == b"one"
            stat = await zookeeper.submit(SetData(path="/a", data=b"two", version=0))
            assert stat == (await zookeeper.submit(GetData(path="/a")))[1]
            assert tuple(stat) == tuple(witness.get("/a")[1])
            assert await zookeeper.submit(GetAcl(path="/a")) == (OPEN_ACL, stat)
            assert await zookeeper.submit(Sync(path="/a")) == "/a"
            await zookeeper.submit(Create(path="/a/b"))
            assert (await zookeeper.submit(GetChildren(path="/a")))[0] == ["b"]
            assert (await zookeeper.submit(GetChildren(path="/")))[0] == ["a"]
            await zookeeper.submit(Delete(path="/a/b"))
            await zookeeper.submit(Delete(path="/a", version=1))
            assert witness.exists("/a") is None

    asyncio.run(run())


def test_errors_are_those_of_the_server(root: str, witness: KazooClient) -> None:
    async def run() -> None:
        async with session(root) as zookeeper:
            await zookeeper.create_recursive("/a/b")
            for request, error in (
                (GetData(path="/x"), NoNodeError),
                (Exists(path="/x"), NoNodeError),
                (Create(path="/x/y"), NoNodeError),
                (Create(path="/a"), NodeExistsError),
                (SetData(path="/a", data=b"", version=9), BadVersionError),
                (Delete(path="/a"), NotEmptyError),
            ):
                with pytest.raises(error) as caught:
                    await zookeeper.submit(request)
                assert caught.value.path == request.path

    asyncio.run(run())
    assert witness.get_children("/a") == ["b"]


def test_a_session_owns_its_ephemeral_znodes(root: str, witness: KazooClient) -> None:
    async def run() -> None:
        async with session(root) as zookeeper:
            made = await zookeeper.submit(Create(path="/e-", ephemeral=True, sequential=True))
            assert made == "/e-0000000000"
            assert witness.exists(made).ephemeralOwner == zookeeper.session_id
        assert witness.exists(made) is None
        with pytest.raises(SessionExpiredError):
            await zookeeper.submit(GetData(path="/"))

    asyncio.run(run())


def test_a_transaction_is_applied_whole_or_not_at_all(root: str, witness: KazooClient) -> None:
    """As Kafka's controller writes: guarded by the version of /controller_epoch."""

    async def run() -> None:
        async with session(root) as zookeeper:
            await zookeeper.submit(Create(path="/controller_epoch", data=b"0"))
            made, stat = await zookeeper.multi(
                Create(path="/controller", data=b"1", ephemeral=True),
                SetData(path="/controller_epoch", data=b"1", version=0),
            )
            assert (made, stat.version) == ("/controller", 1)
            with pytest.raises(MultiError) as caught:
                await zookeeper.multi(
                    Check(path="/controller_epoch", version=0),
                    Create(path="/written-by-a-former-controller"),
                )
            assert (caught.value.index, caught.value.codes) == (0, (-103, -2))
            assert witness.exists("/written-by-a-former-controller") is None

    asyncio.run(run())


def test_watches_fire_once_and_before_later_replies(root: str, witness: KazooClient) -> None:
    async def run() -> None:
        events: list[WatchEvent] = []
        async with session(root, on_event=events.append) as zookeeper:
            with pytest.raises(NoNodeError):
                await zookeeper.submit(Exists(path="/a", watch=True))
            await zookeeper.submit(GetChildren(path="/", watch=True))
            witness.create("/a", b"")
            await zookeeper.submit(GetData(path="/a", watch=True))
            assert set(events) == {
                (EventType.NODE_CREATED, "/a"),
                (EventType.NODE_CHILDREN_CHANGED, "/"),
            }
            events.clear()
            witness.set("/a", b"1")
            witness.set("/a", b"2")
            assert (await zookeeper.submit(GetData(path="/a", watch=True)))[0] == b"2"
            assert events == [(EventType.NODE_DATA_CHANGED, "/a")]
            witness.delete("/a")
            await until(lambda: (EventType.NODE_DELETED, "/a") in events)

    asyncio.run(run())


def test_many_requests_are_pipelined_and_matched(root: str, witness: KazooClient) -> None:
    async def run() -> None:
        async with session(root) as zookeeper:
            creations = [Create(path=f"/{number}", data=b"%d" % number) for number in range(500)]
            await zookeeper.submit_all([*creations])
            read = await zookeeper.submit_all([GetData(path=each.path) for each in creations])
            assert [data for data, _ in read] == [each.data for each in creations]
            (failed,) = await zookeeper.submit_all([GetData(path="/none")])
            assert isinstance(failed, NoNodeError)

    asyncio.run(run())
    assert len(witness.get_children("/")) == 500


def test_reads_sent_together_have_the_results_of_single_reads(
    root: str, witness: KazooClient
) -> None:
    async def run() -> None:
        async with session(root) as zookeeper:
            names = [str(number) for number in range(250)]
            await zookeeper.submit_all([Create(path=f"/{each}", data=b"x") for each in names])
            await zookeeper.submit(SetData(path="/7", data=b""))
            singly = [GetData(path=f"/{each}") for each in [*names, "none"]]
            together = [MultiRead(tuple(singly[at : at + 100])) for at in (0, 100, 200)]
            found = [each for part in await zookeeper.submit_all(together) for each in part]
            assert found[:-1] == (await zookeeper.submit_all(singly))[:-1]
            assert isinstance(found[-1], NoNodeError)
            assert found[-1].path == "/none"

    asyncio.run(run())


def test_a_path_that_utf8_cannot_encode_fails_alone(root: str, witness: KazooClient) -> None:
    async def run() -> None:
        async with session(root, in_flight_max=1) as zookeeper:
            bad, good = await zookeeper.submit_all([GetData(path="/\ud800"), GetData(path="/")])
            assert isinstance(bad, UnicodeEncodeError)
            assert good[0] == b""

    asyncio.run(run())


def test_a_session_survives_its_server(zookeeper_jars: Path, tmp_path: Path) -> None:
    """The leader of three is killed: same session, same ephemeral znode, watches set again."""

    async def run(ensemble: Ensemble) -> None:
        events: list[WatchEvent] = []
        states: list[State] = []
        options = {"session_timeout_ms": 10_000, "on_event": events.append}
        async with session(ensemble.connect, on_state=states.append, **options) as zookeeper:
            await zookeeper.submit(Create(path="/e", ephemeral=True))
            await zookeeper.submit(Create(path="/watched", data=b"0"))
            await zookeeper.submit(GetData(path="/watched", watch=True))
            before = zookeeper.session_id
            ensemble.leader().kill()
            await zookeeper.submit_until_connected(Sync(path="/"))
            stat = await zookeeper.submit_until_connected(Exists(path="/e"))
            assert stat.ephemeral_owner == zookeeper.session_id == before
            async with session(ensemble.connect) as other:
                await other.submit_until_connected(SetData(path="/watched", data=b"1"))
            await until(lambda: (EventType.NODE_DATA_CHANGED, "/watched") in events)
            assert State.EXPIRED not in states

    with Ensemble(zookeeper_jars, tmp_path, size=3) as ensemble:
        asyncio.run(run(ensemble))


def test_a_session_that_was_away_too_long_has_expired(root: str, witness: KazooClient) -> None:
    async def run() -> None:
        is_cut = False
        links: list[asyncio.Transport] = []

        async def connect(factory: Callable[[], asyncio.Protocol], host: str, port: int) -> object:
            if is_cut:
                raise ConnectionRefusedError("no route")
            transport, protocol = await SystemNetwork().connect(factory, host, port)
            links.append(transport)
            return transport, protocol

        states: list[State] = []
        options = {"session_timeout_ms": 1_000, "on_state": states.append}
        async with session(root, connect=connect, **options) as zookeeper:
            await zookeeper.submit(Create(path="/e", ephemeral=True))
            is_cut = True
            links[-1].abort()
            await until(lambda: zookeeper.state is State.CONNECTING)
            with pytest.raises(ConnectionLossError):
                await zookeeper.submit(GetData(path="/e"))
            await until(lambda: witness.exists("/e") is None)
            is_cut = False
            with pytest.raises(SessionExpiredError):
                await zookeeper.submit_until_connected(GetData(path="/e"))
            assert states == [State.CONNECTED, State.CONNECTING, State.EXPIRED]

    asyncio.run(run())


def test_a_written_znode_above_the_servers_limit_is_named(
    ensemble: Ensemble, caplog: pytest.LogCaptureFixture
) -> None:
    """ZooKeeper closes the connection without a reply; Kafka, too, sends the request again."""

    async def run() -> None:
        async with session(ensemble.connect) as client:
            await client.create_recursive("/large")
            write = SetData(path="/large", data=bytes(1024 * 1024 + 1))
            with pytest.raises(ConnectionLossError):
                await client.submit(write)
            # The session continues, and so do smaller requests.
            await client.submit_until_connected(Exists(path="/large"))

    with caplog.at_level(logging.INFO):
        asyncio.run(run())
    assert "the largest of 1 requests in flight is SetData /large, 10486" in caplog.text


def test_an_idle_session_stays_alive(root: str, witness: KazooClient) -> None:
    async def run() -> None:
        async with session(root, session_timeout_ms=1_000) as zookeeper:
            assert zookeeper.timeout_ms == 1_000
            await zookeeper.submit(Create(path="/e", ephemeral=True))
            await asyncio.sleep(2.5)
            assert zookeeper.state is State.CONNECTED
            assert witness.exists("/e") is not None

    asyncio.run(run())


def test_an_ensemble_that_does_not_respond_is_named() -> None:
    async def run() -> None:
        (port,) = lasting_ports(1)
        client = ZooKeeperClient(
            parse_connect_string(f"127.0.0.1:{port}/kafka"),
            connect=SystemNetwork().connect,
            clock=SystemClock(),
            entropy=SystemEntropy(),
        )
        with pytest.raises(TimeoutError, match=f"127.0.0.1:{port}/kafka .* within 300 ms"):
            await client.start(300)

    asyncio.run(run())


def test_the_servers_count_one_connection(ensemble: Ensemble, root: str) -> None:
    async def run() -> None:
        async with session(root) as zookeeper:
            told = four_letters(ensemble.servers[0].port, "cons")
            assert told.count(f"sid=0x{zookeeper.session_id:x}") == 1

    asyncio.run(run())
