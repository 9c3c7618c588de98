"""SASL/PLAIN on the server, by Kafka's `PlainSaslServer` and RFC 4616."""

import pytest

from sparkraft.security.plain import PlainClient, PlainServer
from sparkraft.security.sasl import SaslError
from sparkraft.security.secret import Secret

USERS = {"alice": Secret("wonder"), "*": Secret("wonder"), "bob": Secret("p\xe4ss")}

COUNT = "Invalid SASL/PLAIN response: expected 3 tokens, got"


def user_of(token: bytes) -> str:
    server = PlainServer(USERS)
    assert server.respond(token) == b""
    return server.user


def test_a_user_is_known_by_name_and_password():
    assert user_of(b"\0alice\0wonder") == "alice"
    assert user_of(b"alice\0alice\0wonder") == "alice"
    assert user_of(PlainClient("bob", Secret("p\xe4ss")).first()) == "bob"


@pytest.mark.parametrize(
    ("token", "public"),
    [
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0alice\0wonder ", "Authentication failed: Invalid username or password"),
        (b"\0Alice\0wonder", "Authentication failed: Invalid username or password"),
        (b"\0carol\0wonder", "Authentication failed: Invalid username or password"),
        (b"\0*\0wonder", "Authentication failed: Invalid username or password"),
        (
            b"bob\0alice\0wonder",
            "Authentication failed: Client requested an authorization id that is different from "
            "username",
        ),
        (b"", f"{COUNT} 1"),
        (b"alice\0wonder", f"{COUNT} 2"),
        (b"\0alice\0wonder\0", f"{COUNT} 4"),
        (b"\0alice\0wonder\0more\0and more", f"{COUNT} 4"),
        (b"\0\0wonder", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"\0alice\0\xff", None),
    ],
)
def test_everything_else_fails_and_tells_no_more_than_kafka_does(token, public):
    server = PlainServer(USERS)
    with pytest.raises(SaslError) as caught:
        server.respond(token)
    assert caught.value.public_text == public
    assert server.user == ""
    assert "wonder" not in str(caught.value)


def test_no_password_of_an_unknown_user_is_the_one_it_is_compared_with():
    with pytest.raises(SaslError):
        PlainServer(USERS).respond(b"\0carol\0no password matches an unknown user")
