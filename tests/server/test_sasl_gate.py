"""A SASL listener over real sockets: what passes before authentication, and in which order."""

import asyncio
import logging
import random
import secrets
import threading
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client.connection import Connection
from sparkraft.metadata.image import EMPTY_IMAGE
from sparkraft.protocol import codec, headers
from sparkraft.protocol.api_keys import API_INFO, ApiKey
from sparkraft.protocol.messages.k17_sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from sparkraft.protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from sparkraft.protocol.messages.k36_sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from sparkraft.protocol.messages.k61_describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
)
from sparkraft.security.client_quotas import ClientQuotas
from sparkraft.security.login import Login
from sparkraft.security.plain import PlainServer
from sparkraft.security.protocols import SecurityProtocol
from sparkraft.security.secret import Secret
from sparkraft.server.api.authorization import NoAuthorization
from sparkraft.server.api.registry import Api
from sparkraft.server.env import SystemClock, SystemNetwork
from sparkraft.server.network import dispatch, sasl_gate
from sparkraft.server.network.listener import Limits, Listener
from sparkraft.server.network.loop_budget import LoopBudget
from sparkraft.server.network.request_memory import RequestMemory
from sparkraft.server.sasl_config import ListenerSasl
from tests.server.harness import until

PATIENCE_S = 60
PASSWORD = "correct horse battery"
GOOD, BAD = f"\0alice\0{PASSWORD}".encode(), b"\0alice\0wrong"
ASK = ApiKey.DESCRIBE_PRODUCERS
SASL_KEYS = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}


class FakeNode:
    """The little that ApiVersions asks of a node."""

    image = EMPTY_IMAGE
    raft = None
    finalized_features = None
    config = SimpleNamespace(migrates=False, is_migrating_broker=False)
    channel = SimpleNamespace(forwarded_versions=None)


@dataclass
class Served:
    listener: Listener
    principals: list[str] = field(default_factory=list)
    """Of the sessions that reached a handler."""

    async def connect(self) -> "Peer":
        return Peer(*await asyncio.open_connection("127.0.0.1", self.listener.port))


@dataclass
class Peer:
    """A client that sends bytes as it likes."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ask(self, data: bytes) -> bytes:
        self.writer.write(data)
        return await self.answer()

    async def answer(self) -> bytes:
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        return await self.reader.readexactly(size)

    async def assert_closed(self) -> None:
        """Closed without another byte."""
        assert await self.reader.read() == b""
        self.writer.close()


@asynccontextmanager
async def serving(
    *,
    delay_ms=0,
    receive_bytes_max=524_288,
    unauthenticated_max=100,
    reauth_ms=0,
    more=None,
    memory=None,
):
    users = {"alice": Secret(PASSWORD), "bob": Secret("builder")}
    clock = SystemClock()
    listener = Listener(
        "SASL_PLAINTEXT",
        controller_listener=False,
        limits=Limits(
            connections_max=1000,
            connections_per_ip_max=1000,
            request_bytes_max=1 << 20,
            idle_ms_max=-1,
        ),
        clock=clock,
        budget=LoopBudget(clock),
        on_invariant_broken=lambda error: pytest.fail(f"{error!r}"),
        security_protocol=SecurityProtocol.SASL_PLAINTEXT,
        memory=memory,
        sasl=ListenerSasl(
            mechanisms={
                "PLAIN": lambda: PlainServer(users),
                "OTHER": lambda: PlainServer(users),
                **(more or {}),
            },
            receive_bytes_max=receive_bytes_max,
            failure_delay_ms=delay_ms,
            unauthenticated_max=unauthenticated_max,
            reauth_ms_max={"PLAIN": reauth_ms, "BLOCKING": reauth_ms},
        ),
    )
    served = Served(listener)

    def handle(node, context, request):
        served.principals.append(str(context.principal))
        return DescribeProducersResponse()

    api = Api(key=ASK, handle=handle, authorize=NoAuthorization("a test's own"))
    listener.routes.by_code[int(ASK) << 16] = dispatch.Route(api, 0)
    await listener.bind(SystemNetwork(), "127.0.0.1", 0)
    await listener.serve(FakeNode())
    try:
        yield served
    finally:
        await listener.close()


def run(test):
    async def bounded():
        async with asyncio.timeout(PATIENCE_S):
            await test

    asyncio.run(bounded())


def frame(request, version, correlation_id=1):
    key = ApiKey(request.SCHEMA.key)
    header = headers.RequestHeader(
        request_api_key=int(key),
        request_api_version=version,
        correlation_id=correlation_id,
        client_id="tester",
    )
    data = codec.encode(header, headers.request_header_version(key, version))
    data += codec.encode(request, version)
    return len(data).to_bytes(4, "big") + data


def in_version(data, version):
    """A frame with another version in its header."""
    return data[:6] + version.to_bytes(2, "big") + data[8:]


def versions(version=3, name="test"):
    request = ApiVersionsRequest(client_software_name=name, client_software_version="1")
    return frame(request, version)


def handshake(version=1, mechanism="PLAIN"):
    return frame(SaslHandshakeRequest(mechanism=mechanism), version)


def token(data=GOOD, version=2):
    return frame(SaslAuthenticateRequest(auth_bytes=data), version)


def raw(data=GOOD):
    return len(data).to_bytes(4, "big") + data


def ask(correlation_id=7):
    return frame(DescribeProducersRequest(), 0, correlation_id)


def read(response_class, version, answer):
    """The body of a response; its header has tagged fields if it is flexible."""
    flexible = headers.response_header_version(ApiKey(response_class.SCHEMA.key), version)
    return codec.decode(response_class, version, answer[4 + flexible :])


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_client_authenticates_and_its_requests_have_its_principal(version):
    async def test():
        async with serving() as served:
            peer = await served.connect()
            assert read(ApiVersionsResponse, 3, await peer.ask(versions())).error_code == 0
            answer = read(SaslHandshakeResponse, 1, await peer.ask(handshake()))
            assert (answer.error_code, answer.mechanisms) == (0, ["OTHER", "PLAIN"])
            answer = read(SaslAuthenticateResponse, version, await peer.ask(token(version=version)))
            assert (answer.error_code, answer.auth_bytes) == (0, b"")
            assert (await peer.ask(ask()))[:4] == (7).to_bytes(4, "big")
            assert served.principals == ["User:alice"]
            assert served.listener.gates.open == 0

    run(test())


def test_what_precedes_authentication_counts_against_no_quota():
    """Strangers are one user, ANONYMOUS: one of them could delay the logins of all others."""

    async def test():
        async with serving() as served:
            quotas = served.listener.quotas = ClientQuotas()
            quotas.update({(("user", None),): {"request_percentage": 0.0001}})
            peer = await served.connect()
            for _ in range(2):
                answer = read(ApiVersionsResponse, 3, await peer.ask(versions()))
                assert answer.throttle_time_ms == 0
                peer = await served.connect()
            await peer.ask(handshake())
            await peer.ask(token())
            assert quotas.rates(10, SystemClock().mono_ms()) == []
            await peer.ask(ask())
            assert [bucket for bucket, _ in quotas.rates(10, SystemClock().mono_ms())] == [
                ("request_percentage", "alice", None)
            ]

    run(test())


def test_after_handshake_v0_tokens_are_bare_frames():
    async def test():
        async with serving() as served:
            peer = await served.connect()
            assert read(SaslHandshakeResponse, 0, await peer.ask(handshake(0))).error_code == 0
            assert await peer.ask(raw()) == b""
            assert (await peer.ask(ask()))[:4] == (7).to_bytes(4, "big")
            assert served.principals == ["User:alice"]
            peer = await served.connect()
            await peer.ask(handshake(0))
            peer.writer.write(raw(BAD))
            await peer.assert_closed()

    run(test())


def test_a_whole_login_in_one_segment_is_followed_by_requests_with_the_new_principal():
    async def test():
        async with serving() as served:
            peer = await served.connect()
            peer.writer.write(versions() + handshake() + token() + ask(8) + ask(9))
            answers = [await peer.answer() for _ in range(5)]
            assert [int.from_bytes(answer[:4], "big") for answer in answers] == [1, 1, 1, 8, 9]
            assert served.principals == ["User:alice"] * 2

    run(test())


@pytest.mark.parametrize(
    "before",
    [b"", versions(), handshake(), versions() + handshake(), handshake(0)],
    ids=["first", "versions", "handshake", "both", "raw tokens"],
)
def test_no_request_before_authentication_reaches_a_handler(before):
    """Every key, in each state, alone in a segment with what comes before."""

    async def test():
        async with serving() as served:
            for info in API_INFO.values():
                if info.key in SASL_KEYS:
                    continue
                peer = await served.connect()
                peer.writer.write(before + frame(info.request_class()(), info.max_version, 99))
                answers = await peer.reader.read()
                assert (99).to_bytes(4, "big") not in answers, info.name
                peer.writer.close()
            peer = await served.connect()
            peer.writer.write(before + ask())
            await peer.reader.read()
            assert served.principals == []

    run(test())


def test_requests_behind_a_failing_token_are_never_handled():
    async def test():
        async with serving(delay_ms=20) as served:
            peer = await served.connect()
            peer.writer.write(handshake() + token(BAD) + token() + ask() + ask())
            await peer.answer()
            answer = read(SaslAuthenticateResponse, 2, await peer.answer())
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            await peer.assert_closed()
            assert served.principals == []
            assert served.listener.gates.failed == 1

    run(test())


def test_a_failure_is_answered_after_the_delay():
    async def test():
        async with serving(delay_ms=200) as served:
            loop = asyncio.get_running_loop()
            for failing in (handshake() + token(BAD), handshake(mechanism="GSSAPI")):
                peer = await served.connect()
                begin = loop.time()
                peer.writer.write(failing)
                while await peer.reader.read(1 << 16):
                    last = loop.time()
                assert last - begin >= 0.2
                peer.writer.close()

    run(test())


@pytest.mark.parametrize(
    ("sent", "response_class", "version", "code"),
    [
        (handshake(mechanism="GSSAPI"), SaslHandshakeResponse, 1, 33),
        (handshake() + handshake(), SaslHandshakeResponse, 1, 34),
        (handshake() + versions(), ApiVersionsResponse, 3, 34),
    ],
)
def test_requests_out_of_sequence_get_their_error_and_the_end(sent, response_class, version, code):
    async def test():
        async with serving() as served:
            peer = await served.connect()
            peer.writer.write(sent)
            data = await peer.reader.read()
            size = int.from_bytes(data[:4], "big")
            if len(data) > size + 4:
                data = data[size + 4 :]
            assert read(response_class, version, data[4:]).error_code == code
            assert served.listener.gates.failed == 1

    run(test())


@pytest.mark.parametrize(
    "sent",
    [
        token(),
        versions() + versions(),
        versions() + token(),
        in_version(handshake(), 2),
        handshake() + in_version(token(), 3),
        b"\0\0\0\x01\x60",
        b"\0\0\0\0",
        b"GET / HTTP/1.1\r\n\r\n",
        (524_289).to_bytes(4, "big"),
        b"\xff\xff\xff\xff",
        handshake()[:-3] + b"\xff\xff\xff",
    ],
)
def test_what_no_state_accepts_closes_the_connection(sent):
    async def test():
        async with serving() as served:
            peer = await served.connect()
            peer.writer.write(sent)
            await peer.reader.read()
            peer.writer.close()
            assert served.principals == []
            await until(lambda: served.listener.gates.open == 0)

    run(test())


def test_versions_that_get_an_error_may_be_asked_again():
    async def test():
        async with serving() as served:
            peer = await served.connect()
            assert (
                read(ApiVersionsResponse, 3, await peer.ask(versions(name="--"))).error_code == 42
            )
            unknown = await peer.ask(in_version(versions(), 99))
            assert read(ApiVersionsResponse, 0, unknown).error_code == 35
            assert read(ApiVersionsResponse, 3, await peer.ask(versions())).error_code == 0
            await peer.ask(handshake())
            assert read(SaslAuthenticateResponse, 2, await peer.ask(token())).error_code == 0

    run(test())


def test_after_authentication_sasl_requests_get_error_34_and_the_connection_lives():
    async def test():
        async with serving() as served:
            peer = await served.connect()
            await peer.ask(handshake())
            await peer.ask(token())
            assert read(SaslHandshakeResponse, 1, await peer.ask(handshake())).error_code == 34
            assert read(SaslAuthenticateResponse, 2, await peer.ask(token())).error_code == 34
            await peer.ask(ask())
            assert served.principals == ["User:alice"]

    run(test())


def test_frames_are_bounded_before_authentication_and_larger_after_it(caplog):
    async def test():
        async with serving(receive_bytes_max=1000) as served:
            peer = await served.connect()
            peer.writer.write((1001).to_bytes(4, "big"))
            await peer.assert_closed()
            peer = await served.connect()
            await peer.ask(handshake())
            await peer.ask(token())
            request = DescribeProducersRequest()
            big = bytearray(frame(request, 0)) + bytes(5000)
            big[:4] = (len(big) - 4).to_bytes(4, "big")
            await peer.ask(bytes(big))
            assert served.principals == ["User:alice"]

    with caplog.at_level(logging.WARNING):
        run(test())
    assert "sasl.server.max.receive.size is 1000" in caplog.text


class Complete:
    """Another request, which is being handled."""

    received = None


def test_a_connection_that_waits_for_memory_keeps_one_small_read():
    """Before authentication; what it has sent beyond that stays in the kernel."""
    memory = RequestMemory(100_000)
    memory.take(Complete(), 100_000)

    async def test():
        async with serving(memory=memory) as served:
            peer, other = await served.connect(), await served.connect()
            peer.writer.write((400_000).to_bytes(4, "big") + bytes(400_000))
            await until(lambda: memory.waiting == 1)
            await other.ask(handshake())
            await other.ask(token())
            waiting, authenticated = served.listener._connections
            assert 0 < waiting._reader._chunk_bytes <= sasl_gate.READ_BYTES
            assert authenticated.transport.max_size > sasl_gate.READ_BYTES
            peer.writer.close()

    run(test())


def test_a_client_that_does_not_authenticate_in_time_is_closed(monkeypatch):
    monkeypatch.setattr(sasl_gate, "AUTHENTICATION_MS_MAX", 50)

    async def test():
        async with serving() as served:
            slow, quick = await served.connect(), await served.connect()
            await quick.ask(handshake())
            await quick.ask(token())
            await slow.ask(versions())
            await slow.assert_closed()
            await quick.ask(ask())
            assert served.principals == ["User:alice"]

    run(test())


def test_connections_that_are_authenticating_are_bounded_and_others_are_not():
    async def test():
        async with serving(unauthenticated_max=3) as served:
            for _ in range(5):
                peer = await served.connect()
                await peer.ask(handshake())
                await peer.ask(token())
            waiting = [await served.connect() for _ in range(3)]
            for peer in waiting:
                await peer.ask(versions())
            refused = await served.connect()
            await refused.assert_closed()
            waiting[0].writer.close()
            await until(lambda: served.listener.gates.open == 2)
            peer = await served.connect()
            await peer.ask(handshake())

    run(test())


def test_our_client_logs_in_and_names_what_is_refused():
    async def test():
        async with serving() as served:
            port = served.listener.port

            async def opened(mechanism="PLAIN", user="alice", password=PASSWORD):
                login = Login(mechanism, user, Secret(password))
                return await Connection.open("127.0.0.1", port, login=login)

            connection = await opened()
            await connection.send(DescribeProducersRequest(), version=0)
            await connection.close()
            assert served.principals == ["User:alice"]
            with pytest.raises(KafkaError, match="Invalid username or password") as caught:
                await opened(password="wrong")
            assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
            with pytest.raises(KafkaError, match="it offers OTHER, PLAIN") as caught:
                await opened(mechanism="SCRAM-SHA-1")
            assert caught.value.code is ErrorCode.UNSUPPORTED_SASL_MECHANISM
            connection = await Connection.open("127.0.0.1", port)
            with pytest.raises(KafkaError):
                await connection.send(DescribeProducersRequest(), version=0)

    run(test())


class Slow:
    """A mechanism that waits outside of the loop, then accepts any token."""

    blocks = True
    user = ""
    expires_at_ms = None
    token_authenticated = False

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.goes_on = threading.Event()

    def respond(self, token: bytes) -> bytes:
        self.begun.set()
        assert self.goes_on.wait(PATIENCE_S)
        self.user = token.decode()
        return b"done"


@pytest.mark.parametrize("version", [0, 1])
def test_frames_wait_while_a_mechanism_blocks_and_other_connections_do_not(version):
    async def test():
        slow = Slow()
        async with serving(more={"SLOW": lambda: slow}) as served:
            peer, other = await served.connect(), await served.connect()
            await peer.ask(handshake(version, "SLOW"))
            mine = token(b"carol") if version else raw(b"carol")
            peer.writer.write(mine + ask(8) + ask(9))
            await asyncio.to_thread(slow.begun.wait, PATIENCE_S)
            await other.ask(handshake())
            await other.ask(token())
            await other.ask(ask())
            assert served.principals == ["User:alice"], "the frames of the first one wait"
            slow.goes_on.set()
            assert b"done" in await peer.answer()
            assert [(await peer.answer())[:4] for _ in range(2)] == [
                number.to_bytes(4, "big") for number in (8, 9)
            ]
            assert served.principals == ["User:alice", "User:carol", "User:carol"]

    run(test())


def test_a_connection_that_is_lost_while_its_mechanism_blocks_is_forgotten():
    async def test():
        slow = Slow()
        async with serving(more={"SLOW": lambda: slow}) as served:
            peer = await served.connect()
            await peer.ask(handshake(mechanism="SLOW"))
            peer.writer.write(token(b"carol"))
            await asyncio.to_thread(slow.begun.wait, PATIENCE_S)
            peer.writer.transport.abort()
            await until(lambda: served.listener.gates.open == 0)
            slow.goes_on.set()
            other = await served.connect()
            await other.ask(handshake())
            await other.ask(token())
            await other.ask(ask())
            assert served.principals == ["User:alice"]
            assert served.listener.gates.succeeded == 1

    run(test())


def test_two_thousand_random_inputs_reach_no_handler_and_leave_the_listener_alive(caplog):
    attacked(2_000, 26, caplog)


@pytest.mark.long
def test_ten_thousand_inputs_of_a_new_seed_reach_no_handler(caplog):
    attacked(10_000, secrets.randbits(64), caplog)


def attacked(count: int, seed: int, caplog: pytest.LogCaptureFixture) -> None:
    """Send valid frames cut, joined, repeated and changed at random places."""
    dice = random.Random(seed)
    good = [versions(), handshake(), handshake(0), token(BAD), raw(BAD), ask(), token(b"")]

    def mutated() -> bytes:
        data = bytearray(b"".join(dice.choices(good, k=dice.randint(1, 4))))
        for _ in range(dice.randint(0, 6)):
            at = dice.randrange(len(data) + 1)
            match dice.randint(0, 3):
                case 0:
                    data[at : at + 1] = dice.randbytes(1)
                case 1:
                    del data[at : at + dice.randint(1, 8)]
                case 2:
                    data[at:at] = dice.randbytes(dice.randint(1, 8))
                case _:
                    data[at : at + 4] = dice.choice((b"\xff" * 4, b"\x7f\xff\xff\xff", bytes(4)))
        return bytes(data)

    async def attack(served):
        peer = await served.connect()
        peer.writer.write(mutated())
        peer.writer.write_eof()
        await peer.reader.read()
        peer.writer.close()

    async def test():
        async with serving() as served:
            for _ in range(count // 20):
                await asyncio.gather(*(attack(served) for _ in range(20)))
            assert served.principals == []
            await until(lambda: served.listener.gates.open == 0)
            peer = await served.connect()
            await peer.ask(handshake())
            await peer.ask(token())

    with caplog.at_level(logging.DEBUG):
        run(test())
    assert PASSWORD not in caplog.text, seed
    assert caplog.text.count("Failed authentication with") < count, seed


def test_no_log_line_has_a_password(caplog):
    async def test():
        async with serving() as served:
            for sent in (
                handshake() + token() + ask(),
                handshake() + token(GOOD + b"\0"),
                handshake() + token(b"\0bob\0" + PASSWORD.encode()),
                handshake() + token()[:-1] + b"\xff",
                handshake() + token() + token()[:-1] + b"\xff",
                token(),
                raw(),
                handshake(0) + raw(GOOD + b"\0"),
                handshake() + frame(SaslAuthenticateRequest(auth_bytes=GOOD), 2)[:20] + GOOD,
            ):
                peer = await served.connect()
                peer.writer.write(sent)
                peer.writer.write_eof()
                await peer.reader.read()
                peer.writer.close()

    with caplog.at_level(logging.DEBUG):
        run(test())
    assert "Failed authentication with" in caplog.text
    assert PASSWORD not in caplog.text
    assert "horse" not in caplog.text
