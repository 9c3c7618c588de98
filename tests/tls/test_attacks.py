"""Certificates and versions that must not be accepted, and random bytes instead of a handshake."""

import asyncio
import random
import secrets
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sparkraft.security.tls_settings import read_tls_settings
from sparkraft.tls.contexts import client_context, server_context
from tests.support.certificates import OF_CLIENTS, OF_SERVERS, Authority, pem, pem_configs
from tests.tls.test_stream import Server, contexts, dial, run, until

INPUTS = 300


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


WRONG: dict[str, dict[str, Any]] = {
    "expired": {"days": (-30, -1)},
    "not valid yet": {"days": (1, 30)},
    "of another purpose": {},
}


def wrong(authority: Authority, name: str, purpose: Any) -> Path:
    """A certificate of this authority that must be refused; `purpose` is the one it lacks."""
    other = OF_SERVERS if purpose is OF_CLIENTS else OF_CLIENTS
    given = WRONG[name] or {"purpose": other}
    return authority.issue(name.replace(" ", "-"), **given)


@pytest.mark.parametrize("wanted", ["required", "requested"])
@pytest.mark.parametrize("name", WRONG)
def test_a_listener_refuses_the_certificate_of_a_client(authority: Authority, name, wanted):
    client = wrong(authority, name, OF_CLIENTS)
    of_server, of_client = contexts(authority, client=client, ssl_client_auth=wanted)

    async def work() -> None:
        async with Server(of_server) as server:
            peer = await dial(server, of_client)
            peer.transport.write(b"early")
            assert "alert" in str(await peer.lost)
            assert not server.secured
            assert not server.peers[-1].received

    run(work)


@pytest.mark.parametrize("name", WRONG)
def test_a_client_refuses_the_certificate_of_a_node(authority: Authority, name):
    given = pem_configs(wrong(authority, name, OF_SERVERS), None)
    of_server = server_context(read_tls_settings(given.get))
    _, of_client = contexts(authority)

    async def work() -> None:
        async with Server(of_server) as server:
            with pytest.raises(OSError, match="certificate verify failed"):
                await dial(server, of_client)

    run(work)


@pytest.mark.parametrize("is_ca", [False, True])
def test_a_trusted_certificate_signs_others_only_if_it_is_an_authority(tmp_path: Path, is_ca: bool):
    """A trust store may have certificates of nodes, which are trusted for themselves alone."""
    authority, signer = Authority(tmp_path / "a"), Authority(tmp_path / "b", "signer")
    trusted = tmp_path / "trusted.pem"
    certificate = authority.sign(signer.subject, signer.public_key, is_ca=is_ca)
    trusted.write_bytes(pem(certificate))
    of_server = pem_configs(authority.issue("node"), trusted) | {"ssl.client.auth": "required"}
    of_client = pem_configs(signer.issue("client"), authority.ca_path)

    async def work() -> None:
        async with Server(server_context(read_tls_settings(of_server.get))) as server:
            peer = await dial(server, client_context(read_tls_settings(of_client.get)))
            if is_ca:
                await until(lambda: server.secured)
                peer.transport.close()
            else:
                assert "alert" in str(await peer.lost)
                assert not server.secured

    run(work)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_versions_before_1_2_are_refused(authority: Authority):
    of_server, _ = contexts(authority)
    old = ssl.create_default_context(cafile=str(authority.ca_path))
    old.set_ciphers("ALL:@SECLEVEL=0")
    old.minimum_version = ssl.TLSVersion.TLSv1
    old.maximum_version = ssl.TLSVersion.TLSv1_1

    async def work() -> None:
        async with Server(of_server) as server:
            with pytest.raises(ssl.SSLError, match="ALERT_PROTOCOL_VERSION"):
                await asyncio.open_connection("127.0.0.1", server.port, ssl=old)
            assert not server.secured

    run(work)


def hello() -> bytes:
    """The first message of a client."""
    outgoing = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="h")
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def changed(dice: random.Random, first: bytes) -> bytes:
    data = bytearray(first)
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(data))
        match dice.randint(0, 3):
            case 0:
                data[at] = dice.randrange(256)
            case 1:
                del data[at : at + dice.randint(1, 40)]
            case 2:
                data[at:at] = dice.randbytes(dice.randint(1, 40))
            case _:
                data[at : at + 2] = dice.choice((b"\xff\xff", bytes(2)))
    return bytes(data)


def attacked(authority: Authority, count: int, seed: int) -> None:
    """No input completes a handshake or reaches the peer, and clients are served afterwards."""
    dice, first = random.Random(seed), hello()
    of_server, of_client = contexts(authority)

    async def attack(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(changed(dice, first))
        writer.write_eof()
        with suppress(ConnectionError):
            await reader.read()
        writer.close()

    async def work() -> None:
        async with Server(of_server) as server:
            for _ in range(count // 20):
                await asyncio.gather(*(attack(server.port) for _ in range(20)))
            assert not server.secured, seed
            assert not any(peer.received for peer in server.peers), seed
            peer = await dial(server, of_client)
            peer.transport.write(b"x")
            await until(lambda: peer.received == b"x")
            peer.transport.close()

    run(work)


def test_random_handshakes_reach_nobody(authority: Authority):
    attacked(authority, INPUTS, 26)


@pytest.mark.long
def test_ten_thousand_handshakes_of_a_new_seed_reach_nobody(authority: Authority):
    attacked(authority, 10_000, secrets.randbits(64))
