"""OAUTHBEARER listeners: their configuration, and where their keys come from."""

import asyncio
import threading
import time
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from sparkraft.security.jaas import OAUTH_MODULE
from sparkraft.security.sasl import SaslError
from sparkraft.server import key_sets
from sparkraft.server.config import ALLOWED_URLS, ConfigError, NodeConfig
from sparkraft.server.env import SystemClock
from sparkraft.server.key_sets import KeySet, KeySetError, KeySource
from sparkraft.server.sasl_config import sasl_of_listeners
from tests.server.harness import until
from tests.support.access_tokens import AUDIENCE, ISSUER, Issuer, key_set

URL = "sasl.oauthbearer.jwks.endpoint.url"
FIRST, SECOND = Issuer(), Issuer("second")


class KeyServer(ThreadingHTTPServer):
    """Serves `document` with `status` on loopback."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.document = key_set(FIRST.entry())
        self.status = 200
        self.asked = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/keys"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, KeyServer)
        server.asked += 1
        self.send_response(server.status)
        self.send_header("Location", "/other")
        self.end_headers()
        self.wfile.write(server.document.encode())

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def key_server():
    with KeyServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def config(**changes):
    listener = "listener.name.sasl_plaintext.oauthbearer"
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT,"
        "CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "1@127.0.0.1:1",
        "log.dirs": "/nowhere",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{listener}.sasl.jaas.config": f"{OAUTH_MODULE} required;",
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        **changes,
    }
    return NodeConfig({key: value for key, value in properties.items() if value is not None})


async def mechanism(**changes):
    """Begins an exchange on the listener."""
    (sasl,) = sasl_of_listeners(config(**changes), None, SystemClock()).values()
    return sasl.mechanisms["OAUTHBEARER"]


def accepts(begin, token: str) -> bool:
    server = begin()
    server.respond(f"n,,\x01auth=Bearer {token}\x01\x01".encode())
    return bool(server.user)


def test_keys_are_read_from_a_url_and_a_file_that_are_allowed(tmp_path):
    path = tmp_path / "keys.json"
    path.write_text(key_set(FIRST.entry()))

    async def test(server):
        for url in (server.url, f"file://{path}"):
            begin = await mechanism(**{URL: url, ALLOWED_URLS: f"http://elsewhere,{url}"})
            assert accepts(begin, FIRST.token())
            assert not accepts(begin, SECOND.token())
            assert not accepts(begin, FIRST.token(aud="another"))

    with key_server() as server:
        asyncio.run(test(server))


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({}, "needs sasl.oauthbearer.jwks.endpoint.url; tokens without a signature"),
        ({URL: "http://127.0.0.1:1/k"}, f"is not in {ALLOWED_URLS}"),
        ({URL: "http://127.0.0.1:1/k", ALLOWED_URLS: "http://127.0.0.1:1"}, "is not in"),
        ({URL: "file:///etc/passwd"}, f"is not in {ALLOWED_URLS}"),
        ({URL: "file:///none", ALLOWED_URLS: "file:///none"}, "No such file"),
        ({URL: "ftp://x/k", ALLOWED_URLS: "ftp://x/k"}, "cannot read the JWKS"),
        ({"sasl.server.callback.handler.class": "x.Y"}, "class x.Y of .* can't be loaded"),
        ({"sasl.oauthbearer.jwt.validator.class": "x.Y"}, "class x.Y of .* can't be loaded"),
        ({"listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": None}, "is missing"),
    ],
)
def test_a_listener_whose_tokens_cannot_be_verified_does_not_start(changes, match):
    with pytest.raises(ConfigError, match=match):
        asyncio.run(mechanism(**changes))


def test_no_error_quotes_what_was_read(tmp_path):
    """CVE-2025-27817."""
    path = tmp_path / "secret"
    path.write_text("a-secret-6642")
    changes = {URL: f"file://{path}", ALLOWED_URLS: f"file://{path}"}
    with pytest.raises(ConfigError, match="cannot read the JWKS") as caught:
        asyncio.run(mechanism(**changes))
    assert "a-secret-6642" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "document"),
    [
        (500, key_set(FIRST.entry())),
        (302, key_set(FIRST.entry())),
        (200, key_set()),
        (200, "x"),
        (200, key_set(FIRST.entry()) + " " * key_sets.ANSWER_BYTES_MAX),
    ],
)
def test_an_answer_that_is_not_a_key_set_is_an_error(status, document):
    with key_server() as server:
        server.status, server.document = status, document
        with pytest.raises(KeySetError, match="JWKS of http"):
            key_sets.read(server.url)
        assert server.asked == 1


@asynccontextmanager
async def keys(server, *, refresh_ms=3_600_000):
    source = KeySource(url=server.url, refresh_ms=refresh_ms, retry_ms=5, retry_ms_max=20)
    yield KeySet(source, SystemClock())


def ids(found, key_id):
    return [key.id for key in found.find(key_id)]


def test_an_unknown_key_id_causes_one_read_a_minute():
    async def test(server):
        async with keys(server) as found:
            assert ids(found, "second") == []
            server.document = key_set(SECOND.entry())
            for number in range(key_sets.UNKNOWN_KEYS_MAX):
                assert ids(found, f"x{number}") == []
            await until(lambda: ids(found, "second") == ["second"])
            assert ids(found, "first") == []
            asked = server.asked
            for _ in range(10):
                ids(found, "x15")
            await asyncio.sleep(0.05)
            assert server.asked <= asked + 1

    with key_server() as server:
        asyncio.run(test(server))


def test_keys_are_read_again_and_kept_while_they_cannot_be_read(caplog):
    async def test(server):
        async with keys(server, refresh_ms=10) as found:
            server.status = 500
            await until(lambda: "the keys read before are used" in caplog.text)
            assert ids(found, "first") == ["first"]
            server.status, server.document = 200, key_set(SECOND.entry())
            await until(lambda: ids(found, "second") == ["second"])

    with key_server() as server:
        asyncio.run(test(server))


def test_a_login_never_waits_for_a_read(monkeypatch):
    monkeypatch.setattr(key_sets, "ANSWER_SECONDS_MAX", 0.5)

    async def test(server):
        async with keys(server) as found:
            server.shutdown()
            begin = time.monotonic()
            assert ids(found, "second") == []
            assert time.monotonic() - begin < key_sets.ANSWER_SECONDS_MAX / 2

    with key_server() as server:
        asyncio.run(test(server))


def test_a_failed_token_ends_with_the_acknowledgement(tmp_path):
    path = tmp_path / "keys.json"
    path.write_text(key_set(FIRST.entry()))

    async def test():
        begin = await mechanism(**{URL: f"file://{path}", ALLOWED_URLS: f"file://{path}"})
        server = begin()
        token = SECOND.token()
        server.respond(f"n,,\x01auth=Bearer {token}\x01\x01".encode())
        with pytest.raises(SaslError, match="keys fit"):
            server.respond(b"\x01")

    asyncio.run(test())
