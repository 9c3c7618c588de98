"""SCRAM: the RFC's example, both sides against each other, and attacks on an exchange."""

import hmac
from base64 import b64decode, b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkraft.metadata.image import ScramCredential
from sparkraft.security.delegation_token import (
    REMOVED_MAX,
    TokenCredentials,
    TokenIndex,
    TokenKey,
)
from sparkraft.security.jaas import PLAIN_MODULE, SCRAM_MODULE, JaasError, parse_jaas
from sparkraft.security.login import login_of
from sparkraft.security.sasl import SaslError
from sparkraft.security.scram import (
    CLIENT_ITERATIONS_MAX,
    SHA_256,
    SHA_512,
    ScramClient,
    ScramMechanism,
    ScramServer,
    TokenLogin,
    keys_of,
    salted_password,
)
from sparkraft.security.secret import Secret

PASSWORD = Secret("correct horse")
SALT = b"0123456789abcdef"


def credential(
    mechanism: ScramMechanism,
    password: Secret = PASSWORD,
    salt: bytes = SALT,
    iterations: int = 4096,
) -> ScramCredential:
    keys = keys_of(mechanism, salted_password(mechanism, password, salt, iterations))
    return ScramCredential(salt, keys.stored_key, keys.server_key, iterations)


CREDENTIALS = {mechanism: credential(mechanism) for mechanism in (SHA_256, SHA_512)}


def server(mechanism: ScramMechanism = SHA_256, users: tuple[str, ...] = ("alice",)) -> ScramServer:
    known = CREDENTIALS[mechanism]
    return ScramServer(
        mechanism,
        lambda user: known if user in users else None,
        nonce="server",
        unknown_user_key=b"key",
    )


def client(
    mechanism: ScramMechanism = SHA_256, user: str = "alice", password: Secret = PASSWORD
) -> ScramClient:
    return ScramClient(mechanism, user, password, nonce="client")


def test_the_example_of_rfc_7677():
    salt = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    stored = credential(SHA_256, Secret("pencil"), salt)
    nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    there = ScramServer(SHA_256, lambda _: stored, nonce=nonce, unknown_user_key=b"key")
    here = ScramClient(SHA_256, "user", Secret("pencil"), nonce="rOprNGfwEbeRWgbNEkqO")
    assert here.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    challenge = there.respond(here.first())
    assert challenge == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    final = here.respond(challenge)
    assert final == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    verdict = there.respond(final)
    assert verdict == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert here.respond(verdict) is None
    assert there.user == "user"


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
@pytest.mark.parametrize("user", ["alice", "a,b=c", "=2C", "ölaf", "a b"])
def test_a_client_logs_in(mechanism, user):
    there, here = server(mechanism, (user,)), client(mechanism, user)
    verdict = there.respond(here.respond(there.respond(here.first())))
    assert here.respond(verdict) is None
    assert there.user == user


@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("carol", "correct horse")])
def test_an_unknown_user_takes_as_many_messages_as_a_wrong_password(user, password):
    there, here = server(), client(user=user, password=Secret(password))
    final = here.respond(there.respond(here.first()))
    with pytest.raises(SaslError, match="unknown or the password is wrong") as caught:
        there.respond(final)
    assert caught.value.public_text is None
    assert there.user == ""


def test_an_unknown_user_has_the_same_salt_each_time_and_others_another():
    def challenge(user: str) -> bytes:
        return server().respond(client(user=user).first())

    assert challenge("carol") == challenge("carol")
    assert challenge("carol") != challenge("dave")


def replaced(message: bytes, old: bytes, new: bytes) -> bytes:
    assert old in message
    return message.replace(old, new)


def final_message() -> tuple[ScramServer, bytes]:
    there, here = server(), client()
    return there, here.respond(there.respond(here.first()))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b"r=clientserver", b"r=client", "another nonce"),
        (b"r=clientserver", b"r=clientserver2", "another nonce"),
        (b"r=clientserver", b"r=", "invalid"),
        (b"c=biws", b"c=eSws", "channel binding"),
        (b"c=biws", b"c=bi", "channel binding|base64"),
        (b"p=", b"p=AAAA", "wrong"),
        (b",p=", b",x=", "invalid"),
        (b"c=biws,", b"", "invalid"),
    ],
)
def test_a_changed_final_message_fails(old, new, message):
    there, final = final_message()
    with pytest.raises(SaslError, match=message):
        there.respond(replaced(final, old, new))
    assert there.user == ""


def test_a_recorded_login_cannot_be_replayed():
    """CVE-2024-56128: the nonce of the final message must be that of this exchange."""
    there, here = server(), client()
    first = here.first()
    final = here.respond(there.respond(first))
    there.respond(final)
    assert there.user == "alice"
    again = ScramServer(
        SHA_256, lambda _: CREDENTIALS[SHA_256], nonce="other", unknown_user_key=b"key"
    )
    again.respond(first)
    with pytest.raises(SaslError, match="another nonce"):
        again.respond(final)
    with pytest.raises(SaslError, match="after the end"):
        there.respond(final)


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,n=alice",
        b"y,,n=alice,r=client",
        b"p=tls-unique,,n=alice,r=client",
        b"n,,n=,r=client",
        b"n,,n=a=b,r=client",
        b"n,,n=a=2c,r=client",
        b"n,,n=alice,r=",
        b"n,,n=alice,r=cl ient",
        b"n,,m=ext,n=alice,r=client",
        b"n,,n=alice,r=client,",
        b"n,,n=\xff,r=client",
        b"n,,n=alice,r=client\n",
    ],
)
def test_a_first_message_outside_the_grammar_fails(first):
    with pytest.raises(SaslError, match=r"invalid|UTF-8"):
        server().respond(first)


def test_an_authorization_id_must_be_the_user():
    assert server().respond(b"n,a=alice,n=alice,r=client").startswith(b"r=clientserver,")
    with pytest.raises(SaslError, match="different from username") as caught:
        server().respond(b"n,a=bob,n=alice,r=client")
    assert caught.value.public_text is not None


def test_extensions_are_part_of_the_proof_and_otherwise_ignored():
    there = server()
    bare = b"n=alice,r=client,tokenauth=false,other=true"
    challenge = there.respond(b"n,," + bare)
    stored = CREDENTIALS[SHA_256]
    salted = salted_password(SHA_256, PASSWORD, SALT, 4096)
    without_proof = b"c=biws,r=clientserver"
    message = bare + b"," + challenge + b"," + without_proof
    signature = hmac.digest(stored.stored_key, message, "sha256")
    key = hmac.digest(salted, b"Client Key", "sha256")
    proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
    there.respond(without_proof + b",p=" + b64encode(proof))
    assert there.user == "alice"


def test_too_few_iterations_of_a_stored_credential_fail():
    weak = credential(SHA_256, iterations=1)
    there = ScramServer(SHA_256, lambda _: weak, nonce="server", unknown_user_key=b"key")
    with pytest.raises(SaslError, match="less than 4096"):
        there.respond(client().first())


@pytest.mark.parametrize(
    ("challenge", "message"),
    [
        (b"r=clientserver,s=AAAA,i=4095", "iterations"),
        (b"r=clientserver,s=AAAA,i=%d" % (CLIENT_ITERATIONS_MAX + 1), "iterations"),
        (b"r=clientserver,s=AAAA,i=999999999999", "invalid"),
        (b"r=client,s=AAAA,i=4096", "nonce"),
        (b"r=other,s=AAAA,i=4096", "nonce"),
        (b"r=clientserver,s=,i=4096", "invalid"),
        (b"e=unknown-user", "invalid"),
    ],
)
def test_a_client_refuses_what_a_server_may_not_ask(challenge, message):
    with pytest.raises(SaslError, match=message):
        client().respond(challenge)


@pytest.mark.parametrize("verdict", [b"v=AAAA", b"e=invalid-proof", b"", b"v="])
def test_a_client_refuses_a_server_that_does_not_know_the_password(verdict):
    there, here = server(), client()
    here.respond(there.respond(here.first()))
    with pytest.raises(SaslError, match="does not know the password"):
        here.respond(verdict)


@given(st.binary(max_size=100), st.binary(max_size=100))
def test_any_bytes_fail_or_are_a_challenge(first, final):
    there = server()
    try:
        there.respond(first)
        there.respond(final)
    except SaslError:
        pass
    assert there.user == ""


def test_a_login_module_of_scram_is_for_both_mechanisms():
    module = parse_jaas(f'{SCRAM_MODULE} required username="alice" password="wonder";')
    for mechanism in (SHA_256, SHA_512):
        login = login_of(mechanism.name, module)
        assert login.client("nonce", "host").first() == b"n,,n=alice,r=nonce"
        assert "wonder" not in repr(login)
    with pytest.raises(JaasError, match="not for SASL mechanism PLAIN"):
        login_of("PLAIN", module)


# ---- delegation tokens

KEY = TokenKey(Secret("planted-secret-key-3391"))
TOKEN_ID = "pkVdxvNqTTGuR8fnMmRLcg"


def token_login(mechanism):
    credential = TokenCredentials(KEY).credential(mechanism, TOKEN_ID)
    return TokenLogin(credential, "alice", expires_at_ms=123)


def by_token(mechanism, *, token_id=TOKEN_ID, known=TOKEN_ID, password=None):
    """A login by token; the server knows the token `known`, and a user of the same name."""
    hmac_text = b64encode(KEY.hmac_of(TOKEN_ID)).decode()
    text = (
        f'{SCRAM_MODULE} required username="{token_id}" password="{password or hmac_text}" '
        'tokenauth="true";'
    )
    here = login_of(mechanism.name, parse_jaas(text)).client("client", "host")
    there = ScramServer(
        mechanism,
        lambda _: None,
        nonce="server",
        unknown_user_key=b"key",
        lookup_token=lambda id_: token_login(mechanism) if id_ == known else None,
    )
    first = here.first()
    assert first == b"n,,n=%b,r=client,tokenauth=true" % token_id.encode()
    final = here.respond(there.respond(first))
    assert here.respond(there.respond(final)) is None
    return there


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
def test_a_client_with_a_token_is_authenticated_as_its_owner(mechanism):
    there = by_token(mechanism)
    assert (there.user, there.expires_at_ms, there.token_authenticated) == ("alice", 123, True)


@pytest.mark.parametrize("wrong", [{"known": "other"}, {"password": "wrong"}])
def test_an_unknown_token_fails_like_a_wrong_hmac(wrong):
    with pytest.raises(SaslError, match="the user is unknown or the password is wrong"):
        by_token(SHA_256, **wrong)


def test_a_token_is_no_user_and_a_user_is_no_token():
    """Without the extension a token's id is looked up among users."""
    asked = []
    for extensions in (b"", b",tokenauth=false", b",other=true"):
        ScramServer(
            SHA_256, asked.append, nonce="server", unknown_user_key=b"key",
            lookup_token=lambda _: pytest.fail("looked up as a token"),
        ).respond(b"n,,n=alice,r=client" + extensions)  # fmt: skip
    assert asked == ["alice"] * 3


def test_the_credential_of_a_token_is_the_same_on_every_node_and_kept():
    one, other = TokenCredentials(KEY, credentials_max=1), TokenCredentials(KEY)
    first = one.credential(SHA_256, "a")
    assert first == other.credential(SHA_256, "a")
    assert one.credential(SHA_256, "a") is first
    assert one.credential(SHA_512, "a").salt != first.salt
    assert one.credential(SHA_256, "a") is not first, "the longest unused one was dropped"
    assert "planted" not in repr([KEY, first, one])


def test_an_index_forgets_removed_tokens_when_they_are_most_of_it():
    index = TokenIndex(KEY)
    for number in range(REMOVED_MAX + 3):
        index.add(f"t{number}")
    index.maybe_forget(["t0", "t1"])
    assert len(index) == REMOVED_MAX + 3
    index.maybe_forget(["t0"])
    assert len(index) == 1
    assert index.find(KEY.hmac_of("t0")) == "t0"
    assert index.find(KEY.hmac_of("t1")) is None
    index.replace(["t2"])
    assert index.find(KEY.hmac_of("t2")) == "t2"
    assert index.find(KEY.hmac_of("t0")) is None


def test_only_scram_has_the_option_of_tokens():
    text = f'{PLAIN_MODULE} required username="alice" password="x" tokenauth="true";'
    login = login_of("PLAIN", parse_jaas(text))
    assert not login.by_token
    assert login.client("nonce", "host").first() == b"\0alice\0x"
