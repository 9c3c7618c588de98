"""Re-authentication on a live connection, over real sockets (KIP-368)."""

import asyncio
import threading

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client import renewal
from sparkraft.client.connection import Connection
from sparkraft.protocol.messages.k17_sasl_handshake import SaslHandshakeResponse
from sparkraft.protocol.messages.k36_sasl_authenticate import SaslAuthenticateResponse
from sparkraft.protocol.messages.k61_describe_producers import DescribeProducersRequest
from sparkraft.security.login import Login
from sparkraft.security.plain import PlainClient, PlainServer
from sparkraft.security.secret import Secret
from sparkraft.server.network import sasl_gate
from tests.server.harness import until
from tests.server.test_sasl_gate import (
    BAD,
    GOOD,
    PASSWORD,
    ask,
    handshake,
    raw,
    read,
    run,
    serving,
    token,
    versions,
)

LONG_MS = 60_000
BOB = b"\0bob\0builder"


async def logged_in(served, version=2):
    """A client that has authenticated, and the lifetime of its session."""
    peer = await served.connect()
    await peer.ask(handshake())
    answer = read(SaslAuthenticateResponse, version, await peer.ask(token(version=version)))
    assert answer.error_code == 0
    return peer, answer.session_lifetime_ms


async def code_of(peer, sent):
    return read(SaslAuthenticateResponse, 2, await peer.ask(sent)).error_code


def test_a_client_learns_the_lifetime_of_its_session_and_re_authenticates():
    async def test():
        async with serving(reauth_ms=LONG_MS) as served:
            peer, lifetime_ms = await logged_in(served)
            assert lifetime_ms == LONG_MS
            assert read(SaslHandshakeResponse, 1, await peer.ask(handshake())).error_code == 0
            answer = read(SaslAuthenticateResponse, 2, await peer.ask(token()))
            assert (answer.error_code, answer.session_lifetime_ms) == (0, LONG_MS)
            await peer.ask(ask())
            assert served.principals == ["User:alice"]
            gates = served.listener.gates
            assert (gates.open, gates.succeeded, gates.renewed) == (0, 1, 1)

    run(test())


def test_sessions_last_without_a_limit():
    async def test():
        async with serving() as served:
            peer, lifetime_ms = await logged_in(served)
            assert lifetime_ms == 0
            assert read(SaslHandshakeResponse, 1, await peer.ask(handshake())).error_code == 34

    run(test())


@pytest.mark.parametrize("version", [0, 2], ids=["cannot re-authenticate", "does not"])
def test_the_first_request_after_the_expiry_closes_the_connection(version):
    """Kafka expires lazily: a connection that sends nothing stays open."""

    async def test():
        async with serving(reauth_ms=50) as served:
            peer, _ = await logged_in(served, version)
            await asyncio.sleep(0.1)
            assert served.listener.connections == 1
            peer.writer.write(ask())
            await peer.assert_closed()
            assert served.principals == []
            assert served.listener.gates.counters()["expired_connections_killed"] == 1

    run(test())


def test_a_session_that_expired_is_renewed_by_a_handshake():
    async def test():
        async with serving(reauth_ms=50) as served:
            peer, _ = await logged_in(served)
            await asyncio.sleep(0.1)
            await peer.ask(handshake())
            assert await code_of(peer, token()) == 0
            assert served.listener.gates.expired == 0

    run(test())


def test_each_frame_of_a_pipelined_chunk_is_checked_when_it_is_handled():
    """The first request of the chunk keeps the loop until the session has expired."""

    async def test():
        async with serving(reauth_ms=200) as served:
            peer, _ = await logged_in(served)
            gate_clock = served.listener.gates.clock
            start = gate_clock.mono_ms()
            taken = served.principals
            served.principals = Busy(lambda: gate_clock.mono_ms() - start <= 250)
            peer.writer.write(ask(8) + ask(9) + ask(10))
            assert (await peer.answer())[:4] == (8).to_bytes(4, "big")
            await peer.assert_closed()
            assert (taken, served.principals) == ([], ["User:alice"])

    run(test())


class Busy(list):
    """Appending to it takes as long as `waits` says."""

    def __init__(self, waits):
        super().__init__()
        self._waits = waits

    def append(self, item):
        super().append(item)
        while self._waits():
            pass


def test_a_second_re_authentication_within_a_second_gets_error_34():
    async def test():
        async with serving(reauth_ms=LONG_MS) as served:
            peer, _ = await logged_in(served)
            await peer.ask(handshake())
            await peer.ask(token())
            assert read(SaslHandshakeResponse, 1, await peer.ask(handshake())).error_code == 34
            await peer.ask(ask())
            assert served.principals == ["User:alice"]

    run(test())


@pytest.mark.parametrize("sent", [ask(), versions(), handshake()], ids=["ask", "versions", "again"])
def test_no_other_request_is_handled_during_re_authentication(sent):
    async def test():
        async with serving(reauth_ms=LONG_MS) as served:
            peer, _ = await logged_in(served)
            peer.writer.write(handshake() + sent + ask(9))
            await peer.reader.read()
            assert served.principals == []
            assert served.listener.gates.renewals_failed == 1

    run(test())


@pytest.mark.parametrize("wrong", [BAD, BOB], ids=["password", "user"])
def test_other_credentials_end_the_connection(wrong):
    async def test():
        async with serving(reauth_ms=LONG_MS) as served:
            peer, _ = await logged_in(served)
            await peer.ask(handshake())
            peer.writer.write(token(wrong) + token() + ask())
            answer = read(SaslAuthenticateResponse, 2, await peer.answer())
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert answer.session_lifetime_ms == 0
            await peer.assert_closed()
            assert served.principals == []

    run(test())


def test_another_mechanism_ends_the_connection_at_the_next_frame_without_a_response():
    async def test():
        async with serving(reauth_ms=LONG_MS) as served:
            peer, _ = await logged_in(served)
            answer = read(SaslHandshakeResponse, 1, await peer.ask(handshake(mechanism="OTHER")))
            assert answer.error_code == 0
            peer.writer.write(token() + ask())
            await peer.assert_closed()
            assert served.principals == []
            assert served.listener.gates.renewals_failed == 1

    run(test())


def test_a_client_re_authenticates_with_bare_tokens():
    async def test():
        async with serving(reauth_ms=LONG_MS) as served:
            peer, _ = await logged_in(served)
            await peer.ask(handshake(0))
            assert await peer.ask(raw(GOOD)) == b""
            await peer.ask(ask())
            assert served.principals == ["User:alice"]

    run(test())


def test_frames_are_bounded_again_during_re_authentication():
    async def test():
        async with serving(reauth_ms=LONG_MS, receive_bytes_max=1000) as served:
            peer, _ = await logged_in(served)
            await peer.ask(handshake())
            peer.writer.write((1001).to_bytes(4, "big"))
            await peer.assert_closed()

    run(test())


def test_re_authentication_has_a_time_limit(monkeypatch):
    monkeypatch.setattr(sasl_gate, "AUTHENTICATION_MS_MAX", 50)

    async def test():
        async with serving(reauth_ms=LONG_MS) as served:
            peer, _ = await logged_in(served)
            await peer.ask(handshake())
            await peer.assert_closed()

    run(test())


class BlockingServer(PlainServer):
    """Answers in a thread."""

    blocks = True


class BlockingLogin:
    """Takes its steps in a thread."""

    mechanism = "BLOCKING"
    blocks = True

    def client(self, nonce, host):
        assert host == "127.0.0.1"
        assert threading.current_thread() is not threading.main_thread()
        return PlainClient("alice", Secret(PASSWORD))


LOGINS = {"PLAIN": Login("PLAIN", "alice", Secret(PASSWORD)), "BLOCKING": BlockingLogin()}
BLOCKING = {"BLOCKING": lambda: BlockingServer({"alice": Secret(PASSWORD)})}


@pytest.mark.parametrize("mechanism", LOGINS)
def test_our_client_re_authenticates_in_time_and_its_requests_wait_for_it(mechanism, monkeypatch):
    """Requests are sent all the time, so that some meet the re-authentication."""
    monkeypatch.setattr(sasl_gate, "REAUTHENTICATION_INTERVAL_MS_MIN", 0)
    monkeypatch.setattr(renewal, "FACTOR_MIN", 0.1)  # a busy machine must not use the rest up

    async def test():
        async with serving(reauth_ms=2_000, more=BLOCKING) as served:
            login = LOGINS[mechanism]
            gates = served.listener.gates
            connection = await Connection.open("127.0.0.1", served.listener.port, login=login)
            sent = 0
            while gates.renewed < 3:
                request = DescribeProducersRequest()
                batch = [connection.send_nowait(request, version=0) for _ in range(20)]
                await asyncio.gather(*batch)
                sent += len(batch)
            assert served.principals == ["User:alice"] * sent
            assert (gates.expired, gates.renewals_failed) == (0, 0)
            await connection.close()

    run(test())


@pytest.mark.parametrize("mechanism", LOGINS)
def test_our_client_loses_its_connection_if_it_cannot_re_authenticate(mechanism, monkeypatch):
    monkeypatch.setattr(sasl_gate, "REAUTHENTICATION_INTERVAL_MS_MIN", 0)

    async def test():
        async with serving(reauth_ms=100, more=BLOCKING) as served:
            login = LOGINS[mechanism]
            connection = await Connection.open("127.0.0.1", served.listener.port, login=login)
            changed = {"alice": Secret("changed")}
            server = {"PLAIN": PlainServer, "BLOCKING": BlockingServer}[mechanism]
            served.listener.gates.settings.mechanisms[mechanism] = lambda: server(changed)
            await until(lambda: connection.is_closed)
            with pytest.raises(KafkaError) as caught:
                await connection.send(DescribeProducersRequest(), version=0)
            assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED

    run(test())


def test_clients_begin_between_85_and_95_percent_of_the_lifetime():
    times = [renewal.renewal_ms(100_000) for _ in range(1000)]
    assert 85_000 <= min(times) < 87_000
    assert 93_000 < max(times) <= 95_000


def test_an_incomplete_handshake_closes_the_connection():
    async def test():
        async with serving(reauth_ms=LONG_MS) as served:
            peer, _ = await logged_in(served)
            peer.writer.write(frame_of_handshake_without_body())
            await peer.assert_closed()

    run(test())


def frame_of_handshake_without_body():
    return (4).to_bytes(4, "big") + handshake()[4:8]
