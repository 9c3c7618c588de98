"""How long a broker looks for the controller on a client's behalf, and what doesn't wait behind."""

import asyncio
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import BrokerId, LeaderEpoch, Millis
from sparkraft.client.connection import Connection
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k18_api_versions import ApiVersionsRequest
from sparkraft.protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from sparkraft.server.api.registry import RequestContext
from sparkraft.server.broker import controller_channel
from sparkraft.server.broker.controller_channel import ControllerChannel, QuorumTarget
from sparkraft.server.broker.forwarding import Forwarding
from sparkraft.server.node import Node
from tests.server.harness import (
    PATIENCE_S,
    config_of,
    connect,
    format_dir,
    make_env,
    running,
    until,
)
from tests.support.ports import lasting_ports
from tests.support.sessions import client_session

AN_HOUR_MS = 3_600_000


class Controller:
    """A connection to one, which notes how long it may take."""

    is_closed = False

    def __init__(self, error_code: ErrorCode = ErrorCode.NONE) -> None:
        self.timeouts_ms: list[int] = []
        self.error_code = error_code

    async def send(self, request: Any, *, timeout_ms: int, version: int | None = None) -> Any:
        _ = request, version
        self.timeouts_ms.append(timeout_ms)
        return SimpleNamespace(error_code=self.error_code)


class Client:
    """A client's connection, which notes why it is closed."""

    def __init__(self) -> None:
        self.closed: list[str] = []

    def close(self, why: str) -> None:
        self.closed.append(why)


class CountingClock:
    """Moves only when it is read: half of `limit_ms` each time, whatever the machine takes."""

    def __init__(self, limit_ms: int) -> None:
        self.limit_ms, self.readings = limit_ms, 0

    def mono_ms(self) -> Millis:
        self.readings += 1
        return Millis(self.limit_ms * (self.readings - 1) // 2)

    wall_ms = mono_ms


def channel_to(leader_id: int, *, limit_ms: int | None = None) -> ControllerChannel:
    """A channel in real time, or in that of a `CountingClock`."""
    env = make_env()
    if limit_ms is not None:
        env = replace(env, clock=CountingClock(limit_ms))
    raft = SimpleNamespace(
        node_id=1,
        leader_and_epoch=SimpleNamespace(leader_id=leader_id, epoch=7),
        leaderless_ms=1 if leader_id < 0 else 0,
        leader_node=None,
        voters=SimpleNamespace(ids=(1, 2, 3)),
    )
    target = QuorumTarget(raft, env.network.connect)
    return ControllerChannel(env, target, node_id=1, local=None, controller_listener="C")


def hangs_at(port: int, monkeypatch: Any) -> tuple[Controller, list[int]]:
    """Attempts to connect to `port` never end, others give the controller; the ports asked for."""
    controller, begun = Controller(), list[int]()

    async def open_to(host: str, asked: int, **_: Any) -> Controller:
        _ = host
        begun.append(asked)
        if asked == port:
            await asyncio.get_running_loop().create_future()
        return controller

    monkeypatch.setattr("sparkraft.client.connection.Connection.open", open_to)
    return controller, begun


@pytest.mark.parametrize("own_ms", [1, 50])
def test_without_a_controller_a_request_waits_as_long_as_it_allows(own_ms: int) -> None:
    async def test() -> None:
        config = SimpleNamespace(number=lambda _: AN_HOUR_MS)
        forwarding = Forwarding(config, channel_to(-1, limit_ms=own_ms))  # type: ignore[arg-type]
        context: Any = SimpleNamespace(api_key=ApiKey.CREATE_TOPICS, api_version=7)
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(KafkaError) as refused:
                await forwarding.forward(context, CreateTopicsRequest(timeout_ms=own_ms))
        assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT
        knows_none = "no controller is elected. Node 1 knows no leader of the quorum"
        assert knows_none in refused.value.detail
        assert "in epoch 7" in refused.value.detail
        assert refused.value.detail.endswith("the voters are 1, 2, 3")

    asyncio.run(test())


def test_one_that_reached_the_controller_is_waited_for() -> None:
    async def test() -> None:
        channel, controller = channel_to(2, limit_ms=1), Controller()
        channel._connection = (2, controller)  # type: ignore[assignment]
        await channel.send(
            CreateTopicsRequest(), ApiKey.CREATE_TOPICS, timeout_ms=AN_HOUR_MS, tries_ms=1
        )
        assert controller.timeouts_ms == [AN_HOUR_MS]

    asyncio.run(test())


@pytest.mark.parametrize(
    ("envelope_error", "is_closed"),
    [(ErrorCode.UNSUPPORTED_VERSION, True), (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, False)],
)
def test_a_refused_envelope_is_not_sent_again(envelope_error: ErrorCode, is_closed: bool) -> None:
    """Kafka's ForwardingManager: UNKNOWN_SERVER_ERROR, or the client must ask for versions."""

    async def test() -> None:
        channel, controller = channel_to(2), Controller(envelope_error)
        channel._connection = (2, controller)  # type: ignore[assignment]
        client = Client()
        session = client_session()
        context = RequestContext(
            ApiKey.CREATE_TOPICS, 7, 1, "c", session=session, connection=client, received_ms=0
        )
        config = SimpleNamespace(number=lambda _: AN_HOUR_MS)
        forwarding = Forwarding(config, channel)  # type: ignore[arg-type]
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(KafkaError) as refused:
                await forwarding.forward(context, CreateTopicsRequest(timeout_ms=AN_HOUR_MS))
        assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert len(controller.timeouts_ms) == 1
        assert bool(client.closed) is is_closed

    asyncio.run(test())


def test_a_controller_that_hangs_keeps_nobody_from_the_next(monkeypatch: Any) -> None:
    """Its kernel still takes connections, which nobody answers (SIGSTOP)."""

    async def test() -> None:
        controller, begun = hangs_at(2, monkeypatch)
        channel = channel_to(2)
        raft: Any = channel._target._raft  # type: ignore[attr-defined]
        raft.leader_node = SimpleNamespace(id=2, host="h", port=2)
        patient = asyncio.create_task(
            channel.send(CreateTopicsRequest(), ApiKey.CREATE_TOPICS, timeout_ms=AN_HOUR_MS)
        )
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(KafkaError) as refused:
                await channel.send(CreateTopicsRequest(), ApiKey.CREATE_TOPICS, timeout_ms=20)
            assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT
            raft.leader_and_epoch.leader_id = 3
            raft.leader_node = SimpleNamespace(id=3, host="h", port=3)
            await channel.send(CreateTopicsRequest(), ApiKey.CREATE_TOPICS, timeout_ms=AN_HOUR_MS)
            await patient
        assert begun == [2, 3], "one attempt serves all who wait"
        assert len(controller.timeouts_ms) == 2

    asyncio.run(test())


@asynccontextmanager
async def controller_and_broker(path: Path, **of_broker: str) -> AsyncIterator[tuple[Node, Node]]:
    """Two nodes in this loop: all that clients ask the broker for goes over a socket."""
    for name in ("controller", "broker"):
        (path / name).mkdir()
    format_dir(path / "controller")
    format_dir(path / "broker", node_id=2)
    first = config_of(path / "controller", roles="controller")
    first["listeners"] = first["listeners"].partition(",")[2]
    second = config_of(path / "broker", roles="broker", **of_broker)
    second["node.id"] = "2"
    second["listeners"] = second["listeners"].partition(",")[0]
    second["controller.quorum.voters"] = first["controller.quorum.voters"]
    async with running(first) as controller, running(second) as broker:
        yield controller, broker


def test_no_heartbeat_waits_behind_what_clients_ask_of_the_controller(tmp_path: Path) -> None:
    """The controller answers a connection's requests in order, and a creation never commits."""

    async def test() -> None:
        async with (
            asyncio.timeout(PATIENCE_S),
            controller_and_broker(tmp_path, broker_heartbeat_interval_ms="10") as nodes,
        ):
            controller, broker = nodes
            stuck = _get_stuck(controller, ApiKey.CREATE_TOPICS)
            client = await connect(broker)
            asked = client.send_nowait(_creation())
            await until(lambda: stuck)
            heard = _heartbeats(controller)
            await until(lambda: len(heard) > 2)
            assert not asked.done()
            stuck[0].set_result(None)
            assert (await asked).topics[0].error_code == 0
            await client.close()

    asyncio.run(test())


def test_a_metric_tells_how_many_requests_wait_for_the_controller(tmp_path: Path) -> None:
    async def test() -> None:
        (port,) = lasting_ports(1)
        listens = {"sparkraft_http_listener": f"127.0.0.1:{port}"}
        async with asyncio.timeout(PATIENCE_S), controller_and_broker(tmp_path, **listens) as nodes:
            controller, broker = nodes

            async def waiting(wanted: int) -> bool:
                return await asyncio.to_thread(_forwarding_queue, port) == wanted

            await until(lambda: waiting(0))
            stuck = _get_stuck(controller, ApiKey.CREATE_TOPICS)
            clients = [await connect(broker) for _ in range(2)]
            first = clients[0].send_nowait(_creation())
            await until(lambda: waiting(1))
            await until(lambda: stuck)  # the second may overtake one that waits for the connection
            second = clients[1].send_nowait(_creation())
            await until(lambda: waiting(2))
            stuck[0].set_result(None)
            assert (await first).topics[0].error_code == 0
            await until(lambda: waiting(1))
            await until(lambda: len(stuck) == 2)
            stuck[1].set_result(None)
            assert (await second).topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
            await until(lambda: waiting(0))
            for client in clients:
                await client.close()

    asyncio.run(test())


def test_a_controller_that_answers_no_heartbeat_is_asked_for_the_rest_anew(tmp_path: Path) -> None:
    """As over connections that are gone without a word: a request would wait for its whole time."""

    async def test() -> None:
        settings = {"broker_session_timeout_ms": "400", "request_timeout_ms": str(AN_HOUR_MS)}
        async with (
            asyncio.timeout(PATIENCE_S),
            controller_and_broker(tmp_path, broker_heartbeat_interval_ms="10", **settings) as nodes,
        ):
            controller, broker = nodes
            creations = _get_stuck(controller, ApiKey.CREATE_TOPICS, most=1)
            client = await connect(broker)
            asked = client.send_nowait(_creation())
            await until(lambda: creations)
            heartbeats = _get_stuck(controller, ApiKey.BROKER_HEARTBEAT)
            assert (await asked).topics[0].error_code == 0, "the second attempt"
            for each in (*heartbeats, *creations):
                each.set_result(None)
            await client.close()

    asyncio.run(test())


@pytest.mark.parametrize("answered", [False, True], ids=["not answered", "answered late"])
def test_what_an_old_controller_leaves_open_is_asked_of_the_next(
    tmp_path: Path, monkeypatch: Any, answered: bool
) -> None:
    """Its connections may be gone without a word, and the broker's heartbeats go to the next."""
    monkeypatch.setattr(controller_channel, "LAST_ANSWERS_MS", AN_HOUR_MS if answered else 300)

    async def test() -> None:
        async with asyncio.timeout(PATIENCE_S), controller_and_broker(tmp_path) as nodes:
            controller, broker = nodes
            creations = _get_stuck(controller, ApiKey.CREATE_TOPICS)
            client = await connect(broker)
            asked = client.send_nowait(_creation())
            await until(lambda: creations)
            channel, publisher = broker.channel, broker._publisher
            assert channel is not None
            assert publisher is not None
            old: Any = channel._target
            place = SimpleNamespace(id=7, host="127.0.0.1", port=old.leader_node.port)
            elected = SimpleNamespace(
                leader_and_epoch=SimpleNamespace(leader_id=7), leader_node=place
            )
            channel._target = QuorumTarget(elected, channel._target.connect)
            publisher.on_leader_change(BrokerId(7), LeaderEpoch(9))
            if answered:
                creations[0].set_result(None)
                assert (await asked).topics[0].error_code == 0
                assert len(creations) == 1, "asked once"
            else:
                await until(lambda: len(creations) == 2)
                for each in creations:
                    each.set_result(None)
                await asked
            await client.close()

    asyncio.run(test())


def test_attempts_to_connect_end_with_an_unanswered_heartbeat(
    tmp_path: Path, monkeypatch: Any
) -> None:
    """A connection may be gone without a word before both sides know what the other speaks."""

    async def test() -> None:
        settings = {"broker_session_timeout_ms": "4000", "request_timeout_ms": str(AN_HOUR_MS)}
        async with (
            asyncio.timeout(PATIENCE_S),
            controller_and_broker(tmp_path, broker_heartbeat_interval_ms="10", **settings) as nodes,
        ):
            controller, broker = nodes
            client = await connect(broker)
            stuck = asyncio.get_running_loop().create_future()
            begun: list[int] = []
            opens = Connection.open

            async def open_to(host: str, port: int, **given: Any) -> Connection:
                if port == channel_port and len(begun) < 2:
                    begun.append(port)
                    await stuck
                return await opens(host, port, **given)

            channel, heartbeats = broker.channel, broker.heartbeats
            assert channel is not None
            assert heartbeats is not None
            channel_port = channel._target.leader_node.port
            monkeypatch.setattr(Connection, "open", open_to)
            for each in (channel, heartbeats):
                each.reconnect("as if it were gone")
            answer = await client.send(_creation())
            assert answer.topics[0].error_code == 0
            assert len(begun) == 2, "both were stuck"
            heard = _heartbeats(controller)
            await until(lambda: len(heard) > 2)
            await client.close()

    asyncio.run(test())


def test_an_attempt_to_reach_an_old_controller_ends_with_its_time(monkeypatch: Any) -> None:
    async def test() -> None:
        controller, begun = hangs_at(2, monkeypatch)
        channel = channel_to(2)
        raft: Any = channel._target._raft  # type: ignore[attr-defined]
        raft.leader_node = SimpleNamespace(id=2, host="h", port=2)
        request = channel.send(CreateTopicsRequest(), ApiKey.CREATE_TOPICS, timeout_ms=AN_HOUR_MS)
        asked = asyncio.create_task(request)
        async with asyncio.timeout(PATIENCE_S):
            await until(lambda: channel._opening is not None)
            channel.on_leader(None)
            raft.leader_and_epoch.leader_id = 3
            raft.leader_node = SimpleNamespace(id=3, host="h", port=3)
            channel.on_leader(3)
            await asked
        assert begun == [2, 3]
        assert len(controller.timeouts_ms) == 1

    asyncio.run(test())


def _forwarding_queue(port: int) -> float:
    """As the node tells it over HTTP."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    (found,) = (each for each in families if each.name == "sparkraft_forwarding_queue")
    return float(found.samples[0].value)


def _creation() -> CreateTopicsRequest:
    topic = CreatableTopic(name="stuck", num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=PATIENCE_S * 1000)


def _get_stuck(
    controller: Node, wanted: ApiKey, *, most: int = 1_000
) -> list[asyncio.Future[None]]:
    """Futures, one for each of the first such requests to reach it, which goes on when it ends."""
    stuck: list[asyncio.Future[None]] = []
    driver: Any = controller.controller_services.controller  # type: ignore[union-attr]
    submit = driver.submit

    async def waits(key: ApiKey, *args: Any, **given: Any) -> Any:
        if key is wanted and len(stuck) < most:
            stuck.append(asyncio.get_running_loop().create_future())
            await stuck[-1]
        return await submit(key, *args, **given)

    driver.submit = waits
    return stuck


def _heartbeats(controller: Node) -> list[int]:
    """The brokers whose heartbeats come from now on."""
    heard: list[int] = []
    driver: Any = controller.controller_services.controller  # type: ignore[union-attr]
    submit = driver.submit

    async def notes(key: ApiKey, request: Any, **given: Any) -> Any:
        if key is ApiKey.BROKER_HEARTBEAT:
            heard.append(request.broker_id)
        return await submit(key, request, **given)

    driver.submit = notes
    return heard


def test_forwarded_keys_have_the_versions_of_both(tmp_path: Path) -> None:
    """`ApiVersionsResponse.intersectForwardableApis`: a controller may be older than its broker."""

    async def test() -> None:
        async with controller_and_broker(tmp_path) as (_, broker):
            client = await connect(broker)
            assert (await client.send(_creation())).topics[0].error_code == 0
            assert broker.channel is not None
            controllers = broker.channel.forwarded_versions
            assert isinstance(controllers, dict)
            request = ApiVersionsRequest(client_software_name="c", client_software_version="1")
            before = {each.api_key: each for each in (await client.send(request)).api_keys}
            controllers[ApiKey.ALTER_PARTITION_REASSIGNMENTS] = (0, 0)
            controllers[ApiKey.FETCH] = (4, 5)
            del controllers[ApiKey.UPDATE_FEATURES]
            after = {each.api_key: each for each in (await client.send(request)).api_keys}
            assert after[ApiKey.ALTER_PARTITION_REASSIGNMENTS].max_version == 0
            assert after[ApiKey.FETCH].max_version == before[ApiKey.FETCH].max_version > 5
            assert before.keys() - after.keys() == {ApiKey.UPDATE_FEATURES}
            await client.close()

    asyncio.run(test())
