"""SASL/GSSAPI: the messages around a security context, on contexts of two and of three tokens."""

import pytest

from sparkraft.security.authenticator import Authenticator, State
from sparkraft.security.gssapi import GssapiClient, GssapiServer
from sparkraft.security.kerberos_names import ShortNames
from sparkraft.security.sasl import SaslError

NAMES = ShortNames(["DEFAULT"], "R")
OFFER = b"<\x01\0\0\0>"


class Context:
    """Sends one token after another; each side must get the other's. `<>` stands for a wrapping."""

    def __init__(self, sends: list[bytes], expects: list[bytes], *, client: str) -> None:
        self._sends = list(sends)
        self._expects = list(expects)
        self._all = len(sends)
        self.client = client

    @property
    def is_complete(self) -> bool:
        return not self._sends and not self._expects

    def step(self, token: bytes | None) -> bytes:
        if token is not None and token != self._expects.pop(0):
            raise SaslError("a wrong token", is_retriable=token == b"replayed")
        return self._sends.pop(0) if self._sends else b""

    def wrap(self, message: bytes) -> bytes:
        return b"<" + message + b">"

    def unwrap(self, token: bytes) -> bytes:
        if token[:1] + token[-1:] != b"<>":
            raise SaslError("not protected")
        return token[1:-1]


def server(client: str = "alice@R", *, answers: tuple[bytes, ...] = (b"rep",)) -> GssapiServer:
    return GssapiServer(lambda: Context(list(answers), [b"req"], client=client), NAMES)


@pytest.mark.parametrize("is_mutual", [True, False])
def test_both_sides_complete(is_mutual):
    """With authentication of the server, its last token is answered by an empty one."""
    answers = [b"rep"] if is_mutual else []
    there = server(answers=tuple(answers))
    here = GssapiClient(Context([b"req"], answers, client="alice@R"))
    token: bytes | None = here.first()
    sent = [token]
    while token is not None:
        token = here.respond(there.respond(token))
        sent.append(token)
    choice = [b"", OFFER] if is_mutual else [OFFER]
    assert sent == [b"req", *choice, None]
    assert there.user == "alice"
    assert there.expires_at_ms is None


@pytest.mark.parametrize("choice", [b"\x01\0\0\0bob@R", b"\x01\xff\xff\xffkafka@broker"])
def test_the_authorization_id_of_the_client_changes_nothing(choice):
    there = server()
    assert there.respond(b"req") == b"rep"
    assert there.respond(b"") == OFFER
    assert there.respond(b"<" + choice + b">") == b""
    assert there.user == "alice"


@pytest.mark.parametrize("choice", [b"", b"\x01\0\0", b"\x02\0\0\0", b"\x07\0\0\0", b"\0\0\0\0"])
def test_other_layers_than_the_offered_one_are_refused(choice):
    there = server()
    there.respond(b"req")
    there.respond(b"")
    with pytest.raises(SaslError, match="layer"):
        there.respond(b"<" + choice + b">")
    assert there.user == ""


def test_a_choice_that_is_not_protected_is_refused():
    there = server()
    there.respond(b"req")
    there.respond(b"")
    with pytest.raises(SaslError, match="not protected"):
        there.respond(b"\x01\0\0\0")


def test_a_token_after_the_context_is_refused():
    there = server()
    there.respond(b"req")
    with pytest.raises(SaslError, match="complete"):
        there.respond(b"req")


@pytest.mark.parametrize("client", ["alice@OTHER", "alice/a/b@R", "*@R", "@R"])
def test_a_principal_without_a_user_fails(client):
    there = server(client)
    there.respond(b"req")
    there.respond(b"")
    with pytest.raises(SaslError):
        there.respond(OFFER)
    assert there.user == ""


@pytest.mark.parametrize("offer", [b"<\x06\0\1\0>", b"<\x01>", b"<>"])
def test_a_client_needs_a_server_without_a_security_layer(offer):
    here = GssapiClient(Context([b"req"], [], client=""))
    here.first()
    with pytest.raises(SaslError, match="security layer"):
        here.respond(offer)


def test_a_failure_that_may_pass_has_no_response():
    """Kafka closes the connection, so that clients try again: a replay may be a false alarm."""

    class Limits:
        def lifetime_ms(self, mechanism: str, credential_expires_at_ms: int | None) -> int | None:
            return None

    for token, has_response in ((b"wrong", True), (b"replayed", False)):
        authenticator = Authenticator({"GSSAPI": server}, Limits())
        authenticator.on_handshake(1, "GSSAPI")
        assert authenticator.blocks
        reply = authenticator.on_token(token)
        assert authenticator.state is State.FAILED
        assert reply.failure == "a wrong token"
        assert (reply.response is not None) == has_response
