"""Who a visitor is and what the visitor may do."""

import asyncio
from ipaddress import ip_network

import pytest

from sparkraft.console import access
from sparkraft.console.access import Access, AccessSettings, TooManyFailuresError
from sparkraft.console.roles import Role, Visitor
from sparkraft.console.users import Password, User, parse_users

ANN = User("ann", Role.EDITOR, Password.of("correct horse"))
USERS = {"ann": ANN, "bob": User("bob", Role.VIEWER)}
PROXIES = (ip_network("10.0.0.0/24"),)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def sign_in(made: Access, name: str, password: str) -> str | None:
    return asyncio.run(made.sign_in(name, password))


def visitor(made: Access, cookie: str | None = None, address: str = "127.0.0.1", **headers: str):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return made.visitor(address, cookie, named)


def test_a_token_makes_one_editor():
    made = Access(AccessSettings(token="secret"))
    assert visitor(made) == Visitor(None, Role.READER)
    assert made.sign_in_with_token("guess") is None
    cookie = made.sign_in_with_token("secret")
    assert visitor(made, cookie) == Visitor("editor", Role.EDITOR)
    assert made.sign_in_with_token("secret") is None
    made.sign_out(cookie)
    assert visitor(made, cookie) == Visitor(None, Role.READER)


def test_a_user_signs_in_with_a_password():
    made = Access(AccessSettings(users=USERS))
    assert visitor(made) is None
    assert sign_in(made, "ann", "wrong horse") is None
    assert sign_in(made, "bob", "") is None, "bob has no password"
    assert sign_in(made, "eve", "correct horse") is None
    cookie = sign_in(made, "ann", "correct horse")
    assert visitor(made, cookie) == Visitor("ann", Role.EDITOR)
    assert visitor(made, "another") is None


def test_without_a_token_no_token_is_right():
    made = Access(AccessSettings(users=USERS))
    assert made.sign_in_with_token("") is None


@pytest.mark.parametrize("role", Role)
def test_options_limit_every_role(role: Role):
    made = Access(AccessSettings(users=USERS, role_max=role))
    assert visitor(made, sign_in(made, "ann", "correct horse")) == Visitor("ann", role)


def test_a_session_ends_if_it_is_not_used():
    clock = Clock()
    made = Access(AccessSettings(users=USERS), clock)
    cookie = sign_in(made, "ann", "correct horse")
    for _ in range(3):
        clock.now += access.SESSION_SECONDS - 1
        assert visitor(made, cookie) is not None
    clock.now += access.SESSION_SECONDS
    assert visitor(made, cookie) is None


def test_sessions_are_bounded(monkeypatch):
    monkeypatch.setattr(access, "SESSIONS_MAX", 2)
    made = Access(AccessSettings(users=USERS))
    first, second = (sign_in(made, "ann", "correct horse") for _ in range(2))
    assert visitor(made, first) is not None
    third = sign_in(made, "ann", "correct horse")
    assert [visitor(made, each) is not None for each in (first, second, third)] == [
        True,
        False,
        True,
    ]


def test_failures_close_a_name_for_a_minute():
    clock = Clock()
    made = Access(AccessSettings(users=USERS), clock)
    for _ in range(access.FAILURES_MAX):
        assert sign_in(made, "ann", "wrong horse") is None
    with pytest.raises(TooManyFailuresError):
        sign_in(made, "ann", "correct horse")
    assert sign_in(made, "eve", "wrong horse") is None, "other names are not closed"
    clock.now += access.FAILURE_SECONDS
    assert sign_in(made, "ann", "correct horse") is not None


def test_attempts_side_by_side_count():
    made = Access(AccessSettings(users=USERS))

    async def attempts() -> list[object]:
        tries = [made.sign_in("ann", "wrong horse") for _ in range(3 * access.FAILURES_MAX)]
        return await asyncio.gather(*tries, return_exceptions=True)

    closed = [one for one in asyncio.run(attempts()) if isinstance(one, TooManyFailuresError)]
    assert len(closed) == 2 * access.FAILURES_MAX


def test_successes_are_not_failures():
    made = Access(AccessSettings(users=USERS))
    for _ in range(2 * access.FAILURES_MAX):
        assert sign_in(made, "ann", "correct horse") is not None


def test_guesses_of_tokens_are_limited():
    made = Access(AccessSettings(token="secret"))
    for _ in range(access.FAILURES_MAX):
        made.sign_in_with_token("guess")
    with pytest.raises(TooManyFailuresError):
        made.sign_in_with_token("secret")


def test_failures_of_many_names_close_the_sign_in():
    made = Access(AccessSettings(token="secret", users={}))
    made._failures_of_all.times.extend([made._clock()] * access.FAILURES_OF_ALL_MAX)
    with pytest.raises(TooManyFailuresError):
        sign_in(made, "ann", "correct horse")


@pytest.mark.parametrize(
    ("address", "users", "name", "found"),
    [
        ("10.0.0.7", USERS, "ann", Visitor("ann", Role.EDITOR)),
        ("10.0.0.7", USERS, "bob", Visitor("bob", Role.VIEWER)),
        ("10.0.0.7", USERS, "eve", None),
        ("10.0.0.7", {**USERS, "*": User("*", Role.READER)}, "eve", Visitor("eve", Role.READER)),
        ("10.0.0.7", None, "eve", Visitor("eve", Role.VIEWER)),
        ("10.0.1.7", USERS, "ann", None),
        ("nowhere", USERS, "ann", None),
    ],
)
def test_a_header_counts_only_from_a_proxy(address, users, name, found):
    made = Access(AccessSettings(users=users, proxies=PROXIES))
    assert visitor(made, address=address, x_forwarded_user=name) == found
    assert visitor(made, address=address, x_other_user=name) is None


def test_users_are_parsed_and_printed():
    text = f"# people\n\n{ANN}\nbob:viewer\n*:reader\n"
    found = parse_users(text)
    assert found == {"ann": ANN, "bob": USERS["bob"], "*": User("*", Role.READER)}
    assert [str(user) for user in found.values()] == text.splitlines()[2:]
    assert "horse" not in text


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("ann", "line 2: '' is not a role"),
        ("ann:admin", "line 2: 'admin' is not a role: viewer, reader or editor"),
        (":viewer", "line 2: '' is not a user's name"),
        ("ann:viewer:secret", "line 2: "),
        ("ann:viewer:scrypt$3$8$1$AAAA$AAAA", "the parameters of scrypt are out of range"),
        ("ann:viewer:scrypt$1073741824$8$1$AAAA$AAAA", "the parameters of scrypt"),
        ("ann:viewer:scrypt$16384$8$1$A$AAAA", "are not base64"),
        ("bob:reader", "line 2: user 'bob' is in the file already"),
        ("*:viewer:scrypt$16384$8$1$AAAA$AAAA", "has no password"),
    ],
)
def test_a_malformed_line_is_named(line, problem):
    with pytest.raises(ValueError, match=r"line 2: ") as caught:
        parse_users(f"bob:viewer\n{line}\n")
    assert problem in str(caught.value)
