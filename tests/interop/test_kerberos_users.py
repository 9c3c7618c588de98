"""`sasl.kerberos.principal.to.local.rules`: Kafka's class and ours give the same users."""

import random
from pathlib import Path

import pytest

from sparkraft.security.kerberos_names import PrincipalError, RuleError, ShortNames
from tests.support.kafka_tools import run_kafka_tool

pytestmark = pytest.mark.java

REALM = "R.COM"
CASES = 3000
PRINCIPALS = [
    "alice@R.COM", "Alice@R.COM", "alice@OTHER", "kafka/h1@R.COM", "kafka/h1@OTHER",
    "App.x/h@R.COM", "aaa@R.COM", "a/b/c@R.COM", "a@b@R.COM", "plain", "@R.COM", "/@R.COM",
    "a/@R.COM", "x y@R.COM",
]  # fmt: skip
FORMATS = [*["$1"] * 8, "$2", "$0", "$1@$0", "$1;$2", "$1$1", "a", "", "$", "$9", "x$1y", "$01"]
MATCHES = [
    *[""] * 8, "()", "(.*)", "(a.*)", "(App\\..*)", "(.*@OTHER)", "([a-z]+)", "([)", "(^a|k.*$)",
]  # fmt: skip
SOURCES = [
    *["a", "(.)(.)"] * 4, "", "(a)(l)?", "[a-c]", "x*", "App\\.(.*)", "@.*", "(", "^.", "$",
]  # fmt: skip
TARGETS = [*["", "b", "$1"] * 4, "$1", "$0", "$2$1", "$12", "\\$", "\\\\", "$", "\\", "$3", "<$1>"]
ENDS = [*[""] * 8, "/L", "/U", "L", "U", "/", "//L", "/X"]


def rule(dice: random.Random) -> str:
    if dice.random() < 0.1:
        return dice.choice(["DEFAULT", "DEFAULT/L", "default", "RULE:[1:$1"])
    text = f"RULE:[{dice.choice(['1', '2', '1', '2', '', '3'])}:{dice.choice(FORMATS)}]"
    text += dice.choice(MATCHES)
    if dice.random() < 0.6:
        text += f"s/{dice.choice(SOURCES)}/{dice.choice(TARGETS)}/{dice.choice(['', 'g'])}"
    return text + dice.choice(ENDS)


def ours(principal: str, rules: list[str]) -> str | None:
    """The user after `=`, `-` without one; None if a rule of ours stops the start."""
    try:
        names = ShortNames(rules, REALM)
    except RuleError:
        return None
    try:
        return f"={names.user_of(principal)}"
    except PrincipalError:
        return "-"


def test_random_rules_give_the_users_that_kafka_gives(kafka_jars: Path) -> None:
    """Rules that stop the start here are left out: with Kafka, some logins fail because of them."""
    dice = random.Random(752)
    cases = [
        (dice.choice(PRINCIPALS), [rule(dice) for _ in range(dice.randint(1, 2))])
        for _ in range(CASES)
    ]
    lines = "".join("\t".join([principal, *rules]) + "\n" for principal, rules in cases)
    done = run_kafka_tool(kafka_jars, "KerberosUsers", REALM, stdin=lines)
    assert done.returncode == 0, done.stderr
    theirs = done.stdout.split("\n")[:-1]
    assert len(theirs) == CASES
    mine = [ours(*case) for case in cases]
    different = [
        (case, mine, theirs)
        for case, mine, theirs in zip(cases, mine, theirs, strict=True)
        if mine is not None and mine != theirs
    ]
    assert different == []
    assert sum(found is not None and found.startswith("=") for found in mine) > CASES / 20
    assert mine.count(None) > CASES / 20
