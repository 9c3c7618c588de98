"""Filters of access control entries: Kafka's ResourcePatternFilter and AccessControlEntryFilter."""

import pytest

from sparkraft.security.acl_filter import AclFilter
from sparkraft.security.acls import Acl

ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
TOPIC, GROUP = 2, 3
READ, WRITE = 3, 4
DENY, ALLOW = 2, 3

LITERAL_T = Acl(TOPIC, "tab", LITERAL, "User:a", "*", READ, ALLOW)
WILDCARD = Acl(TOPIC, "*", LITERAL, "User:b", "10.0.0.1", WRITE, ALLOW)
PREFIX = Acl(TOPIC, "ta", PREFIXED, "User:a", "*", READ, DENY)
OTHER = Acl(GROUP, "tab", LITERAL, "User:a", "*", READ, ALLOW)
ACLS = [LITERAL_T, WILDCARD, PREFIX, OTHER]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (AclFilter(), ACLS),
        (AclFilter(TOPIC), [LITERAL_T, WILDCARD, PREFIX]),
        (AclFilter(TOPIC, "tab"), [LITERAL_T]),
        (AclFilter(TOPIC, "ta"), [PREFIX]),
        (AclFilter(TOPIC, "tab", LITERAL), [LITERAL_T]),
        (AclFilter(TOPIC, "ta", LITERAL), []),
        (AclFilter(TOPIC, None, LITERAL), [LITERAL_T, WILDCARD]),
        (AclFilter(TOPIC, None, PREFIXED), [PREFIX]),
        (AclFilter(TOPIC, "*", LITERAL), [WILDCARD]),
        (AclFilter(TOPIC, "tab", MATCH), [LITERAL_T, WILDCARD, PREFIX]),
        (AclFilter(TOPIC, "table", MATCH), [WILDCARD, PREFIX]),
        (AclFilter(TOPIC, "x", MATCH), [WILDCARD]),
        (AclFilter(TOPIC, None, MATCH), [LITERAL_T, WILDCARD, PREFIX]),
        (AclFilter(ANY, "tab", MATCH), ACLS),
        (AclFilter(principal="User:b"), [WILDCARD]),
        (AclFilter(host="10.0.0.1"), [WILDCARD]),
        (AclFilter(host="10.0.0.2"), []),
        (AclFilter(operation=WRITE), [WILDCARD]),
        (AclFilter(permission_type=DENY), [PREFIX]),
        (AclFilter(TOPIC, "tab", MATCH, "User:a", "*", READ, ALLOW), [LITERAL_T]),
    ],
)
def test_what_a_filter_matches(wanted, found):
    assert [acl for acl in ACLS if wanted.matches(acl)] == found


@pytest.mark.parametrize(
    ("wanted", "pattern", "entry"),
    [
        (AclFilter(), False, False),
        (AclFilter(0), True, False),
        (AclFilter(8), True, False),
        (AclFilter(TOPIC, None, 0), True, False),
        (AclFilter(TOPIC, None, 5), True, False),
        (AclFilter(operation=0), False, True),
        (AclFilter(operation=99), False, True),
        (AclFilter(permission_type=-1), False, True),
    ],
)
def test_codes_that_kafka_does_not_have_are_unknown(wanted, pattern, entry):
    assert wanted.has_unknown_pattern is pattern
    assert wanted.has_unknown_entry is entry
