"""OAUTHBEARER on the server: which messages and which tokens are accepted."""

import json
import random
import time
from base64 import urlsafe_b64encode

import pytest

from sparkraft.security.access_tokens import AccessToken, TokenError, TokenRules, read_key_set
from sparkraft.security.oauthbearer import OAuthBearerServer
from sparkraft.security.sasl import SaslError
from tests.support.access_tokens import AUDIENCE, ISSUER, Issuer, key_set

NOW = int(time.time())
FIRST, RSA = Issuer(now_s=NOW), Issuer("rsa", algorithm="RS256", now_s=NOW)
STRANGER = Issuer(now_s=NOW)
KEYS = read_key_set(key_set(FIRST.entry(), RSA.entry()))
RULES = {
    "audiences": frozenset({AUDIENCE, "other"}),
    "issuer": ISSUER,
    "clock_skew_s": 30,
    "user_claim": "sub",
    "scope_claim": "scope",
}


def find(key_id):
    return [key for key in KEYS if key_id in {"", key.id}]


def validate(token, **changes) -> AccessToken:
    return TokenRules(**RULES | changes).validate(token, find, NOW)


def refused(token, match, **changes):
    with pytest.raises(TokenError, match=match) as caught:
        validate(token, **changes)
    assert token not in str(caught.value)


@pytest.mark.parametrize("issuer", [FIRST, RSA], ids=["EC", "RSA"])
def test_a_signed_token_names_its_user_until_it_expires(issuer):
    found = validate(issuer.token(exp=NOW + 60))
    assert found == AccessToken("alice", (NOW + 60) * 1000)
    assert validate(issuer.token(sub=" bob ")).user == "bob"
    assert validate(issuer.token(name="carol"), user_claim="name").user == "carol"


def test_a_token_without_a_key_id_is_checked_with_the_only_key_that_fits():
    assert validate(FIRST.token({"kid": None})).user == "alice"
    two = read_key_set(key_set(FIRST.entry(), STRANGER.entry(kid="second")))
    with pytest.raises(TokenError, match="2 of the keys fit"):
        TokenRules(**RULES).validate(FIRST.token({"kid": None}), lambda _: two, NOW)


@pytest.mark.parametrize(
    ("claims", "match"),
    [
        ({"exp": NOW - 30, "iat": NOW - 99}, "has expired"),
        ({"exp": None}, "no exp"),
        ({"iat": None}, "no exp or no iat"),
        ({"exp": "tomorrow"}, "exp of the token is not a time"),
        ({"exp": True}, "exp of the token is not a time"),
        ({"iat": -1}, "iat of the token is not a time"),
        ({"nbf": NOW + 31}, "not valid yet"),
        ({"iat": NOW + 9000}, "expires before it is valid"),
        ({"iss": None}, "another issuer"),
        ({"iss": ISSUER + "/"}, "another issuer"),
        ({"aud": None}, "another audience"),
        ({"aud": "kafka2"}, "another audience"),
        ({"aud": ["a", "b"]}, "another audience"),
        ({"aud": {"kafka": 1}}, "not text"),
        ({"sub": None}, "no text as sub"),
        ({"sub": " "}, "no text as sub"),
        ({"sub": 5}, "no text as sub"),
        ({"scope": ""}, "blank scope"),
        ({"scope": ["a", "a "]}, "scope twice"),
        ({"scope": ["a", 1]}, "blank scope"),
    ],
)
def test_a_token_with_a_wrong_claim_is_refused(claims, match):
    refused(FIRST.token(**claims), match)


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": NOW - 29, "iat": NOW - 99},
        {"exp": NOW + 60.5},
        {"nbf": NOW + 30},
        {"aud": ["x", "other"]},
        {"scope": "a b"},
        {"scope": ["a", "b"]},
        {"scope": 7},
    ],
)
def test_a_token_at_the_limits_is_accepted(claims):
    assert validate(FIRST.token(**claims)).user == "alice"


def test_without_expectations_any_issuer_is_accepted_and_no_audience():
    """jose4j refuses a token with an audience if none is expected."""
    rules = {"audiences": frozenset(), "issuer": None}
    assert validate(FIRST.token(iss=None, aud=None), **rules).user == "alice"
    refused(FIRST.token(), "none is expected", **rules)


def part(value) -> str:
    return urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def test_no_signature_but_that_of_a_known_key_is_accepted():
    """CVE-2026-33557, CVE-2026-110985; the key in a header is not used (CVE-2026-27962)."""
    header, claims, signature = FIRST.token().split(".")
    refused(f"{part({'alg': 'none'})}.{claims}.", "not a signed JWT")
    refused(f"{part({'alg': 'none'})}.{claims}.{signature}", "no algorithm that is accepted")
    refused(f"{part({'alg': 'HS256', 'kid': 'first'})}.{claims}.{signature}", "no algorithm")
    refused(f"{header}.{claims}.{signature[:-4]}AAAA", "signature of the token is wrong")
    refused(f"{header}.{part({'sub': 'admin'})}.{signature}", "signature of the token is wrong")
    refused(STRANGER.token(), "signature of the token is wrong")
    refused(STRANGER.token({"jwk": STRANGER.entry()}), "signature of the token is wrong")
    refused(STRANGER.token({"kid": "unknown", "jwk": STRANGER.entry()}), "none of the keys fit")
    refused(FIRST.token({"kid": "rsa"}), "none of the keys fit")
    refused(FIRST.token({"kid": "x" * 1001}), "no valid key id")
    refused(f"{part({'alg': 'ES256', 'crit': ['x']})}.{claims}.{signature}", "critical headers")
    refused("[" * 100_000, "not a signed JWT")
    nested = urlsafe_b64encode(b"[" * 100_000).decode()
    refused(f"{nested}.{claims}.{signature}", "not valid JSON")


def test_keys_that_cannot_be_used_are_left_out():
    weak = RSA.entry(kid="weak", n=RSA.entry()["n"][:171])
    entries = [
        FIRST.entry(),
        FIRST.entry(kid="for encryption", use="enc"),
        {"kty": "oct", "k": "AAAA", "kid": "symmetric"},
        {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA", "kid": "off the curve"},
        {"kty": "OKP", "kid": "unknown kind"},
        weak,
        FIRST.entry(kid="of another algorithm", alg="ES384"),
    ]
    assert [key.id for key in read_key_set(key_set(*entries))] == ["first", "of another algorithm"]
    for text in ("", "[]", "{}", '{"keys": 5}', '{"keys": [5]}', "[" * 100_000):
        with pytest.raises(ValueError, match="the document is not a JWKS"):
            read_key_set(text)


def message(token, authorization="", more=""):
    return f"n,{authorization},\x01auth=Bearer {token}\x01{more}\x01".encode()


def server():
    return OAuthBearerServer(validate)


@pytest.mark.parametrize("authorization", ["", "a=alice"])
@pytest.mark.parametrize("more", ["", "trace=a=b c\x01"])
def test_a_client_with_a_valid_token_is_authenticated(authorization, more):
    made = server()
    assert made.respond(message(FIRST.token(exp=NOW + 60), authorization, more)) == b""
    assert (made.user, made.expires_at_ms) == ("alice", (NOW + 60) * 1000)


def test_an_invalid_token_gets_a_status_and_then_the_failure():
    made = server()
    assert made.respond(message("x.y.z")) == b'{"status":"invalid_token"}'
    assert made.user == ""
    with pytest.raises(SaslError) as caught:
        made.respond(b"\x01")
    assert caught.value.public_text == '{"status":"invalid_token"}'


def test_instead_of_the_acknowledgement_another_token_may_follow():
    """As in Kafka; the number of tokens is bounded by the authenticator."""
    made = server()
    made.respond(message("x.y.z"))
    assert made.respond(message(FIRST.token())) == b""
    assert made.user == "alice"


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"y,,\x01auth=Bearer x\x01\x01",
        b"n,,\x01auth=Basic x\x01\x01",
        b"n,,\x01auth=Bearer x\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
        b"n,a=al,ice,\x01auth=Bearer x\x01\x01",
        b"n,,\x01au1h=Bearer x\x01\x01",
    ],
)
def test_messages_outside_the_grammar_are_refused(sent):
    with pytest.raises(SaslError) as caught:
        server().respond(sent)
    assert caught.value.public_text is None


def test_the_authorization_id_must_be_the_user():
    with pytest.raises(SaslError, match="different from the token's principal name"):
        server().respond(message(FIRST.token(), "a=bob"))
    with pytest.raises(SaslError, match="a user named"):
        server().respond(message(FIRST.token(sub="*")))


def test_random_changes_of_a_token_are_refused_and_raise_nothing_else():
    dice, token = random.Random(27), FIRST.token()
    for _ in range(2000):
        data = bytearray(message(token))
        for _ in range(dice.randint(1, 4)):
            data[dice.randrange(len(data))] = dice.randrange(256)
        made = server()
        try:
            answer = made.respond(bytes(data))
        except SaslError:
            continue
        # The last character of a signature has bits that are not used.
        assert answer or data[:-8] == message(token)[:-8] or made.user == "alice"
