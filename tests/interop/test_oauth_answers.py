"""Access tokens: sparkraft and Apache Kafka accept and refuse the same ones, in the same words."""

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.interop.test_reauthentication_answers import answers
from tests.server.test_sasl_gate import handshake, token
from tests.support.access_tokens import AUDIENCE, ISSUER, Issuer, key_set
from tests.support.nodes import KafkaNode, NodeProcess
from tests.support.sasl import OAUTHBEARER, PLAIN, sasl_node

pytestmark = [pytest.mark.java, pytest.mark.real_clients, pytest.mark.long]

HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
ALLOWED = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
EC, RSA = Issuer("ec"), Issuer("rsa", algorithm="RS256")
STRANGER = Issuer("ec")
NOW = int(time.time())
LATER = NOW + 1_000_000

CLAIMS = {
    "all": {},
    "expired": {"exp": NOW - 300, "iat": NOW - 600},
    "no exp": {"exp": None},
    "no iat": {"iat": None},
    "not yet": {"nbf": LATER, "exp": LATER + 9},
    "before it is issued": {"iat": LATER},
    "another issuer": {"iss": "x"},
    "no issuer": {"iss": None},
    "another audience": {"aud": "x"},
    "a list with the audience": {"aud": ["x", AUDIENCE]},
    "no audience": {"aud": None},
    "no user": {"sub": None},
    "a blank user": {"sub": "  "},
    "a number as user": {"sub": 7},
    "scopes": {"scope": ["a", "b"]},
    "a scope twice": {"scope": ["a", "a"]},
    "a blank scope": {"scope": " "},
}
HEADERS = {
    "no key id": {"kid": None},
    "another key's id": {"kid": "rsa"},
    "an unknown key id": {"kid": "x"},
    "a type": {"typ": "at+jwt"},
    "a key of its own": {"jwk": STRANGER.entry()},
}


@pytest.fixture(scope="module")
def nodes(tmp_path_factory, kafka_jars) -> Iterator[list[NodeProcess]]:
    """Ours, then Kafka's, with one configuration."""
    keys = tmp_path_factory.mktemp("keys") / "keys.json"
    keys.write_text(key_set(EC.entry(), RSA.entry()))
    ours = sasl_node(tmp_path_factory.mktemp("ours"), mechanisms=(PLAIN, OAUTHBEARER))
    ours.overrides |= {
        "listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class": HANDLER,
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{keys}",
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        ALLOWED: f"file://{keys}",
    }
    ours.write_properties()
    kafkas = KafkaNode(tmp_path_factory.mktemp("kafkas"), jars=kafka_jars)
    kafkas.environment = {"JAVA_TOOL_OPTIONS": f"-D{ALLOWED}=file://{keys}"}
    kafkas.overrides |= {
        key: value.replace(f":{ours.port}", f":{kafkas.port}").replace(
            f":{ours.controller_port}", f":{kafkas.controller_port}"
        )
        for key, value in ours.overrides.items()
    }
    kafkas.write_properties()
    with ExitStack() as stack:
        yield [stack.enter_context(node) for node in (ours, kafkas)]


SUCCESS = bytes(8)
"""No error, an empty text, an empty token."""

ACCEPTED = {"all", "a list with the audience", "scopes", "no key id", "a type", "a key of its own"}


def compare(nodes: list[NodeProcess], text: str) -> bool:
    """Whether both nodes accept a token; they must give the same answers."""
    first = f"n,,\x01auth=Bearer {text}\x01\x01".encode()
    sent = [handshake(mechanism=OAUTHBEARER), token(first, version=0), token(b"\x01", version=0)]
    ours, kafkas = (answers(node, sent) for node in nodes)
    assert ours[1:] == kafkas[1:]
    return ours[1][4:] == SUCCESS


@pytest.mark.parametrize("case", CLAIMS)
def test_claims(nodes: list[NodeProcess], case: str) -> None:
    assert compare(nodes, EC.token(**CLAIMS[case])) == (case in ACCEPTED)


@pytest.mark.parametrize("case", HEADERS)
def test_headers(nodes: list[NodeProcess], case: str) -> None:
    assert compare(nodes, EC.token(HEADERS[case])) == (case in ACCEPTED)


def test_signatures(nodes: list[NodeProcess]) -> None:
    header, claims, signature = EC.token().split(".")
    assert compare(nodes, RSA.token())
    assert not compare(nodes, STRANGER.token())
    assert not compare(nodes, f"{header}.{claims}.{signature[:-4]}AAAA")
    assert not compare(nodes, f"{header}.{claims}.")
    assert not compare(nodes, "x.y.z")
