"""ssl.principal.mapping.rules, with the cases of Kafka's SslPrincipalMapperTest."""

import pytest

from sparkraft.security.principal_mapping import (
    MappingError,
    NoMatchingRuleError,
    PrincipalMapping,
)


@pytest.mark.parametrize(
    "rules",
    [
        "DEFAULT",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, DEFAULT",
        "RULE:^CN=(.*?), OU=(.*?), O=(.*?), L=(.*?), ST=(.*?), C=(.*?)$/$1@$2/",
        "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L",
        "RULE:^cn=(.?),ou=(.?),dc=(.?),dc=(.?)$/$1@$2/U",
        "RULE:^CN=([^,ADEFLTU,]+)(,.*|$)/$1/",
        "RULE:^CN=([^,DEFAULT,]+)(,.*|$)/$1/",
        "",
    ],
)
def test_valid_rules(rules):
    PrincipalMapping(rules)


@pytest.mark.parametrize(
    "rules",
    [
        "default",
        "DEFAUL",
        "DEFAULT/L",
        "DEFAULT/",
        "RULE:CN=(.*?),OU=ServiceUsers.*/$1",
        "rule:^CN=(.*?),OU=ServiceUsers.*$/$1/",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/LU/",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L/U",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/L",
        "RULE:^CN=((.*?),OU=ServiceUsers.*$/$1/",
        r"RULE:^CN=(\p{L}+)$/$1/",
    ],
)
def test_invalid_rules_are_refused(rules):
    with pytest.raises(MappingError, match=r"ssl\.principal\.mapping\.rules"):
        PrincipalMapping(rules)


RULES = ", ".join(
    [
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L",
        "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
        "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U",
        "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U",
        "DEFAULT",
    ]
)


@pytest.mark.parametrize(
    ("name", "user"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        ("OU=JavaSoft,CN=Duke,O=Sun", "DUKE"),
        ("OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
    ],
)
def test_the_first_rule_that_matches_decides(name, user):
    assert PrincipalMapping(RULES).user_of(name) == user


def test_without_a_match_there_is_no_user():
    with pytest.raises(NoMatchingRuleError, match="CN=x"):
        PrincipalMapping("RULE:^OU=(.*)$/$1/").user_of("CN=x")


@pytest.mark.parametrize(
    ("rule", "name", "user"),
    [
        (r"RULE:^CN=(.*)\/x,(.*)$/$1\/$2/", "CN=a/x,b", "a/b"),
        ("RULE:^(.)(.)(.)$/$12/", "abc", "a2"),
        ("RULE:^(.)(.)(.)$/$2$4/", "abc", "b$4"),
        ("RULE:^CN=(.*)$/$0/", "CN=a", "CN=a"),
    ],
)
def test_references_are_expanded_as_in_java(rule, name, user):
    assert PrincipalMapping(rule).user_of(name) == user
