"""JWT assertions in place of a secret, and exchanged for a token (RFC 7523, KIP-1139, KIP-1258)."""

import json
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from joserfc import jws

from sparkraft.base.errors import KafkaError
from sparkraft.client import bearer_login as configs
from sparkraft.client.assertions import (
    FILE_BYTES_MAX,
    AssertionFailureError,
    AssertionFile,
    SignedAssertions,
)
from sparkraft.client.bearer_login import Allowance, BearerError, bearer_login
from sparkraft.client.token_endpoint import TokenEndpointLogin, Tokens
from sparkraft.client.token_file import TokenFileLogin
from sparkraft.client.token_requests import AssertionRequest, BearerRequest, SecretRequest
from sparkraft.security.jaas import OAUTH_MODULE, parse_jaas
from sparkraft.security.secret import Secret
from tests.support.access_tokens import Issuer
from tests.support.certificates import private_pem
from tests.support.token_endpoint import TokenServer

pytestmark = pytest.mark.real_time

NOW = 1_800_000_000
PASSPHRASE = "planted-3318"
CLIENT, CURVE = Issuer("client", algorithm="RS256"), Issuer("curve")
MODULE = parse_jaas(f"{OAUTH_MODULE} required;")


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "key.pem"
    path.write_bytes(CLIENT.private_key())
    return path


@pytest.fixture
def server() -> Iterator[TokenServer]:
    with TokenServer(Issuer(now_s=NOW), {}, keys={"app": CLIENT.key, "ec": CURVE.key}) as running:
        running.wall = lambda: NOW
        yield running


def parts(assertion: str) -> tuple[dict[str, Any], dict[str, Any]]:
    found = jws.extract_compact(assertion.encode())
    return found.headers(), json.loads(found.payload)


# ---- assertions


def test_claims_are_those_of_kafka(key):
    claims = (("aud", "https://issuer.test/token"), ("iss", "app"), ("sub", "alice"))
    made = SignedAssertions(key_path=str(key), claims=claims)
    header, payload = parts(made.next(NOW))
    assert header == {"alg": "RS256", "typ": "JWT"}
    assert payload == dict(claims) | {"iat": NOW, "exp": NOW + 300, "nbf": NOW - 60}
    changed = replace(made, lifetime_s=9, backdated_s=0, has_id=True)
    first, second = parts(changed.next(NOW))[1], parts(changed.next(NOW))[1]
    assert (first["exp"], first["nbf"]) == (NOW + 9, NOW)
    assert first["jti"] != second["jti"]


def test_a_template_replaces_the_configs_and_computed_claims_replace_both(key, tmp_path):
    """`AssertionUtils.layeredAssertionJwtTemplate`: static claims, file, dynamic claims."""
    template = tmp_path / "template.json"
    header = {"kid": "k1", "alg": "none", "typ": "x"}
    payload = {"aud": "of the file", "iss": "of the file", "exp": 1, "roles": ["a", "b"]}
    template.write_text(json.dumps({"header": header, "payload": payload}))
    made = SignedAssertions(
        key_path=str(key),
        template_path=str(template),
        claims=(("iss", "of a config"), ("sub", "of a config")),
    )
    found_header, found = parts(made.next(NOW))
    assert found_header == {"kid": "k1", "alg": "RS256", "typ": "JWT"}
    assert (found["aud"], found["iss"], found["exp"]) == ("of the file", "of the file", NOW + 300)
    assert found["sub"] == "of a config"
    assert found["roles"] == ["a", "b"]
    template.write_text("{}")
    assert parts(made.next(NOW))[1]["iss"] == "of a config"


def test_keys_are_read_in_each_form_and_again_after_a_change(tmp_path):
    path = tmp_path / "key"
    made = SignedAssertions(key_path=str(path))
    rsa, curve = CLIENT.private_der(), CURVE.private_der()
    for form in (CLIENT.private_key(), b64encode(rsa), rsa):
        path.write_bytes(form)
        assert verified(made.next(NOW), CLIENT)
    path.write_bytes(curve)
    with pytest.raises(AssertionFailureError, match="not one of RS256"):
        made.next(NOW)
    assert verified(replace(made, algorithm="ES256").next(NOW), CURVE)


def verified(assertion: str, issuer: Issuer) -> bool:
    registry = jws.JWSRegistry(algorithms=[issuer.algorithm])
    return bool(jws.deserialize_compact(assertion, issuer.key, registry=registry).payload)


def test_an_encrypted_key_needs_its_passphrase(tmp_path):
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    path = tmp_path / "key.pem"
    path.write_bytes(
        private_pem(load_pem_private_key(CLIENT.private_key(), None), PASSPHRASE.encode())
    )
    made = SignedAssertions(key_path=str(path), passphrase=Secret(PASSPHRASE))
    assert verified(made.next(NOW), CLIENT)
    assert PASSPHRASE not in repr(made)
    for wrong in (None, Secret("planted-other")):
        with pytest.raises(AssertionFailureError, match="passphrase") as caught:
            replace(made, passphrase=wrong).next(NOW)
        assert "planted" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"planted-8844", "cannot be read"),
        (b"-----BEGIN PRIVATE KEY-----\nplanted\n-----END PRIVATE KEY-----", "cannot be read"),
        (b"x" * (FILE_BYTES_MAX + 1), "more than"),
        (None, "No such file"),
    ],
)
def test_a_file_without_a_key_is_named_and_not_quoted(tmp_path, content, message):
    path = tmp_path / "key"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(AssertionFailureError, match=message) as caught:
        SignedAssertions(key_path=str(path)).next(NOW)
    assert str(path) in str(caught.value)
    assert "planted" not in str(caught.value)


@pytest.mark.parametrize(
    "content",
    ["planted", "[]", '{"header": 1}', '{"payload": ["planted"]}', "[" * 30_000, '"\\ud800"'],
)
def test_a_template_of_another_form_is_refused(key, tmp_path, content):
    template = tmp_path / "template.json"
    template.write_text(content)
    with pytest.raises(AssertionFailureError, match="assertion template") as caught:
        SignedAssertions(key_path=str(key), template_path=str(template)).next(NOW)
    assert "planted" not in str(caught.value)


def test_a_header_that_cannot_be_signed_is_refused(key, tmp_path):
    template = tmp_path / "template.json"
    template.write_text('{"header": {"crit": ["b64"], "b64": 5}}')
    with pytest.raises(AssertionFailureError, match="template does not fit"):
        SignedAssertions(key_path=str(key), template_path=str(template)).next(NOW)


def test_an_assertion_in_a_file_is_read_each_time(tmp_path):
    path = tmp_path / "assertion"
    source = AssertionFile(str(path))
    for text in ("a.b.c\n", "d.e.f"):
        path.write_text(text)
        assert source.next(NOW) == text.strip()
    path.write_text("planted&scope=all")
    with pytest.raises(AssertionFailureError, match="not a JWT") as caught:
        source.next(NOW)
    assert "planted" not in str(caught.value)


# ---- at a token endpoint


def tokens(login: TokenFileLogin | TokenEndpointLogin) -> Tokens:
    assert isinstance(login, TokenEndpointLogin)
    return Tokens(login.endpoint, wall=lambda: NOW, sleep=lambda _: None)


def login(server_url: str, *files: Path, **given: str) -> TokenFileLogin | TokenEndpointLogin:
    values = {
        configs.URL: server_url,
        **{getattr(configs, name): each for name, each in given.items()},
    }
    allowance = Allowance(
        urls=[server_url], files=[str(file) for file in files], urls_by="URLS", files_by="FILES"
    )
    return bearer_login(values.get, MODULE, allowance)


def subject_of(found: Tokens) -> str:
    return str(parts(found.current().reveal())[1]["sub"])


def assertion_configs(server: TokenServer, key: Path) -> dict[str, str]:
    return {
        "KEY_FILE": str(key),
        "AUDIENCE": server.url,
        "ISSUER": "app",
        "SUBJECT": "alice",
        "HAS_ID": "true",
        "SCOPE": "kafka write",
    }


def test_a_client_assertion_takes_the_place_of_the_secret(server, key):
    given = assertion_configs(server, key)
    found = login(server.url, key, CLIENT_ID="app", CLIENT_SECRET="unused", **given)
    assert subject_of(tokens(found)) == "alice"
    (request,) = server.requests
    assert sorted(request) == [
        "client_assertion", "client_assertion_type", "client_id", "grant_type", "scope",
    ]  # fmt: skip
    assert (request["client_id"], request["scope"]) == (["app"], ["kafka write"])


def test_an_assertion_is_exchanged_for_a_token(server, key):
    given = assertion_configs(server, key)
    found = login(server.url, key, RETRIEVER=configs.JWT_BEARER, **given)
    assert subject_of(tokens(found)) == "alice"
    (request,) = server.requests
    assert sorted(request) == ["assertion", "grant_type", "scope"]


def test_each_request_has_an_assertion_of_its_own(server, key):
    """The endpoint accepts an id once."""
    found = tokens(login(server.url, key, **assertion_configs(server, key)))
    for _ in range(3):
        assert found._request()
    assert len(server.requests) == 3


def test_an_elliptic_curve_signs(server, tmp_path):
    path = tmp_path / "key.pem"
    path.write_bytes(CURVE.private_key())
    given = assertion_configs(server, path) | {"ISSUER": "ec", "ALGORITHM": "es256"}
    assert subject_of(tokens(login(server.url, path, **given))) == "alice"


def test_a_file_of_assertions_has_priority_over_a_key(server, key, tmp_path):
    path = tmp_path / "assertion"
    given = assertion_configs(server, key)
    signed = login(server.url, key, **given)
    assert isinstance(signed, TokenEndpointLogin)
    assert isinstance(signed.endpoint.request, AssertionRequest)
    path.write_text(signed.endpoint.request.assertions.next(NOW))
    by_file = login(server.url, key, path, ASSERTION_FILE=str(path), **given)
    assert subject_of(tokens(by_file)) == "alice"
    assert by_file.endpoint.request.assertions == AssertionFile(str(path))


def test_a_missing_key_fails_at_once(server, tmp_path):
    path = tmp_path / "none"
    found = tokens(login(server.url, path, **assertion_configs(server, path)))
    with pytest.raises(KafkaError, match="No such file"):
        found.current()
    assert server.seen == 0


def test_a_stranger_gets_no_token(server, tmp_path):
    path = tmp_path / "key.pem"
    path.write_bytes(Issuer(algorithm="RS256").private_key())
    with pytest.raises(KafkaError, match=r"status 401 \(invalid_client\)"):
        tokens(login(server.url, path, **assertion_configs(server, path))).current()


# ---- configs

HTTP = "https://issuer.test/token"


def test_the_retriever_is_chosen_as_in_kafka():
    assert isinstance(login("file:///t"), TokenFileLogin)
    assert isinstance(login("file:///t", RETRIEVER=configs.OF_FILE), TokenFileLogin)
    account = {"CLIENT_ID": "a", "CLIENT_SECRET": "b"}
    key = {"KEY_FILE": "/k"}
    for given, expected in (
        (account, SecretRequest),
        (account | {"RETRIEVER": configs.CLIENT_CREDENTIALS}, SecretRequest),
        (account | key, SecretRequest),  # without `iss` a key alone is not used
        (account | {"ASSERTION_FILE": " "}, SecretRequest),
        (key | {"ISSUER": "a"}, AssertionRequest),
        ({"ASSERTION_FILE": "/k"}, AssertionRequest),
        (key | {"RETRIEVER": configs.JWT_BEARER}, BearerRequest),
    ):
        found = login(HTTP, Path("/k"), **given)
        assert isinstance(found, TokenEndpointLogin)
        assert isinstance(found.endpoint.request, expected), given


@pytest.mark.parametrize(
    ("url", "given", "message"),
    [
        (HTTP, {"ISSUER": "a"}, configs.KEY_FILE),
        (HTTP, {"RETRIEVER": configs.JWT_BEARER}, configs.KEY_FILE),
        (HTTP, {"RETRIEVER": "x.Y"}, "x.Y: the class cannot be loaded"),
        (HTTP, {"RETRIEVER": configs.OF_FILE}, "does not fit"),
        ("file:///t", {"RETRIEVER": configs.JWT_BEARER}, "does not fit"),
        (HTTP, {"ISSUER": "a", "KEY_FILE": "/etc/shadow"}, f"{configs.KEY_FILE} is not in FILES"),
        (HTTP, {"ASSERTION_FILE": "/etc/shadow"}, f"{configs.ASSERTION_FILE} is not in FILES"),
        (
            HTTP,
            {"ISSUER": "a", "KEY_FILE": "/k", "TEMPLATE_FILE": "/etc/shadow"},
            f"{configs.TEMPLATE_FILE} is not in FILES",
        ),
        (HTTP, {"ISSUER": "a", "KEY_FILE": "/k", "ALGORITHM": "HS256"}, "RS256, ES256"),
        (HTTP, {"ISSUER": "a", "KEY_FILE": "/k", "LIFETIME": "86401"}, "from 0 to 86400"),
        (HTTP, {"ISSUER": "a", "KEY_FILE": "/k", "BACKDATED": "-1"}, "from 0 to 3600"),
        (HTTP, {"ISSUER": "a", "KEY_FILE": "/k", "BACKDATED": "soon"}, "from 0 to 3600"),
    ],
)
def test_configs_that_cannot_work_are_named(url, given, message):
    with pytest.raises(BearerError, match=message):
        login(url, Path("/k"), PASSPHRASE=PASSPHRASE, **given)
