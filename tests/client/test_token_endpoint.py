"""Access tokens of a token endpoint: requests, retries, and which token is used for how long."""

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from sparkraft.base.errors import KafkaError
from sparkraft.client.bearer_login import (
    CLIENT_ID,
    CLIENT_SECRET,
    READ_TIMEOUT,
    SCOPE,
    URL,
    URL_ENCODES,
    Allowance,
    BearerError,
    bearer_login,
)
from sparkraft.client.token_endpoint import TokenEndpoint, TokenEndpointLogin, Tokens
from sparkraft.client.token_file import TokenFileLogin
from sparkraft.client.token_requests import SecretRequest
from sparkraft.security.jaas import OAUTH_MODULE, parse_jaas
from sparkraft.security.secret import Secret
from tests.support.access_tokens import Issuer
from tests.support.certificates import Authority
from tests.support.token_endpoint import Answer, TokenServer

pytestmark = pytest.mark.real_time

SECRET = "s3cret+/&=6612"
NOW = 1_800_000_000
ACCOUNT = SecretRequest(client_id="node", client_secret=Secret(SECRET))


@pytest.fixture
def server() -> Iterator[TokenServer]:
    with TokenServer(Issuer(now_s=NOW), {"node": SECRET}) as running:
        yield running


class Time:
    """Passes only in waits."""

    def __init__(self) -> None:
        self.now = float(NOW)
        self.waits: list[float] = []

    def wall(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


def endpoint(server: TokenServer) -> TokenEndpoint:
    return TokenEndpoint(url=server.url, request=ACCOUNT)


def tokens(server: TokenServer, time: Time, **changes: object) -> Tokens:
    return Tokens(replace(endpoint(server), **changes), wall=time.wall, sleep=time.sleep)


def with_account(**changes: object) -> SecretRequest:
    return replace(ACCOUNT, **changes)


def test_a_token_is_used_for_most_of_its_life(server):
    time = Time()
    shared = tokens(server, time, request=with_account(scope="kafka write"))
    first = shared.current()
    time.now += 2879
    assert shared.current() is first
    time.now += 2
    server.issuer.token()
    second = shared.current()
    assert second is not first
    assert [request["scope"] for request in server.requests] == [["kafka write"]] * 2
    assert SECRET not in f"{shared!r} {endpoint(server)!r}"


def test_the_old_token_is_used_while_there_is_no_new_one(server):
    time = Time()
    shared = tokens(server, time)
    first = shared.current()
    time.now += 3000
    server.answers = [Answer(401, "")]
    assert shared.current() is first
    time.now += 600
    server.answers = [Answer(401, "")]
    with pytest.raises(KafkaError, match="status 401"):
        shared.current()


def test_failures_that_may_pass_are_repeated_with_growing_waits(server):
    time = Time()
    server.answers = [Answer(503, "busy"), Answer(500, ""), Answer(200, "{")]
    assert tokens(server, time).current().reveal().count(".") == 2
    assert time.waits == [0.1, 0.2, 0.4]
    assert server.seen == 4


def test_they_are_not_repeated_for_longer_than_configured(server):
    time = Time()
    server.answers = [Answer(503, "busy")] * 50
    with pytest.raises(KafkaError, match="status 503"):
        tokens(server, time, retry_ms_max=1000).current()
    assert sum(time.waits) == pytest.approx(1.0)
    assert server.seen == 5


REFUSALS = {
    "a wrong secret": (
        Answer(401, '{"error": "invalid_client", "error_description": "quoted"}'),
        r"status 401 \(invalid_client\)",
    ),
    "a page": (Answer(404, "<html>quoted</html>"), "status 404"),
    "an error that is text": (Answer(400, '{"error": "quoted by mistake"}'), "status 400$"),
    "no token": (Answer(200, '{"quoted": "x"}'), "no access token"),
    "a token of another form": (Answer(200, '{"access_token": "quoted token"}'), "no access token"),
    "no JWT": (Answer(200, '{"access_token": "quoted"}'), "not a JWT"),
    "a JWT without an end": (Answer(200, '{"access_token": "quoted.e30.quoted"}'), "not a JWT"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_is_not_repeated_and_not_quoted(server, name):
    time = Time()
    answer, message = REFUSALS[name]
    server.answers = [answer]
    with pytest.raises(KafkaError, match=message) as caught:
        tokens(server, time).current()
    assert "quoted" not in str(caught.value)
    assert SECRET not in str(caught.value)
    assert time.waits == []


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Answer(302, "", {"Location": "http://127.0.0.1:1/"}), "status 302"),
        (Answer(200, json.dumps({"access_token": "x" * (1 << 20)})), "too long"),
        (Answer(200, "[1]"), "not an object"),
    ],
)
def test_redirects_and_long_responses_are_failures(server, answer, message):
    server.answers = [answer] * 50
    with pytest.raises(KafkaError, match=message):
        tokens(server, Time(), retry_ms_max=200).current()


def test_nobody_listens(server):
    shared = Tokens(replace(endpoint(server), url="http://127.0.0.1:1/token", retry_ms_max=1))
    with pytest.raises(KafkaError, match="Connection refused"):
        shared.current()


def test_the_account_is_url_encoded_if_configured(server):
    server.accounts = {"node": "s3cret%2B%2F%26%3D6612"}
    assert tokens(server, Time(), request=with_account(url_encodes=True)).current()


def test_a_secret_is_only_sent_to_a_server_with_a_trusted_certificate(tmp_path, monkeypatch):
    authority = Authority(tmp_path)
    issuer = Issuer(now_s=NOW)
    with TokenServer(issuer, {"node": SECRET}, authority.issue("issuer")) as secure:
        with pytest.raises(KafkaError, match="no token from https"):
            tokens(secure, Time(), retry_ms_max=1).current()
        assert secure.seen == 0
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca_path))
        assert tokens(secure, Time()).current()
        assert secure.seen == 1


# ---- configs

MODULE = parse_jaas(f"{OAUTH_MODULE} required;")
ENDPOINT = "https://issuer.test/token"
CONFIGS = {URL: ENDPOINT, CLIENT_ID: "node", CLIENT_SECRET: SECRET}


def login(configs, module=MODULE):
    allowance = Allowance(
        urls=[ENDPOINT, "file:///t"], files=[], urls_by="A LIST", files_by="ANOTHER LIST"
    )
    return bearer_login(configs.get, module, allowance)


def test_an_account_is_in_configs_or_in_the_login_module():
    module = parse_jaas(
        f'{OAUTH_MODULE} required clientId="node" clientSecret="{SECRET}" scope="all";'
    )
    by_configs = login(CONFIGS | {SCOPE: "all"})
    assert isinstance(by_configs, TokenEndpointLogin)
    assert by_configs == login({URL: ENDPOINT}, module)
    assert login(CONFIGS | {SCOPE: "all", CLIENT_ID: "other"}, module) != by_configs
    assert SECRET not in repr(by_configs)
    assert login(CONFIGS | {URL_ENCODES: "true"}).endpoint.request.url_encodes
    assert login({URL: "file:///t"}) == TokenFileLogin("/t")


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        ({}, f"needs {URL}"),
        ({URL: "ftp://issuer.test/token"}, f"needs {URL}"),
        ({URL: "https://other.test/token"}, "is not in A LIST"),
        ({URL: "file:///etc/passwd"}, "is not in A LIST"),
        ({URL: ENDPOINT}, f"needs {CLIENT_ID}"),
        ({URL: ENDPOINT, CLIENT_ID: "node", CLIENT_SECRET: "  "}, f"needs {CLIENT_SECRET}"),
        (CONFIGS | {READ_TIMEOUT: "0"}, READ_TIMEOUT),
        (CONFIGS | {READ_TIMEOUT: "soon"}, READ_TIMEOUT),
    ],
)
def test_configs_that_cannot_work_are_named(configs, message):
    with pytest.raises(BearerError, match=message) as caught:
        login(configs)
    assert SECRET not in str(caught.value)
