"""`sasl.jaas.config`: values that Kafka's parser accepts, and errors without passwords."""

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkraft.security.jaas import PLAIN_MODULE, JaasError, parse_jaas
from sparkraft.security.login import login_of


def options(text: str) -> dict[str, str]:
    return {name: value.reveal() for name, value in parse_jaas(text).options.items()}


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (";", {}),
        ('username="alice" password="secret";', {"username": "alice", "password": "secret"}),
        ("username='alice' password = 'sec\"ret' ;", {"username": "alice", "password": 'sec"ret'}),
        ("\n  user_alice=plain-word_$.1\n;", {"user_alice": "plain-word_$.1"}),
        ("number=4096;", {"number": "4096"}),
        (r'p="a\"b\\c\n\t\101\7";', {"p": 'a"b\\c\n\tA\7'}),
        (r'p="\400\x";', {"p": " 0x"}),
        ('p="a;b=c//d";', {"p": "a;b=c//d"}),
        ("a=1 /* a comment = ; */ b=2; // the end", {"a": "1", "b": "2"}),
        ("a=1 a=2;", {"a": "2"}),
        ('user_zoë="pässword";', {"user_zoë": "pässword"}),
        ('p="";', {"p": ""}),
    ],
)
def test_options_are_read_as_kafka_reads_them(written, expected):
    assert options(f"{PLAIN_MODULE} required {written}") == expected
    assert options(f"{PLAIN_MODULE} SUFFICIENT {written}") == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "module not specified"),
        ("// nothing", "module not specified"),
        (";", "module not specified"),
        (PLAIN_MODULE, "control flag not specified"),
        (f"{PLAIN_MODULE} maybe;", "control flag is invalid"),
        (f"{PLAIN_MODULE} required", "semicolon"),
        (f'{PLAIN_MODULE} required username="hunter2"', "semicolon"),
        (f"{PLAIN_MODULE} required username;", "name=value"),
        (f"{PLAIN_MODULE} required username=;", "no value"),
        (f"{PLAIN_MODULE} required = hunter2;", "name=value"),
        (f"{PLAIN_MODULE} required a=hunter2; {PLAIN_MODULE} required;", "more than one"),
        (f"{PLAIN_MODULE} required a=\x85hunter2;", "invalid character"),
        ("com.sun.security.auth.module.JndiLoginModule required a=hunter2;", "unknown login"),
        ("os.system required;", "unknown login module"),
        ("x" * (1 << 20 | 1), "more than"),
    ],
)
def test_other_values_are_errors_without_their_content(text, message):
    with pytest.raises(JaasError, match=message) as caught:
        parse_jaas(text)
    assert "hunter2" not in str(caught.value)


def test_a_module_and_its_options_hide_their_values():
    module = parse_jaas(f'{PLAIN_MODULE} required username="alice" password="hunter2";')
    login = login_of("PLAIN", module)
    assert "hunter2" not in f"{module!r} {login!r} {module.options} {login.password}"
    assert login.client("nonce", "host").first() == b"\0alice\0hunter2"


@pytest.mark.parametrize(
    ("mechanism", "text", "message"),
    [
        ("DIGEST-MD5", "required;", "DIGEST-MD5 is not implemented"),
        ("PLAIN", "required;", "username and password"),
        ("PLAIN", 'required username="alice";', "username and password"),
        ("PLAIN", 'required password="hunter2";', "username and password"),
    ],
)
def test_a_login_needs_a_mechanism_of_ours_a_user_and_a_password(mechanism, text, message):
    with pytest.raises(JaasError, match=message):
        login_of(mechanism, parse_jaas(f"{PLAIN_MODULE} {text}"))


quotable = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\r\n"))


@given(st.dictionaries(st.from_regex(r"[a-z_][a-z0-9_]{0,9}", fullmatch=True), quotable))
def test_quoted_values_are_read_back(values):
    quoted = {name: re.sub(r'([\\"])', r"\\\1", value) for name, value in values.items()}
    written = " ".join(f'{name}="{value}"' for name, value in quoted.items())
    assert options(f"{PLAIN_MODULE} required {written};") == values


@given(st.text(max_size=200))
def test_any_text_is_an_entry_or_an_error(text):
    for written in (text, f"{PLAIN_MODULE} required {text}"):
        with contextlib.suppress(JaasError):
            parse_jaas(written)
