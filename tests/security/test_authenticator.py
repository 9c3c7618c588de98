"""The server's SASL states: each event in each state."""

import pytest

from sparkraft.base.errors import ErrorCode
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.security.authenticator import NEXT_STATES, TOKENS_MAX, Authenticator, State
from sparkraft.security.plain import PlainServer
from sparkraft.security.secret import Secret

GOOD, BAD = b"\0alice\0wonder", b"\0alice\0wrong"


class Endless:
    """A mechanism that always wants another token."""

    blocks = False
    user = ""
    expires_at_ms = None

    def respond(self, token: bytes) -> bytes:
        return b"more"


class Limits:
    """Sessions with PLAIN last 10 s."""

    def lifetime_ms(self, mechanism: str, credential_expires_at_ms: int | None) -> int | None:
        assert credential_expires_at_ms is None
        return {"PLAIN": 10_000}.get(mechanism)


USERS = {"alice": Secret("wonder"), "bob": Secret("builder")}
MECHANISMS = {"PLAIN": lambda: PlainServer(USERS), "ENDLESS": Endless}


def made(predecessor: Authenticator | None = None) -> Authenticator:
    return Authenticator(MECHANISMS, Limits(), predecessor)


def after_alice() -> Authenticator:
    """Re-authenticates a connection of alice."""
    first = at_tokens()
    first.on_token(GOOD)
    return made(first)


def at_tokens(version: int = 1, mechanism: str = "PLAIN") -> Authenticator:
    authenticator = made()
    authenticator.on_handshake(version, mechanism)
    return authenticator


def test_a_client_authenticates_with_and_without_asking_for_versions():
    for asks in (False, True):
        authenticator = made()
        if asks:
            assert authenticator.accepts_versions()
            authenticator.on_versions()
        assert authenticator.accepts_handshake()
        reply = authenticator.on_handshake(1, "PLAIN")
        assert reply.failure is None
        assert reply.response.error_code == 0
        assert reply.response.mechanisms == ["ENDLESS", "PLAIN"]
        assert not authenticator.expects_raw_token
        reply = authenticator.on_token(GOOD)
        assert (reply.failure, reply.response.error_code, reply.response.auth_bytes) == (
            None,
            0,
            b"",
        )
        assert (authenticator.state, authenticator.user) == (State.COMPLETE, "alice")


def test_the_last_response_has_the_lifetime_of_the_session():
    authenticator = at_tokens()
    assert authenticator.on_token(GOOD).response.session_lifetime_ms == 10_000
    assert authenticator.lifetime_ms == 10_000
    assert at_tokens().on_token(BAD).response.session_lifetime_ms == 0
    assert at_tokens(mechanism="ENDLESS").on_token(b"x").response.session_lifetime_ms == 0


def test_a_client_re_authenticates_as_the_same_user_only():
    """Texts of Kafka's `SaslServerAuthenticator.ReauthInfo`."""
    again = after_alice()
    again.on_handshake(1, "PLAIN")
    assert again.on_token(GOOD).response.session_lifetime_ms == 10_000
    assert (again.state, again.user) == (State.COMPLETE, "alice")
    again = after_alice()
    again.on_handshake(1, "PLAIN")
    reply = again.on_token(b"\0bob\0builder")
    assert reply.response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert reply.response.error_message == (
        "Cannot change principals during re-authentication from User.alice: User.bob"
    )
    assert (again.state, again.user) == (State.FAILED, "")
    again = after_alice()
    again.on_handshake(1, "PLAIN")
    assert again.on_token(b"\xff").response.error_message == (
        "Authentication failed during re-authentication due to invalid credentials with SASL "
        "mechanism PLAIN"
    )


def test_an_unknown_mechanism_at_re_authentication_gets_no_response():
    again = after_alice()
    reply = again.on_handshake(1, "GSSAPI")
    assert reply.response is None
    assert reply.failure is not None
    assert again.state is State.FAILED


def test_a_client_re_authenticates_with_the_same_mechanism_only():
    """As in Kafka, the handshake succeeds and the next frame fails without a response."""
    again = after_alice()
    assert again.on_handshake(1, "ENDLESS").response.error_code == 0
    assert again.state is State.OTHER_MECHANISM
    assert not again.expects_raw_token
    reply = again.on_frame_after_other_mechanism()
    assert reply.response is None
    assert reply.failure == (
        "SASL mechanism 'ENDLESS' requested by client is not supported for re-authentication of "
        "mechanism 'PLAIN'"
    )
    assert again.state is State.FAILED


def test_after_handshake_v0_tokens_and_responses_have_no_header():
    authenticator = at_tokens(0)
    assert authenticator.expects_raw_token
    reply = authenticator.on_token(GOOD)
    assert (reply.response, reply.failure) == (b"", None)
    authenticator = at_tokens(0)
    reply = authenticator.on_token(BAD)
    assert reply.response is None
    assert reply.failure is not None
    assert authenticator.state is State.FAILED


def test_after_versions_only_a_handshake_is_accepted():
    authenticator = made()
    authenticator.on_versions()
    assert not authenticator.accepts_versions()
    assert authenticator.accepts_handshake()


def test_an_unknown_mechanism_gets_the_list_and_ends_the_connection():
    authenticator = made()
    reply = authenticator.on_handshake(1, "GSSAPI")
    assert reply.response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert reply.response.mechanisms == ["ENDLESS", "PLAIN"]
    assert reply.failure is not None
    assert authenticator.state is State.FAILED


def test_a_failure_has_error_58_and_no_more_text_than_kafka_sends():
    reply = at_tokens().on_token(BAD)
    assert reply.response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert reply.response.error_message == "Authentication failed: Invalid username or password"
    reply = at_tokens().on_token(b"\xff")
    assert reply.response.error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL "
        "mechanism PLAIN"
    )


@pytest.mark.parametrize("key", [ApiKey.SASL_HANDSHAKE, ApiKey.API_VERSIONS])
def test_another_request_in_place_of_a_token_gets_error_34_and_ends_the_connection(key):
    authenticator = at_tokens()
    reply = authenticator.on_unexpected(key)
    assert reply.response.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert reply.failure is not None
    assert authenticator.state is State.FAILED


def test_an_exchange_has_a_bounded_number_of_tokens():
    authenticator = at_tokens(mechanism="ENDLESS")
    for _ in range(TOKENS_MAX):
        assert authenticator.on_token(b"x").failure is None
    assert authenticator.on_token(b"x").failure == f"more than {TOKENS_MAX} tokens"


@pytest.mark.parametrize("now", State)
@pytest.mark.parametrize("then", State)
def test_no_state_follows_but_those_of_the_table(now, then):
    authenticator = made()
    authenticator.state = now
    if then in NEXT_STATES[now]:
        authenticator._enter(then)
        assert authenticator.state is then
    else:
        with pytest.raises(AssertionError):
            authenticator._enter(then)
