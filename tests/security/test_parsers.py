"""What strangers send before they have authenticated: any bytes are answered or refused, in bounds.

Tokens of all mechanisms, whole exchanges of the authenticator, and login modules, cut, joined and
changed at random places. Nothing but the error of each parser may be raised, no client get in, and
no error may have a secret.
"""

import random
import secrets
from collections.abc import Callable
from contextlib import suppress

import pytest

from sparkraft.metadata.image import ScramCredential
from sparkraft.security.access_tokens import AccessToken, TokenRules, read_key_set
from sparkraft.security.authenticator import Authenticator, State
from sparkraft.security.jaas import PLAIN_MODULE, JaasError, parse_jaas
from sparkraft.security.oauthbearer import OAuthBearerServer
from sparkraft.security.plain import PlainServer
from sparkraft.security.sasl import SaslError
from sparkraft.security.scram import SHA_512, ScramServer, keys_of, salted_password
from sparkraft.security.secret import Secret
from tests.support.access_tokens import AUDIENCE, ISSUER, Issuer, key_set

PASSWORD = "planted-password-6619"
SALT = b"0123456789abcdef"
KEYS = keys_of(SHA_512, salted_password(SHA_512, Secret(PASSWORD), SALT, 4096))
CREDENTIAL = ScramCredential(SALT, KEYS.stored_key, KEYS.server_key, 4096)

NOW = 1_700_000_000
ISSUES, STRANGER = Issuer(now_s=NOW - 7200), Issuer(now_s=NOW)
RULES = TokenRules(
    issuer=ISSUER,
    audiences=frozenset({AUDIENCE}),
    clock_skew_s=30,
    user_claim="sub",
    scope_claim="scope",
)
KEYS = read_key_set(key_set(ISSUES.entry()))

EXPIRED, FORGED = (f"n,,\1auth=Bearer {each.token()}\1\1" for each in (ISSUES, STRANGER))

TOKENS = [
    EXPIRED.encode(),
    FORGED.encode(),
    b"\0alice\0wrong",
    b"alice\0alice\0wrong",
    b"n,,n=alice,r=abcdef",
    b"n,a=alice,m=x,n=ali=2Cce,r=abcdef,tokenauth=true",
    b"c=biws,r=abcdefserver,p=dHJ5",
    b"n,,\1auth=Bearer eyJhbGciOiJub25lIn0.e30.\1\1",
    b"n,a=alice,\1auth=Bearer a.b.c\1scope=x\1\1",
    b"\1",
]
MODULES = [
    f'{PLAIN_MODULE} required username="a" password="{PASSWORD}" user_b="c\\"d";',
    "a.b.C requisite x='y' /* z */ // end",
]


class NoLimits:
    def lifetime_ms(self, mechanism: str, credential_expires_at_ms: int | None) -> int | None:
        return None


def validate(token: str) -> AccessToken:
    return RULES.validate(token, lambda _: KEYS, NOW)


def changed(dice: random.Random, samples: list[bytes]) -> bytes:
    data = bytearray(b"".join(dice.choices(samples, k=dice.randint(1, 2))))
    for _ in range(dice.randint(0, 5)):
        at = dice.randrange(len(data) + 1)
        match dice.randint(0, 3):
            case 0:
                data[at : at + 1] = dice.randbytes(1)
            case 1:
                del data[at : at + dice.randint(1, 8)]
            case 2:
                data[at:at] = dice.choice((b"\0", b"=", b",", b"\1", b'"', b"\xff", b"\\", b"/*"))
            case _:
                data[at:at] = data[at : at + 8] * dice.randint(1, 4)
    return bytes(data)


def mechanisms() -> dict[str, Callable[[], object]]:
    def find(user: str) -> ScramCredential | None:
        return CREDENTIAL if user == "alice" else None

    return {
        "PLAIN": lambda: PlainServer({"alice": Secret(PASSWORD)}),
        "SCRAM-SHA-512": lambda: ScramServer(
            SHA_512, find, nonce="server", unknown_user_key=b"key"
        ),
        "OAUTHBEARER": lambda: OAuthBearerServer(validate),
    }


def fuzz(count: int, seed: int) -> None:
    """Send so many inputs; an exchange that fails takes no more of them."""
    dice = random.Random(seed)
    made = mechanisms()
    modules = [text.encode() for text in MODULES]
    sent = 0

    def next_input(samples: list[bytes]) -> bytes:
        nonlocal sent
        sent += 1
        return changed(dice, samples)

    while sent < count:
        name = dice.choice(sorted(made))
        server = made[name]()
        with suppress(SaslError):
            for _ in range(2):
                assert len(server.respond(next_input(TOKENS))) < 1_000, seed
        assert server.user == "", seed
        exchange = Authenticator(made, NoLimits(), None)
        exchange.on_handshake(dice.randint(0, 1), dice.choice([*made, "OTHER"]))
        if exchange.state is not State.FAILED:
            reply = exchange.on_token(next_input(TOKENS))
            assert PASSWORD not in str(reply), seed
        assert exchange.user == "", seed
        module = next_input(modules).decode(errors="replace")
        assert PASSWORD not in jaas_error(module), seed


def jaas_error(text: str) -> str:
    """Why it is no login module; empty: it is one."""
    try:
        parse_jaas(text)
    except JaasError as error:
        return str(error)
    return ""


def test_two_thousand_inputs_let_nobody_in_and_raise_nothing_else() -> None:
    fuzz(2_000, 26)


@pytest.mark.long
def test_a_million_inputs_of_a_new_seed_let_nobody_in_and_raise_nothing_else() -> None:
    fuzz(1_000_000, secrets.randbits(64))
