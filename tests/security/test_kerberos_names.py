"""`sasl.kerberos.principal.to.local.rules`: the rules of Kafka's documentation and tests."""

import pytest

from sparkraft.security.kerberos_names import (
    PrincipalError,
    RuleError,
    ShortNames,
    parse_principal,
)

REALM = "REALM.COM"
APPLICATIONS = [
    r"RULE:[1:$1](App\..*)s/App\.(.*)/$1/g",
    r"RULE:[2:$1](App\..*)s/App\.(.*)/$1/g",
    "DEFAULT",
]
LOWER = [
    "RULE:[1:$1]/L",
    r"RULE:[2:$1](Test.*)s/ABC///L",
    r"RULE:[2:$1](ABC.*)s/ABC/XYZ/g/L",
    r"RULE:[2:$1](App\..*)s/App\.(.*)/$1/g/L",
    "RULE:[2:$1]/L",
    "DEFAULT",
]


@pytest.mark.parametrize(
    ("rules", "principal", "user"),
    [
        (APPLICATIONS, "App.service-name/example.com@REALM.COM", "service-name"),
        (APPLICATIONS, "App.service-name@REALM.COM", "service-name"),
        (APPLICATIONS, "user/host@REALM.COM", "user"),
        (["DEFAULT"], "user@REALM.COM", "user"),
        (["DEFAULT"], "user", "user"),
        (LOWER, "User@REALM.COM", "user"),
        (LOWER, "TestABC/host@FOO.COM", "test"),
        (LOWER, "ABC_User_ABC/host@FOO.COM", "xyz_user_xyz"),
        (LOWER, "App.SERVICE-name/example.com@REALM.COM", "service-name"),
        (LOWER, "User/root@REALM.COM", "user"),
        ([rule.replace("/L", "/U") for rule in LOWER], "TestABC/host@FOO.COM", "TEST"),
        (["RULE:[1:$1@$0](.*@OTHER)s/@.*//"], "zoe@OTHER", "zoe"),
        (["RULE:[2:$2-$1;$0]"], "a/b@R", "b-a;R"),
        (["RULE:[1:$1]s/a/x/"], "banana@R", "bxnana"),
        (["RULE:[1:$1]s/a/x/g"], "banana@R", "bxnxnx"),
        (["RULE:[1:$1](.*)s/(b)(.*)/$2$1/"], "bob@R", "obb"),
        ([r"RULE:[1:$1]s/b/\$\\/"], "ab@R", "a$\\"),
        (["RULE:[1:$1]s/(a)/$12/"], "a@R", "a2"),
        (["RULE:[1:$1]s/(x)?a/$1-/"], "a@R", "-"),
        (["RULE:[1:]", "DEFAULT"], "a@R", ""),
        (["RULE:[1:$1]U"], "a@R", "A"),
        (["RULE:[3:$1]", "RULE:[1:$1]"], "a@R", "a"),
    ],
)
def test_the_first_rule_that_applies_gives_the_user(rules, principal, user):
    assert ShortNames(rules, REALM).user_of(principal) == user


@pytest.mark.parametrize(
    ("rules", "principal", "message"),
    [
        (["DEFAULT"], "user@OTHER.COM", "no rule"),
        (["RULE:[2:$1]"], "user@REALM.COM", "no rule"),
        ([r"RULE:[1:$1](Use)"], "User@REALM.COM", "no rule"),
        (["RULE:[2:$1/$2]"], "a/b@R", "not a simple name"),
        (["RULE:[1:$1@$0]", "DEFAULT"], "a@REALM.COM", "not a simple name"),
        (["DEFAULT"], "a/b/c@REALM.COM", "malformed"),
        (["DEFAULT"], "a@b@REALM.COM", "malformed"),
        (["DEFAULT"], r"a\@b@REALM.COM", "escaped"),
        (["DEFAULT"], r"admin\/x@REALM.COM", "escaped"),
    ],
)
def test_a_principal_without_a_user_is_an_error(rules, principal, message):
    with pytest.raises(PrincipalError, match=message):
        ShortNames(rules, REALM).user_of(principal)


@pytest.mark.parametrize(
    "rule",
    [
        "default",
        "DEFAULT/L",
        "RULE:[1:$1",
        "RULE:[:$1]",
        "RULE:[x:$1]",
        "RULE:[1:$2]",
        "RULE:[1:$]",
        "RULE:[1:$1]/X",
        "RULE:[1:$1]/L/U",
        "RULE:[1:$1](a",
        "RULE:[1:$1]([)",
        "RULE:[1:$1]s/a/b",
        "RULE:[1:$1]s/a/$1/",
        "RULE:[1:$1]s/a/$/",
        "RULE:[1:$1]s/a/\\",
        "RULE:[1:$1]s/a/\\/",
        r"RULE:[1:$1](\p{Upper}*)",
        "RULE:[1:$1]  ",
    ],
)
def test_an_invalid_rule_is_named(rule):
    with pytest.raises(RuleError, match=r"sasl\.kerberos\.principal\.to\.local\.rules"):
        ShortNames(["DEFAULT", rule], REALM)


def test_a_principal_has_one_or_two_components_and_perhaps_a_realm():
    whole = parse_principal("kafka/host@R")
    assert (whole.components, whole.realm) == (("kafka", "host"), "R")
    assert parse_principal("kafka@").realm == ""
    assert parse_principal("a/b/c").components == ("a/b/c",)
